"""One batch through the model, its attention calls read into one number per sequence, head and statistic.

The sequence value of a statistic is its mean over the rows where it is defined; padded rows never count.
"""

from dataclasses import dataclass
from itertools import chain

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnkit.data import Batch
from attnkit.meanmaps import MapSums, layered, map_sums
from attnkit.measures import Block, Measure, Rows
from attnkit.model import TinyTransformer
from attnkit.observe import AttentionCall, observe

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


@torch.no_grad()
def read_batch(model: TinyTransformer, batch: Batch, measures: dict[str, Measure]) -> Readings:
    """Run `model` on `batch`, on the model's device, and read every attention call as it happens.

    Raises ValueError for a model in train mode, and for attention that is none: see `checked`.
    """
    if model.training:
        raise ValueError("model: is in train mode; call model.eval() first")
    batch = batch.to(next(model.parameters()).device)
    reader = Reader(measures, blocks_of(batch.tokens, batch.mask))
    read: list[tuple[Tensor, Tensor]] = []
    maps: list[dict[int, MapSums]] = []

    def on_call(call: AttentionCall) -> None:
        rows = reader.rows(call)
        read.append(reader.read(rows))
        maps.append(map_sums(rows, batch.mask))

    with observe(model, on_call):
        logits, _ = model(batch.tokens, batch.mask)
    predicted = logits.argmax(dim=1)
    labels = torch.full_like(predicted, NO_LABEL) if batch.labels is None else batch.labels
    loss = cross_entropy(logits.double(), labels, ignore_index=NO_LABEL, reduction="none")
    values, defined = (torch.stack(t, dim=1).cpu() for t in zip(*read, strict=True))
    uniform, said = (t.expand(-1, len(read), -1).cpu() for t in reader.uniform())  # every layer sees the same keys
    loss = loss.masked_fill(labels == NO_LABEL, torch.nan).cpu()
    return Readings(values, defined, uniform, said, predicted.cpu(), labels.cpu(), loss, layered(maps))


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

    What does not depend on the weights is worked out once for all layers. The linear statistics, already averaged
    over the rows on which they are defined, are the columns of one matrix: a call's maps, flattened, times that
    matrix reads them all. It equals the plain formulas of `measures.row_values`, which the tests hold it to.
    """

    def __init__(self, measures: dict[str, Measure], blocks: list[Block]):
        self.measures = measures
        self.blocks = blocks
        self.linear = {name: [m.function(block) for block in self.blocks] for name, m in measures.items() if m.linear}
        self.n_rows = {  # on how many rows of each sequence it is defined, (b or B,)
            name: total([defined.sum(dim=-1) for _, defined in parts]) for name, parts in self.linear.items()
        }
        # A statistic that weighs the keys of every sequence alike needs its column only once, not once a sequence.
        alike = [name for name, parts in self.linear.items() if all(len(c) == 1 for c, _ in parts)]
        own = [name for name in self.linear if name not in alike]
        self.parts = [names for names in (alike, own) if names]
        self.others = {name: m for name, m in measures.items() if not m.linear}
        worked_out = [*chain.from_iterable(self.parts), *self.others]
        self.order = [worked_out.index(name) for name in measures]  # from the order of work to that of the table
        self.matrices = [[self.matrix(block, names) for names in self.parts] for block in range(len(self.blocks))]

    def rows(self, call: AttentionCall) -> list[Rows]:
        """The call in blocks of rows. Raises ValueError where a row is no attention: see `checked`."""
        return [
            Rows(
                block,
                checked(call.weights[:, :, block.rows], block, call.layer),
                call.output[:, :, block.rows],
                call.w_o,
            )
            for block in self.blocks
        ]

    def read(self, blocks: list[Rows]) -> tuple[Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """Return the values, float64, and where they are defined."""
        sums: dict[str, list[Tensor]] = {name: [] for name in self.others}
        counts: dict[str, list[Tensor]] = {name: [] for name in self.others}
        for rows in blocks:
            for name, measure in self.others.items():
                values, defined = measure.function(rows)  # (B, H, R) and (b or B, R), or where heads differ (B, H, R)
                defined = defined if defined.ndim == 3 else defined[:, None]
                kept = values if defined.all() else torch.where(defined, values, 0)
                sums[name].append(kept.sum(dim=-1))
                counts[name].append(defined.sum(dim=-1))
        n = [total(parts) for parts in counts.values()]
        means = [total(parts) / m.clamp(min=1) for parts, m in zip(sums.values(), n, strict=True)]
        return self.table(self.linear_means([rows.weights64 for rows in blocks]), means, n)

    def uniform(self) -> tuple[Float[Tensor, "B 1 K"], Bool[Tensor, "B 1 K"]]:
        """What any head would read on these sequences if it attended uniformly, and where that is said."""
        weights = [(block.allowed / block.n[..., None])[:, None] for block in self.blocks]  # (b, 1, R, T)
        real = total([block.real.sum(dim=-1, keepdim=True) for block in self.blocks])  # (b, 1)
        means, n = [], []
        for measure in self.others.values():
            rows = [measure.uniform(block) * block.real for block in self.blocks] if measure.uniform else []
            means.append(total([r.sum(dim=-1, keepdim=True) for r in rows]) / real if rows else real.double())
            n.append(real if rows else torch.zeros_like(real))
        return self.table(self.linear_means(weights), means, n)

    def linear_means(self, weights: list[Float[Tensor, "_ H _ T"]]) -> list[Float[Tensor, "_ H k"]]:
        """What the linear statistics read, part by part; blocks of rows add up."""
        parts = zip(*self.matrices, strict=True)
        return [
            total([w.flatten(2) @ m.transpose(1, 2) for w, m in zip(weights, matrices, strict=True)])
            for matrices in parts
        ]

    def table(self, linear: list[Tensor], means: list[Tensor], n: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The linear means (b or B, H, k) and the others (b or B, H) with their rows, in the order of the measures."""
        B = len(self.blocks[0].tokens)
        H = max(part.shape[1] for part in linear)
        n_rows = [self.n_rows[name][:, None] for names in self.parts for name in names]
        values = [*[part.expand(B, H, -1) for part in linear], torch.stack([m.expand(B, H) for m in means], dim=-1)]
        defined = torch.stack([(m > 0).expand(B, H) for m in (*n_rows, *n)], dim=-1)
        return torch.cat([v.double() for v in values], dim=-1)[..., self.order], defined[..., self.order]

    def matrix(self, number: int, names: list[str]) -> Float[Tensor, "_ k RT"]:
        """The linear statistics of one part over one block of rows, each row weighed by its share in the mean."""
        block = self.blocks[number]
        b = max(len(self.linear[name][number][0]) for name in names)
        matrix = torch.empty(b, len(names), *block.allowed.shape[1:], dtype=torch.float64, device=block.tokens.device)
        for k, name in enumerate(names):
            c, defined = self.linear[name][number]
            share = defined.double() / self.n_rows[name].clamp(min=1)[:, None]
            torch.mul(c, share[..., None], out=matrix[:, k])
        return matrix.flatten(2)


def checked(weights: Float[Tensor, "B H R T"], block: Block, layer: int) -> Float[Tensor, "B H R T"]:
    """The weights with padded queries, whatever a model left there, at 0; ValueError if a real row is no attention."""
    if len(block.real) > 1 or not block.real.all():
        weights = weights.masked_fill(~block.real[:, None, :, None], 0)
        leak = weights.masked_fill(block.allowed[:, None], 0).amax()
        if leak > 0:
            raise ValueError(f"layer {layer}: weight {float(leak):.2g} on keys that the mask hides")
    off = (weights.sum(dim=-1) - block.real[:, None].to(weights.dtype)).abs().amax()
    if not off <= TOLERANCE:  # NaN is not either
        raise ValueError(f"layer {layer}: rows of attention do not sum to 1 (off by {float(off):.2g})")
    return weights


def total(parts: list[Tensor]) -> Tensor:
    """Their sum: blocks of rows add up to a sequence."""
    return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]
