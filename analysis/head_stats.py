"""What does each head do, over the whole set?

    python -m analysis.head_stats [--split exhaustive | --data FILE]

runs a checkpoint over its test sequences, over all sequences there are or over your own, and writes tables, figures
and a page that tells what they say.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.head_importance import DICTIONARY, statistics_rows
from analysis.head_stats_report import figures
from analysis.page import draw
from analysis.report import write_report
from analysis.subject import Subject, open_subject, parser, write_json
from attnkit import cli
from attnkit.differences import difference_frame
from attnkit.files import staged
from attnkit.headstats import HeadStats, collect
from attnkit.importance import Importance, measure_importance
from attnkit.measures import applicable
from attnkit.store import Store, collect_in_shards
from attnkit.tables import (
    accuracy_and_loss,
    dictionary_frame,
    histogram_frame,
    long_frame,
    offset_profile_frame,
    wide_frame,
)
from attnkit.train import new_model

UNIFORM = 0.99  # normalised entropy from which a head is uniform within 1 %


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    subject = open_subject(args)
    store = Store(
        subject.out / ".unfinished", subject.identity() | {"per_sequence": args.per_sequence}, resume=args.resume
    )

    importance = None
    if args.with_importance:
        importance = measure_importance(subject.model, subject.batches, methods=("zero", "gradient"))
    started = time.perf_counter()
    try:
        stats = collect_in_shards(
            subject.model, subject.batches(), subject.info.task.vocab, store, per_sequence=args.per_sequence
        )
    except KeyboardInterrupt as stop:
        stop.args = (f"interrupted; the finished part is kept: go on with --resume --out {subject.out}",)
        raise
    seconds = time.perf_counter() - started
    untrained = measure_untrained(subject) if args.baseline else None

    with staged(subject.out, last="run.json") as folder:
        tables = make_tables(subject, stats, untrained, importance)
        write_tables(folder, tables, stats)
        if args.per_sequence:
            store.write_per_sequence(folder / "per_sequence.parquet")
        accuracy, loss = accuracy_and_loss(stats)
        warnings = warn(tables["head_stats_long"])
        record = subject.record() | {
            "sequences": stats.count,
            "seconds": seconds,
            "sequences_per_second": stats.count / seconds,
            "accuracy": accuracy,
            "loss": loss,
            "warnings": warnings,
        }
        write_json(folder / "run.json", record)
        draw(folder, figures)
    write_report(subject.out)  # of these tables, and of those that other studies have left there
    store.clear()

    print(f"{stats.count:,} sequences in {seconds:.1f} s, {stats.count / seconds:,.0f} a second")
    for warning in warnings:
        print(f"warning: {warning}")
    print(f"report: {subject.out / 'report.html'}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = parser("analysis.head_stats", "What does each head do, over the whole set?")
    p.add_argument("--baseline", choices=["untrained"], help="also measure a fresh model of the same architecture")
    p.add_argument(
        "--per-sequence", action="store_true", help="also write every sequence's values, per_sequence.parquet"
    )
    p.add_argument(
        "--with-importance", action="store_true", help="also say what is lost without each head; needs labels"
    )
    p.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same --out")
    return p.parse_args(argv)


def measure_untrained(subject: Subject) -> HeadStats:
    """The same statistics of the same architecture with fresh weights (seed 0)."""
    device = next(subject.model.parameters()).device
    fresh = new_model(subject.info.model, seed=0).to(device).eval()
    return collect(fresh, subject.batches(), subject.info.task.vocab)


def make_tables(
    subject: Subject, stats: HeadStats, untrained: HeadStats | None, importance: Importance | None
) -> dict[str, pd.DataFrame]:
    """Every table of the output folder, by its file name."""
    measures, classes = applicable(subject.info.task.vocab), subject.info.task.classes
    population = subject.dataset.population
    long = long_frame(stats, measures, classes, population=population, untrained=untrained)
    words = dictionary_frame(measures)
    if importance is not None:
        long = pd.concat([long, statistics_rows(importance, population=population)], ignore_index=True)
        words = pd.concat([words, DICTIONARY], ignore_index=True)
    return {
        "head_stats": wide_frame(long),
        "head_stats_long": long,
        "differences": difference_frame(long, population=population),
        "histograms": histogram_frame(stats, measures, classes),
        "offset_profile": offset_profile_frame(stats),
        "dictionary": words,
    }


def write_tables(folder: Path, tables: dict[str, pd.DataFrame], stats: HeadStats) -> None:
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")
    tables["head_stats_long"].to_parquet(folder / "head_stats_long.parquet", index=False)
    several = len(stats.maps) > 1
    maps = {f"mean_attention_{T}" if several else "mean_attention": sums.mean.numpy() for T, sums in stats.maps.items()}
    np.savez(folder / "mean_attention.npz", **maps)  # type: ignore[arg-type]  # the stub fears a map named allow_pickle


def warn(long: pd.DataFrame) -> list[str]:
    """What a reader must know before believing the tables."""
    flatness = long[(long["statistic"] == "entropy_normalized") & (long["group"] == "all")]["mean"]
    if len(flatness) and (flatness > UNIFORM).all():
        return ["Every head is uniform within 1 %, as in a model that was never trained: were the weights loaded?"]
    return []


if __name__ == "__main__":
    sys.exit(cli.run(main))
