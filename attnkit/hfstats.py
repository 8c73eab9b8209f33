"""Statistics of every head of a transformers model over texts: the same readings and tables as our own model's.

Every layer is read under its own mask, so that windows and causal layers have references of their own. Maps are made
as a whole, one layer at a time, and none is kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from attnkit.headstats import HeadStats
from attnkit.hf import LONGEST_WHOLE, Site, attending, observe, whole
from attnkit.measures import Measure, applicable
from attnkit.observe import AttentionCall
from attnkit.reading import NO_LABEL, Reader, Readings, blocks_of
from attnkit.text import TextBatch


def collect(
    model: PreTrainedModel, batches: Iterable[TextBatch], vocab: Sequence[str], *, longest: int = LONGEST_WHOLE
) -> tuple[HeadStats, dict[str, Measure]]:
    """Run `model` over `batches` and return the statistics of all its heads, and which statistics these are.

    How the texts are cut into batches changes nothing. `longest`, the most tokens that a text may have, fixes the
    histograms' edges. Mean maps are not kept. Raises ValueError for a model in train mode, of two parts, that never
    calls transformers' attention interface, or whose layers do not all have as many heads of attention.
    """
    if all(hasattr(model.base_model, part) for part in ("encoder", "decoder")):
        raise ValueError(f"model: {type(model).__name__} has an encoder and a decoder; pass one: model.get_encoder()")
    stats: HeadStats | None = None
    measures: dict[str, Measure] = {}
    for batch in batches:
        on_device = batch.each(lambda t: t.to(model.device))
        measures = measures or applicable_to(model, on_device, vocab)
        part = HeadStats.of(read_batch(model, on_device, measures), measures, longest)
        stats = part if stats is None else stats + part
    if stats is None:
        raise ValueError("batches: there are none")
    return stats, measures


@torch.no_grad()
def applicable_to(model: PreTrainedModel, batch: TextBatch, vocab: Sequence[str]) -> dict[str, Measure]:
    """The statistics that the model defines, told by its attention on two tokens."""
    sites: list[Site] = []

    def attend(site: Site) -> Tensor:
        sites.append(site)
        return whole(site)[1]

    with attending(model, attend):
        model(input_ids=batch.tokens[:1, :1].expand(1, 2))
    measures = applicable(vocab, causal=all(site.causal for site in sites), special=True)
    if any(site.w_o is None for site in sites):
        del measures["output_norm"]
    return measures


@dataclass
class Readers:
    """The readers of one batch, one for each mask that its layers have."""

    batch: TextBatch
    measures: dict[str, Measure]
    known: list[tuple[Tensor | None, Reader]] = field(default_factory=list)

    def of(self, call: AttentionCall) -> Reader:
        mask = None if call.mask is None else call.mask[:, 0]
        for other, reader in self.known:
            if mask is None or other is None:
                if mask is other:
                    return reader
            elif torch.equal(mask, other):
                return reader
        special = self.batch.special
        blocks = blocks_of(self.batch.tokens, self.batch.mask, allowed=mask, special=special)
        self.known.append((mask, Reader(self.measures, blocks)))
        return self.known[-1][1]


@torch.no_grad()
def read_batch(model: PreTrainedModel, batch: TextBatch, measures: dict[str, Measure]) -> Readings:
    """Run `model` on `batch`, which is on its device, and read every attention call as it happens."""
    readers = Readers(batch, measures)
    layers: list[int] = []
    read: list[tuple[Tensor, Tensor]] = []
    uniform: list[tuple[Tensor, Tensor]] = []

    def on_call(call: AttentionCall) -> None:
        reader = readers.of(call)
        layers.append(call.layer)
        read.append(reader.read(reader.rows(call), call.layer))
        uniform.append(reader.uniform())

    real = torch.ones_like(batch.tokens) if batch.mask is None else batch.mask.long()
    with observe(model, on_call):
        model(input_ids=batch.tokens, attention_mask=real)
    if layers != list(range(len(layers))) or len({values.shape for values, _ in read}) > 1:
        raise ValueError(f"model: {type(model).__name__} does not have as many heads of attention in every layer")
    values, defined = (torch.stack(t, dim=1).cpu() for t in zip(*read, strict=True))
    expected, said = (torch.cat(t, dim=1).cpu() for t in zip(*uniform, strict=True))
    nothing = torch.full((len(batch),), NO_LABEL)
    loss = torch.full((len(batch),), torch.nan, dtype=torch.float64)
    return Readings(values, defined, expected, said, nothing, nothing, loss, maps={})
