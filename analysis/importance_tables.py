"""The tables of what heads are worth, and which statistic of a head foretells it."""

from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from scipy import stats

from attnkit import importance_plots
from attnkit.ablation import Head
from attnkit.importance import Importance, at
from attnkit.moments import Moments
from attnkit.tables import Z95

if TYPE_CHECKING:  # needs transformers
    from attnkit.hfimportance import Similarities

COUNTED = {"lost": "answers_lost", "gained": "answers_gained"}  # effects that are told as a number of sequences
CORRELATION = ["spearman", "spearman_ci_low", "spearman_ci_high", "p"]
LEAST = 4  # heads, from which on a rank correlation has an interval
EXACT = 8  # heads up to which a permutation test goes through all orders, of which there are then 40,320
PERMUTATIONS = 9999  # random ones of more


def importance_frame(importance: Importance, *, population: bool) -> pd.DataFrame:
    """`head_importance`: one row per layer, head and method.

    `accuracy_drop` and `loss_increase` (nats), or what else is in `importance.effects`, are means over the sequences,
    each with the ends of its 95 % interval; over a population only `resample` has one, for the draw alone varies.
    `answers_lost` counts what was right and becomes wrong, `answers_gained` the reverse (`resample`: the mean of its
    draws). `gradient` has `gradient_importance`, mean |∂loss/∂ξ|, and as its loss_increase what the slope foretells,
    −mean ∂loss/∂ξ.
    """
    measured = {effect: k for k, effect in enumerate(importance.effects) if effect not in COUNTED}
    counted = {COUNTED[effect]: k for k, effect in enumerate(importance.effects) if effect in COUNTED}
    frames = []
    for method, m in importance.of_head.items():
        layer, head = (axis.ravel() for axis in np.indices(m.count.shape[:2]))
        frame = pd.DataFrame({"layer": layer, "head": head, "method": method, "n": m.count[..., 0].long().ravel()})
        if method == "gradient":
            columns = {"loss_increase": 0, "gradient_importance": 1}
        else:
            columns = measured
            for name, k in counted.items():
                frame[name] = (m.mean * m.count)[..., k].ravel().numpy()
        error = m.sem
        if population:
            draw = importance.draw
            error = (draw.mean / draw.count).sqrt() if method == "resample" else torch.full_like(m.mean, torch.nan)
        frames.append(frame.join(intervals(m, error, columns)))
    table = pd.concat(frames, ignore_index=True)
    ends = ("", "_ci_low", "_ci_high")
    slope = ["gradient_importance"] if "loss_increase" in measured else []
    first = [f"{name}{end}" for name in (*measured, *slope) for end in ends]
    names = ["layer", "head", "method", "n", *first, *counted]
    table = table.reindex(columns=names).sort_values(["layer", "head"], kind="stable", ignore_index=True)
    assert table["n"].gt(0).any()
    return table[table["n"] > 0].reset_index(drop=True)


def intervals(m: Moments, error: torch.Tensor, columns: dict[str, int]) -> pd.DataFrame:
    """Means with the ends of their 95 % intervals; `columns` names places on the last axis."""
    values: dict[str, np.ndarray] = {}
    for name, k in columns.items():
        mean, half = (t[..., k].ravel().numpy() for t in (m.nan_mean, Z95 * error))
        values |= {name: mean, f"{name}_ci_low": mean - half, f"{name}_ci_high": mean + half}
    return pd.DataFrame(values)


def paired(m: Moments, columns: dict[str, int], *, population: bool) -> pd.DataFrame:
    return intervals(m, torch.full_like(m.mean, torch.nan) if population else m.sem, columns)


def pairs_frame(importance: Importance, pairs: list[tuple[Head, Head]], *, population: bool) -> pd.DataFrame:
    """Without both of two heads (zero ablation): `accuracy_drop` and `loss_increase`, and how much of each is beyond
    the sum of what the two cost alone. Above 0: each covers for the other."""
    who = pd.DataFrame([(*a, *b) for a, b in pairs], columns=["layer_a", "head_a", "layer_b", "head_b"])
    who["n"] = importance.pairs.count[:, 0].long().numpy()
    columns = {"accuracy_drop": 0, "loss_increase": 1, "accuracy_beyond_sum": 4, "loss_beyond_sum": 5}
    return who.join(paired(importance.pairs, columns, population=population))


def pruning_frame(
    importance: Importance, order: Sequence[tuple[Head, Moments | None]], *, population: bool
) -> pd.DataFrame:
    """How the model does with ever fewer heads: `removed` so many, the last of them (layer, head); `accuracy` and
    `loss` where it has them, and what is lost. NaN where that was not measured."""
    effects = {name: k for k, name in enumerate(importance.effects) if name not in COUNTED}
    steps = [pd.DataFrame({"removed": [0]} | dict.fromkeys(effects, 0.0))]
    for number, ((layer, head), m) in enumerate(order, start=1):
        one = pd.DataFrame({"removed": [number], "layer": layer, "head": head})
        if m is not None:
            one = one.join(paired(at(m, None), effects, population=population))
        steps.append(one)
    table = pd.concat(steps, ignore_index=True).astype({"layer": "Int64", "head": "Int64"})
    as_a_whole = ["accuracy", "loss"] if "loss_increase" in effects else []
    if as_a_whole:
        right, loss = importance.whole.mean.tolist()
        table["accuracy"], table["loss"] = right - table["accuracy_drop"], loss + table["loss_increase"]
    ends = [f"{name}{end}" for name in effects for end in ("", "_ci_low", "_ci_high")]
    return table[["removed", "layer", "head", *as_a_whole, *ends]]


def similarity_frame(importance: Importance, similarities: "Similarities") -> pd.DataFrame:
    """`pairs`, the number of pairs of texts behind similarity_change, and `similarity_rank`, Spearman's correlation of
    their cosines (of the first 16,384) without the head and with it; NaN for a single pair."""
    frames = []
    for method, cosines in similarities.changed.items():
        P, L, H = cosines.shape
        plain, changed = (stats.rankdata(t.numpy(), axis=0) for t in (similarities.plain, cosines.flatten(1)))
        ranks = [float(unit(plain) @ unit(changed[:, k])) if P > 1 else np.nan for k in range(L * H)]
        layer, head = (axis.ravel() for axis in np.indices((L, H)))
        frame = pd.DataFrame({"layer": layer, "head": head, "method": method})
        frame["pairs"] = importance.of_head[method].count[..., 1].long().ravel().numpy()
        frames.append(frame.assign(similarity_rank=ranks))
    return pd.concat(frames, ignore_index=True)


def predictors_frame(long: pd.DataFrame, of_heads: pd.DataFrame) -> pd.DataFrame:
    """Does a statistic of a head foretell what is lost without it (zero ablation)?

    Spearman's rank correlation over the heads, with a 95 % interval (Bonett & Wright 2000, equation 3), the p-value of
    a permutation test, and that adjusted over all rows (Benjamini & Hochberg 1995). A statistic that is the same for
    all heads, or not defined for all, is absent; so is an effect that is.
    """
    keys = ["layer", "head"]
    statistics = long[long["group"] == "all"].pivot(index=keys, columns="statistic", values="mean")
    statistics = statistics[list(dict.fromkeys(long["statistic"]))]
    if "gradient_importance" in of_heads:
        gradient = of_heads[of_heads["method"] == "gradient"].set_index(keys)["gradient_importance"]
        statistics = statistics.join(gradient)
    zero = of_heads[of_heads["method"] == "zero"].set_index(keys)
    effects = zero[[effect for effect in importance_plots.EFFECTS if effect in zero]]
    rows = []
    for effect in effects:
        for statistic in statistics:
            x, y = statistics[statistic].to_numpy(), effects[effect].to_numpy()
            if len(x) > 1 and np.isfinite(x).all() and np.ptp(x) > 0 and np.ptp(y) > 0:
                rows.append((statistic, effect, len(x), *rank_correlation(x, y)))
    table = pd.DataFrame(rows, columns=["statistic", "effect", "n", *CORRELATION])
    return table.assign(p_adjusted=stats.false_discovery_control(table["p"]) if rows else [])


def rank_correlation(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Spearman's ρ, the ends of its 95 % interval (NaN below 4 heads, or where ρ is 1 or −1), and p by permutation."""
    a, b = (unit(stats.rankdata(values)) for values in (x, y))
    rho = float(np.clip(a @ b, -1, 1))
    p = float(np.mean(np.abs(b[orders(len(b))] @ a) >= abs(rho) - 1e-12))
    if len(x) < LEAST or abs(rho) > 1 - 1e-12:
        return rho, np.nan, np.nan, p
    half = Z95 * np.sqrt((1 + rho**2 / 2) / (len(x) - 3))
    return rho, float(np.tanh(np.arctanh(rho) - half)), float(np.tanh(np.arctanh(rho) + half)), p


@cache
def orders(n: int) -> np.ndarray:
    """(orders, n): all of n things, or of many the one that is and so many at random."""
    if n <= EXACT:
        return np.array(list(permutations(range(n))))
    first = np.arange(n)
    return np.vstack([first, np.random.default_rng(0).permuted(np.tile(first, (PERMUTATIONS, 1)), axis=1)])


def unit(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean()
    return centred / np.linalg.norm(centred)


def statistics_rows(importance: Importance, *, population: bool) -> pd.DataFrame:
    """What a head is worth as rows of `head_stats_long`: what zero ablation costs, of `importance.effects`, and
    gradient_importance where there is a gradient, over all sequences."""
    places = [(name, "zero", k) for k, name in enumerate(importance.effects) if name not in COUNTED]
    places += [("gradient_importance", "gradient", 1)] if "gradient" in importance.of_head else []
    frames = []
    for name, method, k in places:
        m = importance.of_head[method]
        layer, head = (axis.ravel() for axis in np.indices(m.count.shape[:2]))
        frame = pd.DataFrame({"layer": layer, "head": head, "statistic": name, "group": "all"})
        columns = {"n": m.count.long(), "mean": m.mean, "std": m.std, "sem": m.sem}
        columns |= {"ci_low": m.mean - Z95 * m.sem, "ci_high": m.mean + Z95 * m.sem, "min": m.low, "max": m.high}
        frames.append(frame.assign(**{name: values[..., k].ravel().numpy() for name, values in columns.items()}))
    table = pd.concat(frames, ignore_index=True)
    return table.drop(columns=["sem", "ci_low", "ci_high"]) if population else table


DICTIONARY = pd.DataFrame(  # of these rows, as in `tables.dictionary_frame`
    [
        ("accuracy_drop", "accuracy − accuracy without the head (its output replaced by 0)", "none"),
        (
            "loss_increase",
            "loss without the head (its output replaced by 0) − loss; of a language model per token",
            "nats",
        ),
        ("answers_changed", "share of answers that are others without the head (its output replaced by 0)", "none"),
        ("divergence", "Kullback–Leibler divergence of what the model says without the head from what it says", "nats"),
        ("embedding_change", "1 − cosine of a text’s embedding without the head and with it", "none"),
        ("similarity_change", "|cosine of two neighbouring texts without the head − with it|", "none"),
        ("gradient_importance", "|∂loss/∂ξ| with a gate ξ = 1 on the head's output", "nats"),
    ],
    columns=["statistic", "definition", "unit"],
).assign(defined_on="sequences, those with a label where it is of answers that are right", uniform="none")
