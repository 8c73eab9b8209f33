"""`python -m analysis.report`: figures from the tables alone, every one told of, on a page that opens quickly."""

import itertools
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from analysis import (
    counting,
    counting_report,
    faithfulness,
    faithfulness_report,
    head_importance,
    head_similarity,
    head_stats,
    head_stats_report,
    report,
    training_dynamics,
    training_report,
)
from analysis.columns import SHARED, columns_of, unexplained
from analysis.page import Folder, draw
from attnkit import cli, plots
from attnkit.checkpoint import Checkpoint, save_checkpoint
from attnkit.data import DataConfig
from attnkit.model import ModelConfig, TinyTransformer

STUDIES = {  # with what makes them write every table and every column
    head_stats: ("--with-importance", "--per-sequence", "--baseline", "untrained"),
    head_importance: (),
    counting: (),
    head_similarity: ("--checkpoint", "other"),
    training_dynamics: ("--checkpoint", "other"),
    faithfulness: (),
}
DICTIONARIES = [study.DICTIONARY for study in report.STUDIES]
# What only texts have, read by a transformers model: test_hfstats and test_text_importance run these.
FIGURES_OF_TEXTS = {"offsets"}
COLUMNS_OF_TEXTS = {
    *("answers_changed", "divergence", "embedding_change", "similarity_change", "similarity_rank", "pairs"),
    *("tokens", "window"),
}


def fresh(folder, seed):
    """A small checkpoint with two snapshots."""
    config = ModelConfig(vocab_size=2, d_model=10, n_heads=2, d_ff=7, n_layers=2, max_len=5)
    torch.manual_seed(seed)
    first, last = (TinyTransformer.from_config(config) for _ in range(2))
    info = Checkpoint(config, data=DataConfig(length=5, n_test=53), snapshots=[0, 7])
    weights = {0: first.state_dict(), 7: last.state_dict()}
    return save_checkpoint(folder, last, info, [], "# a card\n", weights)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """A folder in which every study of two small fresh models has left its tables and figures."""
    folder = tmp_path_factory.mktemp("studied")
    own, other = (str(fresh(folder / name, seed)) for seed, name in enumerate(("own", "other")))
    for study, arguments in STUDIES.items():
        given = [other if argument == "other" else argument for argument in arguments]
        study.main(["--checkpoint", own, *given, "--out", str(folder / "out"), "--device", "cpu"])
    return folder / "out"


@pytest.fixture
def folder(studied, tmp_path):
    return shutil.copytree(studied, tmp_path / "out")


def redraw(folder):
    report.main(["--out", str(folder)])


def test_every_figure_of_every_study_is_drawn_again_from_the_tables_to_the_byte(studied, folder):
    shutil.rmtree(folder / "figures")
    redraw(folder)

    names = {file.name for file in (studied / "figures").iterdir()}
    for kind in {kind for study in report.STUDIES for kind in study.FIGURES} - FIGURES_OF_TEXTS:
        assert any(name.startswith(kind) for name in names), kind
    assert "training_motion.gif" in names
    assert {file.name for file in (folder / "figures").iterdir()} == names
    for name in sorted(names):
        assert (folder / "figures" / name).read_bytes() == (studied / "figures" / name).read_bytes(), name
    assert (folder / "report.html").read_bytes() == (studied / "report.html").read_bytes()


@pytest.mark.parametrize(
    ("study", "table", "figure"),
    [
        (head_stats_report, "head_stats_long", "statistics"),
        (counting_report, "counting_curves", "counting"),
        (faithfulness_report, "faithfulness", "faithfulness_all"),
        (training_report, "training_average", "training_importance"),
    ],
)
def test_another_number_in_a_table_is_another_picture(studied, folder, study, table, figure):
    """Or else the test above would not show that figures come from the tables."""
    numbers = pd.read_csv(folder / f"{table}.csv")
    for column in {"mean", "ci_low", "ci_high", "measured"} & set(numbers.columns):
        numbers[column] *= 0.9
    numbers.to_csv(folder / f"{table}.csv", index=False)
    plots.save(dict(study.figures(Folder(folder)))[figure], folder / "changed")

    assert (folder / "changed.svg").read_bytes() != (studied / "figures" / f"{figure}.svg").read_bytes()


def test_another_weight_in_the_table_of_maps_is_another_animation(studied, folder):
    maps = pd.read_parquet(folder / "training_maps.parquet")
    maps.loc[maps["query"] == 0, "weight"] = 0.5
    maps.to_parquet(folder / "training_maps.parquet", index=False)
    figures = dict(training_report.figures(Folder(folder)))
    draw(folder, lambda _: [("training_motion", figures["training_motion"])])

    name = "figures/training_motion.gif"
    assert (folder / name).read_bytes() != (studied / name).read_bytes()


def test_a_table_that_is_not_there_takes_only_its_own_figures_along(folder):
    for name in ("histograms", "pairs", "similarity", "counting_curves"):
        (folder / f"{name}.csv").unlink()
    for name in ("mean_attention.npz", "training_maps.parquet"):
        (folder / name).unlink()

    names = {name for study in report.STUDIES for name, _ in study.figures(Folder(folder))}
    gone = ("distribution", "pairs", "mean_attention", "similarity_c", "counting", "training_maps", "training_motion")
    assert [name for name in names if name.startswith(gone)] == []
    assert {"statistics", "importance", "pruning", "training_curve", "faithfulness_all"} <= names


def test_every_figure_on_the_page_says_what_to_see(studied):
    page = (studied / "report.html").read_text(encoding="utf-8")
    captions = re.findall(r"<figcaption><h3>(.*?)</h3>(.*?)</figcaption>", page, re.DOTALL)

    assert len(captions) >= 12
    assert [title for title, text in captions if not re.fullmatch(r"<p>.{40,}</p>", text, re.DOTALL)] == []
    assert page.count("<img ") == len([*(studied / "figures").glob("*.png"), *(studied / "figures").glob("*.gif")])


def test_every_column_of_every_table_is_in_the_dictionary(studied, folder):
    assert unexplained(Folder(studied), DICTIONARIES) == []
    assert len({table for table, _ in columns_of(Folder(studied))}) >= 20

    table = pd.read_csv(folder / "pruning.csv")
    table.assign(nobody_knows=1).to_csv(folder / "pruning.csv", index=False)
    table.to_csv(folder / "of_no_study.csv", index=False)
    found = unexplained(Folder(folder), DICTIONARIES)
    assert ("pruning", "nobody_knows") in found
    assert {table for table, _ in found} == {"pruning", "of_no_study"}


def test_the_dictionary_explains_no_column_that_no_table_has(studied):
    """Each word is of use: no study speaks of a column that is gone."""
    tables = list(columns_of(Folder(studied)))
    for dictionary in DICTIONARIES:
        own = {(table, column) for table, column in tables if table in dictionary.tables}
        assert set(dictionary.tables) == {table for table, _ in own}
        written = {column for _, column in own} | {f"{table}.{column}" for table, column in own}
        assert set(dictionary.columns) - written <= COLUMNS_OF_TEXTS
    used = {
        d.explain(*place)[0] for place in tables for d in DICTIONARIES if place[0] in d.tables and d.explain(*place)
    }
    assert set(SHARED) - used == set()


def test_the_page_says_what_each_column_holds_and_where_it_is(studied):
    page = (studied / "report.html").read_text(encoding="utf-8")
    told = re.search(r'<section id="columns">.*?</section>', page, re.DOTALL)[0]

    assert re.search(r"<th [^>]*>preference</th>.*?<td>counting</td>", told)
    assert told.count('<th scope="row"') == told.count("<tr>") - 1 >= 80


def test_every_section_is_in_the_contents(studied):
    page = (studied / "report.html").read_text(encoding="utf-8")

    assert re.findall(r'<section id="([^"]+)"', page) == re.findall(r'<li><a href="#([^"]+)"', page)
    assert page.count("<section ") >= 11


def test_what_a_head_does_is_told_where_only_its_importance_was_measured(studied, folder):
    page = (studied / "report.html").read_text(encoding="utf-8")
    told = re.search(r'<section id="one-by-one">.*?</section>', page, re.DOTALL)[0]
    for name in ("head_stats_long.csv", "head_stats.csv", "dictionary.csv"):
        (folder / name).unlink()
    report.write_report(folder)
    alone = re.search(r'<section id="one-by-one">.*?</section>', (folder / "report.html").read_text(), re.DOTALL)[0]

    assert alone == told
    assert alone.count("<dd>It ") == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{", "run.json: is not JSON"),
        ("run.json", "[1]", "run.json: got list, allowed is an object"),
        ("counting.csv", "", "counting.csv: is not a table"),
        ("pairs.csv", 'a,b\n1,2,3\n4,"', "pairs.csv: is not a table"),
        ("training_maps.parquet", "PAR1", "training_maps.parquet: is not a table"),
    ],
)
def test_what_cannot_be_read_is_named(folder, name, content, message, capsys):
    (folder / name).write_text(content)

    assert cli.run(lambda: redraw(folder)) == 1
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_there_or_has_no_record_is_named_and_nothing_is_written(tmp_path, capsys):
    assert cli.run(lambda: redraw(tmp_path / "nowhere")) == 1
    assert "nowhere: has no run.json; `python -m analysis.head_stats --out" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- in the browser


CELLS = """(table, column) =>
    [...table.tBodies[0].rows].map(({cells: {[column]: cell}}) => [cell.textContent, cell.dataset.value ?? null])"""


@pytest.mark.browser
def test_numbers_sort_from_the_largest_and_texts_from_a(studied, browser):
    page = browser.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((studied / "report.html").as_uri())
    for anchor, heading, of_text in (
        ("faithfulness", "Mean τ", False),
        ("faithfulness", "Attribution", True),
        ("counting", "Verdict", True),
        ("dictionary", "Statistic", True),
        ("similarity", "JS distance", False),
    ):
        table = page.locator(f"#{anchor} table")
        button = table.locator("thead button").filter(has_text=re.compile(f"^{heading}$"))
        headings = [text.strip() for text in table.locator("thead tr").first.locator("th").all_inner_texts()]
        place = headings.index(heading)

        def shown(table=table, column=place):
            return table.evaluate(CELLS, column)

        before = shown()
        button.click()
        texts = [text for text, _ in shown()]
        numbers = [float(value) for _, value in shown() if value is not None]
        assert sorted(map(str, before)) == sorted(map(str, shown()))  # the same rows
        assert (texts == sorted(texts, key=str.lower)) if of_text else (numbers == sorted(numbers, reverse=True))
        button.click()
        numbers = [float(value) for _, value in shown() if value is not None]
        texts = [text for text, _ in shown()]
        assert (texts == sorted(texts, key=str.lower, reverse=True)) if of_text else (numbers == sorted(numbers))
    assert not faults


TOO_WIDE = """() => [...document.querySelectorAll("main table, main img")]
    .filter(part => part.getBoundingClientRect().right > innerWidth)
    .map(part => part.caption?.textContent ?? part.alt)"""
PAPER = 720  # CSS pixels: the width of A4 or letter within its margins


@pytest.mark.browser
def test_on_paper_nothing_is_cut_off_and_all_is_black_on_white(studied, browser):
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto((studied / "report.html").as_uri())
    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    cut = "[...document.querySelectorAll('.scroll')].filter(e => getComputedStyle(e).overflowY !== 'visible').length"
    assert page.evaluate(cut) == 0
    page.set_viewport_size({"width": PAPER, "height": 900})
    assert page.evaluate(TOO_WIDE) == []
    assert page.pdf().startswith(b"%PDF")


LAYERS = HEADS = 12


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """The tables of 144 heads, written by hand: every head its own numbers and a map of 16 tokens."""
    from attnkit.measures import applicable
    from attnkit.tables import dictionary_frame

    out = tmp_path_factory.mktemp("large")
    chance = np.random.default_rng(0)
    names = list(dictionary_frame(applicable(["0", "1"]))["statistic"])
    index = pd.MultiIndex.from_product(
        [range(LAYERS), range(HEADS), names, ["all"]],
        names=["layer", "head", "statistic", "group"],
    )
    long = index.to_frame(index=False).assign(n=500, uniform=0.5, std=0.1)
    long["mean"] = chance.random(len(long))
    long["ci_low"], long["ci_high"] = long["mean"] - 0.01, long["mean"] + 0.01
    edges = np.linspace(0, 1, 51)
    drawn, *alike = head_stats_report.DISTRIBUTIONS
    bins = long[long["statistic"] == drawn][["layer", "head", "statistic", "group"]].merge(
        pd.DataFrame({"low": edges[:-1], "high": edges[1:]}), how="cross"
    )
    dictionary_frame(applicable(["0", "1"])).to_csv(out / "dictionary.csv", index=False)
    long.to_csv(out / "head_stats_long.csv", index=False)
    bins.assign(count=chance.integers(0, 50, len(bins))).to_csv(out / "histograms.csv", index=False)
    np.savez(out / "mean_attention.npz", mean_attention=chance.dirichlet(np.ones(16), (LAYERS, HEADS, 16)))
    methods = pd.MultiIndex.from_product(
        [range(LAYERS), range(HEADS), ["zero", "mean", "resample", "gradient"]], names=["layer", "head", "method"]
    )
    worth = methods.to_frame(index=False).assign(n=500, answers_gained=0)
    worth["answers_lost"] = chance.integers(0, 50, len(worth))
    for name in ("accuracy_drop", "loss_increase", "gradient_importance"):
        worth[name] = chance.random(len(worth))
        worth[f"{name}_ci_low"], worth[f"{name}_ci_high"] = worth[name] - 0.01, worth[name] + 0.01
    worth.to_csv(out / "head_importance.csv", index=False)
    long[long["group"] == "all"].to_csv(out / "head_importance_statistics.csv", index=False)
    heads = list(np.ndindex(LAYERS, HEADS))
    pairs = pd.DataFrame([(*a, *b) for k, a in enumerate(heads) for b in heads[k + 1 :]])
    pairs.columns = ["layer_a", "head_a", "layer_b", "head_b"]
    pairs = pairs.assign(n=500, js_distance=chance.random(len(pairs)), cka=chance.random(len(pairs)))
    pairs.assign(js_divergence=pairs["js_distance"] ** 2).to_csv(out / "similarity.csv", index=False)
    tree = [(k if k == 0 else 143 + k, k + 1, (k + 1) / 200, k + 2) for k in range(143)]
    pd.DataFrame(tree, columns=["left", "right", "distance", "heads"]).to_csv(out / "similarity_tree.csv", index=False)
    places = pd.DataFrame(heads, columns=["layer", "head"]).assign(stress=0.1, x=chance.random(144))
    places.assign(y=chance.random(144)).to_csv(out / "similarity_map.csv", index=False)
    record = {"checkpoint_sha256": "ab", "data": "500 sequences", "sequences": 500, "population": False}
    for name in ("run", "head_importance", "similarity"):
        (out / f"{name}.json").write_text(json.dumps(record))
    with pytest.MonkeyPatch.context() as patch:  # drawing takes most of the time: one distribution stands for all
        patch.setattr(head_stats_report, "DISTRIBUTIONS", (drawn,))
        redraw(out)
    for name, kind in itertools.product(alike, ("png", "svg")):
        figures = out / "figures"
        shutil.copy(figures / f"distribution_{drawn}.{kind}", figures / f"distribution_{name}.{kind}")
    report.write_report(out)
    return out


OPENED = """() => {
    const [navigation] = performance.getEntriesByType("navigation");
    return [navigation.domContentLoadedEventEnd, navigation.loadEventEnd];
}"""


@pytest.mark.browser
def test_a_page_of_144_heads_opens_in_under_a_second(large, browser):
    """From the start of the navigation until everything, the pictures too, is loaded; the best of three openings: what
    else the machine does is not the page's."""
    page = browser.new_page()
    times = []
    for _ in range(3):
        page.goto((large / "report.html").as_uri(), wait_until="load")
        times.append(page.evaluate(OPENED))
    print("DOMContentLoaded and load, ms:", times)

    assert page.locator("#heads tbody tr").count() == LAYERS * HEADS
    assert page.locator("img").count() == 9
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert min(load for _, load in times) < 1000
    assert (large / "report.html").stat().st_size < 10_000_000
