"""Which heads do the same?

    python -m analysis.head_similarity [--checkpoint A [--checkpoint B]] [--split exhaustive | --data FILE]
    python -m analysis.head_similarity --hf MODEL --text FILE

compares every two heads of a checkpoint or of a transformers model, in where they look and in what they write, and
lays them out as a tree and as a map. With a second checkpoint its heads are matched with those of the first: a head's
number means nothing from one training to another.
"""

import argparse
import sys
import time
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from analysis.report import write_report
from analysis.similarity_report import figures
from analysis.study import write_study
from analysis.subject import Subject, open_subject, parser
from analysis.texts import TextSubject, add_text_arguments, is_of_texts, open_text_subject
from attnkit import cli
from attnkit.ablation import Head
from attnkit.importance import heads_of
from attnkit.similarity import Similarity, compare, match
from attnkit.tables import Z95

OF_TWO = ("similarity_between", "matching")  # tables of two checkpoints


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if is_of_texts(args):
        study_texts(open_text_subject(args))
    else:
        study(args)


def study(args: argparse.Namespace) -> None:
    first, *others = [args_of(args, path) for path in args.checkpoint]
    subject, other = open_subject(first), open_subject(others[0]) if others else None
    population, heads = subject.dataset.population, heads_of(subject.model)
    if other is not None:
        check_alike(subject, other)

    started = time.perf_counter()
    alike = compare(subject.model, None, subject.batches())
    between = None if other is None else compare(subject.model, other.model, subject.batches())
    seconds = time.perf_counter() - started

    tables = tables_of(alike, heads, population=population)
    record = subject.record() | {"sequences": round(float(alike.outputs.weight)), "seconds": seconds}
    if other is not None and between is not None:
        tables["similarity_between"] = between_frame(between, heads, heads_of(other.model), population=population)
        tables["matching"] = matching_frame(tables["similarity_between"])
        record["against"] = {key: other.record()[key] for key in ("checkpoint", "checkpoint_sha256")}
    write_study(subject.out, "similarity", tables, record, figures, stale=OF_TWO)
    print(f"{record['sequences']:,} sequences in {seconds:.1f} s")
    print(f"report: {write_report(subject.out)}")


def study_texts(subject: TextSubject) -> None:
    """Of a transformers model, over texts; of one of two parts each kind of attention in a folder of its own."""
    from attnkit import hfsimilarity
    from attnkit.replay import Layers

    layers = Layers.of(subject.model, next(subject.texts.batches(1)))
    started = time.perf_counter()
    found = hfsimilarity.compare(layers, subject.batches(), size=subject.batch_size)
    seconds = time.perf_counter() - started

    for kind, alike in found.items():
        of_kind = sum(of == kind for of, _ in layers.sites)
        tables = tables_of(alike, list(product(range(of_kind), range(layers.heads))), population=False)
        record = subject.record() | {
            "attention": kind,
            "sequences": round(float(alike.outputs.weight)),
            "seconds": seconds,
            "warnings": subject.notes(found),
        }
        out = subject.out_of(kind, found)
        write_study(out, "similarity", tables, record, figures, stale=OF_TWO)
        print(f"report: {write_report(out)}")
    print(f"{subject.texts.seen.count:,} texts in {seconds:.1f} s")
    subject.warn(found)


def parse(argv: list[str] | None) -> argparse.Namespace:
    p = parser("analysis.head_similarity", "Which heads do the same?", several=True)
    add_text_arguments(p)
    args = p.parse_args(argv)
    if is_of_texts(args):
        return args
    args.checkpoint = getattr(args, "checkpoint", [cli.CHECKPOINT])
    if len(args.checkpoint) > 2:
        p.error(f"argument --checkpoint: got {len(args.checkpoint)} of them, allowed are one or two")
    return args


def args_of(args: argparse.Namespace, checkpoint: Path) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), "checkpoint": checkpoint})


def check_alike(first: Subject, second: Subject) -> None:
    """Both must read the same sequences. Raises ValueError where they cannot."""
    tokens = [subject.info.task.vocab for subject in (first, second)]
    if tokens[0] != tokens[1]:
        read = f"{second.checkpoint} reads the tokens {tokens[1]}, {first.checkpoint} {tokens[0]}"
        raise ValueError(f"checkpoint: {read}; only heads that read the same can be compared")


def tables_of(alike: Similarity, heads: list[Head], *, population: bool) -> dict[str, pd.DataFrame]:
    tables = {"similarity": within_frame(alike, heads, population=population)}
    if len(heads) > 1:
        tables |= {"similarity_tree": tree_frame(alike), "similarity_map": map_frame(alike, heads)}
    return tables


def within_frame(alike: Similarity, heads: list[Head], *, population: bool) -> pd.DataFrame:
    """`similarity`: one row for every two heads.

    `js_divergence` in bits, 0 to 1, averaged over rows, then over the `n` sequences, with its 95 % interval unless
    these are all sequences there are; `js_distance`, its root, which is a metric; `cka`, 0 to 1, 1 for the same.
    """
    places = list(combinations(range(len(heads)), 2))
    return pairs_frame(alike, places, [(heads[a], heads[b]) for a, b in places], population=population)


def between_frame(between: Similarity, first: list[Head], second: list[Head], *, population: bool) -> pd.DataFrame:
    """`similarity_between`: the same for every head of the first checkpoint (a) and every one of the second (b)."""
    places = list(np.ndindex(len(first), len(second)))
    return pairs_frame(between, places, [(first[a], second[b]) for a, b in places], population=population)


def pairs_frame(
    found: Similarity, places: list[Any], names: list[tuple[Head, Head]], *, population: bool
) -> pd.DataFrame:
    columns = ["layer_a", "head_a", "layer_b", "head_b"]
    table = pd.DataFrame([(*a, *b) for a, b in names], columns=columns)
    m, at = found.divergence, tuple(np.array(places, dtype=int).reshape(-1, 2).T)
    mean = m.nan_mean.numpy()[at]
    table["n"] = m.count.long().numpy()[at]
    table["js_divergence"] = mean
    if not population:
        half = Z95 * m.sem.numpy()[at]
        table["js_divergence_ci_low"], table["js_divergence_ci_high"] = mean - half, mean + half
    return table.assign(js_distance=np.sqrt(mean), cka=found.cka[at])


def distances(alike: Similarity) -> np.ndarray:
    """(A, A): the root of the divergence, a metric (Endres & Schindelin 2003)."""
    return alike.divergence.nan_mean.sqrt().numpy()


def tree_frame(alike: Similarity) -> pd.DataFrame:
    """`similarity_tree`: which heads or groups join at what distance (average linkage).

    Numbers below the number of heads are heads, in their order; the group that row k makes is that number + k.
    """
    steps = linkage(squareform(distances(alike), checks=False), method="average", optimal_ordering=True)
    return pd.DataFrame(steps, columns=["left", "right", "distance", "heads"]).astype(
        {"left": int, "right": int, "heads": int}
    )


def map_frame(alike: Similarity, heads: list[Head]) -> pd.DataFrame:
    """`similarity_map`: a place in the plane for each head, so that distances are kept as well as two dimensions can.

    Classical scaling (Torgerson 1952) of the JS distances. `stress` is √(Σ (d − d̂)² / Σ d²) over all pairs: 0 where
    the map is true.
    """
    d = distances(alike)
    centre = np.eye(len(d)) - 1 / len(d)
    values, vectors = np.linalg.eigh(-centre @ d**2 @ centre / 2)
    order = np.argsort(values)[::-1][:2]
    places = vectors[:, order] * np.sqrt(values[order].clip(min=0))
    places *= np.sign(
        places[np.abs(places).argmax(axis=0), range(places.shape[1])] + 1e-300
    )  # one of two mirror images
    drawn = np.linalg.norm(places[:, None] - places[None], axis=-1)
    stress = np.sqrt(((d - drawn) ** 2).sum() / max((d**2).sum(), np.finfo(float).tiny))
    table = pd.DataFrame(heads, columns=["layer", "head"])
    return table.assign(x=places[:, 0], y=places[:, 1], stress=stress)


def matching_frame(between: pd.DataFrame) -> pd.DataFrame:
    """`matching`: for each head of the first checkpoint the one of the second by `similarity.match`."""
    first, second = (sorted(set(zip(between[f"layer_{s}"], between[f"head_{s}"], strict=True))) for s in "ab")
    costs = between.pivot(index=["layer_a", "head_a"], columns=["layer_b", "head_b"], values="js_divergence")
    pairs = match(costs.loc[first, second].to_numpy(), first, second)
    rows = between.set_index(["layer_a", "head_a", "layer_b", "head_b"])
    table = rows.loc[[(*a, *b) for a, b in pairs.items()]].reset_index()
    return table.rename(columns={"layer_a": "layer"}).drop(columns="layer_b")


if __name__ == "__main__":
    sys.exit(cli.run(main))
