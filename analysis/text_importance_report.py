"""The section of the report that tells what heads are worth to a model whose answers have no labels.

That is a language model, a classifier that is held against itself, or a model of embeddings; which of them, the
columns of the table `head_importance` say.
"""

import numpy as np
import pandas as pd

from analysis.findings import Finding, Head, at_start, name
from analysis.importance_report import FIGURES, IN_ORDER, METHOD_WORDS, interval_words, nats, of_method
from analysis.page import Cell, Folder, Section, Table, measured_on, percent, pictures, value_cell
from attnkit import importance_plots
from attnkit.labels import number

PURPOSES = {  # what is measured first: what that is
    "similarity_change": "The model is one of embeddings, as sentence transformers read them: the mean of the last "
    "hidden states over the tokens of a text. A head is worth what its removal moves: how far the cosine of two texts "
    "moves, up or down, and how far each text’s embedding turns away from itself (1 − cosine). Pairs are the first and "
    "the second text, the third and the fourth, and so on.",
    "divergence": "There are no labels, so the model is held against what it says as it is: how many answers are "
    "others without the head, and the Kullback–Leibler divergence of what it says then.",
    "loss_increase": "The model foretells the next token. A head is worth what its removal adds to the loss per token, "
    "and the share of tokens that are no longer foretold right; both are means over the texts, each counted once.",
}


def what_texts_lose(folder: Folder) -> Section | None:
    table = folder.table("head_importance")
    if table is None or "answers_lost" in table:
        return None
    record = folder.record("head_importance")
    main = measured_first(table)
    zero, mean = of_method(table, "zero"), of_method(table, "mean")
    found = [extremes(zero, main), by_layer(zero, main), by_mean(zero, mean, main), in_order(zero)]
    captions = {"importance": FIGURES["importance"]}
    if (pruning := folder.table("pruning")) is not None:
        found.append(how_many(pruning, main))
        captions["pruning"] = IN_ORDER
    return Section(
        "importance",
        "What is lost without each head",
        f"{measured_on(folder, record)} {PURPOSES[main]} A head is removed by replacing its output, and the same texts "
        f"are run again. {interval_words(record)}",
        findings=[finding for finding in found if finding],
        pictures=pictures(folder, captions),
        table=importance_table(table),
    )


def measured_first(table: pd.DataFrame) -> str:
    return next(effect for effect in PURPOSES if effect in table)


def costs(row: pd.Series) -> str:
    """What the removal of a head does, in words."""
    if "similarity_change" in row:
        moved, turned = number(row["similarity_change"]), number(row["embedding_change"])
        return (
            f"the cosine of two texts moves by {moved} on average and a text’s embedding turns by {turned} (1 − cosine)"
        )
    if "divergence" in row:
        return f"{percent(row['answers_changed'])} of the answers change (divergence {nats(row['divergence'])})"
    way = "rises" if row["loss_increase"] >= 0 else "falls"
    return f"the loss per token {way} by {nats(row['loss_increase'])}"


def extremes(zero: pd.DataFrame, main: str) -> Finding:
    ordered = zero.sort_values(main, kind="stable")
    heads: list[Head] = list(ordered.index)
    return Finding(
        "The most and the least",
        f"Without {name(heads[-1])}, {costs(ordered.iloc[-1])}, the most of all {len(heads)} heads; without "
        f"{name(heads[0])}, {costs(ordered.iloc[0])}, the least.",
    )


def by_layer(zero: pd.DataFrame, main: str) -> Finding | None:
    means = zero.groupby("layer")[main].mean().sort_values(kind="stable")
    if len(means) < 2:
        return None
    return Finding(
        "Layer by layer",
        f"The heads of layer {means.index[-1]} cost most, {number(means.iloc[-1])} on average "
        f"({importance_plots.EFFECTS[main]}), those of layer {means.index[0]} least, {number(means.iloc[0])}.",
    )


def by_mean(zero: pd.DataFrame, mean: pd.DataFrame, main: str) -> Finding | None:
    """Is it what a head tells of this text that counts, or only that it puts something out?"""
    costly = zero.index[zero[main] > 0]
    if mean.empty or costly.empty:
        return None
    ratio = (mean[main].reindex(costly) / zero.loc[costly, main]).sort_values(kind="stable")
    low, high = (f"{ratio.iloc[k]:.2f} ({name(head)})" for k, head in ((0, ratio.index[0]), (-1, ratio.index[-1])))
    return Finding(
        "Presence or content",
        "With its mean output in its place a head still says something, but the same of every text. The head in the "
        f"middle then costs {ratio.median():.2f} times what it costs to remove it; this goes from {low} to {high}.",
    )


def in_order(zero: pd.DataFrame) -> Finding | None:
    """Do similar pairs stay the similar ones?"""
    if "similarity_rank" not in zero or zero["similarity_rank"].isna().all():
        return None
    ranks = zero["similarity_rank"].sort_values(kind="stable")
    heads: list[Head] = list(ranks.index)
    return Finding(
        "The order of pairs",
        f"{at_start(heads[0])} changes most which pairs are the similar ones: the rank correlation of the "
        f"{int(zero['pairs'].max()):,} cosines with those of the whole model is "
        f"{ranks.iloc[0]:.4f} without it, and {ranks.median():.4f} without the "
        "head in the middle.",
    )


def how_many(pruning: pd.DataFrame, main: str) -> Finding | None:
    """What is lost without the quarter and the half of the heads that cost least alone."""
    heads = len(pruning) - 1
    measured = pruning[pruning[main].notna()].set_index("removed")
    removed = [measured.index[measured.index <= heads * share].max() for share in (0.25, 0.5)]
    told = [f"without the {n} that cost least alone, {costs(measured.loc[n])}" for n in removed if n]
    if not told:
        return None
    return Finding("Many at once", f"Of {heads} heads, {'; '.join(told)}.")


def importance_table(table: pd.DataFrame) -> Table:
    """One row per head: what each method says."""
    columns, values = [("Layer", ""), ("Head", "")], {}
    heads = of_method(table, "zero").index
    for effect in (effect for effect in HEADINGS if effect in table):
        for method, words in METHODS.items():
            rows = of_method(table, method)
            if rows[effect].notna().any():
                columns.append((f"{HEADINGS[effect]}, {words}", ""))
                values[len(columns)] = rows[effect].reindex(heads)
    numbers = pd.DataFrame(values).to_numpy()
    departures = [
        1 - v if heading.startswith("Rank") else v for v, (heading, _) in zip(numbers.T, columns[2:], strict=True)
    ]
    tints = np.array([d / max(np.nanmax(np.abs(d)), 1e-9) for d in departures]).T
    body = [
        [Cell(str(layer), layer), Cell(str(head), head), *map(value_cell, of_head, tint)]
        for (layer, head), of_head, tint in zip(heads, numbers, tints, strict=True)
    ]
    return Table("What is lost without each head", columns, body, 2, sortable=True)


HEADINGS = {
    "accuracy_drop": "Accuracy lost",
    "loss_increase": "Loss increase (nats)",
    "answers_changed": "Answers changed",
    "divergence": "Divergence (nats)",
    "similarity_change": "Change of similarity",
    "embedding_change": "Change of embedding",
    "gradient_importance": "Gradient importance",
    "similarity_rank": "Rank correlation",
}
METHODS = METHOD_WORDS | {"gradient": "foretold by the gradient"}
