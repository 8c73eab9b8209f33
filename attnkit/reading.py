"""One batch through the model, its attention calls read into one number per sequence, head and statistic.

The sequence value of a statistic is its mean over the rows where it is defined; padded rows never count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attnkit.data import Batch
from attnkit.fused import OnePass
from attnkit.meanmaps import MapSums, layered, map_sums
from attnkit.measures import Measure, row_values, uniform_values
from attnkit.model import MultiHeadAttention, ScaledDotProductAttention, TinyTransformer
from attnkit.moments import merge
from attnkit.observe import AttentionCall, attending, observe, sites_of, w_o_of
from attnkit.rows import Block, Rows

ROWS = 256  # query rows that are read at a time
TOLERANCE = 1e-4  # how far from 1 a row of weights may sum
NO_LABEL = -1


@dataclass(frozen=True)
class Readings:
    """What was read of the sequences of one batch, on the CPU. L layers, H heads, K statistics."""

    values: Float[Tensor, "B L H K"]  # float64
    defined: Bool[Tensor, "B L H K"]
    uniform: Float[Tensor, "B L K"]  # the same under uniform attention, float64
    said: Bool[Tensor, "B L K"]  # where a statistic has such a reference
    predicted: Int[Tensor, "B"]  # NO_LABEL where the model predicts no class
    labels: Int[Tensor, "B"]  # NO_LABEL where there is none
    loss: Float[Tensor, "B"]  # cross-entropy in nats, float64; NaN where there is no label
    maps: dict[int, MapSums]  # by sequence length


def joined(readings: Sequence[Readings]) -> Readings:
    """The readings of several batches as those of one."""
    tensors = (f.name for f in fields(Readings) if f.name != "maps")
    together = {name: torch.cat([getattr(r, name) for r in readings]) for name in tensors}
    return Readings(**together, maps=reduce(merge, (r.maps for r in readings)))


@torch.no_grad()
def read_batch(model: TinyTransformer, batch: Batch, measures: dict[str, Measure], *, fused: bool = True) -> Readings:
    """Run `model` on `batch`, on the model's device, and read every attention call as it happens.

    A single sequence is read sooner without `fused`: by the plain formulas, which need no machine code loaded.
    Raises ValueError for a model in train mode, and for attention that is none: see `checked`.
    """
    if model.training:
        raise ValueError("model: is in train mode; call model.eval() first")
    batch = batch.to(next(model.parameters()).device)
    reader = Reader(measures, blocks_of(batch.tokens, batch.mask), fused=fused)
    read: list[tuple[Tensor, Tensor]] = []
    maps: list[dict[int, MapSums]] = []

    def on_call(call: AttentionCall) -> None:
        rows = reader.rows(call)
        read.append(reader.read(rows, call.layer))
        maps.append(map_sums(rows, batch.mask, before=maps[0] if maps else None, fused=fused))

    def attend(
        layer: int, site: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        output, rows, values, defined = reader.attend(
            lambda rows: scores_of(q[:, :, rows], k, mask), v, w_o_of(site), layer
        )
        read.append((values, defined))
        maps.append(map_sums(rows, batch.mask, before=maps[0] if maps else None, fused=fused))
        return output, together([part.weights for part in rows])

    fast = reader.one_pass is not None and all(is_the_articles(site.attention) for site in sites_of(model))
    with attending(model, attend) if fast else observe(model, on_call):
        logits, _ = model(batch.tokens, batch.mask)
    predicted = logits.argmax(dim=1)
    labels = torch.full_like(predicted, NO_LABEL) if batch.labels is None else batch.labels
    loss = cross_entropy(logits.double(), labels, ignore_index=NO_LABEL, reduction="none")
    values, defined = (torch.stack(t, dim=1).cpu() for t in zip(*read, strict=True))
    uniform, said = (t.expand(-1, len(read), -1).cpu() for t in reader.uniform())  # every layer sees the same keys
    loss = loss.masked_fill(labels == NO_LABEL, torch.nan).cpu()
    return Readings(values, defined, uniform, said, predicted.cpu(), labels.cpu(), loss, layered(maps))


def is_the_articles(attention: nn.Module) -> bool:
    """And not another class, or a function of one's own in the place of its `forward`."""
    return type(attention) is ScaledDotProductAttention and "forward" not in vars(attention)


def scores_of(
    q: Float[Tensor, "B H R d"], k: Float[Tensor, "B H T d"], mask: Bool[Tensor, "B 1 1 T"] | None
) -> Float[Tensor, "B H R T"]:
    """What `ScaledDotProductAttention` takes the softmax of, in one product."""
    (B, H, R, d), T = q.shape, k.shape[2]
    scores = q.new_empty(B * H, R, T)
    q, k = (t.reshape(B * H, -1, d) for t in (q, k))
    torch.baddbmm(scores, q, k.mT, beta=0, alpha=d**-0.5, out=scores)
    scores = scores.view(B, H, R, T)
    return scores if mask is None else scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)


def blocks_of(
    tokens: Int[Tensor, "B T"],
    mask: Bool[Tensor, "B T"] | None = None,
    *,
    causal: bool = False,
    allowed: Bool[Tensor, "b T T"] | None = None,
    special: Bool[Tensor, "B T"] | None = None,
    rows: int = ROWS,
) -> list[Block]:
    """All rows of a batch, so many at a time; `allowed` and `special` as in `Block.of`."""
    T = tokens.shape[1]
    parts = [slice(r, min(r + rows, T)) for r in range(0, T, rows)]
    return [
        Block.of(
            tokens,
            mask,
            rows=part,
            causal=causal,
            allowed=None if allowed is None else allowed[:, part],
            special=special,
        )
        for part in parts
    ]


class Reader:
    """Reads the calls of one batch. K statistics, in the order of `measures`.

    On a CPU a fused pass reads those that it knows at once; anywhere else, and for others, each statistic has its
    plain formula. The tests hold the one to the other.
    """

    def __init__(self, measures: dict[str, Measure], blocks: list[Block], *, fused: bool = True):
        self.measures = measures
        self.blocks = blocks
        self.one_pass = OnePass(measures) if fused and blocks[0].tokens.device.type == "cpu" else None

    def rows(self, call: AttentionCall) -> list[Rows]:
        """The call in blocks of rows. Raises ValueError for weight where there must be none: see `seen_only`."""
        cut = ((block, call.weights[:, :, block.rows], call.output[:, :, block.rows]) for block in self.blocks)
        return [Rows(block, seen_only(weights, block, call.layer), output, call.w_o) for block, weights, output in cut]

    def attend(
        self,
        scores: Callable[[slice], Float[Tensor, "B H R T"]],
        value: Float[Tensor, "B H T e"],
        w_o: Float[Tensor, "H e D"] | None,
        layer: int,
    ) -> tuple[Float[Tensor, "B H R e"], list[Rows], Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """softmax(scores) V, the blocks of rows that it is made of, and what `read` says of these.

        `scores` gives those of some query rows, in memory of their own, in float32 or wider, with the lowest finite
        number on keys that a row may not see.
        """
        outputs, parts, found = [], [], []
        for block in self.blocks:
            weights, one_pass = scores(block.rows), self.one_pass
            if one_pass is None or weights.dtype != torch.float32:
                weights = weights.softmax(dim=-1)
                output = product(weights, value)
                rows = Rows(block, seen_only(weights, block, layer), output, w_o)
                of_block = self.sums(rows, layer)
            else:
                sums, counts, off = one_pass.read_scores(weights, block)  # which are the weights from here on
                check(off, layer)
                output = product(weights, value)
                rows = Rows(block, seen_only(weights, block, layer), output, w_o)
                output, of_block = one_pass.read_output(rows, sums, counts), self.with_rest(rows, sums, counts)
            outputs.append(output)
            parts.append(rows)
            found.append(of_block)
        return together(outputs), parts, *means(found)

    def read(self, blocks: list[Rows], layer: int) -> tuple[Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """Return the values, float64, and where they are defined. Raises ValueError for rows that do not sum to 1."""
        return means([self.sums(rows, layer) for rows in blocks])

    def sums(self, rows: Rows, layer: int) -> tuple[Float[Tensor, "B H K"], Int[Tensor, "B H K"]]:
        """The sum of every statistic over the rows on which it is defined, and how many these are."""
        if self.one_pass is None:
            check(off_by(rows.weights, rows.block), layer)
            return plain(self.measures, rows)
        sums, counts, off = self.one_pass.read(rows)
        check(off, layer)
        return self.with_rest(rows, sums, counts)

    def with_rest(self, rows: Rows, sums: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Fill in those that only have plain formulas."""
        assert self.one_pass is not None
        rest = {name: m for name, m in self.measures.items() if name not in self.one_pass.known}
        if rest:
            at = [k for k, name in enumerate(self.measures) if name in rest]
            sums[..., at], counts[..., at] = plain(rest, rows)
        return sums, counts

    def uniform(self) -> tuple[Float[Tensor, "B 1 K"], Bool[Tensor, "B 1 K"]]:
        """What any head would read on these sequences if it attended uniformly, and where that is said."""
        B, parts = len(self.blocks[0].tokens), []
        for block in self.blocks:
            if self.one_pass is None:
                sums = torch.zeros(B, 1, len(self.measures), dtype=torch.float64, device=block.tokens.device)
                counts, known = torch.zeros_like(sums, dtype=torch.int64), {}
            else:
                (sums, counts), known = (t.clone() for t in self.one_pass.uniform(block)), self.one_pass.known
            for k, (name, measure) in enumerate(self.measures.items()):
                if name not in known:
                    nowhere = torch.zeros_like(block.real)
                    values, defined = uniform_values(measure, block) or (block.n, nowhere)
                    sums[:, 0, k] = torch.where(defined, values, 0).sum(dim=-1)
                    counts[:, 0, k] = defined.sum(dim=-1)
            parts.append((sums, counts))
        return means(parts)


def means(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """From the sums of blocks of rows, which are used up, to the means over all rows, and where there are any."""
    sums, counts = (total(list(of_blocks)) for of_blocks in zip(*parts, strict=True))
    defined = counts > 0
    return sums.div_(counts.clamp_(min=1)), defined


def plain(measures: dict[str, Measure], rows: Rows) -> tuple[Float[Tensor, "B H K"], Int[Tensor, "B H K"]]:
    """The sum of every statistic over the rows on which it is defined, by its plain formula, and how many these are."""
    rows = replace(rows, weights=rows.weights.double())
    found = [row_values(measure, rows) for measure in measures.values()]
    shape = rows.weights.shape[:3]
    sums = [torch.where(defined, values, 0).sum(dim=-1, dtype=torch.float64) for values, defined in found]
    counts = [defined.expand(shape).sum(dim=-1) for _, defined in found]
    return torch.stack(sums, dim=-1), torch.stack(counts, dim=-1)


def checked(weights: Float[Tensor, "B H R T"], block: Block, layer: int) -> Float[Tensor, "B H R T"]:
    """`seen_only`, and ValueError if a real row does not sum to 1."""
    weights = seen_only(weights, block, layer)
    check(off_by(weights, block), layer)
    return weights


def seen_only(weights: Float[Tensor, "B H R T"], block: Block, layer: int) -> Float[Tensor, "B H R T"]:
    """The weights with padded queries, whatever a model left there, at 0.

    Raises ValueError if a real query gives weight to a key that it may not see.
    """
    if len(block.real) > 1 or not block.real.all():
        weights = weights.masked_fill(~block.real[:, None, :, None], 0)
        leak = weights.masked_fill(block.allowed[:, None], 0).amax()
        if leak > 0:
            raise ValueError(f"layer {layer}: weight {float(leak):.2g} on keys that the mask hides")
    return weights


def off_by(weights: Float[Tensor, "B H R T"], block: Block) -> float:
    """How far from 1 a real row sums at most; NaN if one is no number."""
    low, high = weights.sum(dim=-1).where(block.real[:, None], 1).aminmax()
    return float(torch.maximum(1 - low, high - 1))


def check(off: float, layer: int) -> None:
    """Raise ValueError if rows are off 1 by more than rounding."""
    if not off <= TOLERANCE:  # NaN is not either
        raise ValueError(f"layer {layer}: rows of attention do not sum to 1 (off by {off:.2g})")


def product(weights: Float[Tensor, "B H R T"], value: Float[Tensor, "B H T e"]) -> Float[Tensor, "B H R e"]:
    """What the heads write, in the values' own type."""
    return (weights @ value.to(weights.dtype)).to(value.dtype)


def together(parts: list[Tensor]) -> Tensor:
    """Blocks of rows, one below the other."""
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def total(parts: list[Tensor]) -> Tensor:
    """Their sum: blocks of rows add up to a sequence."""
    return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]
