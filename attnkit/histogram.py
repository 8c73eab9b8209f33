"""Histograms with fixed edges, so that distributions add up without keeping the values."""

import torch
from torch import Tensor

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

    def count(self, values: Tensor, defined: Tensor) -> Tensor:
        """Counts (…, K, BINS) over the first axis of `values` (N, …, K), where `defined`."""
        shape = values.shape[1:]
        if self.log.any():
            values = torch.where(self.log, values.clamp(min=1e-300).log(), values)
        bins = ((values - self.low) * (BINS / (self.high - self.low))).long().clamp(0, BINS - 1)
        places = torch.arange(shape.numel()).reshape(shape) * BINS + bins
        nowhere = shape.numel() * BINS  # one place more, for what is undefined
        counts = torch.bincount(torch.where(defined, places, nowhere).flatten(), minlength=nowhere + 1)
        return counts[:nowhere].reshape(*shape, BINS)

    def edges(self) -> Tensor:
        """(K, BINS + 1)"""
        steps = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
        edges = self.low[:, None] + (self.high - self.low)[:, None] * steps
        return torch.where(self.log[:, None], edges.exp(), edges)
