"""What `analysis.head_stats` writes of the statistics of a model's heads, whatever model and data they are of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.head_stats_report import figures
from analysis.importance_tables import DICTIONARY, statistics_rows
from analysis.page import draw
from analysis.report import write_report
from analysis.subject import write_json
from attnkit.differences import difference_frame
from attnkit.files import staged
from attnkit.headstats import HeadStats
from attnkit.importance import Importance
from attnkit.labels import number
from attnkit.measures import Measure
from attnkit.offsets import OffsetSums
from attnkit.tables import (
    accuracy_and_loss,
    dictionary_frame,
    histogram_frame,
    long_frame,
    offset_profile_frame,
    offsets_frame,
    wide_frame,
)

LARGEST_CSV = 1_000_000  # rows; a longer table is written as Parquet alone
UNIFORM = 0.99  # normalised entropy from which a head is uniform within 1 %
STALE = ("mean_attention.npz", "offset_profile.csv", "offset_profile.parquet", "per_sequence.parquet")


@dataclass(frozen=True)
class Measured:
    """The statistics of all heads over a set of sequences, and what their tables need to know beside them."""

    stats: HeadStats
    measures: dict[str, Measure]
    classes: Sequence[str]  # the names of labels and predictions
    population: bool  # are these all sequences there are?
    seconds: float  # of the pass itself
    untrained: HeadStats | None = None  # a fresh model's
    importance: Importance | None = None
    offsets: OffsetSums | None = None  # of texts, in the place of mean maps
    per_token: bool = False  # is the loss of a sequence the mean over its tokens?


def leave(
    out: Path,
    measured: Measured,
    record: Mapping[str, Any],
    *,
    notes: Sequence[str] = (),
    per_sequence: Callable[[Path], None] | None = None,
) -> None:
    """Write tables, run.json, figures and the page into `out`, and print what was done.

    `notes` are said beside the warnings that the tables give; `per_sequence` writes per_sequence.parquet.
    """
    stats, n = measured.stats, measured.stats.count
    tables = make_tables(measured)
    warnings = [*notes, *warn(tables["head_stats_long"])]
    with staged(out, last="run.json", stale=STALE) as folder:
        for name, table in tables.items():
            if len(table) > LARGEST_CSV:
                table.to_parquet(folder / f"{name}.parquet", index=False)
            else:
                table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")
        tables["head_stats_long"].to_parquet(folder / "head_stats_long.parquet", index=False)
        if stats.maps:
            write_maps(folder, stats)
        if per_sequence:
            per_sequence(folder / "per_sequence.parquet")
        accuracy, loss = accuracy_and_loss(stats)
        done = {"sequences": n, "seconds": measured.seconds, "sequences_per_second": n / measured.seconds}
        answers = {"accuracy": accuracy, "loss_per_token" if measured.per_token else "loss": loss}
        write_json(folder / "run.json", {**record, **done, **answers, "warnings": warnings})
        draw(folder, figures)
    write_report(out)  # of these tables, and of those that other studies have left there

    print(f"{n:,} sequence{'' if n == 1 else 's'} in {measured.seconds:.1f} s, {number(n / measured.seconds)} a second")
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"report: {out / 'report.html'}")


def make_tables(measured: Measured) -> dict[str, pd.DataFrame]:
    """Every table of the output folder, by its file name."""
    stats, measures, population = measured.stats, measured.measures, measured.population
    long = long_frame(stats, measures, measured.classes, population=population, untrained=measured.untrained)
    words = dictionary_frame(measures)
    if measured.importance is not None:
        rows = statistics_rows(measured.importance, population=population)
        long, words = pd.concat([long, rows], ignore_index=True), pd.concat([words, DICTIONARY], ignore_index=True)
    tables = {
        "head_stats": wide_frame(long),
        "head_stats_long": long,
        "differences": difference_frame(long, population=population),
        "histograms": histogram_frame(stats, measures, measured.classes),
        "dictionary": words[words["statistic"].isin(long["statistic"])],
    }
    if stats.maps:
        tables["offset_profile"] = offset_profile_frame(stats)
    if measured.offsets is not None:
        tables["offset_profile"] = offsets_frame(measured.offsets)
    return tables


def write_maps(folder: Path, stats: HeadStats) -> None:
    several = len(stats.maps) > 1
    maps = {f"mean_attention_{T}" if several else "mean_attention": sums.mean.numpy() for T, sums in stats.maps.items()}
    np.savez(folder / "mean_attention.npz", **maps)  # type: ignore[arg-type]  # the stub fears a map named allow_pickle


def warn(long: pd.DataFrame) -> list[str]:
    """What a reader must know before believing the tables."""
    flatness = long[(long["statistic"] == "entropy_normalized") & (long["group"] == "all")]["mean"]
    if len(flatness) and (flatness > UNIFORM).all():
        return ["Every head is uniform within 1 %, as in a model that was never trained: were the weights loaded?"]
    return []
