"""Attention calls without a model: maps, tokens and padding in, the same event that a model reports out."""

import torch

from attnkit.measures import applicable
from attnkit.observe import AttentionCall
from attnkit.reading import Reader, blocks_of

BITS = ("0", "1")


def call_of(weights, layer=0):
    """A call whose heads have these weights (B, H, T, T), in float64, with values and projections of ones."""
    B, H, T, _ = weights.shape
    value = torch.ones(B, H, T, 2, dtype=weights.dtype)
    w_o = torch.ones(H, 2, 3, dtype=weights.dtype)
    return AttentionCall(layer, value, value, value, None, 1.0, weights, weights @ value, w_o)


def padded(maps, tokens, pad, side):
    """One map (T, T) and its tokens with `pad` columns of padding on a side, as a batch of one sequence and one head.

    A padded query row sums to 1 as well, as a softmax leaves it: it must not count.
    """
    T = len(tokens)
    start = pad if side == "left" else 0
    weights = torch.zeros(1, 1, T + pad, T + pad, dtype=torch.float64)
    weights[..., start] = 1
    weights[0, 0, start : start + T] = 0
    weights[0, 0, start : start + T, start : start + T] = torch.as_tensor(maps, dtype=torch.float64)
    ids = torch.full((1, T + pad), 1)
    ids[0, start : start + T] = torch.as_tensor(tokens)
    mask = torch.zeros(1, T + pad, dtype=torch.bool)
    mask[0, start : start + T] = True
    return weights, ids, mask


def read(weights, tokens, mask=None, *, causal=False, vocab=BITS):
    """The sequence values of a call: for each sequence and head {statistic: value}; undefined ones are absent."""
    measures = applicable(vocab, causal=causal)
    reader = Reader(measures, blocks_of(tokens, mask, causal=causal))
    values, defined = reader.read(reader.rows(call_of(weights)), 0)
    return [
        [{n: float(v) for n, v, d in zip(measures, vs, ds, strict=True) if d} for vs, ds in zip(V, D, strict=True)]
        for V, D in zip(values, defined, strict=True)
    ]
