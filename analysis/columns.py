"""What the columns of the tables mean: each study's own words, and those that studies share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow.parquet as pq

from analysis.page import Cell, Folder, Section, Table

ENDS = ("_ci_low", "_ci_high")
SHARED = {  # column: what it says, unit
    "layer": ("the layer, counted from 0", ""),
    "head": ("the head in its layer, counted from 0", ""),
    "layer_a": ("the layer of the first head", ""),
    "head_a": ("the first head, in its layer", ""),
    "layer_b": ("the layer of the second head", ""),
    "head_b": ("the second head, in its layer", ""),
    "statistic": ("which statistic of the head the row is of", ""),
    "group": ("of which sequences: all, or those of a label, a prediction, the right or the wrong answers", ""),
    "n": ("how many sequences it is measured on", "sequences"),
    "mean": ("the mean over the sequences, each counted once", "of the statistic"),
    "std": ("the standard deviation of the sequences, over n − 1", "of the statistic"),
    "sem": ("the standard error of the mean, std / √n", "of the statistic"),
    "min": ("the smallest of the sequences", "of the statistic"),
    "max": ("the largest of the sequences", "of the statistic"),
    "uniform": ("what uniform attention would give on the same sequences", "of the statistic"),
    "log2_enrichment": ("log2(mean / uniform), of weights only", "doublings"),
    "ci_low": ("the lower end of the 95 % interval of what is averaged", "of the statistic"),
    "ci_high": ("the upper end of it", "of the statistic"),
    "…_ci_low": ("the lower end of the 95 % interval of the column that it is named after", "of that column"),
    "…_ci_high": ("the upper end of it", "of that column"),
    "p": ("the p-value, two-sided", ""),
    "p_adjusted": ("p adjusted over all rows of the table (Benjamini–Hochberg)", ""),
    "loss": ("the mean cross-entropy", "nats"),
    "accuracy": ("the share of right answers", ""),
    "js_divergence": (
        "the Jensen–Shannon divergence of the rows of two heads, averaged over rows, then over sequences: 0 is the "
        "same, 1 no key in common",
        "bits",
    ),
    "js_distance": ("√js_divergence, which is a metric", "√bits"),
}


@dataclass(frozen=True)
class Dictionary:
    """The tables of a study, and what it says of columns: `table.column` where one differs from its other tables."""

    tables: Sequence[str]
    columns: dict[str, tuple[str, str]]

    def explain(self, table: str, column: str) -> tuple[str, str, str] | None:
        """The name under which a column stands in the dictionary, what it says and its unit."""
        rest = next((f"…{end}" for end in ENDS if column.endswith(end)), column)
        for words, name, shown in (
            (self.columns, f"{table}.{column}", column),
            (self.columns, column, column),
            (SHARED, rest, rest),
        ):
            if name in words:
                return shown, *words[name]
        return None


def columns_of(folder: Folder) -> Iterator[tuple[str, str]]:
    """Every table of the folder with each of its columns."""
    for file in sorted(folder.path.glob("*.csv")):
        for column in pd.read_csv(file, nrows=0).columns:
            yield file.stem, str(column)
    for file in sorted(folder.path.glob("*.parquet")):
        if not file.with_suffix(".csv").is_file():
            for column in pq.read_schema(file).names:
                yield file.stem, column


def statistics_of(folder: Folder) -> set[str]:
    """Columns may be statistics, which dictionary.csv explains."""
    table = folder.table("dictionary")
    return set() if table is None else set(table["statistic"])


def unexplained(folder: Folder, dictionaries: Sequence[Dictionary]) -> list[tuple[str, str]]:
    """The columns that no dictionary says anything of."""
    statistics = statistics_of(folder)
    return [
        (table, column)
        for table, column in columns_of(folder)
        if column not in statistics and not any(d.explain(table, column) for d in dictionaries if table in d.tables)
    ]


def columns_section(folder: Folder, dictionaries: Sequence[Dictionary]) -> Section | None:
    """A row for each meaning, with all tables that have such a column, in the order of the studies."""
    columns = list(columns_of(folder))
    rows: dict[tuple[str, str, str], list[str]] = {}
    for dictionary in dictionaries:
        own = [place for place in columns if place[0] in dictionary.tables]
        for table, column in sorted(own, key=lambda place: dictionary.tables.index(place[0])):
            if row := dictionary.explain(table, column):
                tables = rows.setdefault(row, [])
                tables += [table] if table not in tables else []
    if not rows:
        return None
    body = [
        [Cell(name), Cell(text), Cell(unit), Cell(", ".join(tables))] for (name, text, unit), tables in rows.items()
    ]
    headings = ["Column", "What it says", "Unit", "In the tables"]
    return Section(
        "columns",
        "What each column holds",
        "Beside this page each table lies as a CSV file of full precision (long ones as Parquet). Columns that are "
        "named after a statistic of a head hold its mean, in the unit that is said above.",
        table=Table("The columns of the tables", [(h, "") for h in headings], body, headings=1, sortable=True),
    )
