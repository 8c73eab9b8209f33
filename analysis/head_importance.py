"""What is lost without each head?

    python -m analysis.head_importance [--split exhaustive | --data FILE]
    python -m analysis.head_importance --hf MODEL --text FILE

replaces the output of every head by nothing (zero), by its mean at that position (mean) and by its output on another
random sequence (resample), takes the gradient of the loss with respect to a gate on it (gradient), removes heads two
at a time and one after another, and says which statistic of a head foretells the damage.

Of a transformers model each head is replaced by nothing and by its mean output over all tokens, and heads are removed
in the order of what each costs alone; what such a model can lose, `attnkit.hfimportance` says.
"""

import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from analysis.importance_report import figures
from analysis.importance_tables import importance_frame, pairs_frame, predictors_frame, pruning_frame, similarity_frame
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import Subject, open_subject, parser
from analysis.texts import TextSubject, add_text_arguments, is_of_texts, open_text_subject
from attnkit import cli
from attnkit.ablation import Head
from attnkit.headstats import collect
from attnkit.importance import DRAWS, EFFECTS, Importance, measure_importance, pairs_of, prune
from attnkit.measures import applicable
from attnkit.moments import Moments
from attnkit.tables import long_frame

if TYPE_CHECKING:  # needs transformers
    from attnkit.hfimportance import Similarities

FEW = 32  # heads up to which every pair is tried and all are pruned one by one: the work grows with their square
WINDOW = 4  # batches of texts that are read at once, so that those of like length run side by side


def main(argv: list[str] | None = None) -> None:
    p = parser("analysis.head_importance", "What is lost without each head?")
    add_text_arguments(p)
    args = p.parse_args(argv)
    if is_of_texts(args):
        study_texts(open_text_subject(args))
    else:
        study(open_subject(args))


def study(subject: Subject) -> None:
    model, vocab, classes = subject.model, subject.info.task.vocab, subject.info.task.classes
    population = subject.dataset.population
    few = model.config.n_layers * model.config.n_heads <= FEW

    started = time.perf_counter()
    importance = measure_importance(model, subject.batches, pairs=few)
    order = prune(model, subject.batches) if few else []
    described = collect(model, subject.batches(), vocab)
    seconds = time.perf_counter() - started

    of_heads = importance_frame(importance, population=population)
    long = long_frame(described, applicable(vocab), classes, population=population)
    tables = {"head_importance": of_heads, "predictors": predictors_frame(long, of_heads)}
    tables["head_importance_statistics"] = long[long["group"] == "all"]  # what `predictors` ranks the heads by
    if few:
        tables["pairs"] = pairs_frame(importance, pairs_of(model), population=population)
        tables["pruning"] = pruning_frame(importance, order, population=population)
    right, loss = importance.whole.mean.tolist()
    record = subject.record() | {
        "sequences": int(importance.whole.count[0]),
        "seconds": seconds,
        "accuracy": right,
        "loss": loss,
        "draws": DRAWS,
    }
    write_study(subject.out, "head_importance", tables, record, figures)
    report = write_report(subject.out)

    print(f"{record['sequences']:,} sequences in {seconds:.1f} s")
    if not few:
        print(f"pairs and pruning: left out; with more than {FEW} heads there are too many to try them all")
    print(f"report: {report}")


def study_texts(subject: TextSubject) -> None:
    """Of a transformers model: single heads, over texts; of one of two parts each kind of attention in a folder."""
    from attnkit import hfimportance, hfstats, pretrained

    started = time.perf_counter()
    worth = measure_texts(subject, hfimportance.METHODS)
    pruned = {kind: prune_texts(subject, kind, importance) for kind, (importance, _) in worth.items()}
    vocab, length = pretrained.vocabulary(subject.tokenizer), subject.texts.seen.length
    described = hfstats.collect(subject.model, subject.batches(), vocab, longest=length, size=subject.batch_size)
    seconds = time.perf_counter() - started

    for kind, (importance, similarities) in worth.items():
        of_heads = importance_frame(importance, population=False)
        if similarities is not None:
            of_heads = of_heads.merge(similarity_frame(importance, similarities), on=["layer", "head", "method"])
        of_kind = described.of_kind[kind].stats
        long = long_frame(of_kind, described.measures[kind], subject.texts.labels, population=False)
        tables = {"head_importance": of_heads, "predictors": predictors_frame(long, of_heads)}
        tables["head_importance_statistics"] = long[long["group"] == "all"]
        tables["pruning"] = pruning_frame(importance, pruned[kind], population=False)
        record = subject.record() | {
            "attention": kind,
            "sequences": subject.texts.seen.sequences,
            "seconds": seconds,
            "pruned": "in the order of what each head costs alone",
            "warnings": subject.notes(worth),
        }
        whole = importance.whole.mean.tolist()
        if importance.effects == EFFECTS:
            record["accuracy"] = whole[0]
        record["loss" if len(whole) > 1 else "similarity"] = whole[-1]
        out = subject.out_of(kind, worth)
        write_study(out, "head_importance", tables, record, figures, stale=["pairs"])
        print(f"report: {write_report(out)}")
    print(f"{subject.texts.seen.count:,} texts in {seconds:.1f} s")
    subject.warn(worth)


def measure_texts(subject: TextSubject, methods: Sequence[str]) -> "dict[str, tuple[Importance, Similarities | None]]":
    """`hfimportance.measure_importance` of the subject, by kind of attention, behind a progress bar where someone
    looks."""
    from attnkit import hfimportance
    from attnkit.replay import Layers

    windows = partial(subject.texts.batches, WINDOW * subject.batch_size)
    layers = Layers.of(subject.model, next(windows()))
    replaced = sum(method != "gradient" for method in methods)
    runs = subject.texts.seen.sequences * layers.layers * layers.heads * replaced
    with cli.progress(total=runs, unit="text", unit_scale=True) as bar:
        found = hfimportance.measure_importance(
            subject.model, windows, methods=methods, size=subject.batch_size, tick=bar.update
        )
    return {kind: hfimportance.of_kind(layers, kind, *found) for kind in dict(layers.sites)}


def prune_texts(subject: TextSubject, kind: str, importance: Importance) -> list[tuple[Head, Moments | None]]:
    """`hfimportance.prune` of the heads of a kind of attention, first those that cost least alone."""
    from attnkit import hfimportance

    windows = partial(subject.texts.batches, WINDOW * subject.batch_size)
    order = hfimportance.cheapest_first(importance)
    runs = subject.texts.seen.sequences * len(hfimportance.points_of(len(order)))
    with cli.progress(total=runs, unit="text", unit_scale=True) as bar:
        return hfimportance.prune(subject.model, windows, order, kind=kind, size=subject.batch_size, tick=bar.update)


if __name__ == "__main__":
    sys.exit(cli.run(main))
