"""The section of the report that tells how heads count, read off the tables of `analysis.counting`."""

from collections.abc import Callable, Iterator

import pandas as pd
from matplotlib.figure import Figure

from analysis.columns import Dictionary
from analysis.findings import Finding, at_start, names, share, times
from analysis.page import Cell, Folder, Section, Table, measured_on, pictures, value_cell
from attnkit import counting_plots
from attnkit.counting_plots import WAYS

FIGURES = {
    "counting": (
        "The weight on the ones against their number",
        "Marks: how much of its weight a query puts on all ones together, on average, apart for queries that are 0 and "
        "that are 1. Lines: what the way that explains most foretells. On the dotted line every token weighs the same; "
        "a jump in the middle is a head that knows the answer already.",
    ),
}
DICTIONARY = Dictionary(
    tables=("counting", "counting_curves"),
    columns={
        "way": ("the way to count that the row is of", ""),
        "preference": ("how many times as much the preferred tokens weigh, as fitted; 1 is no preference", ""),
        "r2": ("the share of the variance of the weight on the ones that the way explains", ""),
        "share": ("how strongly what the head adds depends on the number of ones, over its layer’s whole", ""),
        "verdict": ("the head’s own way, idle or undecided", ""),
        "margin": ("1 − unexplained by the best way / unexplained by the next best", ""),
        "length": ("the length of the sequences", "tokens"),
        "ones": ("how many ones they have", "tokens"),
        "token": ("the token at the query", ""),
        "counting_curves.n": ("how many queries of all sequences", "rows"),
        "measured": ("the mean weight on all ones together", "weight"),
        **{
            f"counting_curves.{way}": (f"the weight on the ones that the way “{WAYS[way]}” foretells", "weight")
            for way in ("uniform", "leaning", "clustering", "majority", "readout", "positional")
        },
    },
)
MANY = 16  # heads, up to which each has a sentence of its own

SENTENCES: dict[str, Callable[[float], str]] = {  # the verdict, and by what ratio r it prefers, in words
    "uniform": lambda r: "It averages: every token weighs the same, so the weight on the ones is their share.",
    "leaning": lambda r: f"It averages with a lean: a {int(r > 1)} weighs {ratio(r)} a {int(r < 1)}, whoever asks.",
    "clustering": lambda r: (
        f"It clusters: to each token, tokens {'like' if r > 1 else 'unlike'} its own weigh {ratio(r)} the others."
    ),
    "majority": lambda r: (
        f"It looks at the {'majority' if r > 1 else 'minority'}: its tokens weigh {ratio(r)} the others, whichever "
        "they are. So it does not count itself: the count is known before it looks."
    ),
    "readout": lambda r: "It reads out 1 / (ones + 1): the ones and one more key share the weight alike.",
    "positional": lambda r: "It looks by position alone, whatever the tokens are.",
    "idle": lambda r: "It is idle: what it adds hardly depends on the number of ones.",
    "undecided": lambda r: "Undecided.",
}


def ratio(r: float) -> str:
    return times(max(r, 1 / r))


def figures(folder: Folder) -> Iterator[tuple[str, Figure]]:
    curves, ways = folder.table("counting_curves"), folder.table("counting")
    if curves is not None and ways is not None:
        yield "counting", counting_plots.counting(curves, ways)


def how_they_count(folder: Folder) -> Section | None:
    table = folder.table("counting")
    if table is None:
        return None
    record = folder.record("counting")
    first = table.drop_duplicates(["layer", "head"])
    of_heads = list(zip(first["layer"].tolist(), first["head"].tolist(), strict=True))
    parts = [table[(table["layer"] == layer) & (table["head"] == head)] for layer, head in of_heads]
    ways = table["way"].unique().tolist()
    body = [
        [
            *(Cell(str(number), number) for number in head),
            *(value_cell(value, max(value, 0.0)) for value in rows.set_index("way")["r2"].loc[ways].tolist()),
            Cell(WAYS[rows["verdict"].tolist()[0]]),
            *(value_cell(rows[name].tolist()[0], 0.0) for name in ("margin", "share")),
        ]
        for head, rows in zip(of_heads, parts, strict=True)
    ]
    each = [Finding(at_start(head), sentence(rows)) for head, rows in zip(of_heads, parts, strict=True)]
    columns = [("Layer", ""), ("Head", ""), *((f"R², {WAYS[way]}", "") for way in ways), ("Verdict", "")]
    columns += [("Margin", "1 − unexplained by the best way / unexplained by the next best")]
    columns += [("Share", "how strongly what the head adds depends on the number of ones, over its layer’s whole")]
    return Section(
        "counting",
        "How each head counts",
        f"{measured_on(folder, record)} Each way to count foretells how much weight a query puts on the ones, by how "
        "many there are; R² is the share of the variance of that weight, over all queries of all sequences, that it "
        "explains (below 0: worse than always the same weight). A way is a head’s own if it explains 90 % and leaves "
        "at most half as much unexplained as the next best; otherwise the head is undecided.",
        findings=each if len(of_heads) <= MANY else verdicts(first),
        pictures=pictures(folder, FIGURES),
        table=Table("How well each way to count explains each head", columns, body, 2, sortable=True),
    )


def sentence(rows: pd.DataFrame) -> str:
    """What one head does, and how sure that is; its rows of `counting`."""
    verdict, known = rows["verdict"].iloc[0], rows.dropna(subset="r2").sort_values("r2", ascending=False)
    own = known[known["way"] == verdict]
    text = SENTENCES[verdict](float(own["preference"].iloc[0]) if len(own) else 1.0)
    if verdict == "idle":
        return f"{text} It has {share(rows['share'].iloc[0])} of what its layer says of it."
    if known.empty:
        return f"{text} The weight on the ones never varies."
    best, following = (f"{WAYS[way]}, {share(max(r2, 0))}" for way, r2 in known[["way", "r2"]].iloc[:2].to_numpy())
    return f"{text} Best: {best} of the variance; next: {following}."


def verdicts(first: pd.DataFrame) -> list[Finding]:
    """Of many heads: which have which verdict."""
    found = []
    for verdict in first["verdict"].unique().tolist():
        rows = first[first["verdict"] == verdict]
        heads = names(zip(rows["layer"].tolist(), rows["head"].tolist(), strict=True))
        found.append(Finding(WAYS[verdict].capitalize(), f"{len(rows)} of {len(first)} heads: {heads}."))
    return found
