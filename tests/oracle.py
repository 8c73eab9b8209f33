"""The definitions of the row statistics, written out with loops for one sequence in float64: slow and plain.

Nothing here is shared with attnkit, so that the two can be held against each other.
"""

import math

import numpy as np


def sequence_values(p, tokens, *, causal=False, vocab=2, contribution=None):
    """Every statistic of one head on one unpadded sequence: weights p (T, T), tokens (T,); undefined ones are absent.

    `contribution` (T, D) is what the head adds to each token, Σ_j p_ij v_j W_O.
    """
    T = len(tokens)
    rows: dict[str, list[float]] = {}

    def note(name, value):
        rows.setdefault(name, []).append(value)

    for i in range(T):
        keys = [j for j in range(T) if not causal or j <= i]
        n = len(keys)
        entropy = -sum(p[i, j] * math.log(p[i, j]) for j in keys if p[i, j] > 0)
        note("entropy", entropy)
        if n >= 2:
            note("entropy_normalized", entropy / math.log(n))
        note("max_weight", max(p[i, j] for j in keys))
        note("effective_keys", 1 / sum(p[i, j] ** 2 for j in keys))
        note("distance", sum(p[i, j] * abs(i - j) for j in keys))
        note("offset", sum(p[i, j] * (j - i) for j in keys))
        note("self_weight", p[i, i])
        if i >= 1:
            note("previous_weight", p[i, i - 1])
            note("first_weight", p[i, 0])
        if i <= T - 2 and not causal:
            note("next_weight", p[i, i + 1])
            note("last_weight", p[i, T - 1])
        for t in range(vocab):
            if any(tokens[j] == t for j in keys):
                note(f"token_weight[{t}]", sum(p[i, j] for j in keys if tokens[j] == t))
        earlier = [j for j in keys if j < i and tokens[j] == tokens[i]]
        if earlier:
            note("duplicate_weight", sum(p[i, j] for j in earlier))
        following = [j for j in keys if 1 <= j < i and tokens[j - 1] == tokens[i]]
        if following:
            note("induction_weight", sum(p[i, j] for j in following))
        alike = [p[i, j] for j in keys if j != i and tokens[j] == tokens[i]]
        unlike = [p[i, j] for j in keys if tokens[j] != tokens[i]]
        if alike and unlike and sum(alike) > 0 and sum(unlike) > 0:
            note("selectivity", math.log(np.mean(alike)) - math.log(np.mean(unlike)))
        if contribution is not None:
            note("output_norm", math.sqrt(sum(x * x for x in contribution[i])))
    return {name: math.fsum(values) / len(values) for name, values in rows.items()}
