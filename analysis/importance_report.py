"""The sections of the report that tell what heads are worth, read off the tables of `analysis.head_importance`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.columns import Dictionary
from analysis.findings import Finding, at_start, name, names
from analysis.page import Cell, Folder, Section, Table, measured_on, percent, pictures, value_cell
from attnkit import importance_plots
from attnkit.labels import number

FIGURES = {  # the beginning of a file's name: a title, and what to see
    "importance": (
        "What each head is worth",
        "The further to the right, or the redder, the more is lost. Removed: the head puts out nothing. Its mean "
        "output: what it puts out is replaced by its mean (at each position; of texts over all tokens), so that it no "
        "longer depends on the sequence. Of another sequence: it puts out what it would on a sequence drawn at random. "
        "The gradient foretells the increase of the loss by its slope at the model as it is. An axis that is no share "
        "is linear up to 0.0001, logarithmic beyond.",
    ),
    "pruning": (
        "One head after the other",
        "Always the head goes without which the loss is then lowest (of many sequences, on about 4,096 of them; the "
        "numbers are of all). How long the line stays flat tells how many heads the model could do without.",
    ),
    "pairs": (
        "Two heads at once",
        "Red: removing both costs more than the sum of what each costs alone, so each covers for the other. Blue: it "
        "costs less, so part of the damage is the same.",
    ),
    "predictors": (
        "Which statistic foretells the damage",
        "Each mark is the rank correlation between a statistic and what is lost without the head, over the heads; "
        "bars are 95 % intervals. Bars that cross 0 tell nothing either way.",
    ),
}
IN_ORDER = (  # of "pruning", where the order is not searched for
    "One head after the other",
    "Those heads go first that cost least alone (Michel et al. 2019); what is lost is measured at sixteen points. How "
    "long the line stays flat tells how many heads the model could do without.",
)
DICTIONARY = Dictionary(
    tables=("head_importance", "head_importance_statistics", "pairs", "pruning", "predictors"),
    columns={
        "method": ("what takes the place of the output: zero, mean, resample; gradient is no removal", ""),
        "accuracy_drop": ("accuracy − accuracy with the output replaced", ""),
        "loss_increase": (
            "loss with the output replaced − loss, of a language model per token; gradient: as the slope foretells it",
            "nats",
        ),
        "answers_changed": ("share of answers that are others with the output replaced", ""),
        "divergence": ("Kullback–Leibler divergence of what the model says then from what it says as it is", "nats"),
        "embedding_change": ("1 − cosine of a text’s embedding with the output replaced and as it is", ""),
        "similarity_change": ("mean |change of the cosine| of two neighbouring texts", ""),
        "pairs": ("how many pairs of texts similarity_change is of", "pairs"),
        "similarity_rank": ("rank correlation of the pairs’ cosines with the output replaced and as it is", ""),
        "gradient_importance": ("mean |∂loss/∂ξ| with a gate ξ = 1 on the output of the head", "nats"),
        "answers_lost": ("right answers that become wrong; resample: the mean of its draws", "sequences"),
        "answers_gained": ("wrong answers that become right; resample: the mean of its draws", "sequences"),
        "accuracy_beyond_sum": ("accuracy_drop without both − the sum of what each costs alone", ""),
        "loss_beyond_sum": ("loss_increase without both − the sum of what each costs alone", "nats"),
        "removed": ("how many heads are gone; `layer` and `head` are the last of them", "heads"),
        "effect": ("what the statistic is to foretell", ""),
        "spearman": ("the rank correlation of statistic and effect over the heads", ""),
        "predictors.n": ("how many heads", "heads"),
        "predictors.p": ("the p-value of a permutation test, two-sided", ""),
    },
)
COSTLY = 0.001  # share of the answers from which a head is said to cost accuracy
LEAST = 0.001  # nats, below which words do not say how many


def figures(folder: Folder) -> Iterator[tuple[str, Figure]]:
    drawn = {
        "head_importance": ("importance", importance_plots.importance),
        "predictors": ("predictors", importance_plots.predictors),
        "pairs": ("pairs", importance_plots.pairs),
        "pruning": ("pruning", importance_plots.pruning),
    }
    for table_name, (name_of_figure, draw) in drawn.items():
        table = folder.table(table_name)
        if table is not None and len(table):
            yield name_of_figure, draw(table)


def what_is_lost(folder: Folder) -> Section | None:
    table = folder.table("head_importance")
    if table is None or "answers_lost" not in table:  # of answers without labels tells `text_importance_report`
        return None
    record = folder.record("head_importance")
    zero, mean, resample = (of_method(table, method) for method in ("zero", "mean", "resample"))
    found = [most(zero), free(zero, record), over_all(folder, record), by_mean(zero, mean), misled(mean, resample)]
    if (pairs := folder.table("pairs")) is not None:
        found.append(covering(pairs, zero))
    if (pruning := folder.table("pruning")) is not None:
        found.append(how_few(pruning, int(record["sequences"])))
    captions = {kind: FIGURES[kind] for kind in ("importance", "pairs", "pruning")}
    if "pruned" in record:
        captions["pruning"] = IN_ORDER
    return Section(
        "importance",
        "What is lost without each head",
        f"{measured_on(folder, record)} A head is removed by replacing its output, and the same sequences are run "
        "again: what counts is the difference on each sequence. " + interval_words(record),
        findings=[finding for finding in found if finding],
        pictures=pictures(folder, captions),
        table=importance_table(table),
    )


# ---------------------------------------------------------------- on what


def interval_words(record: dict[str, Any]) -> str:
    if record["population"]:
        return (
            "These are all sequences there are, so there is no sampling error; only the draw of another sequence "
            "leaves one, and has an interval."
        )
    return "Intervals are those of the mean of these differences, 95 %."


# ---------------------------------------------------------------- what stands out


def of_method(table: pd.DataFrame, method: str) -> pd.DataFrame:
    return table[table["method"] == method].set_index(["layer", "head"])


def answers(row: pd.Series) -> str:
    """How many answers are lost, in words."""
    lost, n = round(row["answers_lost"]), int(row["n"])
    if not lost:
        return f"none of {n:,} answers is lost"
    return f"{lost:,} of {n:,} answers {'becomes' if lost == 1 else 'become'} wrong ({percent(lost / n)})"


def nats(value: float) -> str:
    size = number(abs(value)) if abs(value) >= LEAST else f"less than {LEAST}"
    return f"{size}\N{NO-BREAK SPACE}nats"


def changes(value: float) -> str:
    way = "rises" if value >= 0 else "falls"
    return f"the loss {way} by {nats(value)}" if abs(value) >= LEAST else f"the loss hardly {way} (by {nats(value)})"


def most(zero: pd.DataFrame) -> Finding | None:
    worst = zero.sort_values(["accuracy_drop", "loss_increase"]).index[-1]
    row = zero.loc[worst]
    return Finding("The most costly", f"Without {name(worst)}, {answers(row)} and {changes(row['loss_increase'])}.")


def free(zero: pd.DataFrame, record: dict[str, Any]) -> Finding | None:
    heads, n = list(zero.index[zero["answers_lost"] == 0]), int(zero["n"].max())
    if not heads:
        return Finding("None is free", f"No head can be removed without losing one of the {n:,} answers.")
    text = f"{len(heads)} of {len(zero)} heads can be removed, each alone, without losing one of the {n:,} answers"
    # Of a sample, none in n still leaves as many as would go unseen in one sample of twenty (Clopper & Pearson 1934).
    bound = (
        "" if record["population"] else f" (of all sequences it may be up to {percent(1 - 0.05 ** (1 / n))}, 95 % sure)"
    )
    return Finding("Free to go", f"{text}{bound}: {names(heads)}.")


def over_all(folder: Folder, record: dict[str, Any]) -> Finding | None:
    """The same from the table of `analysis.head_stats`, where that has run over all sequences and this has not."""
    if folder.long is None or not folder.run.get("population") or record["population"]:
        return None
    if folder.run["checkpoint_sha256"] != record["checkpoint_sha256"]:
        return None
    drops = folder.long[folder.long["statistic"] == "accuracy_drop"].set_index(["layer", "head"])
    if drops.empty:
        return None
    n, unneeded = int(drops["n"].max()), drops.index[drops["max"] <= 0]  # of one sequence: 1 where its answer is lost
    text = f"Each of the {len(drops)} heads costs some of all {n:,} answers."
    if len(unneeded):
        text = f"{len(unneeded)} of {len(drops)} heads can be removed, each alone, without losing one of all {n:,} "
        text += f"answers: {names(unneeded)}."
    worst = drops["mean"].sort_values().index[-1]
    costs = f" {at_start(worst)} costs most, {percent(drops['mean'].max())} of them."
    return Finding("Over all sequences", text + (costs if drops["mean"].max() > 0 else ""))


def by_mean(zero: pd.DataFrame, mean: pd.DataFrame) -> Finding | None:
    """Is it where a head looks that counts, or only that it puts something out?"""
    costly = [head for head in zero.index if zero.loc[head, "accuracy_drop"] >= COSTLY]
    if not costly or mean.empty:
        return None
    only_mean = [head for head in costly if mean.loc[head, "accuracy_drop"] < COSTLY]
    if only_mean:
        return Finding(
            "Presence, not pattern",
            f"With their mean output in their place, each alone, less than {percent(COSTLY)} of the answers is lost: "
            f"{names(only_mean)}. The others rely on what they put out on average, not on how they tell sequences "
            "apart.",
        )
    worst = max(costly, key=lambda head: mean.loc[head, "accuracy_drop"])
    return Finding(
        "The pattern counts",
        f"Even with its mean output in its place, without {name(worst)}, {answers(mean.loc[worst])}.",
    )


def misled(mean: pd.DataFrame, resample: pd.DataFrame) -> Finding | None:
    """What a head does harm by, when it speaks of another sequence."""
    if resample.empty:
        return None
    worst = resample.sort_values(["accuracy_drop", "loss_increase"]).index[-1]
    row = resample.loc[worst]
    text = f"If it puts out what it would on another sequence, {name(worst)} does the most harm: {answers(row)}"
    if row["accuracy_drop"] >= COSTLY > mean.loc[worst, "accuracy_drop"]:
        text += ". The model can do without what this head tells of the sequence, but not with something false"
    return Finding("Misled", f"{text}.")


def covering(pairs: pd.DataFrame, zero: pd.DataFrame) -> Finding | None:
    """The two heads that cost most beyond what each costs alone."""
    row = pairs.sort_values(["accuracy_beyond_sum", "loss_beyond_sum"]).iloc[-1]
    a, b = ((int(row[f"layer_{s}"]), int(row[f"head_{s}"])) for s in "ab")
    if row["accuracy_beyond_sum"] <= 0:
        return Finding("Together", "No two heads cost more accuracy together than the sum of what each costs alone.")
    alone = [percent(share) for share in zero["accuracy_drop"].clip(lower=0).loc[[a, b]]]
    return Finding(
        "They cover for each other",
        f"{at_start(a)} and {name(b)} cost {alone[0]} and {alone[1]} of the answers alone, but "
        f"{percent(row['accuracy_drop'])} together. No other pair costs as much beyond the sum.",
    )


def how_few(pruning: pd.DataFrame, n: int) -> Finding | None:
    start = pruning["accuracy"].iloc[0]
    kept = pruning[pruning["accuracy"] > start - COSTLY]
    last, heads = int(kept["removed"].max()), len(pruning) - 1
    gone = [(int(row["layer"]), int(row["head"])) for _, row in pruning.iloc[1 : last + 1].iterrows()]
    measured = pruning[pruning["accuracy"].notna()].set_index("removed")["accuracy"]
    if not last:
        first = int(measured.index[1])
        who = "Whichever head goes first" if first == 1 else f"Without the {first} heads that cost least alone"
        return Finding("All are needed", f"{who}, at least {percent(COSTLY)} of the answers are lost.")
    text = f"{last} of {heads} heads can go together for less than {percent(COSTLY)} of the answers: {names(gone)}."
    rest = f" The accuracy is then {percent(measured[last])}"
    if last < heads:
        after = int(measured.index[measured.index > last][0])
        more = "one more" if after == last + 1 else f"{after - last} more"
        rest += f", and {percent(measured[after])} with {more}"
    return Finding("How few would do", f"{text}{rest}.")


# ---------------------------------------------------------------- the table


def importance_table(table: pd.DataFrame) -> Table:
    """One row per head: what each method says."""
    parts = {method: of_method(table, method) for method in ("zero", "mean", "resample", "gradient")}
    removals = [method for method in METHOD_WORDS if len(parts[method])]
    columns = [("Layer", ""), ("Head", "")]
    columns += [(f"Accuracy lost, {METHOD_WORDS[m]}", "") for m in removals]
    columns += [(f"Loss increase (nats), {METHOD_WORDS[m]}", "") for m in removals]
    columns += [("Gradient importance", "mean |∂loss/∂ξ| with a gate ξ = 1 on the output of the head")]
    effects = [(m, "accuracy_drop") for m in removals]
    effects += [(m, "loss_increase") for m in removals]
    effects += [("gradient", "gradient_importance")]
    heads = parts["zero"].index
    values = pd.DataFrame({k: parts[m][column].reindex(heads) for k, (m, column) in enumerate(effects)}).to_numpy()
    tints = values / np.maximum(np.nanmax(np.abs(values), axis=0, initial=0.0), 1e-9)
    body = [
        [Cell(str(layer), layer), Cell(str(head), head), *map(value_cell, of_head, tint)]
        for (layer, head), of_head, tint in zip(heads, values, tints, strict=True)
    ]
    return Table("What is lost without each head", columns, body, 2, sortable=True)


METHOD_WORDS = {"zero": "removed", "mean": "mean output", "resample": "another sequence’s"}
