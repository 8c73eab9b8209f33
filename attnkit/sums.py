"""Sums over many sequences, as loops: mean maps, histograms and moments. Called through `fused.run`."""

import math
from functools import partial
from typing import Any

from attnkit.machine import compiled


@compiled
def maps(
    start: int,
    stop: int,
    weights: Any,  # (B, H, T, T)
    chosen: Any,  # (n,), the sequences to sum over
    sums: Any,  # (H, T, T), written: Σ p over the sequences
    squares: Any,  # (H,), written: Σ p²
) -> None:
    """The sums of some sequences' maps, for the heads from `start` to `stop`."""
    for h in range(start, stop):
        total = sums[h].ravel()
        for b in chosen:
            squares[h] += add(total, weights[b, h].ravel())


@partial(compiled, inline=True)
def add(total: Any, p: Any) -> float:
    """Add p to the total, and return Σ p²."""
    squares = 0.0
    for t in range(len(total)):
        x = float(p[t])
        total[t] += x
        squares += x * x
    return squares


@compiled
def histogram(
    start: int,
    stop: int,
    values: Any,  # (N, M, K)
    defined: Any,  # the same
    cell: Any,  # (N,), which of C cells each counts for
    log: Any,  # (K,), True where bins are even in the logarithm
    low: Any,  # (K,), the first edge
    scale: Any,  # (K,), bins per unit
    counts: Any,  # (C, M, K, bins), written
) -> None:
    """Count the values, for the heads from `start` to `stop` of M; the first and last bin take what lies beyond."""
    N, _, K = values.shape
    bins = counts.shape[-1]
    for n in range(N):
        for m in range(start, stop):
            for k in range(K):
                if defined[n, m, k]:
                    x = values[n, m, k]
                    if log[k]:
                        x = math.log(max(x, 1e-300))
                    counts[cell[n], m, k, int(min(max((x - low[k]) * scale[k], 0), bins - 1))] += 1


@compiled
def moments(
    start: int,
    stop: int,
    values: Any,  # (N, M, K)
    defined: Any,  # the same
    cell: Any,  # (N,), which of C cells each counts for
    count: Any,  # (C, M, K), written, as are the others
    mean: Any,
    m2: Any,
    low: Any,
    high: Any,
) -> None:
    """What `Moments.of` says of the values of each cell, for the heads from `start` to `stop` of M."""
    N, _, K = values.shape
    for n in range(N):
        c = cell[n]
        for m in range(start, stop):
            for k in range(K):
                if defined[n, m, k]:
                    x = values[n, m, k]
                    count[c, m, k] += 1
                    mean[c, m, k] += x
                    low[c, m, k] = min(low[c, m, k], x)
                    high[c, m, k] = max(high[c, m, k], x)
    for c in range(len(count)):
        for m in range(start, stop):
            for k in range(K):
                mean[c, m, k] /= max(count[c, m, k], 1)
    for n in range(N):
        c = cell[n]
        for m in range(start, stop):
            for k in range(K):
                if defined[n, m, k]:
                    m2[c, m, k] += (values[n, m, k] - mean[c, m, k]) ** 2
