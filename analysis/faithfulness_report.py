"""The section of the report that tells whether weights explain answers, from the table of `analysis.faithfulness`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.columns import Dictionary
from analysis.findings import Finding
from analysis.page import Cell, Folder, Section, Table, figure_of, measured_on, pictures, value_cell
from attnkit import faithfulness_plots
from attnkit.faithfulness import ATTENTION, GRADIENTS
from attnkit.faithfulness_plots import EFFECTS, NAMES
from attnkit.labels import number

FIGURES = {
    "faithfulness_all": (
        "Do weights and gradients find the tokens that count?",
        "The further to the right, the more nearly the order of the tokens is that in which flips change the answer’s "
        "margin; 0 is what chance gives. Sizes: whatever the direction. With signs: tokens that speak for the answer "
        "first, those against it last. Thick bars: 95 % intervals of the mean; thin bars: one standard deviation of "
        "the sequences.",
    ),
    "faithfulness_groups": (
        "The same for easy and hard sequences",
        "Where a line rises or falls, how far one can trust the attribution depends on the sequence. Near a tie one "
        "flip can turn the answer.",
    ),
}
DICTIONARY = Dictionary(
    tables=("faithfulness",),
    columns={
        "attribution": ("what is held against the flips", ""),
        "effect": ("absolute: sizes; signed: what speaks for the answer before what speaks against it", ""),
        "by": ("how the sequences are divided: all, by margin in quarters, by ones_minus_half", ""),
        "value": ("which part of them", ""),
        "margin_low": ("the smallest margin of the answer in the part", "logits"),
        "margin_mean": ("the mean margin", "logits"),
        "margin_high": ("the largest margin", "logits"),
        "n": ("on how many sequences Kendall’s τ-b is defined", "sequences"),
        "undefined": ("on how many it is not", "sequences"),
        "mean": ("the mean of τ over the sequences", "τ"),
        "std": ("the standard deviation of τ over the sequences", "τ"),
        "sem": ("the standard error of the mean", "τ"),
        "ci_low": ("the lower end of the 95 % interval of the mean", "τ"),
        "ci_high": ("the upper end of it", "τ"),
        "min": ("the smallest τ of a sequence", "τ"),
        "max": ("the largest", "τ"),
    },
)
Row = dict[str, Any]
Record = Mapping[str, Any]
NOTHING, LITTLE, PARTLY, CLOSELY = 0.1, 0.3, 0.5, 0.8  # sizes of τ from which words say more


def figures(folder: Folder) -> Iterator[tuple[str, Figure]]:
    table = folder.table("faithfulness")
    if table is None:
        return
    yield "faithfulness_all", figure_of(faithfulness_plots.agreement(table))
    if table["by"].nunique() > 1:
        yield "faithfulness_groups", faithfulness_plots.by_group(table)


def do_weights_explain(folder: Folder) -> Section | None:
    table = folder.table("faithfulness")
    if table is None:
        return None
    record = folder.record("faithfulness")
    rows: list[Row] = table.to_dict("records")  # type: ignore[assignment]  # the columns' names are strings
    whole = [row for row in rows if row["by"] == "all"]
    found = [of_attention(whole), of_gradients(whole), with_signs(whole), hard_or_easy(rows), left_out(whole)]
    steps = record["integrated_gradients"]
    return Section(
        "faithfulness",
        "Do the weights explain the answer?",
        f"{measured_on(folder, record)} {a_flip(record)} says how much hangs on it. Kendall’s τ-b holds that against "
        "the attention that the token receives from all queries and heads, and against its gradients, within each "
        "sequence: 1 is the same order of the tokens, 0 what chance gives, −1 the reverse. "
        + (
            "These are all sequences there are, so there is no sampling error. "
            if record["population"]
            else "Intervals are 95 %, over the sequences. "
        )
        + f"Integrated gradients start from {start(record)} and take {steps['steps']} steps; their sum misses "
        f"the change of the margin on the way by {number(steps['missed_mean'])} on average, by "
        f"{number(steps['missed_max'])} at most.",
        findings=[finding for finding in found if finding],
        pictures=pictures(folder, FIGURES),
        table=tau_table(rows),
    )


def a_flip(record: Record) -> str:
    """What is done to a token, and what is then looked at."""
    change = "how much the margin of the answer (its logit minus the next largest) then changes"
    if "replacement" not in record:
        return f"Every token is flipped: each other token is put in its place, and {change}, on average,"
    what = f"the embedding of {record['replacement']['token']} is put in the place of its own, and {change}"
    return f"Special tokens are left out. Every other token is flipped: {what}"


def start(record: Record) -> str:
    """Where integrated gradients start."""
    if "replacement" not in record:
        return "embeddings of 0"
    return f"the embedding of {record['replacement']['token']} in the place of every token that is not special"


# ---------------------------------------------------------------- what stands out


def known(rows: list[Row], effect: str, names: Sequence[str]) -> list[Row]:
    """The rows of these attributions that have a τ, the largest first."""
    found = [row for row in rows if row["effect"] == effect and row["attribution"] in names and row["n"]]
    return sorted(found, key=lambda row: -row["mean"])


def of_attention(whole: list[Row]) -> Finding | None:
    """Does the weight on a token say how much the answer hangs on it?"""
    rows = sorted(known(whole, "absolute", ATTENTION), key=lambda row: -abs(row["mean"]))
    return Finding("The weights", f"{verdict(rows[0]['mean'])} {told(rows)}.") if rows else None


def verdict(tau: float) -> str:
    if abs(tau) < NOTHING:
        return "The weight on a token does not say how much the answer hangs on it."
    if tau < 0:
        return "The weight on a token says the reverse: the answer hangs less on tokens that get more."
    if tau < LITTLE:
        return "The weight on a token says little of how much the answer hangs on it."
    if tau < PARTLY:
        return "The weight on a token says in part how much the answer hangs on it."
    return f"The weight on a token says {'closely' if tau >= CLOSELY else 'largely'} how much the answer hangs on it."


def told(rows: list[Row]) -> str:
    """The mean τ of the first row and how sure that is, and those of the others."""
    first, *others = rows
    interval = f" (95 % from {number(first['ci_low'])} to {number(first['ci_high'])})" if "ci_low" in first else ""
    text = f"{capital(NAMES[first['attribution']][0])}: τ is {number(first['mean'])}{interval}"
    return "; ".join([text, *(f"{NAMES[row['attribution']][0]}: {number(row['mean'])}" for row in others)])


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def of_gradients(whole: list[Row]) -> Finding | None:
    """Do gradients say it better?"""
    attention, gradients = (known(whole, "absolute", names) for names in (ATTENTION, GRADIENTS))
    if not attention or not gradients:
        return None
    best = attention[0]["mean"]
    how = "better" if gradients[0]["mean"] > best else "no better"
    text = f"They tell what flips do {how} than attention, of which the best has {number(best)}."
    return Finding("The gradients", f"{told(gradients)}. {text}")


def with_signs(whole: list[Row]) -> Finding | None:
    """Do they tell which way a token pulls?"""
    rows = known(whole, "signed", GRADIENTS)
    if not rows:
        return None
    tau = rows[0]["mean"]
    how = "do not tell" if tau < NOTHING else "tell in part" if tau < CLOSELY else "tell"
    return Finding(
        "For or against",
        f"Gradients {how} whether a token speaks for the answer or against it, which attention cannot. {told(rows)}.",
    )


def hard_or_easy(rows: list[Row]) -> Finding | None:
    """Between which groups attention differs most."""
    by = "ones_minus_half" if any(row["by"] == "ones_minus_half" for row in rows) else "margin"
    rows = known([row for row in rows if row["by"] == by and row["n"] >= FEWEST], "absolute", ATTENTION)
    if len({row["value"] for row in rows}) < 2:
        return None
    best, worst = (
        f"{group_words(row)}: τ is {number(row['mean'])} ({NAMES[row['attribution']][0]}, {row['n']:,} sequences)"
        for row in (rows[0], rows[-1])
    )
    return Finding("It depends on the sequence", f"Attention agrees with flips most {best}. Least {worst}.")


FEWEST = 30  # sequences from which a group is spoken of


def group_words(row: Row) -> str:
    if row["by"] == "ones_minus_half":
        ones = row["value"]
        amount = f"{abs(ones):g} {'one' if abs(ones) == 1 else 'ones'}"
        return "at a tie" if ones == 0 else f"with {amount} {'more' if ones > 0 else 'fewer'} than half"
    return f"where the margin is {number(row['margin_low'])} to {number(row['margin_high'])}"


def left_out(whole: list[Row]) -> Finding | None:
    parts = [
        f"{NAMES[row['attribution']][0]}, {EFFECTS[row['effect']]}: {left:,} of {left + row['n']:,}"
        for row in whole
        if (left := row["undefined"])
    ]
    if not parts:
        return None
    return Finding(
        "Left out", f"Sequences in which all tokens are tied, so that there is no order: {'; '.join(parts)}."
    )


# ---------------------------------------------------------------- the table


def tau_table(rows: list[Row]) -> Table:
    """One row per attribution, effect and group."""
    has_interval = "ci_low" in rows[0]
    values = ["mean", *(["ci_low", "ci_high"] if has_interval else []), "std"]
    body = [
        [
            Cell(NAMES[row["attribution"]][0]),
            Cell(EFFECTS[row["effect"]]),
            Cell(capital(group_words(row)) if row["by"] != "all" else "All sequences"),
            *(value_cell(row[column], row[column] if column == "mean" else 0.0) for column in values),
            Cell(f"{row['n']:,}", row["n"]),
            Cell(f"{row['undefined']:,}", row["undefined"]),
        ]
        for row in rows
    ]
    headings = ["Attribution", "Compared", "Sequences", "Mean τ", *(["from", "to"] if has_interval else [])]
    headings += ["Standard deviation", "Sequences with a τ", "Left out"]
    return Table("How far each attribution agrees with flips", [(h, "") for h in headings], body, 3, sortable=True)
