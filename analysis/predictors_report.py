"""The section of the report that tells which statistic foretells damage, from a table of `analysis.head_importance`."""

import pandas as pd

from analysis.findings import Finding
from analysis.importance_report import FIGURES
from analysis.page import Cell, Folder, Section, Table, pictures, value_cell
from attnkit.labels import number, words

ADJUSTED = 0.05  # p from which on a correlation may well be chance


def what_foretells(folder: Folder) -> Section | None:
    """Which statistic predicts damage."""
    table = folder.table("predictors")
    if table is None or table.empty:
        return None
    found = [strongest(table[table["effect"] == effect]) for effect in table["effect"].unique()]
    columns = ("spearman", "spearman_ci_low", "spearman_ci_high", "p", "p_adjusted")
    body = [
        [
            Cell(words(row["statistic"])),
            Cell(EFFECT_WORDS[row["effect"]]),
            *(value_cell(row[column], 0.0) for column in columns),
        ]
        for _, row in table.sort_values("spearman", key=abs, ascending=False, kind="stable").iterrows()
    ]
    headings = ["Statistic", "Foretells", "Spearman’s ρ", "from", "to", "p", "p, adjusted"]
    return Section(
        "predictors",
        "Which statistic foretells the damage",
        "A description is not an effect: how a head attends need not tell what it is worth. Over the "
        f"{table['n'].max()} heads each statistic is held against what removing the head costs. The intervals are wide "
        "because the heads are few; they say how sure one can be of other heads of this kind. p is adjusted over all "
        "rows (Benjamini–Hochberg).",
        findings=[finding for finding in found if finding],
        pictures=pictures(folder, {"predictors": FIGURES["predictors"]}),
        table=Table("Rank correlation of statistics and damage", [(h, "") for h in headings], body, 2, sortable=True),
    )


EFFECT_WORDS = {
    "accuracy_drop": "accuracy lost",
    "loss_increase": "loss increase",
    "answers_changed": "share of answers that change",
    "divergence": "divergence",
    "similarity_change": "change of similarity",
    "embedding_change": "change of the embedding",
}


def strongest(table: pd.DataFrame) -> Finding:
    row = table.sort_values("spearman", key=abs).iloc[-1]
    effect, low, high, p = (row[column] for column in ("effect", "spearman_ci_low", "spearman_ci_high", "p_adjusted"))
    interval = f" (95 % from {number(low)} to {number(high)})" if low == low else ""
    chance = ", which may well be chance" if p > ADJUSTED else ""
    return Finding(
        EFFECT_WORDS[effect].capitalize(),
        f"{words(row['statistic'])} goes most closely with the {EFFECT_WORDS[effect]}: ρ is {number(row['spearman'])}"
        f"{interval}; adjusted for all that were tried, p is {number(p)}{chance}.",
    )
