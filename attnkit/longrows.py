"""Every row statistic of long rows in one pass over their scores, as loops. Called through `blocks.BlockReader`.

A row is read a piece at a time, while it is in the nearest cache: exp(s − max s) is written in the place of the
scores s, and with it go its sums.
"""

import math
from functools import partial
from typing import Any

from attnkit.exponential import LOWEST, F, exp_below
from attnkit.machine import compiled
from attnkit.spans import POINTS

# What is read of each row, in this order: Σ exp(s − max s), then statistics.
NAMES = (
    *("z", "entropy", "max_weight", "effective_keys", "offset", "distance", "special_weight"),
    *POINTS,
    *("duplicate_weight", "induction_weight"),
)
Z, ENTROPY, MAX, EFFECTIVE, OFFSET, DISTANCE, SPECIAL, POINT = range(8)  # the first of the points
DUPLICATE, INDUCTION = len(NAMES) - 2, len(NAMES) - 1
PIECE = 1024  # keys


@compiled
def read(
    scores: Any,  # (R, S), float32; exp(s − max s) is written in their place
    top: Any,  # (R,), the highest score of each row
    i: Any,  # (R,), float32, the position of each query
    j: Any,  # (S,), float32, of each key
    special: Any,  # (S,), float32, 1 where a key is special
    points: Any,  # (5, R), which of the keys stand at the five places of `spans.POINTS`; −1 for none
    order: Any,  # (T,), all keys, those of one token in a row
    since: Any,  # (R,), where in `order` the earlier copies of each query's token begin
    until: Any,  # (R,), and where they end
    start: int,  # the column of the first of these S keys
    values: Any,  # (R, 14), float64, written: `NAMES`
    diagonals: Any,  # (R + S − 1,), float64: the weights are added to the sums of their diagonals; or empty
) -> None:
    R, S = scores.shape
    for r in range(R):
        e, found = scores[r], values[r]
        found[:] = 0
        nats = squares = 0.0
        for first in range(0, S, PIECE):
            last = min(first + PIECE, S)
            part = exponentials(e[first:last], top[r], j[first:last], special[first:last], i[r])
            found[Z] += part[0]
            nats += part[1]
            squares += part[2]
            found[OFFSET] += part[3]
            found[DISTANCE] += part[4]
            found[SPECIAL] += part[5]
        z = found[Z]
        for k in range(5):
            if points[k, r] >= 0:
                found[POINT + k] = e[points[k, r]]
        for c in range(since[r], until[r]):
            key = order[c] - start
            if 0 <= key < S:
                found[DUPLICATE] += e[key]
            if 0 <= key + 1 < S and key + 1 != points[0, r]:  # what follows the copy stands before the query
                found[INDUCTION] += e[key + 1]
        for k in range(OFFSET, len(found)):
            found[k] /= z
        found[ENTROPY], found[MAX], found[EFFECTIVE] = max(math.log(z) - nats / z, 0.0), 1 / z, z * z / squares
        if len(diagonals):
            add(diagonals[R - 1 - r : R - 1 - r + S], e, 1 / z)


@partial(compiled, inline=True)
def exponentials(x: Any, top: Any, j: Any, special: Any, i: Any) -> Any:
    """Write e = exp(x − top) in the place of x.

    Returns Σ e, Σ e ln e, Σ e², Σ e (j − i), Σ e |j − i| and Σ e over special keys.
    """
    z = nats = squares = offset = distance = of_special = F(0)
    for t in range(len(x)):
        log = x[t] - top
        e = exp_below(log)
        x[t] = e
        z += e
        nats += e * max(log, LOWEST)  # not 0 · −∞
        squares += e * e
        offset += e * (j[t] - i)
        distance += e * abs(j[t] - i)
        of_special += e * special[t]
    return z, nats, squares, offset, distance, of_special


@partial(compiled, inline=True)
def add(total: Any, x: Any, times: float) -> None:
    for t in range(len(total)):
        total[t] += x[t] * times


@compiled
def copies_seen(
    allowed: Any,  # (R, T)
    own: int,  # the column of the first query
    order: Any,  # (T,), the same as in `read`, as are the next two
    since: Any,
    until: Any,
    seen: Any,  # (2, R), written: whether a row may see an earlier copy, and what followed one
) -> None:
    for r in range(len(allowed)):
        seen[:, r] = False
        for c in range(since[r], until[r]):
            key = order[c]
            seen[0, r] |= allowed[r, key]
            seen[1, r] |= key + 1 != own + r and allowed[r, key + 1]
