"""Mean attention maps, kept apart for each sequence length."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.fused import as_float, run
from attnkit.rows import Rows

LONGEST_MAP = 512  # maps are kept up to this length; beyond, T × T sums would fill the memory


@dataclass(frozen=True)
class MapSums:
    """Sums over the sequences of one length T, in float64; p is a weight, u the same under uniform attention."""

    count: int  # sequences
    weights: Tensor  # (L, H, T, T): Σ p
    squares: Tensor  # (L, H): Σ p²
    uniform: Tensor  # (1, 1, T, T): u, the same in every layer

    def __add__(self, other: "MapSums") -> "MapSums":
        weights, squares = self.weights + other.weights, self.squares + other.squares
        return MapSums(self.count + other.count, weights, squares, self.uniform)

    @property
    def mean(self) -> Float[Tensor, "L H T T"]:
        """The attention map, averaged over the sequences."""
        return self.weights / self.count

    @property
    def departure(self) -> Float[Tensor, "L H"]:
        """Σ_ij (p − u)², averaged over the sequences: how far a head is from uniform."""
        squares = self.squares - 2 * (self.weights * self.uniform).sum(dim=(-2, -1))
        return squares / self.count + self.uniform.square().sum(dim=(-2, -1))

    @property
    def departure_of_mean(self) -> Float[Tensor, "L H"]:
        """Σ_ij (mean p − u)²: what of it the position alone explains."""
        return (self.mean - self.uniform).square().sum(dim=(-2, -1))


def map_sums(
    blocks: list[Rows], mask: Tensor | None, *, before: dict[int, MapSums] | None = None, fused: bool = True
) -> dict[int, MapSums]:
    """The maps of one layer, apart for each length; a sequence's own tokens are cut out, whichever side is padded.

    `before` are those of another layer, with the same keys to be seen.
    """
    sums: dict[int, MapSums] = {}
    for chosen, start, length in spans(blocks[0].weights, mask):
        if length > LONGEST_MAP:
            continue
        span = slice(start, start + length)
        parts = [rows.weights[..., span] for rows in blocks]
        weights = (torch.cat(parts, dim=2) if len(parts) > 1 else parts[0])[:, :, span]  # (B, H, T, T)
        weights_sum, squares = sums_of(weights, chosen, fused)
        uniform = uniform_map(blocks, chosen, span) if before is None else before[length].uniform
        part = MapSums(len(chosen), weights_sum[None].cpu(), squares[None].cpu(), uniform)
        sums[length] = sums[length] + part if length in sums else part
    return sums


def sums_of(
    weights: Float[Tensor, "B H T T"], chosen: Tensor, fused: bool
) -> tuple[Float[Tensor, "H T T"], Float[Tensor, "H"]]:
    """Σ p and Σ p² over some of the sequences, in float64."""
    if not fused or weights.device.type != "cpu":
        weights = weights[chosen].double()
        return weights.sum(dim=0), weights.square().sum(dim=(0, 2, 3))
    _, H, T, _ = weights.shape
    sums, squares = torch.zeros(H, T, T, dtype=torch.float64), torch.zeros(H, dtype=torch.float64)
    run("maps", H, len(chosen) * H * T * T, as_float(weights), chosen, sums, squares)
    return sums, squares


def uniform_map(blocks: list[Rows], chosen: Tensor, span: slice) -> Float[Tensor, "1 1 T T"]:
    """What a uniform head shows on sequences that stand in the same columns."""
    first = int(chosen[0]) if len(blocks[0].block.allowed) > 1 else 0
    parts = [rows.block.allowed[first, :, span] / rows.block.n[first, :, None] for rows in blocks]
    return torch.cat(parts)[span][None, None].cpu()


def layered(maps: list[dict[int, MapSums]]) -> dict[int, MapSums]:
    """The sums of the layers, one on another."""
    stacked = {}
    for T, first in maps[0].items():
        weights, squares = (torch.cat([getattr(m[T], name) for m in maps]) for name in ("weights", "squares"))
        stacked[T] = MapSums(first.count, weights, squares, first.uniform)
    return stacked


def spans(weights: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor, int, int]]:
    """The sequences that stand in the same columns: which ones, the first column, and how many."""
    if mask is None:
        yield torch.arange(len(weights), device=weights.device), 0, weights.shape[-1]
        return
    places = torch.stack([mask.int().argmax(dim=1), mask.sum(dim=1)], dim=1)
    for place in places.unique(dim=0):
        yield (places == place).all(dim=1).nonzero()[:, 0], int(place[0]), int(place[1])
