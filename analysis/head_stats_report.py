"""The sections of the report that tell what heads do, read off the tables of `analysis.head_stats`."""

from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.columns import Dictionary
from analysis.findings import find
from analysis.page import Cell, Folder, Section, Table, figure_of, pictures, value_cell
from attnkit import plots
from attnkit.differences import MOST
from attnkit.labels import number, words_and_unit

FIGURES = {  # the beginning of a file's name: a title, and what to see
    "statistics": (
        "Every statistic of every head",
        "Each panel is one statistic, its rows are layers, its columns heads. White is what uniform attention would "
        "give, red is more, blue is less: coloured cells are heads that do something in particular.",
    ),
    "mean_attention": (
        "The mean map of every head",
        "Row: the position that looks (query); column: the position looked at (key). White is the weight of uniform "
        "attention. Stripes and diagonals that remain after averaging come from position; what depends on the "
        "content averages out.",
    ),
    "offsets": (
        "How far ahead or back each head looks",
        "Row: the head; column: where the key stands, counted in tokens from the query. A dark column at −1 or 1 is a "
        "head on the previous or the next token; the mean is over all queries that have such a key. It stands in the "
        "place of mean maps, which texts of many lengths do not have: place 5 of one is not place 5 of another.",
    ),
    "distribution": (
        "How sequences differ",
        "One value for each sequence, a row for each head, every row scaled to its own peak. A narrow peak: the head "
        "does the same on every sequence. Several peaks: it tells kinds of sequences apart.",
    ),
    "by_class": (
        "Class by class",
        "Where the marks of one head stand apart, it attends differently when the answer is different. Grey strokes "
        "are what uniform attention would give on the same sequences.",
    ),
}
DICTIONARY = Dictionary(
    tables=(
        "head_stats",
        "head_stats_long",
        "differences",
        "histograms",
        "offset_profile",
        "per_sequence",
        "dictionary",
    ),
    columns={
        "untrained": ("the mean of the same architecture with fresh weights", "of the statistic"),
        "group_a": ("the one group of sequences", ""),
        "group_b": ("the other", ""),
        "n_a": ("how many sequences the one group has", "sequences"),
        "n_b": ("how many the other", "sequences"),
        "difference": ("the mean of group a − that of group b, with its 95 % interval (Welch)", "of the statistic"),
        "cohens_d": ("the difference over the pooled standard deviation of the sequences", ""),
        "low": ("the lower edge of a bin of sequence values", "of the statistic"),
        "high": ("its upper edge", "of the statistic"),
        "count": ("how many sequences have a value in the bin", "sequences"),
        "offset_profile.offset": ("how far the key stands after the query; below 0, before it", "tokens"),
        "offset_profile.mean": ("the mean weight on the key so far from the query", "weight"),
        "offset_profile.n": ("how many queries of all sequences see such a key", "rows"),
        "row": ("the place of the sequence (of a text that is read in windows: of the text) in the data, from 0", ""),
        "window": ("which window of the text, from 0", ""),
        "tokens": ("how many tokens the sequence has, special ones included", "tokens"),
        "label": ("the class that is right, by its number", ""),
        "predicted": ("the class that the model gives, by its number", ""),
        "per_sequence.loss": ("the cross-entropy of the sequence", "nats"),
        "dictionary.statistic": ("the name of a statistic", ""),
        "definition": ("how it is computed", ""),
        "unit": ("its unit", ""),
        "defined_on": ("the rows of weights that it is averaged over", ""),
        "dictionary.uniform": ("its value under uniform attention, as a formula", ""),
    },
)
DISTRIBUTIONS = ("entropy_normalized", "max_weight", "distance", "selectivity")  # drawn; the tables have them all


def figures(folder: Folder) -> Iterator[tuple[str, Figure]]:
    long, histograms = folder.long, folder.table("histograms")
    if long is None:
        return
    yield "statistics", plots.statistic_grid(long)
    for name, maps in folder.maps().items():
        yield name, plots.attention_grid(maps, uniform=1 / maps.shape[-1])
    profile = folder.table("offset_profile")
    if profile is not None and not folder.maps():
        yield "offsets", plots.offset_grid(profile)
    drawn = [statistic for statistic in DISTRIBUTIONS if (long["statistic"] == statistic).any()]
    if histograms is not None:
        for statistic in drawn:
            yield f"distribution_{statistic}", plots.distribution(histograms, statistic)
    classes = classes_of(long)
    for statistic in drawn if classes else []:
        yield f"by_class_{statistic}", figure_of(plots.by_group(long, statistic, groups=classes))


def classes_of(long: pd.DataFrame) -> list[str]:
    """The groups by label; where there are no labels, those by what the model says."""
    names = [str(group) for group in long["group"].unique()]
    labels = [name for name in names if name.startswith("label=")]
    return labels or [name for name in names if name.startswith("predicted=")][:MOST]


def what_stands_out(folder: Folder) -> Section | None:
    if folder.long is None:
        return None
    found = find(folder.long, folder.table("differences"))
    return Section("findings", "What stands out", findings=found) if found else None


def how_to_read(folder: Folder) -> Section | None:
    if folder.long is None:
        return None
    return Section(
        "reading",
        "How to read the numbers",
        "In every layer several heads run side by side. For each token (the query) a head divides a weight of 1 among "
        "all tokens (the keys), and so says where that token looks. A statistic turns one such row of weights into "
        "one number; it is averaged over the rows of a sequence, then over sequences, so that every sequence counts "
        "once. Everything is held against uniform attention, which looks everywhere alike, about as a "
        "head does before training. Layers and heads are counted from 0.",
    )


def pictures_of_heads(folder: Folder) -> Section | None:
    """Files whose names begin alike are one figure."""
    found = pictures(folder, FIGURES)
    return Section("figures", "Figures", pictures=found) if found else None


def all_heads(folder: Folder) -> Section | None:
    """One row per head, each statistic's mean over all sequences; coloured as the heat maps are."""
    if folder.long is None:
        return None
    rows = folder.long[folder.long["group"] == "all"]
    statistics = list(rows["statistic"].unique())
    mean = rows.pivot(index=["layer", "head"], columns="statistic", values="mean")[statistics]
    uniform = rows.groupby("statistic")["uniform"].mean()[statistics].to_numpy()
    departure = mean.to_numpy() - uniform
    reach = np.maximum(np.nanmax(abs(departure), axis=0, initial=1e-3), np.nan_to_num(0.1 * abs(uniform)))
    body = [
        [Cell(str(layer), layer), Cell(str(head), head), *map(value_cell, values, tints)]
        for (layer, head), values, tints in zip(mean.index.tolist(), mean.to_numpy(), departure / reach, strict=True)
    ]
    references = [("uniform", known(uniform))]
    if "untrained" in rows:
        references.append(("untrained", known(rows.groupby("statistic")["untrained"].mean()[statistics])))
    dictionary = folder.table("dictionary")
    definitions = (
        {} if dictionary is None else dict(zip(dictionary["statistic"], dictionary["definition"], strict=True))
    )
    columns = [("Layer", ""), ("Head", "")] + [(words_and_unit(s), definitions.get(s, "")) for s in statistics]
    return Section(
        "heads",
        "Every head",
        "Means over all sequences. Press a heading to sort by it. Red cells are above uniform attention, blue ones "
        "below; the rows in grey are what uniform attention gives"
        + (" and the mean over the heads of a model with fresh weights." if len(references) > 1 else "."),
        table=Table("Mean of every statistic, by head", columns, body, 2, references, sortable=True),
    )


def known(values: Iterable[float]) -> list[str]:
    return [number(value) if np.isfinite(value) else "" for value in values]
