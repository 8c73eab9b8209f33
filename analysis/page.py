"""What a page of the report is made of, and the folder that it tells of."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.findings import Finding
from attnkit import plots
from attnkit.labels import WORDS, number
from attnkit.training_plots import Animation, save_gif

TEXT_COLUMNS = {"statistic", "group", "group_a", "group_b", "definition", "unit", "defined_on"}
LARGEST_SVG = 300_000  # bytes; a figure of many marks is smaller as PNG


@dataclass(frozen=True)
class Picture:
    title: str
    text: str
    images: Sequence[tuple[str, str]]  # what each shows, and a data URI: the page needs no other file


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None  # what it is sorted by, where it is a number
    tint: float = 0.0  # −1 (much less than uniform attention) to 1 (much more)


@dataclass(frozen=True)
class Table:
    caption: str
    columns: Sequence[tuple[str, str]]  # heading, explanation
    rows: Sequence[Sequence[Cell]]
    headings: int  # how many columns from the left name the row
    references: Sequence[tuple[str, Sequence[str]]] = ()  # rows that stay on top, each with a name
    sortable: bool = False

    @property
    def of_text(self) -> set[int]:
        """The columns that have no number."""
        return {k for k in range(len(self.columns)) if all(row[k].value is None for row in self.rows)}

    @property
    def has_numbers(self) -> bool:
        return any(cell.value is not None for row in self.rows for cell in row)


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    text: str = ""
    findings: Sequence[Finding] = ()
    pictures: Sequence[Picture] = ()
    table: Table | None = None
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Folder:
    """What stands in an output folder. A table that is not there is None."""

    path: Path
    run: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> "Folder":
        file = path / "run.json"
        if not file.is_file():
            raise FileNotFoundError(f"{path}: has no run.json; `python -m analysis.head_stats --out {path}` makes one")
        return cls(path, read_json(file))

    def table(self, name: str) -> pd.DataFrame | None:
        """`name`.csv, or else `name`.parquet.

        Tokens and classes may be called NA or null: only an empty number is a missing one.
        """
        file = self.path / f"{name}.csv"
        if not file.is_file():
            return self.parquet(name)
        try:
            columns = pd.read_csv(file, nrows=0).columns
            missing = {column: [""] for column in columns if column not in TEXT_COLUMNS}
            text = {column: str for column in columns if column in TEXT_COLUMNS}
            return pd.read_csv(file, keep_default_na=False, na_values=missing, dtype=text)
        except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}: is not a table ({str(error).strip()})") from None

    def parquet(self, name: str) -> pd.DataFrame | None:
        file = self.path / f"{name}.parquet"
        try:
            return pd.read_parquet(file) if file.is_file() else None
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{file}: is not a table ({str(error).strip()})") from None

    def record(self, name: str) -> dict[str, Any]:
        """What one study ran on, as it wrote it down beside its tables."""
        return read_json(self.path / f"{name}.json")

    def maps(self) -> dict[str, np.ndarray]:
        """The mean maps (layers, heads, T, T) by name; of several lengths there are several."""
        file = self.path / "mean_attention.npz"
        if not file.is_file():
            return {}
        with np.load(file) as arrays:
            return dict(arrays)

    @cached_property
    def long(self) -> pd.DataFrame | None:
        return self.table("head_stats_long")

    @cached_property
    def task(self) -> dict[str, Any]:
        return self.run.get("task") or {}


def read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file}: got {type(found).__name__}, allowed is an object")
    return found


Drawn = Figure | Animation
Figures = Callable[[Folder], Iterable[tuple[str, Drawn]]]  # the figures of a study by name, from its tables alone


def draw(path: Path, figures: Figures) -> None:
    """Draw what the tables in the folder `path` show into its `figures`: as PNG and SVG, what moves as GIF."""
    for name, drawn in figures(Folder(path)):
        file = path / "figures" / name
        if isinstance(drawn, Animation):
            save_gif(drawn, file)
        else:
            plots.save(drawn, file)


def figure_of(ax: Axes) -> Figure:
    """The figure of axes that have one to themselves."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def pictures(folder: Folder, figures: Mapping[str, tuple[str, str]]) -> list[Picture]:
    """The figures of the folder whose names begin with a key of `figures`, which gives their title and text."""
    names = sorted(file.stem for file in (folder.path / "figures").glob("*.png"))
    found = []
    for kind, (title, text) in figures.items():
        alike = [name for name in names if kind_of(name, figures) == kind]
        order = [*WORDS]  # the one of the tables
        alike.sort(key=lambda name: order.index(rest) if (rest := name.removeprefix(f"{kind}_")) in order else -1)
        images = [(in_words(name), image(folder.path / "figures" / name)) for name in alike]
        if images:
            found.append(Picture(title, text, images))
    return found


def kind_of(name: str, kinds: Iterable[str]) -> str | None:
    return next((kind for kind in kinds if name.startswith(kind)), None)


def image(path: Path) -> str:
    """Of `path`.svg and `path`.png the sharp one, unless it is large, as a data URI."""
    png, svg = path.with_name(path.name + ".png"), path.with_name(path.name + ".svg")
    use_svg = svg.is_file() and svg.stat().st_size <= LARGEST_SVG
    kind, content = ("svg+xml", svg.read_bytes()) if use_svg else ("png", png.read_bytes())
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def value_cell(value: float, tint: float) -> Cell:
    if np.isnan(value):
        return Cell("–")
    return Cell(number(value), float(value), 0.0 if np.isnan(tint) else round(float(tint), 2))


def right(accuracy: float, n: int) -> str:
    """Never 100 % where one answer is wrong."""
    correct = round(accuracy * n)
    return f"all {n:,} right" if correct == n else f"{correct:,} of {n:,} right ({percent(accuracy)})"


def percent(share: float) -> str:
    digits = next((d for d in range(1, 7) if share in (0, 1) or 0 < round(100 * share, d) < 100), 7)
    return f"{100 * share:.{0 if share in (0, 1) else digits}f}\N{NO-BREAK SPACE}%"


def in_words(name: str) -> str:
    return name.replace("_", " ")


def measured_on(folder: Folder, record: Mapping[str, Any]) -> str:
    """On what a study ran, and aloud if that is not what the rest of the page is of."""
    same = record["checkpoint_sha256"] == folder.run.get("checkpoint_sha256")
    text = f"Measured on {record['data']}."
    return text if same else f"Beware: this was measured on other weights than the rest of this page. {text}"
