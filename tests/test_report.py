"""The report: one page by itself, true to its tables, with nothing from the data unescaped."""

import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis.report import Folder, percent, right, write_report
from attnkit import plots
from attnkit.labels import number

L, H, T = 2, 3, 5
NAME, CLASSES = "<b>x & co", ["NA", "<i>no</i>"]
STATISTICS = {"entropy": math.log(T), "max_weight": 1 / T, "token_weight[NA]": 0.5, "token_weight[<u>]": 0.5}
EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
URL = re.compile(r"""(?:src|href|action|data|url\()\s*=?\s*["'(]([^"')]*)""")


def mean(statistic, layer, head):
    """Distinct and known: uniform attention for head (0, 0), then a hundredth more for each head."""
    return STATISTICS[statistic] + (layer * H + head) / 100


@pytest.fixture
def folder(drawn, tmp_path):
    return Path(shutil.copytree(drawn, tmp_path / "out"))


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """What an analysis leaves, for a model of odd sizes with names that are markup or look like missing values."""
    out = tmp_path_factory.mktemp("drawn")
    rows = [
        (layer, head, statistic, group, 7, mean(statistic, layer, head), 0.1, 0.05, 0.9, 1.1, uniform)
        for group in ["all", *(f"label={name}" for name in CLASSES)]
        for statistic, uniform in STATISTICS.items()
        for layer, head in np.ndindex(L, H)
    ]
    columns = ["layer", "head", "statistic", "group", "n", "mean", "std", "sem", "ci_low", "ci_high", "uniform"]
    long = pd.DataFrame(rows, columns=columns)
    plots.save(plots.statistic_grid(long), out / "figures" / "statistics")
    plots.save(plots.statistic_heatmap(long, "entropy").figure, out / "figures" / "distribution_entropy")
    plots.save(Figure(figsize=(1, 1)), out / "figures" / "something_else")
    long.to_csv(out / "head_stats_long.csv", index=False)
    dictionary = pd.DataFrame([(s, "p_ij <of> x_{j−1}", "none", "all rows", "1 / n_i") for s in STATISTICS])
    dictionary.columns = ["statistic", "definition", "unit", "defined_on", "uniform"]
    dictionary.to_csv(out / "dictionary.csv", index=False)
    run = {
        "checkpoint": f"checkpoints/{NAME}",
        "data": "7 sequences <of> one's own",
        "sequences": 7,
        "accuracy": 6 / 7,
        "loss": 0.25,
        "seconds": 0.5,
        "sequences_per_second": 14.0,
        "device": "cpu",
        "population": False,
        "versions": {"attnkit": "0.1.0"},
        "task": {"name": "colours", "vocab": ["NA", "<u>"], "classes": CLASSES, "rule": "None & <none>."},
        "model": {"n_layers": L, "n_heads": H},
        "results": {"test_accuracy": 0.75, "test_loss": 0.5},
        "warnings": ["Something <odd> happened."],
    }
    (out / "run.json").write_text(json.dumps(run))
    return out


class Page(HTMLParser):
    """Reads a page strictly: every element that opens is closed, in order. Collects its text and its tables' rows."""

    def __init__(self, path):
        super().__init__()
        self.open, self.text, self.rows, self.images, self.ids = [], [], [], [], []
        self.source = Path(path).read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "img":
            self.images.append(attributes)
        if tag not in EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open or "style" in self.open:
            return
        self.text.append(data)
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture
def page(folder):
    return Page(write_report(folder))


def test_the_page_stands_in_the_folder_and_no_other_file_is_left(folder):
    before = set(folder.rglob("*"))

    assert write_report(folder) == folder / "report.html"
    assert set(folder.rglob("*")) - before == {folder / "report.html"}


def test_every_head_has_its_row_with_the_tables_numbers(page):
    for layer, head in np.ndindex(L, H):
        assert [str(layer), str(head), *(number(mean(s, layer, head)) for s in STATISTICS)] in page.rows


def test_uniform_attention_stands_above_the_heads(page):
    assert ["uniform", *(number(uniform) for uniform in STATISTICS.values())] in page.rows


def test_a_cell_is_tinted_by_its_departure_from_uniform_attention(folder):
    """The largest weight: uniform for the first head, most above it for the last, and here as far below for a third."""
    file = folder / "head_stats_long.csv"
    long = pd.read_csv(file, keep_default_na=False)
    below = (long["statistic"] == "max_weight") & (long["layer"] == 0) & (long["head"] == 1)
    long.assign(mean=long["mean"].mask(below, 1 / T - 0.05)).to_csv(file, index=False)

    source = write_report(folder).read_text(encoding="utf-8")
    cells = re.findall(rf'<td data-value="[^"]*"([^>]*)>({number(1 / T)}|0.250|0.150)</td>', source)

    assert [attributes.strip() for attributes, _ in cells] == [
        "",
        'style="--hue: var(--less); --tint: 1.0"',
        'style="--hue: var(--more); --tint: 1.0"',
    ]


def test_a_fresh_models_numbers_stand_there_too_where_they_were_taken(folder):
    long = pd.read_csv(folder / "head_stats_long.csv", keep_default_na=False)
    long.assign(untrained=long["head"] / 8).to_csv(folder / "head_stats_long.csv", index=False)

    assert ["untrained", *["0.125"] * len(STATISTICS)] in Page(write_report(folder)).rows  # the mean of 0, 1, 2 eighths


def test_names_from_the_data_are_shown_and_never_markup(page):
    for name in (NAME, "7 sequences <of> one's own", "None & <none>.", "Something <odd> happened.", "<i>no</i>"):
        assert name in page.words
    for tag in ("<b>", "<i>", "<u>", "<of>", "<odd>", "<none>"):
        assert tag not in page.source


def test_tokens_and_classes_named_na_are_not_taken_for_missing(page):
    assert "Weight on token NA" in page.words
    assert "label: NA (7)" in page.words
    assert "nan" not in page.words.lower().split()


def test_only_an_empty_number_is_missing(tmp_path):
    (tmp_path / "anything.csv").write_text("statistic,group,mean\nNA,null,\nnan,None,0.5\n")

    table = Folder(tmp_path).table("anything")

    assert table[["statistic", "group"]].values.tolist() == [["NA", "null"], ["nan", "None"]]
    assert table["mean"].isna().tolist() == [True, False]


def test_indices_of_formulas_are_set_low(page):
    assert "p<sub>ij</sub> &lt;of&gt; x<sub>j−1</sub>" in page.source


def test_warnings_come_before_everything_else(page):
    assert page.words.index("Something <odd> happened.") < page.words.index("What stands out")


def test_what_was_run_is_said(page):
    for fact in ("6 of 7 right", "0.25 nats", "0.5 s, 14 sequences a second", "attnkit 0.1.0", "n_layers 2, n_heads 3"):
        assert fact in page.words
    assert "Accuracy in its own record: test sequences 75.0 %" in page.words


def test_the_page_needs_no_network_and_no_other_file(page):
    targets = URL.findall(page.source)

    assert len(targets) > len(page.images)
    assert all(target.startswith(("data:", "#")) for target in targets)
    assert "http" not in re.sub(r"data:[^\"]*", "", page.source)
    assert {target[1:] for target in targets if target.startswith("#")} <= set(page.ids)


def test_every_figure_is_there_with_words_for_who_cannot_see_it(page):
    assert [image["alt"] for image in page.images] == [
        "Every statistic of every head: statistics",
        "How sequences differ: distribution entropy",
        "Something else: something else",
    ]


def test_a_large_drawing_is_shown_as_pixels(folder):
    svg = folder / "figures" / "statistics.svg"
    svg.write_bytes(svg.read_bytes() + b" " * 1_000_000)

    sources = [image["src"] for image in Page(write_report(folder)).images]

    assert sources[0].startswith("data:image/png;base64,")
    assert sources[1].startswith("data:image/svg+xml;base64,")


def test_the_page_is_small(folder):
    assert write_report(folder).stat().st_size < 2_000_000


def test_the_same_folder_gives_the_same_bytes(folder):
    assert write_report(folder).read_bytes() == write_report(folder).read_bytes()


@pytest.mark.parametrize("table", ["head_stats_long.csv", "dictionary.csv", "figures"])
def test_a_section_is_drawn_only_if_its_tables_are_there(folder, table):
    section = {
        "head_stats_long.csv": "Press a heading",
        "dictionary.csv": "What each number means",
        "figures": "Figures",
    }
    assert section[table] in Page(write_report(folder)).words

    (folder / table).rename(folder.parent / "elsewhere")

    assert section[table] not in Page(write_report(folder)).words


def test_a_bare_record_is_a_page(tmp_path):
    (tmp_path / "run.json").write_text("{}")

    assert Page(write_report(tmp_path)).words.endswith("no other file and no network.")


def test_a_folder_without_a_record_is_refused_with_what_makes_one(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no run\.json; `python -m analysis\.head_stats --out"):
        write_report(tmp_path)


@pytest.mark.parametrize(
    ("accuracy", "n", "words"),
    [
        (1.0, 500, "all 500 right"),
        (65535 / 65536, 65536, "65,535 of 65,536 right (99.998 %)"),
        (0.5, 8, "4 of 8 right (50.0 %)"),
    ],
)
def test_one_wrong_answer_is_never_rounded_away(accuracy, n, words):
    assert right(accuracy, n).replace("\N{NO-BREAK SPACE}", " ") == words


@pytest.mark.parametrize(("share", "text"), [(0.0, "0 %"), (1.0, "100 %"), (0.032, "3.2 %"), (1e-5, "0.001 %")])
def test_shares_are_not_rounded_to_all_or_nothing(share, text):
    assert percent(share).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.browser
def test_pressing_a_heading_sorts_the_heads(folder, browser):
    page = browser.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(write_report(folder).as_uri())
    heads = page.locator("table.numbers tbody tr")
    heading = page.get_by_role("columnheader", name="Largest weight")

    def order():
        return [tuple(row.locator("th").all_inner_texts()) for row in heads.all()]

    counted = order()
    heading.get_by_role("button").click()
    assert order() == counted[::-1]  # the later the head, the larger its numbers
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").press("Enter")
    assert order() == counted
    assert heading.get_attribute("aria-sort") == "ascending"
    assert not faults


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_tables_not_the_page(folder, browser, scheme):
    page = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme=scheme).new_page()
    page.goto(write_report(folder).as_uri())

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    paper, ink = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (paper, ink)]
    assert (brightness[0] > brightness[1]) == (scheme == "light")
