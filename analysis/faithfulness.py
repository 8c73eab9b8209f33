"""Does the weight on a token say how much the answer hangs on it?

    python -m analysis.faithfulness [--split exhaustive | --data FILE]

flips every token of every sequence, and holds what that does to the margin of the answer against the attention that
the token receives (in the last layer, over all layers, by rollout) and against its gradients, by Kendall's τ.
"""

import sys
import time
from typing import Any

import numpy as np
import pandas as pd

from analysis.faithfulness_report import figures
from analysis.report import write_report
from analysis.study import write_study
from analysis.subject import open_subject, parser
from attnkit import cli
from attnkit.attribution import STEPS
from attnkit.faithfulness import (
    COMPARISONS,
    EVERYTHING,
    Agreement,
    Faithfulness,
    Grouping,
    distance_from_tie,
    measure_faithfulness,
    quarters,
)
from attnkit.tables import Z95
from attnkit.tasks import MAJORITY


def main(argv: list[str] | None = None) -> None:
    what = "Does the weight on a token say how much the answer hangs on it?"
    subject = open_subject(parser("analysis.faithfulness", what).parse_args(argv))
    started = time.perf_counter()
    groupings = {"margin": quarters(subject.model, subject.batches)}
    if subject.info.task.name == MAJORITY.name:
        groupings["ones_minus_half"] = distance_from_tie(subject.info.model.max_len)
    found = measure_faithfulness(subject.model, subject.batches, groupings)
    seconds = time.perf_counter() - started

    record: dict[str, Any] = subject.record() | {
        "sequences": int(found.by["all"].margin.count[0]),
        "seconds": seconds,
        "integrated_gradients": {
            "steps": STEPS,
            "missed_mean": float(found.missed.mean),
            "missed_max": float(found.missed.high),
        },
    }
    table = faithfulness_frame(found, groupings, population=subject.dataset.population)
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
