"""Moments: count, mean, squared deviations and range of a stream of values, as an immutable value with `+`.

One batch, one shard, one worker or a whole data set are the same thing, and adding them is the only
operation: Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance", equation 2.1.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Float64 tensors of one shape: an element of each for every quantity that is followed."""

    count: Tensor  # how many values
    mean: Tensor  # 0 where there are none; read it with `nan_mean`
    m2: Tensor  # Σ (value − mean)²
    low: Tensor  # +inf where there are none
    high: Tensor  # −inf where there are none

    @classmethod
    def empty(cls, *shape: int) -> "Moments":
        """No values yet: the identity of `+`."""
        zeros = torch.zeros(shape, dtype=torch.float64)
        return cls(zeros, zeros, zeros, torch.full_like(zeros, torch.inf), torch.full_like(zeros, -torch.inf))

    @classmethod
    def of(cls, values: Tensor, defined: Tensor | None = None) -> "Moments":
        """The moments over the first axis of `values` (N, …), counting only where `defined` (same shape) is True."""
        values = values.double()
        if len(values) == 0:
            return cls.empty(*values.shape[1:])
        if defined is None or defined.all():
            n = torch.full(values.shape[1:], float(len(values)), dtype=torch.float64)
            mean = values.mean(dim=0)
            return cls(n, mean, (values - mean).square().sum(dim=0), values.amin(dim=0), values.amax(dim=0))
        n = defined.sum(dim=0).double()
        mean = values.masked_fill(~defined, 0.0).sum(dim=0) / n.clamp(min=1)
        m2 = (values - mean).masked_fill(~defined, 0.0).square().sum(dim=0)
        low, high = values.masked_fill(~defined, torch.inf), values.masked_fill(~defined, -torch.inf)
        return cls(n, mean, m2, low.amin(dim=0), high.amax(dim=0))

    def __add__(self, other: "Moments") -> "Moments":
        """The moments of both streams together; neither operand changes. Raises ValueError for unlike shapes."""
        if self.count.shape != other.count.shape:
            raise ValueError(
                f"moments of shape {tuple(self.count.shape)} and {tuple(other.count.shape)} cannot be added"
            )
        n = self.count + other.count
        share = other.count / n.clamp(min=1)  # 0 where both are empty
        delta = other.mean - self.mean
        # An empty side has the other's values to the bit: x + (y − x) · 1 would not.
        mean = torch.where(self.count == 0, other.mean, self.mean + delta * share)
        m2 = self.m2 + other.m2 + torch.where(self.count == 0, 0.0, delta.square() * self.count * share)
        return Moments(n, mean, m2, torch.minimum(self.low, other.low), torch.maximum(self.high, other.high))

    def at(self, *index: int) -> "Moments":
        """Those of some of the quantities."""
        return Moments(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def nan_mean(self) -> Tensor:
        return torch.where(self.count > 0, self.mean, torch.nan)

    @property
    def std(self) -> Tensor:
        """The sample standard deviation (ddof = 1); NaN below two values."""
        return torch.where(self.count > 1, (self.m2 / (self.count - 1).clamp(min=1)).sqrt(), torch.nan)

    @property
    def sem(self) -> Tensor:
        """The standard error of the mean, std / √count; NaN below two values."""
        return self.std / self.count.sqrt()


def merge(a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
    """The values of both, added where both have a key; in the order of the keys."""
    return {key: a[key] + b[key] if key in a and key in b else (a if key in a else b)[key] for key in sorted({*a, *b})}
