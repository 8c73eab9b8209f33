"""How alike heads are: in where they look, by Jensen–Shannon divergence, and in what they write, by linear CKA.

Both are gathered in one pass; of the maps only those of the present batch are ever in memory.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from attnkit.ablation import Head
from attnkit.data import Batch
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.observe import AttentionCall, observe
from attnkit.reading import blocks_of, checked, total
from attnkit.rows import Block

CONSTANT = 1e-12  # a head whose output varies by less than this share of its square is constant


@dataclass(frozen=True)
class Comoments:
    """Weighted products of F quantities about their means, float64; merged by Chan, Golub & LeVeque 1983."""

    weight: Float[Tensor, ""]
    mean: Float[Tensor, "F"]
    products: Float[Tensor, "F F"]  # Σ weight (x − mean)(x − mean)ᵀ

    @classmethod
    def of(cls, values: Float[Tensor, "N F"], weights: Float[Tensor, "N"]) -> "Comoments":
        weight = weights.sum()
        mean = (weights @ values) / weight
        centred = values - mean
        return cls(weight, mean, (centred * weights[:, None]).T @ centred)

    def __add__(self, other: "Comoments") -> "Comoments":
        weight, delta = self.weight + other.weight, other.mean - self.mean
        between = torch.outer(delta, delta) * (self.weight * other.weight / weight)
        mean = self.mean + delta * (other.weight / weight)
        return Comoments(weight, mean, self.products + other.products + between)


@dataclass(frozen=True)
class Similarity:
    """How alike the A heads of one model and the E heads of another, or of the same, are; layer by layer."""

    divergence: Moments  # (A, E): Jensen–Shannon divergence in bits, one value a sequence
    outputs: Comoments  # of what the heads write on each token; those of the second model, if it is another, follow
    widths: tuple[int, ...]  # how many of the F quantities are each head's

    def __add__(self, other: "Similarity") -> "Similarity":
        return Similarity(self.divergence + other.divergence, self.outputs + other.outputs, self.widths)

    @property
    def cka(self) -> np.ndarray:
        """Linear CKA (A, E), 0 to 1: ‖Σ_ab‖² / (‖Σ_aa‖ ‖Σ_bb‖), Kornblith et al. 2019, equation 5.

        The covariances Σ are over the tokens, every sequence weighing the same. NaN for a head that always writes the
        same, rounding apart.
        """
        A, E = self.divergence.count.shape
        rows = self.outputs.products.split(self.widths)
        strength = torch.stack(
            [torch.stack([part.square().sum() for part in row.split(self.widths, dim=1)]) for row in rows]
        )
        scale = strength.diagonal().sqrt()
        level = torch.stack([part.square().sum() for part in self.outputs.mean.split(self.widths)])
        varies = scale > CONSTANT * self.outputs.weight * level
        scale = torch.where(varies, scale, torch.nan)
        return (strength / torch.outer(scale, scale))[:A, -E:].numpy()


def compare(first: TinyTransformer, second: TinyTransformer | None, batches: Iterable[Batch]) -> Similarity:
    """Compare every head of `first` with every head of `second`, or of itself, on the same sequences.

    How the sequences are cut into batches changes nothing. Raises ValueError for a model in train mode, attention
    that is none (see `reading.checked`), or no sequences at all.
    """
    models = [first] if second is None else [first, second]
    parts = (compare_batch(calls, batch) for calls, batch in calls_on(batches, models))
    return reduce(add, parts, next(parts))


def change(before: TinyTransformer, after: TinyTransformer, batches: Iterable[Batch]) -> Moments:
    """How far each head of one model is from the same head of another, as in two snapshots of one training.

    (L·H,): the Jensen–Shannon divergence in bits, as in `compare`, of each head and itself alone. Raises ValueError
    as `compare` does.
    """
    parts = (change_on(calls, batch) for calls, batch in calls_on(batches, [before, after]))
    return reduce(add, parts, next(parts))


def match(divergence: np.ndarray, first: Sequence[Head], second: Sequence[Head]) -> dict[Head, Head]:
    """For heads of one model those of another that do the same.

    `divergence` (A, E) is that of each of the A heads `first` and the E heads `second`. Within each layer the
    assignment has the least sum: the heads of a layer can be exchanged without changing the model, those of different
    layers cannot. Of a layer that is wider in one model some heads stay without another.
    """
    found = {}
    for layer in sorted({layer for layer, _ in first} & {layer for layer, _ in second}):
        rows, columns = ([i for i, head in enumerate(heads) if head[0] == layer] for heads in (first, second))
        for a, b in zip(*linear_sum_assignment(divergence[np.ix_(rows, columns)]), strict=True):
            found[first[rows[a]]] = second[columns[b]]
    return found


def calls_on(
    batches: Iterable[Batch], models: Sequence[TinyTransformer]
) -> Iterator[tuple[list[list[AttentionCall]], Batch]]:
    """What each of the models does on each batch, and that batch, on the device of the first."""
    if any(model.training for model in models):
        raise ValueError("model: is in train mode; call model.eval() first")
    device, nothing = next(models[0].parameters()).device, True
    for batch in batches:
        here, nothing = batch.to(device), False
        yield [calls_of(model, here) for model in models], here
    if nothing:
        raise ValueError("batches: there are no sequences to compare heads on")


@torch.no_grad()
def calls_of(model: TinyTransformer, batch: Batch) -> list[AttentionCall]:
    calls: list[AttentionCall] = []
    with observe(model, calls.append):
        model(batch.tokens, batch.mask)
    return calls


def change_on(models: Sequence[Sequence[AttentionCall]], batch: Batch) -> Moments:
    """(A,): the divergence of each head of one model and the same head of another, on one batch."""
    blocks = blocks_of(batch.tokens, batch.mask)
    before, after = models
    sums = [itself(weights_of(before, block), weights_of(after, block), block) for block in blocks]
    return per_sequence(total(sums), total([rows_of(block) for block in blocks]))


def per_sequence(sums: Float[Tensor, "*heads B"], rows: Int[Tensor, "b"]) -> Moments:
    """The moments over the sequences of the means over their rows that count, from the sums over so many of them."""
    values = (sums / rows.clamp(min=1)).movedim(-1, 0).cpu()  # (B, …)
    defined = (rows > 0).cpu().expand(len(values)).view(-1, *[1] * (values.ndim - 1)).expand_as(values)
    return Moments.of(values, defined)


def compare_batch(models: Sequence[Sequence[AttentionCall]], batch: Batch) -> Similarity:
    """The calls of one model, or of two, on one batch.

    Raises ValueError for a call without an output projection.
    """
    blocks = blocks_of(batch.tokens, batch.mask)
    sums = [divergences([weights_of(calls, block) for calls in models], block) for block in blocks]
    divergence = per_sequence(total(sums), total([rows_of(block) for block in blocks]))  # (A, E)
    written = [what_is_written(call.output, call.w_o, call.layer) for calls in models for call in calls]
    return similarity_of(divergence, written, batch.mask)


def similarity_of(
    divergence: Moments, written: Sequence[Float[Tensor, "B T _ _"]], mask: Bool[Tensor, "B T"] | None
) -> Similarity:
    """The one and the other together; `written` by the heads of every layer on each token."""
    widths = tuple(w.shape[3] for w in written for _ in range(w.shape[2]))
    real = torch.ones_like(written[0][..., 0, 0], dtype=torch.bool) if mask is None else mask
    weights = (real.double() / real.sum(dim=1, keepdim=True))[real]
    outputs = Comoments.of(torch.cat([w[real].flatten(1) for w in written], dim=1).cpu(), weights.cpu())
    return Similarity(divergence, outputs, widths)


def counted(block: Block) -> Bool[Tensor, "b R"]:
    """The rows in which there is something to choose."""
    return block.real & (block.n >= 2)


def rows_of(block: Block) -> Int[Tensor, "b"]:
    """How many they are, of each sequence."""
    return counted(block).sum(dim=-1)


def weights_of(calls: Sequence[AttentionCall], block: Block) -> Float[Tensor, "A B R T"]:
    """The weights of all heads, layer by layer, in the rows of the block, float64."""
    parts = [checked(call.weights[:, :, block.rows], block, call.layer) for call in calls]
    return torch.cat(parts, dim=1).transpose(0, 1).double()


def divergences(weights: Sequence[Float[Tensor, "_ B R T"]], block: Block) -> Float[Tensor, "A E B"]:
    """Σ over the rows that count of H((p + q) / 2) − (H(p) + H(q)) / 2 in bits: Lin 1991, equation 4.1."""
    first, second, same = weights[0], weights[-1], len(weights) == 1
    rows = counted(block)
    own = [entropy(w) for w in weights]
    sums = first.new_zeros(len(first), len(second), first.shape[1])
    for a in range(len(first)):
        start = a + 1 if same else 0  # of one model each pair is compared once
        between = entropy((first[a] + second[start:]) / 2) - (own[0][a] + own[-1][start:]) / 2
        sums[a, start:] = (between.clamp(min=0) * rows).sum(dim=-1)
    return (sums + sums.transpose(0, 1) if same else sums) / math.log(2)


def itself(before: Float[Tensor, "A B R T"], after: Float[Tensor, "A B R T"], block: Block) -> Float[Tensor, "A B"]:
    """The same sum, of each head of one model and the same head of another alone."""
    between = entropy((before + after) / 2) - (entropy(before) + entropy(after)) / 2
    return (between.clamp(min=0) * counted(block)).sum(dim=-1) / math.log(2)


def entropy(weights: Tensor) -> Tensor:
    """−Σ p ln p over the last axis; the smallest number in the place of 0 makes 0 ln 0 = 0."""
    return weights.clamp_min(torch.finfo(weights.dtype).tiny).log_().mul_(weights).sum(dim=-1).neg_()


def what_is_written(
    output: Float[Tensor, "B H T d"], w_o: Float[Tensor, "H d D"] | None, layer: int
) -> Float[Tensor, "B T H d"]:
    """What each head adds to each token, in d coordinates instead of D: with W_oᵀ = Q L, o W_o = (o Lᵀ) Qᵀ.

    Q only turns it, which no covariance's norm notices.
    """
    if w_o is None:
        raise ValueError(f"layer {layer}: what its heads write is not known: no output projection was found")
    triangle = torch.linalg.qr(w_o.transpose(-2, -1).double()).R  # (H, d, d)
    return torch.einsum("bhtd,hcd->bthc", output.double(), triangle)
