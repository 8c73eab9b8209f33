"""Every row statistic of a map in one pass over its weights, as loops. Called through `fused.OnePass`."""

import math
from functools import partial
from typing import Any

import numpy as np

from attnkit.exponential import LOWEST, exp_below
from attnkit.machine import compiled
from attnkit.survey import (
    DISTANCE,
    DUPLICATE,
    EFFECTIVE,
    ENTROPY,
    INDUCTION,
    MAX,
    NORM,
    NORMALIZED,
    OFFSET,
    SELECTIVITY,
    SELF,
    SPECIAL,
    TOKENS,
    rooms,
    survey,
)

TOGETHER = 1024  # weights of a map that are read at once: as float64 they fill a part of the nearest cache


@compiled
def read(
    start: int,
    stop: int,
    weights: Any,  # (stop - start, H, R, T), those of these sequences alone
    logs: Any,  # their logarithms, finite ones also of 0: 0 ln 0 = 0
    scores: bool,  # whether `weights` are scores yet, in float32: weights are written in their place, `logs` not read
    tokens: Any,  # (B, T)
    position: Any,  # (b, T)
    allowed: Any,  # (b, R, T)
    real: Any,  # (b, R), False on padded rows
    special: Any,  # (B, T) or (1, T), True on special keys
    asked: Any,  # (B, R) or (1, R), whether a row is asked for its weight on these
    rows_from: int,  # the number of the first row among the T queries
    known: Any,  # (16 + V), which of the K statistics those above are; −1 for one that is not asked for
    sums: Any,  # (B, H, K), written: sums over the rows
    counts: Any,  # (B, H, K), written: on how many rows each is defined
    uniform: bool,  # whether uniform attention is to be read as well
    uniform_sums: Any,  # (B, 1, K), written
    uniform_counts: Any,  # (B, 1, K), written
) -> float:
    """All statistics but the outputs' of the sequences from `start` to `stop`, each map read while it is in the cache.

    Returns how far from 1 a row sums at most; NaN if one is no number.
    """
    _, H, R, T = weights.shape
    off = 0.0
    V = len(known) - TOKENS
    step = min(max(TOGETHER // T, 1), R)
    columns, found, tops = np.empty(T), np.empty(TOKENS + V), np.empty(step, weights.dtype)
    p, e, ln = np.empty((step, T)), np.empty((step, T), weights.dtype), np.empty((step, T), weights.dtype)
    flat_p, flat_e, flat_ln = p.ravel(), e.ravel(), ln.ravel()  # views made here, not where each would be counted
    spare = np.empty((2, step * T), weights.dtype)
    room = rooms(R, T, V)
    scene, keys, _, _, n, per_nat, handicap = room
    selective, of_special = known[SELECTIVITY] >= 0, known[SPECIAL] >= 0
    for b in range(start, stop):
        c, m, s = min(b, len(real) - 1), min(b, len(allowed) - 1), min(b, len(special) - 1)
        fresh = b == start or len(allowed) > 1
        survey(tokens[b], position[c], allowed[m], real[c], special[s], asked[s], rows_from, fresh, *room)
        if uniform:
            sides = tokens[b], allowed[m], real[c], special[s], asked[s]
            read_uniform(*sides, room, columns, found, known, uniform_sums[b, 0], uniform_counts[b, 0])
        for h in range(H):
            clear(found)
            clear(columns)
            n[SELECTIVITY] = 0
            odds, scale = 1.0, 1.0  # the logarithm of a product is the sum of theirs, and sooner taken
            rate = 0.0  # 1 / ln n of the rows whose sums are in the product `scale`
            for first in range(0, R, step):
                rows = min(step, R - first)
                block = weights[b - start, h, first : first + rows].ravel()
                size = len(block)
                for t in range(size):
                    flat_e[t] = block[t]
                highest(flat_e, size, T, spare, tops)
                if scores:
                    exponentiate(e, flat_e, size, tops, flat_ln, flat_p)
                else:
                    given = logs[b - start, h, first : first + rows].ravel()
                    for t in range(size):
                        flat_p[t] = block[t]
                        flat_ln[t] = given[t]
                for r in range(rows):
                    i = first + r
                    whole, nats, squares, distance, offset, copies, after, same, other = sums_of(p, ln, r, scene, i)
                    z = whole if scores else 1.0
                    inv = 1 / z
                    if scores:
                        for j in range(T):
                            p[r, j] *= inv
                            weights[b - start, h, i, j] = p[r, j]
                    if not real[c, i]:
                        continue
                    if off == off and not abs(1 - whole * inv) <= off:  # NaN is no less than anything, and stays
                        off = abs(1 - whole * inv)
                    if per_nat[i] != rate or not scale < 1e100:
                        found[ENTROPY] += math.log(scale)
                        found[NORMALIZED] += math.log(scale) * rate
                        scale, rate = 1.0, per_nat[i]
                    scale *= z
                    found[ENTROPY] -= nats * inv
                    found[NORMALIZED] -= nats * inv * rate
                    found[MAX] += inv if scores else tops[r]
                    found[EFFECTIVE] += z * z / squares
                    found[DISTANCE] += distance * inv
                    found[OFFSET] += offset * inv
                    found[DUPLICATE] += copies * inv
                    found[INDUCTION] += after * inv
                    if selective and same > 0 and other > 0:
                        odds *= same / other * handicap[i]
                        if not 1e-8 < odds < 1e8:
                            found[SELECTIVITY] += math.log(odds)
                            odds = 1.0
                        n[SELECTIVITY] += 1
                    for j in range(T):
                        columns[j] += p[r, j]
                    for k in range(5):
                        if keys[k, i] >= 0:
                            found[SELF + k] += p[r, keys[k, i]]
                    if of_special and asked[s, i]:
                        for j in range(T):
                            found[SPECIAL] += p[r, j] * special[s, j]
            found[SELECTIVITY] += math.log(odds)
            found[ENTROPY] = max(found[ENTROPY] + math.log(scale), 0.0)
            found[NORMALIZED] = max(found[NORMALIZED] + math.log(scale) * rate, 0.0)
            for j in range(T):
                if tokens[b, j] < V:
                    found[TOKENS + tokens[b, j]] += columns[j]
            for k in range(TOKENS + V):
                if k != NORM and known[k] >= 0:
                    sums[b, h, known[k]], counts[b, h, known[k]] = found[k], n[k]
    return off


@partial(compiled, inline=True)
def read_uniform(
    tokens: Any,  # (T,)
    allowed: Any,  # (R, T)
    real: Any,  # (R,)
    special: Any,  # (T,)
    asked: Any,  # (R,)
    room: Any,  # as `survey` left it
    columns: Any,  # (T,), room
    found: Any,  # (16 + V), room
    known: Any,
    sums: Any,  # (K,), written
    counts: Any,  # (K,), written
) -> None:
    """What `read` would say of a head that attends uniformly to the keys that it may see; nothing of its output."""
    scene, keys, _, _, n, per_nat, _ = room
    R, T = allowed.shape
    no_logs = np.zeros((R, T))
    clear(found)
    clear(columns)
    for i in range(R):
        if not real[i]:
            continue
        others = allowed[i].sum()
        share = 1 / others
        part = sums_of(allowed, no_logs, i, scene, i)[3:7]
        for k, name in enumerate((DISTANCE, OFFSET, DUPLICATE, INDUCTION)):
            found[name] += part[k] * share
        found[ENTROPY] += 1 / per_nat[i] if others > 1 else 0.0
        found[NORMALIZED] += 1
        found[MAX] += share
        found[EFFECTIVE] += others
        for j in range(T):
            columns[j] += allowed[i, j] * share
        for k in range(5):
            if keys[k, i] >= 0:
                found[SELF + k] += share
        if asked[i]:
            for j in range(T):
                found[SPECIAL] += special[j] * allowed[i, j] * share
    for j in range(T):
        if tokens[j] < len(found) - TOKENS:
            found[TOKENS + tokens[j]] += columns[j]
    for k in range(len(found)):
        if k != NORM and known[k] >= 0:
            sums[known[k]], counts[known[k]] = found[k], n[ENTROPY] if k in (NORMALIZED, SELECTIVITY) else n[k]


@partial(compiled, inline=True)
def clear(x: Any) -> None:
    for t in range(len(x)):
        x[t] = 0.0


@partial(compiled, inline=True)
def sums_of(p: Any, ln: Any, r: int, scene: Any, i: int) -> Any:
    """Of the row p[r] Σ p, Σ p ln p, Σ p², and Σ p times each of the scene of row i: see `survey`."""
    whole = nats = squares = a0 = a1 = a2 = a3 = a4 = a5 = 0.0
    for t in range(p.shape[1]):
        x = p[r, t]
        whole += x
        nats += x * ln[r, t]
        squares += x * x
        a0 += x * scene[0, i, t]
        a1 += x * scene[1, i, t]
        a2 += x * scene[2, i, t]
        a3 += x * scene[3, i, t]
        a4 += x * scene[4, i, t]
        a5 += x * scene[5, i, t]
    return whole, nats, squares, a0, a1, a2, a3, a4, a5


@partial(compiled, inline=True)
def highest(x: Any, size: int, T: int, spare: Any, tops: Any) -> None:
    """Write the highest of each row of T to `tops`, in strides that double: many places are compared side by side.

    Numbers without a sign, for numba looks at each index that may be negative, and makes no vector instructions.
    """
    here, n, width = np.uint64(0), np.uint64(size), np.uint64(1)
    for t in range(n):
        spare[0, t] = x[t]
    while width < np.uint64(T):
        stride = min(width, np.uint64(T) - width)
        for t in range(n - stride):
            a, b = spare[here, t], spare[here, t + stride]
            spare[np.uint64(1) - here, t] = a if a > b else b
        here = np.uint64(1) - here
        width += stride
    for r in range(size // T):
        tops[r] = spare[here, r * T]


@partial(compiled, inline=True)
def exponentiate(e: Any, flat: Any, size: int, tops: Any, ln: Any, p: Any) -> None:
    """Of scores `e` write what is left of them below the highest of their row to `ln`, and exp of that to p."""
    for r in range(size // e.shape[1]):
        for t in range(e.shape[1]):
            e[r, t] -= tops[r]
    for t in range(size):
        ln[t] = max(flat[t], LOWEST)  # 0 · −∞ is no number
        p[t] = exp_below(flat[t])
