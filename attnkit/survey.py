"""What is the same for all heads of a sequence, as loops: `kernel` reads each map beside it."""

import math
from typing import Any

import numpy as np

from attnkit.machine import compiled

# In the order of `fused.KNOWN`.
ENTROPY, NORMALIZED, MAX, EFFECTIVE, DISTANCE, OFFSET, SELF, PREVIOUS, NEXT = range(9)
FIRST, LAST, DUPLICATE, INDUCTION, SELECTIVITY, SPECIAL, NORM, TOKENS = range(9, 17)


@compiled
def rooms(R: int, T: int, V: int) -> Any:
    """What `survey` writes into, in its order from `scene` on."""
    scene, keys, as_before = np.zeros((6, R, T)), np.zeros((5, R), np.int64), np.zeros(R, np.bool_)
    seen, n = np.zeros(V, np.int64), np.zeros(TOKENS + V, np.int64)
    return scene, keys, as_before, seen, n, np.zeros(R), np.zeros(R)


@compiled
def survey(
    tokens: Any,  # (T,)
    position: Any,  # (T,)
    allowed: Any,  # (R, T)
    real: Any,  # (R,)
    special: Any,  # (T,)
    asked: Any,  # (R,)
    rows_from: int,
    fresh: bool,  # whether positions and allowed keys are others than last time
    scene: Any,  # (6, R, T), written: distance, offset, copies, what followed a copy, keys alike and unlike
    keys: Any,  # (5, R), written: where the keys of SELF to LAST stand; -1 for none
    as_before: Any,  # (R,), written: True where a row may see the same keys as the row above
    seen: Any,  # (V,), room: 1 for the tokens that a row may see
    n: Any,  # (16 + V), written: on how many rows each statistic is defined
    per_nat: Any,  # (R,), written: 1 / ln n_i, 0 where that is not defined
    handicap: Any,  # (R,), written: how many times as many keys are unlike as alike
) -> None:
    """What is the same for all heads of a sequence."""
    R, T = allowed.shape
    if fresh:
        end = 0
        for j in range(T):
            end = max(end, position[j])
        keys[:] = -1
        n[:] = 0
        for i in range(R):
            here = position[rows_from + i]
            wanted = (here, here - 1, here + 1, 0 if here > 0 else -1, end if here < end else -1)
            others = 0
            for j in range(T):
                scene[0, i, j] = abs(here - position[j])
                scene[1, i, j] = position[j] - here
                if allowed[i, j]:
                    others += 1
                    for k in range(5):
                        if position[j] == wanted[k]:
                            keys[k, i] = j
            as_before[i] = i > 0 and (allowed[i] == allowed[i - 1]).all()
            per_nat[i] = 1 / math.log(others) if others > 1 else 0.0
            if real[i]:
                for k in (ENTROPY, MAX, EFFECTIVE, DISTANCE, OFFSET, SELF):
                    n[k] += 1
                n[NORMALIZED] += others > 1
                n[PREVIOUS] += here > 0
                n[FIRST] += here > 0
                n[NEXT] += here < end
                n[LAST] += here < end
    n[DUPLICATE] = n[INDUCTION] = n[SELECTIVITY] = n[SPECIAL] = 0
    n[TOKENS:] = 0
    for i in range(R):
        own, here = tokens[rows_from + i], position[rows_from + i]
        copies = followers = alike = unlike = 0.0
        for j in range(T):
            same = tokens[j] == own
            scene[2, i, j] = allowed[i, j] & same & (position[j] < here)
            scene[4, i, j] = allowed[i, j] & same & (position[j] != here)
            scene[5, i, j] = allowed[i, j] & (not same)
            copies += scene[2, i, j]
            alike += scene[4, i, j]
            unlike += scene[5, i, j]
        scene[3, i, 0] = 0
        for j in range(1, T):
            after = (tokens[j - 1] == own) & (position[j] > 0) & (position[j] < here)
            scene[3, i, j] = allowed[i, j] & after
            followers += scene[3, i, j]
        n[SPECIAL] += asked[i]
        n[DUPLICATE] += copies > 0
        n[INDUCTION] += followers > 0
        handicap[i] = unlike / alike if alike > 0 else 0.0
        if not as_before[i]:  # else it sees the same tokens as the row above
            seen[:] = 0
            for j in range(T):
                if allowed[i, j] and tokens[j] < len(seen):
                    seen[tokens[j]] = 1
        for t in range(len(seen)):
            n[TOKENS + t] += seen[t]
