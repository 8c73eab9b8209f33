"""How long what the heads write is, as loops. Called through `fused.OnePass`."""

import math
from functools import partial
from typing import Any

import numpy as np

from attnkit.machine import compiled

TOGETHER = 1024  # numbers of the outputs that are read at once: as float64 they fill a part of the nearest cache


@compiled
def norms(
    start: int,
    stop: int,
    output: Any,  # (B, H, R, d)
    w_o: Any,  # (H, d, r), float64, lower triangles
    real: Any,  # (b, R), False on padded rows
    k: int,  # which statistic it is
    sums: Any,  # (B, H, K), written: Σ over the rows of the lengths of what the heads write
    counts: Any,  # (B, H, K), written
    by_token: Any,  # (B, R, H, d), written: the outputs, those of one token side by side
) -> None:
    """The lengths of the outputs of the sequences from `start` to `stop`, some sequences at a time."""
    _, H, R, d = output.shape
    step = max(TOGETHER // (R * d), 1)
    outputs, projected, squared = np.empty((d, step * R)), np.empty(step * R), np.empty(step * R)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        for h in range(H):
            for b in range(first, last):
                for i in range(R):
                    for a in range(d):
                        outputs[a, (b - first) * R + i] = output[b, h, i, a]
                    for a in range(d):
                        by_token[b, i, h, a] = output[b, h, i, a]
            square_lengths(outputs, w_o[h], projected, squared)
            for b in range(first, last):
                c = min(b, len(real) - 1)
                found, n = 0.0, 0
                for i in range(R):
                    if real[c, i]:
                        found += math.sqrt(squared[(b - first) * R + i])
                        n += 1
                sums[b, h, k], counts[b, h, k] = found, n


@partial(compiled, inline=True)
def square_lengths(outputs: Any, w_o: Any, projected: Any, squared: Any) -> None:
    """‖o W‖² of every column o of `outputs` (d, n), for a lower triangle W (d, r)."""
    squared[:] = 0
    for k in range(w_o.shape[1]):
        projected[:] = 0
        for a in range(k, len(outputs)):
            add(projected, outputs[a], w_o[a, k])
        for i in range(len(squared)):
            squared[i] += projected[i] * projected[i]


@partial(compiled, inline=True)
def add(total: Any, x: Any, times: Any) -> None:
    for i in range(len(total)):
        total[i] += x[i] * times
