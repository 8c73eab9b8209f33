"""Statistics of every head of a transformers model over texts: the same readings and tables as our own model's."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedModel

from attnkit.headstats import HeadStats
from attnkit.hf import LONGEST_WHOLE, Site, attending, whole
from attnkit.hfreading import read_batch, scene_of
from attnkit.measures import Measure, applicable
from attnkit.pretrained import inputs_of, two_tokens
from attnkit.reading import Readings, joined
from attnkit.spans import PLACES
from attnkit.store import KindStats, Store
from attnkit.tables import per_sequence_table
from attnkit.text import TextBatch

SIZE = 32  # texts that run side by side


@dataclass(frozen=True)
class Collected:
    """By kind of attention: `self`, or of models of two parts `encoder`, `decoder` and `cross`."""

    measures: dict[str, dict[str, Measure]]
    of_kind: dict[str, KindStats]


def collect(
    model: PreTrainedModel,
    batches: Iterable[TextBatch],
    vocab: Sequence[str],
    *,
    longest: int = LONGEST_WHOLE,
    size: int = SIZE,
    on_readings: Callable[[dict[str, Readings]], object] = lambda readings: None,
) -> Collected:
    """Run `model` over `batches` and return the statistics of all its heads.

    How the texts are cut into batches changes nothing; at most `size` of a batch run side by side, those of like
    length together. `longest`, the most tokens that a text may have, fixes the histograms' edges. Mean maps are not
    kept: texts have many lengths. `on_readings` is handed every batch's numbers, in its order. Raises
    ValueError for a model in train mode, that never calls transformers' attention interface, or whose layers do not
    all have as many heads of attention; and for one of two parts, if a batch has nothing for its decoder.
    """
    found: dict[str, KindStats] = {}
    measures: dict[str, dict[str, Measure]] = {}
    for batch in batches:
        order: list[int] = []
        parts: list[dict[str, Readings]] = []
        for rows, some in alike(batch, size, size * LONGEST_WHOLE):
            on_device = some.each(lambda t: t.to(model.device))
            measures = measures or applicable_to(model, on_device, vocab)
            read = read_batch(model, on_device, measures)
            for kind, r in read.items():
                part = KindStats(HeadStats.of(r.readings, measures[kind], longest), r.offsets, r.methods)
                found[kind] = found[kind] + part if kind in found else part
            order += rows
            parts.append({kind: r.readings for kind, r in read.items()})
        back = torch.tensor(order).argsort()
        on_readings({kind: in_order([part[kind] for part in parts], back) for kind in measures})
    if not found:
        raise ValueError("batches: there are none")
    return Collected(measures, found)


def in_order(parts: Sequence[Readings], order: Int[Tensor, "B"]) -> Readings:
    together = joined(parts)
    tensors = {f.name: getattr(together, f.name)[order] for f in fields(Readings) if f.name != "maps"}
    return Readings(**tensors, maps={})


def collect_in_shards(
    model: PreTrainedModel,
    batches: Iterable[TextBatch],
    vocab: Sequence[str],
    store: Store,
    *,
    longest: int,
    size: int = SIZE,
    per_sequence: bool = False,
) -> Collected:
    """`collect`, a batch at a time: what `store` has is taken from there, what is new is kept in it."""
    found: dict[str, KindStats] = {}
    measures: dict[str, dict[str, Measure]] = {}
    for number, batch in enumerate(batches):
        measures = measures or applicable_to(model, batch, vocab)
        known = {kind: store.get(number, kind) for kind in measures}
        parts = {kind: part for kind, part in known.items() if part is not None}
        if len(parts) < len(measures):
            seen: list[dict[str, Readings]] = []
            some = collect(model, [batch], vocab, longest=longest, size=size, on_readings=seen.append)
            parts = some.of_kind
            for kind, part in parts.items():
                rows = []
                if per_sequence:
                    places = places_of(batch, kind)
                    rows = [per_sequence_table(read[kind], tuple(measures[kind]), places) for read in seen]
                store.put(number, part, rows, kind)
        found = {kind: found[kind] + part if kind in found else part for kind, part in parts.items()}
    if not found:
        raise ValueError("batches: there are none")
    return Collected(measures, found)


def places_of(batch: TextBatch, kind: str) -> dict[str, np.ndarray]:
    """Which text of its file each is, which window of it, and how many tokens look: those of the queries."""
    assert batch.places is not None
    row, window = batch.places.T.numpy()
    return {"row": row, "window": window, "tokens": lengths_of(batch.looking(kind)).numpy()}


def alike(batch: TextBatch, size: int, tokens: int, waste: float = 1) -> Iterator[tuple[list[int], TextBatch]]:
    """The texts of a batch, some at a time, those of like length together; with their numbers in the batch.

    These are at most `size` texts, of not more than so many `tokens` unless one text alone is longer, of which at most
    the share `waste` is padding.
    """
    lengths = lengths_of(batch) if batch.decoder is None else lengths_of(batch) + lengths_of(batch.decoder)
    some: list[int] = []
    real = 0
    for row in lengths.argsort(stable=True).tolist():
        longest, n = int(lengths[row]), len(some) + 1
        real += longest
        if some and (n > size or n * longest > tokens or n * longest - real > waste * n * longest):
            yield some, chosen(batch, some)
            some, real = [], longest
        some.append(row)
    yield some, chosen(batch, some)


def lengths_of(batch: TextBatch) -> Int[Tensor, "B"]:
    """In tokens."""
    full = batch.tokens.new_full((len(batch),), batch.tokens.shape[1])
    return full if batch.mask is None else batch.mask.sum(dim=1)


def chosen(batch: TextBatch, rows: list[int]) -> TextBatch:
    return trimmed(batch.each(lambda t: t[rows]))


def trimmed(batch: TextBatch) -> TextBatch:
    """Without columns that are padding in all texts."""
    decoder = None if batch.decoder is None else trimmed(batch.decoder)
    if batch.mask is None:
        return replace(batch, decoder=decoder)
    used = batch.mask.any(dim=0)
    mask = batch.mask[:, used]
    of_tokens = {name: getattr(batch, name) for name in ("tokens", "special", "segments", "targets")}
    cut: dict[str, Any] = {name: None if t is None else t[:, used] for name, t in of_tokens.items()}
    return replace(batch, mask=None if mask.all() else mask, decoder=decoder, **cut)


@torch.no_grad()
def applicable_to(model: PreTrainedModel, batch: TextBatch, vocab: Sequence[str]) -> dict[str, dict[str, Measure]]:
    """The statistics that the model defines for each kind of attention, told by its attention on two tokens.

    Raises ValueError as `collect` does.
    """
    sites: dict[str, list[Site]] = {}

    def attend(site: Site) -> Tensor:
        sites.setdefault(site.kind, []).append(site)
        return whole(site)[1]

    with attending(model, attend):
        model(**inputs_of(model, two_tokens(model, batch)))
    known = {kind: scene_of(batch, kind).keys.special is not None for kind in sites}
    return {kind: applicable_at(of_kind, vocab, special=known[kind]) for kind, of_kind in sites.items()}


def applicable_at(sites: list[Site], vocab: Sequence[str], *, special: bool) -> dict[str, Measure]:
    """Across two texts no statistic has a meaning that is of where a key stands, seen from the query.

    `special`: is it known which tokens are?
    """
    measures = applicable(vocab, causal=all(site.causal for site in sites), special=special)
    without_w_o = any(site.w_o is None for site in sites)
    return {
        name: measure
        for name, measure in measures.items()
        if not (name in PLACES and sites[0].kind == "cross") and not (name == "output_norm" and without_w_o)
    }
