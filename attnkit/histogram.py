"""Histograms with fixed edges, so that distributions add up without keeping the values."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.fused import run
from attnkit.measures import Measure

BINS = 256


class Histogram:
    """Fixed edges for every statistic, so that counts of different batches add up.

    The first and the last bin also take what lies beyond; `output_norm`'s edges are spaced in the logarithm.
    """

    def __init__(self, measures: dict[str, Measure], longest: int):
        low, high = torch.tensor([m.domain(longest) for m in measures.values()], dtype=torch.float64).unbind(dim=1)
        self.log = torch.tensor([m.log for m in measures.values()])
        self.low, self.high = (torch.where(self.log, t.abs().log(), t) for t in (low, high))

    def count(
        self, values: Float[Tensor, "N L H K"], defined: Bool[Tensor, "N L H K"], cell: Int[Tensor, "N"], cells: int
    ) -> Int[Tensor, "C L H K n"]:
        """How many values there are in each bin, for every cell: `cell` says in which of `cells` a value counts."""
        counts = torch.zeros(cells, *values.shape[1:], BINS, dtype=torch.int64)
        scale = BINS / (self.high - self.low)
        given = values.flatten(1, 2), defined.flatten(1, 2), cell, self.log, self.low, scale, counts.flatten(1, 2)
        run("histogram", given[0].shape[1], values.numel(), *given)
        return counts

    def edges(self) -> Tensor:
        """(K, BINS + 1)"""
        steps = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
        edges = self.low[:, None] + (self.high - self.low)[:, None] * steps
        return torch.where(self.log[:, None], edges.exp(), edges)
