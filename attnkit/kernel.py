"""Every row statistic of a map in one pass over its weights, as loops. Called through `fused.OnePass`."""

import math
from functools import partial
from typing import Any

import numpy as np

from attnkit.machine import compiled

TOGETHER = 1024  # weights of a map that are read at once: as float64 they fill a part of the nearest cache

# In the order of `fused.KNOWN`.
ENTROPY, NORMALIZED, MAX, EFFECTIVE, DISTANCE, OFFSET, SELF, PREVIOUS, NEXT = range(9)
FIRST, LAST, DUPLICATE, INDUCTION, SELECTIVITY, NORM, TOKENS = range(9, 16)


@compiled
def read(
    start: int,
    stop: int,
    weights: Any,  # (stop - start, H, R, T), those of these sequences alone
    logs: Any,  # their logarithms, finite ones also of 0: 0 ln 0 = 0
    output: Any,  # (B, H, R, d)
    w_o: Any,  # (H, d, r), float64, lower triangles
    tokens: Any,  # (B, T)
    position: Any,  # (b, T)
    allowed: Any,  # (b, R, T)
    real: Any,  # (b, R), False on padded rows
    rows_from: int,  # the number of the first row among the T queries
    known: Any,  # (15 + V), which of the K statistics those above are; −1 for one that is not asked for
    sums: Any,  # (B, H, K), written: sums over the rows
    counts: Any,  # (B, H, K), written: on how many rows each is defined
) -> float:
    """All statistics of the sequences from `start` to `stop`, each map read while it is in the cache.

    Returns how far from 1 a row sums at most; NaN if one is no number.
    """
    _, H, R, T = weights.shape
    off = 0.0
    V = len(known) - TOKENS
    step = max(TOGETHER // T, 1)
    p, columns, found = np.empty(step * T), np.empty(T), np.empty(TOKENS + V)
    outputs, projected, squared = np.empty((w_o.shape[1], R)), np.empty(R), np.empty(R)
    room = rooms(R, T, V)
    scene, keys, _, _, n, per_nat, handicap = room
    selective = known[SELECTIVITY] >= 0
    for b in range(start, stop):
        c, m = min(b, len(real) - 1), min(b, len(allowed) - 1)
        fresh = b == start or len(allowed) > 1
        survey(tokens[b], position[c], allowed[m], real[c], rows_from, fresh, *room)
        alike, unlike = scene[4], scene[5]
        for h in range(H):
            found[:] = 0
            columns[:] = 0
            n[SELECTIVITY] = 0
            odds = 1.0  # the logarithm of a product is the sum of theirs, and sooner taken
            for first in range(0, R, step):
                last = min(first + step, R)
                size = (last - first) * T
                block, ln = (
                    weights[b - start, h, first:last].reshape(size),
                    logs[b - start, h, first:last].reshape(size),
                )
                for t in range(size):
                    p[t] = block[t]
                part = four(
                    p[:size],
                    scene[0, first:last].reshape(size),
                    scene[1, first:last].reshape(size),
                    scene[2, first:last].reshape(size),
                    scene[3, first:last].reshape(size),
                )
                found[DISTANCE] += part[0]
                found[OFFSET] += part[1]
                found[DUPLICATE] += part[2]
                found[INDUCTION] += part[3]
                for i in range(first, last):
                    if not real[c, i]:
                        continue
                    row = p[(i - first) * T : (i - first + 1) * T]
                    ln_row = ln[(i - first) * T : (i - first + 1) * T]
                    nats, whole, squares, same, different = five(row, ln_row, alike[i], unlike[i])
                    if off == off and not abs(1 - whole) <= off:  # NaN is no less than anything, and stays
                        off = abs(1 - whole)
                    found[ENTROPY] -= nats
                    found[NORMALIZED] -= nats * per_nat[i]
                    found[MAX] += top(row)
                    if selective and same > 0 and different > 0:
                        odds *= same / different * handicap[i]
                        if not 1e-8 < odds < 1e8:
                            found[SELECTIVITY] += math.log(odds)
                            odds = 1.0
                        n[SELECTIVITY] += 1
                    found[EFFECTIVE] += 1 / squares
                    for j in range(T):
                        columns[j] += row[j]
                    for k in range(5):
                        if keys[k, i] >= 0:
                            found[SELF + k] += row[keys[k, i]]
            found[SELECTIVITY] += math.log(odds)
            if known[NORM] >= 0:
                square_lengths(output[b, h], w_o[h], outputs, projected, squared)
                for i in range(R):
                    if real[c, i]:
                        found[NORM] += math.sqrt(squared[i])
            for j in range(T):
                if tokens[b, j] < V:
                    found[TOKENS + tokens[b, j]] += columns[j]
            for k in range(TOKENS + V):
                if known[k] >= 0:
                    sums[b, h, known[k]], counts[b, h, known[k]] = found[k], n[k]
    return off


@compiled
def uniform(
    start: int,
    stop: int,
    tokens: Any,  # the same as in `read`, from here on
    position: Any,
    allowed: Any,
    real: Any,
    rows_from: int,
    known: Any,
    sums: Any,  # (B, 1, K), written for the linear statistics
    counts: Any,  # (B, 1, K), written
) -> None:
    """What `read` would say of a head that attends uniformly to the keys that it may see."""
    _, R, T = allowed.shape
    V = len(known) - TOKENS
    columns, found = np.empty(T), np.empty(TOKENS + V)
    room = rooms(R, T, V)
    scene, keys, _, _, n, _, _ = room
    for b in range(start, stop):
        c, m = min(b, len(real) - 1), min(b, len(allowed) - 1)
        fresh = b == start or len(allowed) > 1
        survey(tokens[b], position[c], allowed[m], real[c], rows_from, fresh, *room)
        found[:] = 0
        columns[:] = 0
        for i in range(R):
            if not real[c, i]:
                continue
            share = 1 / allowed[m, i].sum()
            part = four(allowed[m, i], scene[0, i], scene[1, i], scene[2, i], scene[3, i])
            for k, name in enumerate((DISTANCE, OFFSET, DUPLICATE, INDUCTION)):
                found[name] += part[k] * share
            for j in range(T):
                columns[j] += allowed[m, i, j] * share
            for k in range(5):
                if keys[k, i] >= 0:
                    found[SELF + k] += share
        for j in range(T):
            if tokens[b, j] < V:
                found[TOKENS + tokens[b, j]] += columns[j]
        for k in range(TOKENS + V):
            if known[k] >= 0:
                sums[b, 0, known[k]], counts[b, 0, known[k]] = found[k], n[k]


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
    rows_from: int,
    fresh: bool,  # whether positions and allowed keys are others than last time
    scene: Any,  # (6, R, T), written: distance, offset, copies, what followed a copy, keys alike and unlike
    keys: Any,  # (5, R), written: where the keys of SELF to LAST stand; -1 for none
    as_before: Any,  # (R,), written: True where a row may see the same keys as the row above
    seen: Any,  # (V,), room: 1 for the tokens that a row may see
    n: Any,  # (15 + V), written: on how many rows each statistic is defined
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
                for k in (ENTROPY, MAX, EFFECTIVE, DISTANCE, OFFSET, SELF, NORM):
                    n[k] += 1
                n[NORMALIZED] += others > 1
                n[PREVIOUS] += here > 0
                n[FIRST] += here > 0
                n[NEXT] += here < end
                n[LAST] += here < end
    n[DUPLICATE] = n[INDUCTION] = n[SELECTIVITY] = 0
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


@partial(compiled, inline=True)
def four(p: Any, a: Any, b: Any, c: Any, d: Any) -> tuple[float, float, float, float]:
    A = B = C = D = 0.0
    for t in range(len(p)):
        A += p[t] * a[t]
        B += p[t] * b[t]
        C += p[t] * c[t]
        D += p[t] * d[t]
    return A, B, C, D


@partial(compiled, inline=True)
def five(p: Any, ln: Any, a: Any, b: Any) -> tuple[float, float, float, float, float]:
    """Σ p ln p, Σ p, Σ p², Σ p a and Σ p b."""
    nats = whole = squares = A = B = 0.0
    for t in range(len(p)):
        x = p[t]
        nats += x * ln[t]
        whole += x
        squares += x * x
        A += x * a[t]
        B += x * b[t]
    return nats, whole, squares, A, B


@partial(compiled, inline=True, no_nan=True)
def top(row: Any) -> float:
    best = 0.0
    for x in row:
        best = max(best, x)
    return best


@partial(compiled, inline=True)
def square_lengths(output: Any, w_o: Any, outputs: Any, projected: Any, squared: Any) -> None:
    """‖o W‖² of every row o of `output` (R, d), for a lower triangle W (d, r)."""
    R, d = output.shape
    for i in range(R):
        for a in range(d):
            outputs[a, i] = output[i, a]
    squared[:] = 0
    for k in range(w_o.shape[1]):
        projected[:] = 0
        for a in range(k, d):
            add(projected, outputs[a], w_o[a, k])
        for i in range(R):
            squared[i] += projected[i] * projected[i]


@partial(compiled, inline=True)
def add(total: Any, x: Any, times: Any) -> None:
    for i in range(len(total)):
        total[i] += x[i] * times
