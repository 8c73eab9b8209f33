"""The statistics as a notebook would get them: every map to numpy, a row of a frame for every sequence and head."""

import numpy as np
import pandas as pd
import torch

from attnkit.data import Batch
from attnkit.model import TinyTransformer

FIVE = ("entropy", "max_weight", "distance", "self_weight", "previous_weight")


@torch.no_grad()
def loop(model: TinyTransformer, batches: list[Batch], *, five: bool = False) -> pd.DataFrame:
    """The mean of every statistic for each head: of all of ours but what needs the heads' outputs, or of `FIVE`."""
    rows = []
    for batch in batches:
        maps = [a.cpu().numpy() for a in model(batch.tokens)[1]]
        for layer, of_layer in enumerate(maps):
            for x, sequence in zip(batch.tokens.numpy(), of_layer, strict=True):
                for head, p in enumerate(sequence):
                    rows.append({"layer": layer, "head": head} | (some(p) if five else all_of(x, p)))
    return pd.DataFrame(rows).groupby(["layer", "head"]).mean()


def some(p: np.ndarray) -> dict[str, float]:
    """`FIVE` of one map p (T, T)."""
    i, j = np.indices(p.shape)
    return {
        "entropy": -(p * np.log(p)).sum(axis=1).mean(),
        "max_weight": p.max(axis=1).mean(),
        "distance": (p * np.abs(i - j)).sum(axis=1).mean(),
        "self_weight": np.diagonal(p).mean(),
        "previous_weight": np.diagonal(p, -1).mean(),
    }


def all_of(x: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """All statistics of one map p (T, T) over the tokens x (T,) of 0 and 1."""
    i, j = np.indices(p.shape)
    same = x[:, None] == x[None]
    earlier = same & (j < i)
    followers = np.roll(same, 1, axis=1) & (j >= 1) & (j < i)
    alike, unlike = same & (i != j), ~same
    both = alike.any(axis=1) & unlike.any(axis=1)
    to_alike, to_unlike = ((p * keys).sum(axis=1)[both] / keys.sum(axis=1)[both] for keys in (alike, unlike))
    found = some(p) | {
        "entropy_normalized": -(p * np.log(p)).sum(axis=1).mean() / np.log(len(p)),
        "effective_keys": (1 / (p**2).sum(axis=1)).mean(),
        "offset": (p * (j - i)).sum(axis=1).mean(),
        "next_weight": np.diagonal(p, 1).mean(),
        "first_weight": p[1:, 0].mean(),
        "last_weight": p[:-1, -1].mean(),
        "duplicate_weight": (p * earlier).sum(axis=1)[earlier.any(axis=1)].mean() if earlier.any() else np.nan,
        "induction_weight": (p * followers).sum(axis=1)[followers.any(axis=1)].mean() if followers.any() else np.nan,
        "selectivity": np.log(to_alike / to_unlike).mean() if both.any() else np.nan,
    }
    return found | {f"token_weight[{t}]": p[:, x == t].sum(axis=1).mean() if (x == t).any() else np.nan for t in (0, 1)}
