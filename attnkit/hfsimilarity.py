"""Which heads of a transformers model look alike, and write alike, over texts of any length.

The divergence of two heads is a sum over rows: all layers' queries and keys are kept, and the weights of a few rows of
every head are made at a time, compared and let go.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnkit.hf import Site, attending, fused
from attnkit.hfreading import same_mask, scene_of
from attnkit.hfstats import alike
from attnkit.moments import Moments, merge
from attnkit.pretrained import inputs_of
from attnkit.reading import checked
from attnkit.replay import Layers
from attnkit.rows import Block
from attnkit.similarity import Similarity, divergences, itself, per_sequence, rows_of, similarity_of, what_is_written
from attnkit.spans import Scene
from attnkit.text import TextBatch
from attnkit.workers import side_by_side

TOKENS = 1024  # that run side by side, unless one text alone is longer
WASTE = 0.05  # share of these that may be padding
TOGETHER = 1 << 19  # weights that are compared at a time, unless one row of all heads has more
WIDEST = 1 << 14  # numbers that all heads together write: the covariances of each with each then take 2 GB


class Seen(NamedTuple):
    """An attention, and what its heads made of it."""

    site: Site
    output: Float[Tensor, "B H R e"]


def compare(layers: Layers, batches: Iterable[TextBatch], *, size: int = 32) -> dict[str, Similarity]:
    """`similarity.compare` of every head of a model with every other of its kind of attention, layer by layer.

    By kind: `self`, or of models of two parts `encoder`, `decoder` and `cross`. How the texts are cut into batches
    changes nothing. Memory is O(T) for each head. Raises ValueError for a model whose heads of one kind together write
    more than 16,384 numbers, or whose output projections are not found, and for no texts.
    """
    pieces = (some for batch in batches for _, some in alike(batch, size, TOKENS, WASTE))
    parts = side_by_side(layers.model, compare_texts, pieces)
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no texts to compare heads on")
    found = reduce(merge, parts, first)
    return {kind: found[kind] for kind in dict(layers.sites)}


@torch.no_grad()
def compare_texts(model: PreTrainedModel, texts: TextBatch) -> dict[str, Similarity]:
    texts, found = texts.each(lambda t: t.to(model.device)), {}
    for kind, seen in seen_in(model, texts).items():
        width = sum(output.shape[1] * output.shape[-1] for _, output in seen)
        if width > WIDEST:
            most = f"of at most {WIDEST:,} they are compared"
            raise ValueError(f"model: its heads write {width:,} numbers together; {most}")
        sites = [site for site, _ in seen]
        divergence = over_rows(texts, sites, partial(of_every_two, sites))
        written = [what_is_written(output, site.w_o, site.layer) for site, output in seen]
        found[kind] = similarity_of(divergence, written, texts.looking(kind).mask)
    return found


def change(
    before: PreTrainedModel, after: PreTrainedModel, batches: Iterable[TextBatch], *, size: int = 32
) -> dict[str, Moments]:
    """`similarity.change` of every head of a model, as in two checkpoints of one training: (L·H,), by kind.

    How the texts are cut into batches changes nothing. Raises ValueError for no texts.
    """
    pieces = (some for batch in batches for _, some in alike(batch, size, TOKENS, WASTE))
    parts = side_by_side(nn.ModuleList([before, after]), change_on, pieces)
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no texts to compare heads on")
    return reduce(merge, parts, first)


@torch.no_grad()
def change_on(models: Any, texts: TextBatch) -> dict[str, Moments]:
    before, after = models
    texts = texts.each(lambda t: t.to(before.device))
    old, new = ({kind: [site for site, _ in of] for kind, of in seen_in(m, texts).items()} for m in (before, after))
    return {kind: over_rows(texts, [*old[kind], *new[kind]], partial(of_each, old[kind], new[kind])) for kind in old}


def over_rows(texts: TextBatch, sites: Sequence[Site], compared: Callable[[Block], Tensor]) -> Moments:
    """The moments over texts of what is `compared` in blocks of the rows of one kind of attention."""
    parts = ((compared(block), rows_of(block)) for block in blocks_of(texts, sites))
    return per_sequence(*reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), parts))


def of_every_two(sites: Sequence[Site], block: Block) -> Float[Tensor, "A A B"]:
    return divergences([weights_of(sites, block)], block)


def of_each(old: Sequence[Site], new: Sequence[Site], block: Block) -> Float[Tensor, "A B"]:
    return itself(weights_of(old, block), weights_of(new, block), block)


def seen_in(model: PreTrainedModel, texts: TextBatch) -> dict[str, list[Seen]]:
    """Every attention of one forward pass over texts on the model's device, by kind, layer by layer."""
    seen: dict[str, list[Seen]] = {}

    def attend(site: Site) -> Tensor:
        output = fused(site)
        seen.setdefault(site.kind, []).append(Seen(site, output))
        return output

    with attending(model, attend):
        model(**inputs_of(model, texts))
    return seen


def blocks_of(texts: TextBatch, sites: Sequence[Site]) -> Iterator[Block]:
    """All rows of one kind of attention, so few at a time that the weights of all heads are no more than `TOGETHER`.

    A query may see a key where any layer lets it.
    """
    scene, unlike = scene_of(texts, sites[0].kind), list[Site]()
    for site in sites:
        if not any(same_mask(site.mask, other.mask) for other in unlike):
            unlike.append(site)
    B, _, R, _ = sites[0].query.shape
    row = B * sites[0].key.shape[2] * sum(site.query.shape[1] for site in sites)
    step = max(TOGETHER // row, 1)
    for start in range(0, R, step):
        yield seen_by_any(scene, unlike, slice(start, min(start + step, R)))


def seen_by_any(scene: Scene, sites: Sequence[Site], rows: slice) -> Block:
    blocks = [scene.block(site, rows) for site in sites]
    widest = max(blocks, key=lambda block: len(block.allowed))
    return replace(widest, allowed=reduce(or_, (block.allowed for block in blocks)))


def weights_of(sites: Sequence[Site], block: Block) -> Float[Tensor, "A B R T"]:
    """The weights of all heads, layer by layer, in the rows of the block, float64."""
    parts = [checked(site.weights(block.rows), block, site.layer) for site in sites]
    return torch.cat(parts, dim=1).transpose(0, 1).double()
