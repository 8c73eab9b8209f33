"""When did each head learn what it does?

    python -m analysis.training_dynamics [--checkpoint A --checkpoint B ...] [--split exhaustive | --data FILE]

goes through the snapshots that `python -m attnkit.train --snapshots N` keeps, and at each measures every head's
statistics, what is lost without it (zero ablation), the loss and the accuracy.

How much a head changes between two snapshots is its JS distance: the root of the Jensen-Shannon divergence in bits
between its rows before and after, averaged over rows, then over sequences. Divided by log2((1 + later) / (1 + earlier))
it is the change per doubling of the steps; the steps where a head changes most are those where that is largest.

Heads of further checkpoints are matched with those of the first by their last snapshots, before they are averaged: a
head's number means nothing from one training to another.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.head_similarity import args_of, check_alike
from analysis.importance_tables import statistics_rows
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import Subject, open_subject, parser, shown
from analysis.training_report import figures
from attnkit import cli
from attnkit.ablation import Head
from attnkit.files import sha256
from attnkit.headstats import HeadStats, collect
from attnkit.importance import Importance, heads_of, measure_importance
from attnkit.measures import applicable
from attnkit.moments import Moments
from attnkit.similarity import change, compare, match
from attnkit.snapshots import load_snapshot, snapshots, steps_in_words
from attnkit.tables import Z95, long_frame

LONGEST_MAP = 64  # tokens; the table of maps grows with their square
TABLES = ("curve", "changes", "maps")  # beside training_dynamics; and training_average of several checkpoints


@dataclass(frozen=True)
class Training:
    """One checkpoint with its snapshots."""

    name: str
    folder: Path
    steps: list[int]
    matched: dict[Head, Head]  # each of its heads: the one of the first checkpoint that does the same


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    subjects = [open_subject(args_of(args, path)) for path in args.checkpoint]
    subject = subjects[0]
    trainings = check(subjects)

    started = time.perf_counter()
    frames: dict[str, list[pd.DataFrame]] = {"dynamics": [], **{name: [] for name in TABLES}}
    with cli.progress(total=sum(len(t.steps) for t in trainings), unit="snapshot") as bar:
        for training in trainings:
            for name, table in follow(training, subject, bar).items():
                frames[name].append(table)
    tables = {f"training_{name}": pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
    if len(trainings) > 1:
        tables["training_average"] = average_frame(tables["training_dynamics"])
        tables["training_changes_average"] = average_changes(tables["training_changes"])
    seconds = time.perf_counter() - started

    n = int(tables["training_curve"]["n"].iloc[0])
    others = [{"checkpoint": t.name, "checkpoint_sha256": sha256(t.folder / "model.safetensors")} for t in trainings]
    steps_of_epoch = -(-subject.info.data.n_train // subject.info.training.get("batch_size", 1))
    record = subject.record() | {"sequences": n, "seconds": seconds, "trainings": others}
    record |= {"steps_of_epoch": steps_of_epoch if subject.info.training else None}
    of_several, long = ("training_average", "training_changes_average"), ("training_maps",)
    write_study(subject.out, "training_dynamics", tables, record, figures, parquet=long, stale=of_several)
    report = write_report(subject.out)

    print(f"{n:,} sequences at {sum(len(t.steps) for t in trainings)} snapshots in {seconds:.1f} s")
    print(f"report: {report}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = parser("analysis.training_dynamics", "When did each head learn what it does?", several=True)
    args = p.parse_args(argv)
    args.checkpoint = getattr(args, "checkpoint", [cli.CHECKPOINT])
    if len({path.resolve() for path in args.checkpoint}) < len(args.checkpoint):
        p.error("argument --checkpoint: got the same one twice, allowed are different trainings")
    return args


def check(subjects: list[Subject]) -> list[Training]:
    """The trainings, heads matched. Raises ValueError for one without snapshots, or that cannot be compared."""
    first = subjects[0]
    heads = heads_of(first.model)
    found: list[Training] = []
    for subject in subjects:
        steps = [step for step, _ in snapshots(subject.checkpoint)]
        if len(steps) < 2:
            alone = "; a change takes two" if steps else ""
            raise ValueError(f"checkpoint: {subject.checkpoint} has {steps_in_words(steps)}{alone}")
        check_alike(first, subject)
        if heads_of(subject.model) != heads:
            raise ValueError(f"checkpoint: {subject.checkpoint} has other layers and heads than {first.checkpoint}")
        if found and steps != found[0].steps:
            text = f"{steps_in_words(steps)}, {first.checkpoint} {steps_in_words(found[0].steps)}"
            raise ValueError(f"checkpoint: {subject.checkpoint} has {text}; only the same steps can be averaged")
        matched = dict(zip(heads, heads, strict=True))
        if subject is not first:
            alike = compare(first.model, subject.model, first.batches())
            pairs = match(alike.divergence.nan_mean.numpy(), heads, heads)
            matched = {own: of_first for of_first, own in pairs.items()}
        found.append(Training(shown(subject.checkpoint), subject.checkpoint, steps, matched))
    return found


def follow(training: Training, subject: Subject, bar: Any) -> dict[str, pd.DataFrame]:
    """The tables of one training, on the sequences of the subject."""
    vocab, classes, population = subject.info.task.vocab, subject.info.task.classes, subject.dataset.population
    device = next(subject.model.parameters()).device
    frames: dict[str, list[pd.DataFrame]] = {"dynamics": [], **{name: [] for name in TABLES}}
    before = None
    for start, step in pairwise([-1, *training.steps]):
        model = load_snapshot(training.folder, step, device)
        stats = collect(model, batches(subject), vocab)
        importance = measure_importance(model, lambda: batches(subject), methods=["zero", "gradient"])
        long = long_frame(stats, applicable(vocab), classes, population=population)
        rows = [long[long["group"] == "all"], statistics_rows(importance, population=population)]
        frames["dynamics"].append(pd.concat(rows, ignore_index=True).assign(step=step))
        frames["curve"].append(curve_frame(importance, step, population=population))
        frames["maps"].append(maps_frame(stats).assign(step=step))
        if before is not None:
            changed = change(before, model, batches(subject))
            frames["changes"].append(change_frame(changed, heads_of(model), start, step, population=population))
        before = model
        bar.update()
    tables = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items() if parts}
    return {name: named(table, training) for name, table in tables.items()}


def batches(subject: Subject) -> Any:
    return subject.dataset.batches(subject.batch_size)


def named(table: pd.DataFrame, training: Training) -> pd.DataFrame:
    """With the columns that say of what it is in front: `matched` is the number of the head of the first checkpoint, in
    the same layer, that does the same."""
    table = table.assign(checkpoint=training.name)
    first = ["checkpoint", "step"]
    if "head" in table:
        pairs = zip(table["layer"], table["head"], strict=True)
        table = table.assign(matched=[training.matched[pair][1] for pair in pairs])
        first += ["layer", "head", "matched"]
    first = [column for column in first if column in table]
    return table[[*first, *(c for c in table if c not in {*first, "group", "log2_enrichment"})]]


def curve_frame(importance: Importance, step: int, *, population: bool) -> pd.DataFrame:
    """`training_curve`: one row a checkpoint and step: `accuracy` (0 to 1) and `loss` (nats) over the `n` sequences."""
    m = importance.whole
    (right, loss), (half_right, half_loss) = m.mean.tolist(), (Z95 * m.sem).tolist()
    row: dict[str, Any] = {"step": step, "n": int(m.count[0]), "accuracy": right, "loss": loss}
    if not population:
        for name, value, half in (("accuracy", right, half_right), ("loss", loss, half_loss)):
            row |= {f"{name}_ci_low": value - half, f"{name}_ci_high": value + half}
    return pd.DataFrame([row])


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


if __name__ == "__main__":
    sys.exit(cli.run(main))
