"""The tables of `analysis.training_dynamics`."""

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnkit.ablation import Head
from attnkit.headstats import HeadStats
from attnkit.moments import Moments
from attnkit.reading import NO_LABEL
from attnkit.tables import Z95

LONGEST_MAP = 64  # tokens; the table of maps grows with their square


def named(table: pd.DataFrame, training: str, matched: dict[Head, Head]) -> pd.DataFrame:
    """With the columns that say of what it is in front: `matched` is the number of the head of the first checkpoint, in
    the same layer, that does the same."""
    table = table.assign(checkpoint=training)
    first = ["checkpoint", "step"]
    if "head" in table:
        pairs = zip(table["layer"], table["head"], strict=True)
        table = table.assign(matched=[matched[pair][1] for pair in pairs])
        first += ["layer", "head", "matched"]
    first = [column for column in first if column in table]
    return table[[*first, *(c for c in table if c not in {*first, "group", "log2_enrichment"})]]


def curve_frame(answers: dict[str, Moments], step: int, *, n: int, population: bool) -> pd.DataFrame:
    """`training_curve`: one row a checkpoint and step: of the `answers` that there are `accuracy` (0 to 1) and `loss`
    (nats; of a language model per token), over the `n` sequences."""
    row: dict[str, Any] = {"step": step, "n": n}
    row |= {name: float(m.mean) for name, m in answers.items()}
    for name, m in () if population else answers.items():
        half = Z95 * float(m.sem)
        row |= {f"{name}_ci_low": float(m.mean) - half, f"{name}_ci_high": float(m.mean) + half}
    return pd.DataFrame([row])


def answers_of(stats: HeadStats) -> dict[str, Moments]:
    """The accuracy and the loss over the sequences that have them; what none has is not there."""
    found = {}
    answered = {key: int(cell.loss.count) for key, cell in stats.cells.items() if NO_LABEL not in key}
    right = [torch.full((n,), float(label == predicted)) for (label, predicted), n in answered.items()]
    if right:
        found["accuracy"] = Moments.of(torch.cat(right))
    loss = reduce(add, (cell.loss for cell in stats.cells.values()))
    return found | {"loss": loss} if loss.count > 0 else found


def change_frame(m: Moments, heads: list[Head], start: int, end: int, *, population: bool) -> pd.DataFrame:
    """`training_changes`: how much each head changes from `step_from` to `step_to`, over the `n` sequences.

    `js_divergence` in bits, 0 to 1, with its 95 % interval unless these are all sequences there are; `js_distance`,
    its root; `per_doubling`, that for each doubling of 1 + step.
    """
    table = pd.DataFrame(heads, columns=["layer", "head"]).assign(step_from=start, step_to=end)
    mean, half = m.nan_mean.numpy(), Z95 * m.sem.numpy()
    table["n"], table["js_divergence"] = m.count.long().numpy(), mean
    if not population:
        table["js_divergence_ci_low"], table["js_divergence_ci_high"] = mean - half, mean + half
    distance = np.sqrt(mean)
    return table.assign(js_distance=distance, per_doubling=distance / np.log2((1 + end) / (1 + start)))


def maps_frame(stats: HeadStats) -> pd.DataFrame:
    """`training_maps`: the mean weight of each query on each key, and what uniform attention gives.

    Of several lengths, up to 64, it is the one that most sequences have, or of two as frequent the longer.
    """
    counts = {T: (sums.count, T) for T, sums in stats.maps.items() if T <= LONGEST_MAP}
    if not counts:
        return pd.DataFrame(columns=["layer", "head", "query", "key", "weight", "uniform"])
    sums = stats.maps[max(counts, key=counts.__getitem__)]
    weights, uniform = sums.mean.numpy(), sums.uniform.expand_as(sums.mean).numpy()
    layer, head, query, key = (axis.ravel().astype(np.int32) for axis in np.indices(weights.shape))
    places = {"layer": layer, "head": head, "query": query, "key": key}
    return pd.DataFrame({**places, "weight": weights.ravel(), "uniform": uniform.ravel()})


def average_frame(dynamics: pd.DataFrame) -> pd.DataFrame:
    """`training_average`: mean, smallest (`low`) and largest (`high`) over the checkpoints, of heads that are matched.

    `head` is the number in the first checkpoint. One row a step, head and statistic; `checkpoints` says of how many.
    """
    keys = ["step", "layer", "matched", "statistic"]
    grouped = dynamics.groupby(keys, sort=False)
    table = grouped["mean"].agg(checkpoints="count", mean="mean", low="min", high="max")
    return table.assign(uniform=grouped["uniform"].mean()).reset_index().rename(columns={"matched": "head"})


def average_changes(changes: pd.DataFrame) -> pd.DataFrame:
    """`training_changes_average`: the mean over the checkpoints of how much heads that are matched change."""
    keys = ["layer", "matched", "step_from", "step_to"]
    mean = changes.groupby(keys, sort=False)[["js_distance", "per_doubling"]].mean()
    return mean.reset_index().rename(columns={"matched": "head"})
