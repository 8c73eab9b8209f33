"""HeadStats as pandas frames: tidy, full precision, one row per head, statistic and group."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from attnkit.headstats import Cell, HeadStats
from attnkit.histogram import Histogram
from attnkit.measures import Measure
from attnkit.offsets import OffsetSums
from attnkit.reading import NO_LABEL, Readings

KEYS = ["layer", "head", "statistic", "group"]
Z95 = 1.96  # a normal 95 % interval: mean ± 1.96 standard errors
CONSTANT = 1e-12  # a head that departs from uniform by less than this has no positional share

WHOLE_SET = {  # statistics that only a whole set has, and what they mean
    "entropy_of_mean": ("nats", "entropy of the rows of the mean map, averaged over the rows", "ln n_i"),
    "positional_share": (
        "none",
        "Σ_ij (mean p_ij − 1/n_i)² / Σ_ij mean (p_ij − 1/n_i)²: the share of the departure from uniform that position "
        "alone explains; 1 is a fixed pattern, near 0 the pattern comes from the content",
        "none",
    ),
}


def groups(stats: HeadStats, classes: Sequence[str]) -> dict[str, Cell]:
    """The groups of sequences that are not empty: all, by label, by prediction, and the right and wrong answers."""
    members: dict[str, list[Cell]] = {"all": []}
    members |= {f"label={name}": [] for name in classes} | {f"predicted={name}": [] for name in classes}
    members |= {"correct": [], "wrong": []}
    for (label, predicted), cell in stats.cells.items():
        members["all"].append(cell)
        if predicted != NO_LABEL:
            members[f"predicted={classes[predicted]}"].append(cell)
        if label != NO_LABEL:
            members[f"label={classes[label]}"].append(cell)
            if predicted != NO_LABEL:
                members["correct" if label == predicted else "wrong"].append(cell)
    return {name: reduce(add, cells) for name, cells in members.items() if cells}


def long_frame(
    stats: HeadStats,
    measures: dict[str, Measure],
    classes: Sequence[str],
    *,
    population: bool,
    untrained: HeadStats | None = None,
) -> pd.DataFrame:
    """One row per layer, head, statistic and group; a statistic that is nowhere defined has none.

    Over a population there is no sampling error: `sem` and the interval are left out. `untrained`, the statistics of
    a fresh model on the same sequences, adds a column of that name.
    """
    cells = groups(stats, classes)
    layer, head, k = (axis.ravel() for axis in np.indices(next(iter(cells.values())).values.count.shape))
    of_groups = []
    for cell in cells.values():
        m, sem = cell.values, cell.values.sem
        columns = {"n": m.count.long(), "mean": m.nan_mean, "std": m.std, "sem": sem}
        columns |= {"ci_low": m.mean - Z95 * sem, "ci_high": m.mean + Z95 * sem, "min": m.low, "max": m.high}
        columns |= {"uniform": cell.uniform.nan_mean[:, None].expand_as(m.mean)}
        of_groups.append({name: values.numpy().ravel() for name, values in columns.items()})
    rows = {"layer": layer, "head": head, "statistic": np.array(stats.names, dtype=object)[k]}
    frame = pd.DataFrame({name: np.tile(values, len(cells)) for name, values in rows.items()})
    frame["group"] = np.repeat(np.array(list(cells), dtype=object), len(k))
    numbers = {name: np.concatenate([of_group[name] for of_group in of_groups]) for name in of_groups[0]}
    parts = [frame.assign(**numbers)]
    parts += [whole_set_frame(stats)] if stats.maps else []
    table = pd.concat(parts, ignore_index=True)
    table = table[table["n"] > 0].reset_index(drop=True)
    is_weight = table["statistic"].map(lambda name: name in measures and measures[name].unit == "weight")
    ratio = (table["mean"] / table["uniform"]).where(is_weight & (table["mean"] > 0) & (table["uniform"] > 0))
    table["log2_enrichment"] = np.log2(ratio)
    if untrained is not None:
        baseline = long_frame(untrained, measures, classes, population=population)
        table = table.merge(baseline[[*KEYS, "mean"]].rename(columns={"mean": "untrained"}), on=KEYS, how="left")
    return table.drop(columns=["sem", "ci_low", "ci_high"]) if population else table


def whole_set_frame(stats: HeadStats) -> pd.DataFrame:
    """`entropy_of_mean` and `positional_share` of every head, over the sequences whose mean maps are kept."""
    n = sum(sums.count for sums in stats.maps.values())
    entropy = (
        reduce(add, (s.count * torch.special.entr(s.mean).sum(dim=-1).mean(dim=-1) for s in stats.maps.values())) / n
    )
    by_position = reduce(add, (s.count * s.departure_of_mean for s in stats.maps.values()))
    in_all = reduce(add, (s.count * s.departure for s in stats.maps.values()))
    share = torch.where(in_all / n > CONSTANT, by_position / in_all, torch.nan)
    uniform = (
        reduce(add, (s.count * torch.special.entr(s.uniform).sum(dim=-1).mean(dim=-1) for s in stats.maps.values())) / n
    ).expand_as(entropy)
    nothing = torch.full_like(entropy, torch.nan)
    parts = []
    for name, values, reference in (("entropy_of_mean", entropy, uniform), ("positional_share", share, nothing)):
        layer, head = (axis.ravel() for axis in np.indices(values.shape))
        frame = pd.DataFrame({"layer": layer, "head": head, "statistic": name, "group": "all", "n": n})
        frame["mean"], frame["uniform"] = values.numpy().ravel(), reference.numpy().ravel()
        parts.append(frame[frame["mean"].notna()])
    return pd.concat(parts, ignore_index=True)


def wide_frame(long: pd.DataFrame) -> pd.DataFrame:
    """One row per head: layer, head, then the mean of each statistic over all sequences."""
    of_all = long[long["group"] == "all"]
    wide = of_all.pivot(index=["layer", "head"], columns="statistic", values="mean")
    return wide[list(dict.fromkeys(of_all["statistic"]))].reset_index().rename_axis(columns=None)


def histogram_frame(stats: HeadStats, measures: dict[str, Measure], classes: Sequence[str]) -> pd.DataFrame:
    """How the sequence values are distributed: the bins that are not empty, with their edges."""
    edges = Histogram(measures, stats.longest).edges().numpy()
    parts = []
    for group, cell in groups(stats, classes).items():
        counts = cell.histogram.numpy()
        layer, head, k, b = counts.nonzero()
        names = np.array(stats.names, dtype=object)
        frame = pd.DataFrame({"layer": layer, "head": head, "statistic": names[k], "group": group})
        frame["low"], frame["high"], frame["count"] = edges[k, b], edges[k, b + 1], counts[layer, head, k, b]
        parts.append(frame)
    return pd.concat(parts, ignore_index=True)


def offset_profile_frame(stats: HeadStats) -> pd.DataFrame:
    """mean p_{i,i+k} for every offset k, over the rows where both ends exist; `n` counts those rows."""
    parts: dict[int, list[tuple[int, np.ndarray]]] = {}
    for T, sums in stats.maps.items():
        maps = sums.mean.numpy()
        for k in range(-(T - 1), T):
            parts.setdefault(k, []).append((sums.count * (T - abs(k)), np.diagonal(maps, k, -2, -1).mean(axis=-1)))
    rows = []
    for k in sorted(parts):
        n = sum(count for count, _ in parts[k])
        mean = sum(count * values for count, values in parts[k]) / n
        rows += [(layer, head, k, n, value) for (layer, head), value in np.ndenumerate(mean)]
    return pd.DataFrame(rows, columns=["layer", "head", "offset", "n", "mean"]).sort_values(
        ["layer", "head", "offset"], ignore_index=True
    )


def offsets_frame(offsets: OffsetSums) -> pd.DataFrame:
    """The same of texts of any lengths: `n` counts the pairs of a query and a key that it may see."""
    reach = offsets.pairs.shape[-1] // 2
    layer, head, k = (axis.ravel() for axis in np.indices(offsets.weights.shape))
    n = offsets.pairs.numpy()[layer, k]
    frame = pd.DataFrame({"layer": layer, "head": head, "offset": k - reach, "n": n.astype(np.int64)})
    seen = n > 0
    frame = frame[seen].reset_index(drop=True)
    return frame.assign(mean=offsets.weights.numpy().ravel()[seen] / n[seen])


def per_sequence_table(readings: Readings, names: Sequence[str], places: Mapping[str, np.ndarray]) -> pa.Table:
    """One row per sequence and head: `places`, the columns (B,) that say which sequence it is, `label` and `predicted`
    as class numbers (null where there is none), `loss`, `layer`, `head`, each statistic (null where undefined)."""
    B, layers, heads, _ = readings.values.shape
    row, layer, head = (axis.ravel() for axis in np.indices((B, layers, heads)))
    labels, predicted, loss = (t.numpy()[row] for t in (readings.labels, readings.predicted, readings.loss))
    columns = {name: pa.array(of_sequences[row]) for name, of_sequences in places.items()}
    columns |= {
        "label": pa.array(labels, mask=labels == NO_LABEL),
        "predicted": pa.array(predicted, mask=predicted == NO_LABEL),
        "loss": pa.array(loss, mask=np.isnan(loss)),
        "layer": pa.array(layer),
        "head": pa.array(head),
    }
    values, defined = readings.values.flatten(0, 2).numpy(), readings.defined.flatten(0, 2).numpy()
    columns |= {name: pa.array(values[:, k], mask=~defined[:, k]) for k, name in enumerate(names)}
    return pa.table(columns)


def dictionary_frame(measures: dict[str, Measure]) -> pd.DataFrame:
    """What each statistic means: the data dictionary."""
    rows = [(name, m.definition, m.unit, m.defined_on, m.uniform_text) for name, m in measures.items()]
    rows += [(name, text, unit, "the whole set", uniform) for name, (unit, text, uniform) in WHOLE_SET.items()]
    return pd.DataFrame(rows, columns=["statistic", "definition", "unit", "defined_on", "uniform"])


def accuracy_and_loss(stats: HeadStats) -> tuple[float | None, float | None]:
    """The share of right answers (0 to 1) and the mean cross-entropy (nats), over the sequences that have them."""
    answered = {key: int(cell.loss.count) for key, cell in stats.cells.items() if NO_LABEL not in key}
    right = sum(n for (label, predicted), n in answered.items() if label == predicted)
    loss = reduce(add, (cell.loss for cell in stats.cells.values()))
    return right / sum(answered.values()) if answered else None, float(loss.mean) if loss.count > 0 else None
