"""Tables and figures of an output folder, told on one page that stands by itself.

    python -m analysis.report --out reports/majority

redraws every figure from the tables in the folder, and writes the page anew.

A page is a list of sections, and a section is a function of the folder that gives None where what it tells of is
not there. To add one: write the function, add it to `SECTIONS`, and a function that draws its figures to `FIGURES`.
`report.html` lays any section out.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis import (
    counting_report,
    faithfulness_report,
    head_by_head,
    head_stats_report,
    importance_report,
    predictors_report,
    similarity_report,
    text_importance_report,
    training_report,
)
from analysis.columns import columns_section
from analysis.page import Cell, Folder, Section, Table, draw, in_words, kind_of, percent, pictures, right
from attnkit import cli
from attnkit.labels import group_words, meaning, words

RECORD = {  # what a checkpoint says of itself
    "test_accuracy": "Accuracy in its own record: test sequences",
    "exhaustive_accuracy": "Accuracy in its own record: all sequences",
    "share_seen": "Test sequences that also stood in training",
}
STUDIES = (
    head_stats_report,
    importance_report,
    counting_report,
    similarity_report,
    training_report,
    faithfulness_report,
)
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
    run = folder.run
    path = Path(str(run.get("checkpoint", folder.path)))
    name = f"{path.parent.name}/{path.name}" if path.name == "model" else path.name or "the model"
    heads = None if folder.long is None else len(folder.long[["layer", "head"]].drop_duplicates())
    kind = {"encoder": "encoder ", "decoder": "decoder ", "cross": "cross-"}.get(run.get("attention", ""), "")
    return f"What the {heads} {kind}attention heads of {name} do" if heads else f"What the attention heads of {name} do"


def lead(folder: Folder) -> list[str]:
    """The first sentences: what was run on what, how well it did, and by which rule."""
    run = folder.run
    n = run.get("sequences")
    what = f"the {run['texts']:,} texts of {run['data']}" if "texts" in run else run.get("data")
    sentences = [f"Every head was measured on {what}." if what else ""]
    if run.get("accuracy") is not None and n:
        sentences.append(f"The model answers {right(run['accuracy'], n)}.")
    if run.get("loss_per_token") is not None:
        sentences.append(f"Its loss is {run['loss_per_token']:.3g} nats a token.")
    if run.get("population"):
        sentences.append("These are all sequences there are, so the numbers carry no sampling error.")
    if folder.task.get("rule"):
        sentences.append(f"The task: {folder.task['rule']}")
    return [sentence for sentence in sentences if sentence]


# ---------------------------------------------------------------- the sections, in their order


def other_figures(folder: Folder) -> Section | None:
    """Those that no study knows, each by itself."""
    known = [kind for study in STUDIES for kind in study.FIGURES]
    names = sorted(file.stem for file in (folder.path / "figures").glob("*.png"))
    text = "No study of this project drew this figure; it is shown as it stands in the folder."
    others = {name: (in_words(name).capitalize(), text) for name in names if not kind_of(name, known)}
    found = pictures(folder, others)
    return Section("others", "Other figures", pictures=found) if found else None


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
        table=Table("The data dictionary", [(heading, "") for heading in headings], body, headings=1, sortable=True),
    )


def what_columns_hold(folder: Folder) -> Section | None:
    return columns_section(folder, [study.DICTIONARY for study in STUDIES])


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
        ("Loss per token", f"{run['loss_per_token']:.4g} nats" if run.get("loss_per_token") is not None else None),
        ("Longest text", f"{run['longest']:,} tokens" if run.get("longest") else None),
        ("Attention was read off", run.get("method")),
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
    head_stats_report.what_stands_out,
    head_stats_report.how_to_read,
    head_stats_report.pictures_of_heads,
    head_stats_report.all_heads,
    importance_report.what_is_lost,
    text_importance_report.what_texts_lose,
    head_by_head.one_by_one,
    predictors_report.what_foretells,
    counting_report.how_they_count,
    similarity_report.which_do_the_same,
    training_report.when_they_learnt,
    faithfulness_report.do_weights_explain,
    other_figures,
    dictionary,
    what_columns_hold,
    provenance,
]


def main(argv: list[str] | None = None) -> None:
    p = cli.parser("analysis.report", "Redraw the figures of an output folder from its tables, and write its page anew")
    p.add_argument(
        "--out", type=Path, default=cli.PROJECT / "reports" / cli.CHECKPOINT.name, help="the folder of the tables"
    )
    out = p.parse_args(argv).out
    folder = Folder.open(out)
    for name in (*(table.stem for table in out.glob("*.csv")), training_report.MAPS):
        folder.table(name)  # what cannot be read is told before anything is drawn
    for study in STUDIES:
        draw(out, study.figures)
    print(f"report: {write_report(out)}")


if __name__ == "__main__":
    sys.exit(cli.run(main))
