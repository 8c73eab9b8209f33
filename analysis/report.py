"""Tables and figures of an output folder, told on one page that stands by itself.

    python -m analysis.report reports/majority

A page is a list of sections, and a section is a function of the folder that gives None where what it tells of is
not there. To add one: write the function, add it to `SECTIONS`. `report.html` lays any section out.
"""

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis import counting_report, faithfulness_report, importance_report, similarity_report, training_report
from analysis.findings import find
from analysis.page import Cell, Folder, Section, Table, in_words, kind_of, percent, pictures, right, value_cell
from attnkit.labels import group_words, meaning, number, words, words_and_unit

FIGURES = {  # the beginning of a file's name: a title, and what to see
    "statistics": (
        "Every statistic of every head",
        "Each panel is one statistic, its rows are layers, its columns heads. White is what uniform attention would "
        "give, red is more, blue is less: coloured cells are heads that do something in particular.",
    ),
    "mean_attention": (
        "The mean map of every head",
        "Row: the position that looks (query); column: the position looked at (key). White is the weight of uniform "
        "attention. Stripes and diagonals that remain after averaging come from position; what depends on the "
        "content averages out.",
    ),
    "distribution": (
        "How sequences differ",
        "One value for each sequence, a row for each head, every row scaled to its own peak. A narrow peak: the head "
        "does the same on every sequence. Several peaks: it tells kinds of sequences apart.",
    ),
    "by_class": (
        "Class by class",
        "Where the marks of one head stand apart, it attends differently when the answer is different. Grey strokes "
        "are what uniform attention would give on the same sequences.",
    ),
}
RECORD = {  # what a checkpoint says of itself
    "test_accuracy": "Accuracy in its own record: test sequences",
    "exhaustive_accuracy": "Accuracy in its own record: all sequences",
    "share_seen": "Test sequences that also stood in training",
}
ELSEWHERE = (
    importance_report.FIGURES
    | counting_report.FIGURES
    | similarity_report.FIGURES
    | training_report.FIGURES
    | faithfulness_report.FIGURES
)  # figures that other sections show
SUBSCRIPT = re.compile(r"(?<![A-Za-z])(Σ|p|n|v|x|K|W|max)_(\{[^}]*\}|[A-Za-z0-9]+)")


def write_report(out: Path) -> Path:
    """Write `out`/report.html from what stands in the folder, and return its path.

    The page is complete or not there. Raises FileNotFoundError where there is no run.json.
    """
    folder = Folder.open(Path(out))
    sections = [section for make in SECTIONS if (section := make(folder))]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["formula"] = formula
    page = environment.get_template("report.html").render(
        title=title(folder), lead=lead(folder), warnings=folder.run.get("warnings") or [], sections=sections
    )
    report, staged = folder.path / "report.html", folder.path / f".report.{os.getpid()}.html"
    try:
        staged.write_text(page, encoding="utf-8")
        os.replace(staged, report)
    finally:
        staged.unlink(missing_ok=True)
    return report


def formula(text: str) -> Markup:
    """p_ij and x_{j−1} with their subscripts set low."""
    return Markup(SUBSCRIPT.sub(lambda m: f"{m[1]}<sub>{m[2].strip('{}')}</sub>", str(escape(text))))


def title(folder: Folder) -> str:
    name = Path(str(folder.run.get("checkpoint", folder.path))).name or "the model"
    heads = None if folder.long is None else len(folder.long[["layer", "head"]].drop_duplicates())
    return f"What the {heads} attention heads of {name} do" if heads else f"What the attention heads of {name} do"


def lead(folder: Folder) -> list[str]:
    """The first sentences: what was run on what, how well it did, and by which rule."""
    run = folder.run
    n = run.get("sequences")
    sentences = [f"Every head was measured on {run['data']}." if "data" in run else ""]
    if run.get("accuracy") is not None and n:
        sentences.append(f"The model answers {right(run['accuracy'], n)}.")
    if run.get("population"):
        sentences.append("These are all sequences there are, so the numbers carry no sampling error.")
    if folder.task.get("rule"):
        sentences.append(f"The task: {folder.task['rule']}")
    return [sentence for sentence in sentences if sentence]


# ---------------------------------------------------------------- the sections, in their order


def what_stands_out(folder: Folder) -> Section | None:
    if folder.long is None:
        return None
    found = find(folder.long, folder.table("differences"))
    return Section("findings", "What stands out", findings=found) if found else None


def how_to_read(folder: Folder) -> Section | None:
    if folder.long is None:
        return None
    return Section(
        "reading",
        "How to read the numbers",
        "In every layer several heads run side by side. For each token (the query) a head divides a weight of 1 among "
        "all tokens (the keys), and so says where that token looks. A statistic turns one such row of weights into "
        "one number; it is averaged over the rows of a sequence, then over sequences, so that every sequence counts "
        "once. The measure of everything is uniform attention, which looks everywhere alike, about as a "
        "head does before training. Layers and heads are counted from 0.",
    )


def figures(folder: Folder) -> Section | None:
    """Files whose names begin alike are one figure; those that no section knows follow, each by itself."""
    names = sorted(file.stem for file in (folder.path / "figures").glob("*.png"))
    others = {name: (in_words(name).capitalize(), "") for name in names if not kind_of(name, FIGURES | ELSEWHERE)}
    found = pictures(folder, FIGURES | others)
    return Section("figures", "Figures", pictures=found) if found else None


def all_heads(folder: Folder) -> Section | None:
    """One row per head, each statistic's mean over all sequences; coloured as the heat maps are."""
    if folder.long is None:
        return None
    rows = folder.long[folder.long["group"] == "all"]
    statistics = list(rows["statistic"].unique())
    mean = rows.pivot(index=["layer", "head"], columns="statistic", values="mean")[statistics]
    uniform = rows.groupby("statistic")["uniform"].mean()[statistics].to_numpy()
    departure = mean.to_numpy() - uniform
    reach = np.maximum(np.nanmax(abs(departure), axis=0, initial=1e-3), np.nan_to_num(0.1 * abs(uniform)))
    body = [
        [Cell(str(layer), layer), Cell(str(head), head), *map(value_cell, values, tints)]
        for (layer, head), values, tints in zip(mean.index.tolist(), mean.to_numpy(), departure / reach, strict=True)
    ]
    references = [("uniform", known(uniform))]
    if "untrained" in rows:
        references.append(("untrained", known(rows.groupby("statistic")["untrained"].mean()[statistics])))
    dictionary = folder.table("dictionary")
    definitions = (
        {} if dictionary is None else dict(zip(dictionary["statistic"], dictionary["definition"], strict=True))
    )
    columns = [("Layer", ""), ("Head", "")] + [(words_and_unit(s), definitions.get(s, "")) for s in statistics]
    return Section(
        "heads",
        "Every head",
        "Means over all sequences. Press a heading to sort by it. Red cells are above uniform attention, blue ones "
        "below; the rows in grey are what uniform attention gives"
        + (" and the mean over the heads of a model with fresh weights." if len(references) > 1 else "."),
        table=Table("Mean of every statistic, by head", columns, body, 2, references, sortable=True),
    )


def known(values: Iterable[float]) -> list[str]:
    return [number(value) if np.isfinite(value) else "" for value in values]


def dictionary(folder: Folder) -> Section | None:
    table = folder.table("dictionary")
    if table is None:
        return None
    columns = ["definition", "unit", "defined_on", "uniform", "statistic"]
    texts = zip(*(table[column].fillna("").astype(str) for column in columns), strict=True)
    body = [
        [Cell(words(row[-1])), Cell(meaning(row[-1])), *(Cell("" if text == "none" else text) for text in row)]
        for row in texts
    ]
    headings = [
        "Statistic",
        "What it says",
        "Definition",
        "Unit",
        "Counted on",
        "Under uniform attention",
        "In the tables",
    ]
    return Section(
        "dictionary",
        "What each number means",
        "p_ij is the attention weight of query i on key j. The query sees n_i keys, the set K_i, of T tokens; x_j is "
        "the token at position j, counted from 0. Logarithms are natural.",
        table=Table("The data dictionary", [(heading, "") for heading in headings], body, headings=1),
    )


def provenance(folder: Folder) -> Section:
    run, results = folder.run, folder.run.get("results") or {}
    known = [
        ("Checkpoint", run.get("checkpoint")),
        ("SHA-256 of its weights", run.get("checkpoint_sha256")),
        ("Model", describe(run.get("model") or {})),
        ("Task", folder.task.get("name")),
        ("Classes", ", ".join(map(str, folder.task.get("classes") or []))),
        ("Data", run.get("data")),
        ("Sequences", f"{run['sequences']:,}" if "sequences" in run else None),
        ("Accuracy", right(run["accuracy"], run["sequences"]) if run.get("accuracy") is not None else None),
        ("Loss", f"{run['loss']:.4g} nats" if run.get("loss") is not None else None),
        ("Pass over the data", speed(run)),
        ("Device", run.get("device")),
        ("Versions", ", ".join(f"{name} {version}" for name, version in (run.get("versions") or {}).items())),
        *((text, percent(results[key])) for key, text in RECORD.items() if key in results),
        ("Groups in the tables", groups(folder)),
    ]
    facts = [(name, str(value)) for name, value in known if value]
    text = "Beside this page stand the tables as CSV and Parquet, every figure as PNG and SVG, and run.json."
    return Section("provenance", "Where this comes from", text, facts=facts)


def describe(model: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in model.items())


def speed(run: dict[str, Any]) -> str | None:
    if run.get("seconds") is None:
        return None
    rate = run.get("sequences_per_second")
    return f"{run['seconds']:.3g} s" + (f", {rate:,.0f} sequences a second" if rate else "")


def groups(folder: Folder) -> str | None:
    if folder.long is None:
        return None
    sizes = folder.long.groupby("group", sort=False)["n"].max()
    return "; ".join(f"{group_words(str(group))} ({n:,})" for group, n in sizes.items())


SECTIONS = [
    what_stands_out,
    how_to_read,
    figures,
    all_heads,
    importance_report.what_is_lost,
    importance_report.one_by_one,
    importance_report.what_foretells,
    counting_report.how_they_count,
    similarity_report.which_do_the_same,
    training_report.when_they_learnt,
    faithfulness_report.do_weights_explain,
    dictionary,
    provenance,
]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m analysis.report FOLDER")
    print(write_report(Path(sys.argv[1])))
