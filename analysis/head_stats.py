"""What does each head do, over the whole set?

    python -m analysis.head_stats [--split exhaustive | --data FILE]
    python -m analysis.head_stats --hf MODEL --text FILE

runs a checkpoint over its test sequences, over all sequences there are or over your own, or a transformers model over
texts, and writes tables, figures and a page that tells what they say.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from analysis.head_importance import measure_texts
from analysis.head_tables import Measured, leave
from analysis.subject import Subject, open_subject, parser
from analysis.texts import TextSubject, add_text_arguments, is_of_texts, open_text_subject
from attnkit import cli
from attnkit.headstats import HeadStats, collect
from attnkit.importance import measure_importance
from attnkit.measures import applicable
from attnkit.store import Store, collect_in_shards
from attnkit.train import new_model


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if is_of_texts(args):
        study_texts(open_text_subject(args), args)
    else:
        study(open_subject(args), args)


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = parser("analysis.head_stats", "What does each head do, over the whole set?")
    add_text_arguments(p)
    p.add_argument("--baseline", choices=["untrained"], help="also measure a fresh model of the same architecture")
    p.add_argument(
        "--per-sequence", action="store_true", help="also write every sequence's values, per_sequence.parquet"
    )
    p.add_argument(
        "--with-importance",
        action="store_true",
        help="also say what is lost without each head; of a checkpoint this needs labels",
    )
    p.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same --out")
    return p.parse_args(argv)


def study(subject: Subject, args: argparse.Namespace) -> None:
    """The statistics of a checkpoint, in shards, so that an interrupted run can go on."""
    store = open_store(subject, args)
    importance = None
    if args.with_importance:
        importance = measure_importance(subject.model, subject.batches, methods=("zero", "gradient"))
    vocab, classes = subject.info.task.vocab, subject.info.task.classes
    started = time.perf_counter()
    with resumable(subject.out):
        stats = collect_in_shards(subject.model, subject.batches(), vocab, store, per_sequence=args.per_sequence)
    seconds = time.perf_counter() - started
    untrained = measure_untrained(subject) if args.baseline else None
    measured = Measured(
        stats,
        applicable(vocab),
        classes,
        subject.dataset.population,
        seconds,
        untrained=untrained,
        importance=importance,
    )
    rows = store.write_per_sequence if args.per_sequence else None
    leave(subject.out, measured, subject.record(), per_sequence=rows)
    store.clear()


def open_store(subject: Subject | TextSubject, args: argparse.Namespace) -> Store:
    identity = subject.identity() | {"per_sequence": args.per_sequence}
    return Store(subject.out / ".unfinished", identity, resume=args.resume)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """Let an interrupt say how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.args = (f"interrupted; the finished part is kept: go on with --resume --out {out}",)
        raise


def measure_untrained(subject: Subject) -> HeadStats:
    """The same statistics of the same architecture with fresh weights (seed 0)."""
    device = next(subject.model.parameters()).device
    fresh = new_model(subject.info.model, seed=0).to(device).eval()
    return collect(fresh, subject.batches(), subject.info.task.vocab)


def study_texts(subject: TextSubject, args: argparse.Namespace) -> None:
    """The statistics of a transformers model; of one of two parts each kind of attention in a folder of its own."""
    from attnkit import hfstats, pretrained

    vocab, longest, size = pretrained.vocabulary(subject.tokenizer), subject.texts.seen.length, subject.batch_size
    store = open_store(subject, args)
    worth = measure_texts(subject, methods=("zero", "gradient")) if args.with_importance else {}
    started = time.perf_counter()
    with resumable(subject.out):
        found = hfstats.collect_in_shards(
            subject.model,
            subject.batches(),
            vocab,
            store,
            longest=longest,
            size=size,
            per_sequence=args.per_sequence,
        )
    seconds = time.perf_counter() - started
    fresh = None
    if args.baseline:
        untrained = pretrained.untrained(subject.model)
        fresh = hfstats.collect(untrained, subject.batches(), vocab, longest=longest, size=size)
    for kind, of_kind in found.of_kind.items():
        measures, classes = found.measures[kind], subject.texts.labels
        measured = Measured(
            of_kind.stats,
            measures,
            classes,
            False,
            seconds,
            untrained=None if fresh is None else fresh.of_kind[kind].stats,
            importance=worth[kind][0] if worth else None,
            offsets=of_kind.offsets,
            per_token=subject.foretells,
        )
        record = subject.record() | {"attention": kind, "method": " and ".join(sorted(of_kind.methods))}
        out = subject.out_of(kind, found.of_kind)
        rows = partial(store.write_per_sequence, kind=kind) if args.per_sequence else None
        leave(out, measured, record, notes=subject.notes(found.of_kind), per_sequence=rows)
    store.clear()


if __name__ == "__main__":
    sys.exit(cli.run(main))
