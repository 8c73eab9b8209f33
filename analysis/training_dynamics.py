"""When did each head learn what it does?

    python -m analysis.training_dynamics [--checkpoint A --checkpoint B ...] [--split exhaustive | --data FILE]
    python -m analysis.training_dynamics --hf FOLDER --text FILE

goes through the snapshots that `python -m attnkit.train --snapshots N` keeps, and at each measures every head's
statistics, what is lost without it (zero ablation), the loss and the accuracy.

How much a head changes between two snapshots is its JS distance: the root of the Jensen-Shannon divergence in bits
between its rows before and after, averaged over rows, then over sequences. Divided by log2((1 + later) / (1 + earlier))
it is the change per doubling of the steps; the steps where a head changes most are those where that is largest.

Heads of further checkpoints are matched with those of the first by their last snapshots, before they are averaged: a
head's number means nothing from one training to another.

Of a transformers model, FOLDER is the one in which transformers' Trainer keeps its checkpoint-<step> folders; what is
lost without each head is not measured then.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.head_similarity import args_of, check_alike
from analysis.importance_tables import statistics_rows
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import Subject, open_subject, parser, shown
from analysis.texts import TextSubject, add_text_arguments, is_of_texts, open_text_subject
from analysis.training_report import figures
from analysis.training_tables import (
    answers_of,
    average_changes,
    average_frame,
    change_frame,
    curve_frame,
    maps_frame,
    named,
)
from attnkit import cli
from attnkit.ablation import Head
from attnkit.files import sha256
from attnkit.headstats import HeadStats, collect
from attnkit.importance import heads_of, measure_importance
from attnkit.measures import applicable
from attnkit.moments import Moments
from attnkit.similarity import change, compare, match
from attnkit.snapshots import load_snapshot, snapshots, steps_in_words
from attnkit.tables import long_frame

OF_SEVERAL = ("training_average", "training_changes_average")  # tables
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
    if is_of_texts(args):
        study_texts(args)
    else:
        study(args)


def study(args: argparse.Namespace) -> None:
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
    write_study(subject.out, "training_dynamics", tables, record, figures, parquet=["training_maps"], stale=OF_SEVERAL)
    report = write_report(subject.out)

    print(f"{n:,} sequences at {sum(len(t.steps) for t in trainings)} snapshots in {seconds:.1f} s")
    print(f"report: {report}")


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = parser("analysis.training_dynamics", "When did each head learn what it does?", several=True)
    add_text_arguments(p)
    args = p.parse_args(argv)
    if is_of_texts(args):
        return args
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
        answers = {name: importance.whole.at(k) for k, name in enumerate(("accuracy", "loss"))}
        n = int(importance.whole.count[0])
        frames["curve"].append(curve_frame(answers, step, n=n, population=population))
        frames["maps"].append(maps_frame(stats).assign(step=step))
        if before is not None:
            changed = change(before, model, batches(subject))
            frames["changes"].append(change_frame(changed, heads_of(model), start, step, population=population))
        before = model
        bar.update()
    tables = {name: pd.concat(parts, ignore_index=True) for name, parts in frames.items() if parts}
    return {name: named(table, training.name, training.matched) for name, table in tables.items()}


def batches(subject: Subject) -> Any:
    return subject.dataset.batches(subject.batch_size)


# ---------------------------------------------------------------- a transformers model


def study_texts(args: argparse.Namespace) -> None:
    """Of a transformers model, over texts; of one of two parts each kind of attention in a folder of its own."""
    from attnkit.pretrained import trained

    folder = Path(args.hf)
    checkpoints = trained(folder)
    out = args.out if "out" in args else cli.PROJECT / "reports" / folder.resolve().name
    last = checkpoints[-1][1]
    subject = open_text_subject(argparse.Namespace(**{**vars(args), "hf": str(last), "out": out}))

    started = time.perf_counter()
    found = follow_texts(checkpoints, subject, shown(folder))
    seconds = time.perf_counter() - started

    for kind, tables in found.items():
        of = {"checkpoint": shown(folder), "checkpoint_sha256": subject.identity()["checkpoint_sha256"]}
        record = subject.record() | {
            "attention": kind,
            "sequences": subject.texts.seen.sequences,
            "seconds": seconds,
            "trainings": [of],
            "warnings": subject.notes(found),
        }
        to = subject.out_of(kind, found)
        write_study(to, "training_dynamics", tables, record, figures, stale=OF_SEVERAL)
        print(f"report: {write_report(to)}")
    print(f"{subject.texts.seen.count:,} texts at {len(checkpoints)} checkpoints in {seconds:.1f} s")
    subject.warn(found)


def follow_texts(
    checkpoints: list[tuple[int, Path]], subject: TextSubject, name: str
) -> dict[str, dict[str, pd.DataFrame]]:
    """The tables of one training by kind of attention, on the texts of the subject."""
    from attnkit import hfsimilarity, hfstats, pretrained

    vocab, texts, size = pretrained.vocabulary(subject.tokenizer), subject.texts, subject.batch_size
    frames: dict[str, dict[str, list[pd.DataFrame]]] = {}
    heads: dict[str, list[Head]] = {}
    before, start = None, 0
    for step, path in checkpoints:
        model = pretrained.load(str(path))[0].to(subject.model.device)  # type: ignore[arg-type]  # as in analysis.texts
        found = hfstats.collect(model, subject.batches(), vocab, longest=texts.seen.length, size=size)
        own = {kind: heads_in(of_kind.stats) for kind, of_kind in found.of_kind.items()}
        heads = heads or own
        if own != heads:
            raise ValueError(f"hf: {path} has other layers and heads than {checkpoints[0][1].name}")
        changed: dict[str, Moments] = (
            {} if before is None else hfsimilarity.change(before, model, subject.batches(), size=size)
        )
        for kind, of_kind in found.of_kind.items():
            into = frames.setdefault(kind, {name: [] for name in ("dynamics", "curve", "changes")})
            long = long_frame(of_kind.stats, found.measures[kind], texts.labels, population=False)
            into["dynamics"].append(long[long["group"] == "all"].assign(step=step))
            answers, n = answers_of(of_kind.stats), of_kind.stats.count
            into["curve"].append(curve_frame(answers, step, n=n, population=False))
            if before is not None:
                into["changes"].append(change_frame(changed[kind], heads[kind], start, step, population=False))
        before, start = model, step
    return {
        kind: {
            f"training_{table}": named(pd.concat(parts, ignore_index=True), name, {head: head for head in heads[kind]})
            for table, parts in of_kind.items()
        }
        for kind, of_kind in frames.items()
    }


def heads_in(stats: HeadStats) -> list[Head]:
    L, H, _ = next(iter(stats.cells.values())).values.count.shape
    return list(product(range(L), range(H)))


if __name__ == "__main__":
    sys.exit(cli.run(main))
