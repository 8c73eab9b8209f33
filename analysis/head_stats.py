"""What does each head do, over the whole set?

    python -m analysis.head_stats [--split exhaustive]

runs a checkpoint over its test sequences, or over all sequences there are, and writes tables, figures and a page.
"""

import argparse
import hashlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.report import write_report
from attnkit import plots
from attnkit.checkpoint import Checkpoint, known_task, load_checkpoint, read_checkpoint, versions
from attnkit.cli import CHECKPOINT, PROJECT, pick_device, positive_int, progress, run
from attnkit.data import task_dataset
from attnkit.files import staged
from attnkit.headstats import HeadStats, collect
from attnkit.measures import Measure, applicable
from attnkit.tables import (
    accuracy_and_loss,
    dictionary_frame,
    histogram_frame,
    long_frame,
    offset_profile_frame,
    wide_frame,
)

UNIFORM = 0.99  # normalised entropy from which a head is uniform within 1 %


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    checkpoint = Path(args.checkpoint)
    out = Path(args.out) if args.out else PROJECT / "reports" / checkpoint.resolve().stem
    info = read_checkpoint(checkpoint)
    device = pick_device(args.device)
    model = load_checkpoint(checkpoint, device)
    dataset = task_dataset(known_task(info), info.data, args.split)

    started = time.perf_counter()
    stats = collect(
        model,
        dataset,
        info.task.vocab,
        batch_size=args.batch_size,
        progress=lambda batches: progress(batches, total=-(-dataset.size // args.batch_size), unit="batch"),
    )
    seconds = time.perf_counter() - started

    with staged(out, last="run.json") as folder:
        tables = make_tables(stats, applicable(info.task.vocab), info.task.classes, population=dataset.population)
        record = {
            "checkpoint": str(checkpoint),
            "checkpoint_sha256": sha256(checkpoint / "model.safetensors" if checkpoint.is_dir() else checkpoint),
            "data": dataset.name,
            "split": args.split,
            "population": dataset.population,
            "sequences": stats.count,
            "seconds": seconds,
            "sequences_per_second": stats.count / seconds,
            "batch_size": args.batch_size,
            "device": str(device),
            "versions": versions(),
            **describe(info, stats, tables["head_stats_long"]),
        }
        write_tables(folder, tables, stats)
        write_json(folder / "run.json", record)
        draw(folder, stats, tables["head_stats_long"], tables["histograms"])
        write_report(folder)
    print(f"{stats.count:,} sequences in {seconds:.1f} s, {stats.count / seconds:,.0f} a second")
    for warning in record["warnings"]:
        print(f"warning: {warning}")
    print(f"report: {out / 'report.html'}")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m analysis.head_stats", description=__doc__.splitlines()[0])
    p.add_argument("--checkpoint", default=CHECKPOINT, help="a checkpoint folder, or a bare state dict")
    p.add_argument("--out", help="where the tables and the report go (default: reports/<checkpoint name>)")
    p.add_argument(
        "--split", choices=["test", "exhaustive"], default="test", help="the test sequences, or all there are"
    )
    p.add_argument("--batch-size", type=positive_int, default=512, help="sequences per forward pass; changes no number")
    p.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    return p


def make_tables(
    stats: HeadStats, measures: dict[str, Measure], classes: list[str], *, population: bool
) -> dict[str, pd.DataFrame]:
    """Every table of the output folder, by its file name."""
    long = long_frame(stats, measures, classes, population=population)
    return {
        "head_stats": wide_frame(long),
        "head_stats_long": long,
        "histograms": histogram_frame(stats, measures, classes),
        "offset_profile": offset_profile_frame(stats),
        "dictionary": dictionary_frame(measures),
    }


def write_tables(folder: Path, tables: dict[str, pd.DataFrame], stats: HeadStats) -> None:
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n", encoding="utf-8")
    tables["head_stats_long"].to_parquet(folder / "head_stats_long.parquet", index=False)
    several = len(stats.maps) > 1
    maps = {f"mean_attention_{T}" if several else "mean_attention": sums.mean.numpy() for T, sums in stats.maps.items()}
    np.savez(folder / "mean_attention.npz", **maps)


def write_json(file: Path, record: dict[str, Any]) -> None:
    file.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def describe(info: Checkpoint, stats: HeadStats, long: pd.DataFrame) -> dict[str, Any]:
    """What the checkpoint says of itself, how it did on these sequences, and what a reader must be warned of."""
    accuracy, loss = accuracy_and_loss(stats)
    flatness = long[(long["statistic"] == "entropy_normalized") & (long["group"] == "all")]["mean"]
    warnings = []
    if (flatness > UNIFORM).all():
        warnings.append(
            "Every head is uniform within 1 %, as in a model that was never trained: were the weights loaded?"
        )
    return {
        "model": asdict(info.model),
        "task": asdict(info.task),
        "results": info.results,
        "accuracy": accuracy,
        "loss": loss,
        "warnings": warnings,
    }


def draw(folder: Path, stats: HeadStats, long: pd.DataFrame, histograms: pd.DataFrame) -> None:
    """Every figure, as PNG and SVG."""
    figures = folder / "figures"
    figures.mkdir()
    plots.save(plots.statistic_grid(long), figures / "statistics")
    for T, sums in stats.maps.items():
        suffix = "" if len(stats.maps) == 1 else f"_{T}"
        plots.save(plots.attention_grid(sums.mean.numpy(), uniform=1 / T), figures / f"mean_attention{suffix}")
    for statistic in ("entropy", "max_weight", "distance"):
        plots.save(plots.distribution(histograms, statistic), figures / f"distribution_{statistic}")
    classes = [group for group in long["group"].unique() if group.startswith("label=")]
    for statistic in ("entropy", "selectivity"):
        if classes:
            plots.save(plots.by_group(long, statistic, groups=classes), figures / f"by_class_{statistic}")


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(run(main))
