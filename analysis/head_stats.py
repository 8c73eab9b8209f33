"""What does each head do, over the whole set?

    python -m analysis.head_stats [--split exhaustive | --data FILE]
    python -m analysis.head_stats --hf MODEL --text FILE

runs a checkpoint over its test sequences, over all sequences there are or over your own, or a transformers model over
texts, and writes tables, figures and a page that tells what they say.
"""

import argparse
import sys
import time

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
        study_texts(open_text_subject(args))
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
        "--with-importance", action="store_true", help="also say what is lost without each head; needs labels"
    )
    p.add_argument("--resume", action="store_true", help="go on with an interrupted run of the same --out")
    args = p.parse_args(argv)
    for name in ("baseline", "per_sequence", "with_importance", "resume"):
        if is_of_texts(args) and getattr(args, name):
            p.error(f"argument --{name.replace('_', '-')}: not allowed with --hf; it is for checkpoints")
    return args


def study(subject: Subject, args: argparse.Namespace) -> None:
    """The statistics of a checkpoint, in shards, so that an interrupted run can go on."""
    identity = subject.identity() | {"per_sequence": args.per_sequence}
    store = Store(subject.out / ".unfinished", identity, resume=args.resume)
    importance = None
    if args.with_importance:
        importance = measure_importance(subject.model, subject.batches, methods=("zero", "gradient"))
    vocab, classes = subject.info.task.vocab, subject.info.task.classes
    started = time.perf_counter()
    try:
        stats = collect_in_shards(subject.model, subject.batches(), vocab, store, per_sequence=args.per_sequence)
    except KeyboardInterrupt as stop:
        stop.args = (f"interrupted; the finished part is kept: go on with --resume --out {subject.out}",)
        raise
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


def measure_untrained(subject: Subject) -> HeadStats:
    """The same statistics of the same architecture with fresh weights (seed 0)."""
    device = next(subject.model.parameters()).device
    fresh = new_model(subject.info.model, seed=0).to(device).eval()
    return collect(fresh, subject.batches(), subject.info.task.vocab)


def study_texts(subject: TextSubject) -> None:
    """The statistics of a transformers model; of one of two parts each kind of attention in a folder of its own."""
    from attnkit import hfstats, pretrained

    vocab, length = pretrained.vocabulary(subject.tokenizer), subject.texts.seen.length
    started = time.perf_counter()
    found = hfstats.collect(subject.model, subject.batches(), vocab, longest=length, size=subject.batch_size)
    seconds = time.perf_counter() - started
    for kind, of_kind in found.of_kind.items():
        measures, classes = found.measures[kind], subject.texts.labels
        per_token = pretrained.task_of(subject.model) == "language"
        measured = Measured(
            of_kind.stats, measures, classes, False, seconds, offsets=of_kind.offsets, per_token=per_token
        )
        record = subject.record() | {"attention": kind, "method": " and ".join(sorted(of_kind.methods))}
        out = subject.out if len(found.of_kind) == 1 else subject.out / kind
        leave(out, measured, record, notes=subject.notes())


if __name__ == "__main__":
    sys.exit(cli.run(main))
