"""Does the weight on a token say how much the answer hangs on it?

    python -m analysis.faithfulness [--split exhaustive | --data FILE]
    python -m analysis.faithfulness --hf MODEL --text FILE

flips every token of every sequence, and holds what that does to the margin of the answer against the attention that
the token receives (in the last layer, over all layers, by rollout) and against its gradients, by Kendall's τ.

Of a transformers model, which must be a classifier, a flip puts the embedding of the tokenizer's mask, or of another
token that can stand for any, where that of the token was.
"""

import sys
import time
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.faithfulness_report import figures
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import Subject, open_subject, parser
from analysis.texts import TextSubject, add_text_arguments, is_of_texts, open_text_subject
from attnkit import cli
from attnkit.attribution import STEPS
from attnkit.faithfulness import (
    COMPARISONS,
    EVERYTHING,
    Agreement,
    Faithfulness,
    Grouping,
    distance_from_tie,
    margins_of,
    measure_faithfulness,
    quarters,
)
from attnkit.tables import Z95
from attnkit.tasks import MAJORITY


def main(argv: list[str] | None = None) -> None:
    p = parser("analysis.faithfulness", "Does the weight on a token say how much the answer hangs on it?")
    add_text_arguments(p)
    args = p.parse_args(argv)
    if is_of_texts(args):
        study_texts(open_text_subject(args))
    else:
        study(open_subject(args))


def study(subject: Subject) -> None:
    started = time.perf_counter()
    groupings = {"margin": quarters(partial(margins_of, subject.model), subject.batches)}
    if subject.info.task.name == MAJORITY.name:
        groupings["ones_minus_half"] = distance_from_tie(subject.info.model.max_len)
    found = measure_faithfulness(subject.model, subject.batches, groupings)
    leave(subject, found, groupings, time.perf_counter() - started)


def study_texts(subject: TextSubject) -> None:
    """Of a transformers model, over texts."""
    from attnkit import hffaithfulness

    hffaithfulness.check(subject.model)
    replacement = hffaithfulness.replacement_of(subject.tokenizer)

    started = time.perf_counter()
    size = subject.batch_size
    groupings = {"margin": quarters(partial(hffaithfulness.margins_of, subject.model, size=size), subject.batches)}
    found = hffaithfulness.measure_faithfulness(subject.model, subject.batches, replacement, groupings, size=size)
    about = {"replacement": replacement._asdict(), "warnings": subject.notes()}
    leave(subject, found, groupings, time.perf_counter() - started, about)
    subject.warn()


def leave(
    subject: Subject | TextSubject,
    found: Faithfulness,
    groupings: dict[str, Grouping],
    seconds: float,
    about: dict[str, Any] | None = None,
) -> None:
    """The table, the record and the page."""
    record: dict[str, Any] = subject.record() | {
        "sequences": int(found.by["all"].margin.count[0]),
        "seconds": seconds,
        "integrated_gradients": {
            "steps": STEPS,
            "missed_mean": float(found.missed.mean),
            "missed_max": float(found.missed.high),
        },
    }
    record |= about or {}
    table = faithfulness_frame(found, groupings, population=record["population"])
    write_study(subject.out, "faithfulness", {"faithfulness": table}, record, figures)
    print(f"{record['sequences']:,} sequences in {seconds:.1f} s")
    print(f"report: {write_report(subject.out)}")


def faithfulness_frame(found: Faithfulness, groupings: dict[str, Grouping], *, population: bool) -> pd.DataFrame:
    """`faithfulness`: one row per attribution, effect and group of sequences.

    `attribution`: attention received (`last_layer`, `mean_layers`, `rollout`), `gradient_x_input` or
    `integrated_gradients`. `effect`: `absolute`, its size against how much a flip of the token changes the margin, or
    `signed`, the attribution against how much a flip lowers it. `by` and `value`: `all`; `margin`, its quarters from
    the smallest; `ones_minus_half`, the number of ones minus half the length. `margin_low` to `margin_high` are the
    margins in the group. `mean`, `std`, the 95 % interval (none over a population), `min` and `max` are of Kendall's
    τ-b over the `n` sequences where it is defined; `undefined` counts the others.
    """
    everything = {"all": EVERYTHING, **groupings}
    return pd.concat(
        [agreement_frame(found.by[by], by, grouping, population=population) for by, grouping in everything.items()],
        ignore_index=True,
    )


def agreement_frame(part: Agreement, by: str, grouping: Grouping, *, population: bool) -> pd.DataFrame:
    g, k = (axis.ravel() for axis in np.indices(part.tau.count.shape))
    attribution, effect = np.array(COMPARISONS, dtype=object)[k].T
    frame = pd.DataFrame(
        {"attribution": attribution, "effect": effect, "by": by, "value": np.array(grouping.groups)[g]}
    )
    for name, values in (("low", part.margin.low), ("mean", part.margin.mean), ("high", part.margin.high)):
        frame[f"margin_{name}"] = values.numpy()[g]
    tau = part.tau
    columns = {"n": tau.count.long(), "undefined": part.undefined, "mean": tau.nan_mean, "std": tau.std}
    columns |= {"sem": tau.sem, "ci_low": tau.mean - Z95 * tau.sem, "ci_high": tau.mean + Z95 * tau.sem}
    columns |= {"min": tau.low, "max": tau.high}
    for name, values in columns.items():
        frame[name] = values.numpy().ravel()
    frame.loc[frame["n"] == 0, ["min", "max"]] = np.nan
    frame = frame[frame["n"] + frame["undefined"] > 0].reset_index(drop=True)
    return frame.drop(columns=["sem", "ci_low", "ci_high"]) if population else frame


if __name__ == "__main__":
    sys.exit(cli.run(main))
