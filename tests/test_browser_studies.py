"""The studies of the whole set, in a real Chromium: their numbers are the analysis', and lead to a head and back."""

import os
import re

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from attnkit.labels import number, words
from attnkit.reference import FILE, Reference
from tests.browsing import faults, grid, open_large
from tests.serving import CHROMIUM, COLOURS, add_reference, write_grown

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


@pytest.fixture
def reference(checkpoints):
    return Reference.load(checkpoints / "majority")


@pytest.fixture(scope="module")
def grown(site, tmp_path_factory):
    """What is known of a checkpoint with snapshots, as long as the module runs."""
    folder = site / "checkpoints" / "grown"
    write_grown(folder)
    yield add_reference(folder)
    folder.rename(tmp_path_factory.mktemp("old") / "grown")


def open_study(page, name):
    page.locator(f".{name} summary").click()
    expect(page.locator(f".{name} .inside > :not(.waiting)").first).to_be_visible()
    return page.locator(f".{name}")


def cells(box, place):
    """The texts of the first row, or of another."""
    return box.locator("tbody tr").nth(place).locator("th, td").all_inner_texts()


def sorts(box, title, order):
    heading = box.get_by_role("columnheader", name=re.compile(f"^{title}"))  # an arrow may follow
    expect(heading).to_have_attribute("aria-sort", order)


def as_number(text):
    return float(text.replace("−", "-"))


def name_of(row):
    return f"layer {row['layer']}, head {row['head']}"


# ---------------------------------------------------------------- differences between classes


@pytest.fixture
def labels_apart(reference):
    """The rows of the two labels, those first that differ most."""
    table = pd.DataFrame.from_records(reference.differences)
    table = table[table["group_a"] == "label=not majority"]
    return table.sort_values("cohens_d", key=abs, ascending=False, kind="stable").reset_index(drop=True)


def test_the_differences_between_classes_are_there_the_greatest_first(page, labels_apart):
    box = open_study(page, "differing")
    expect(box.locator("tbody tr")).to_have_count(len(labels_apart))

    for place in (0, 1, len(labels_apart) - 1):
        row, (head, statistic, d, _, difference, p, n) = labels_apart.iloc[place], cells(box, place)
        assert (head, statistic, n) == (name_of(row), words(row.statistic), f"{row.n_a} / {row.n_b}")
        assert [as_number(x) for x in (d, difference, p)] == pytest.approx(
            [row.cohens_d, row.difference, row.p_adjusted], rel=0.006
        )
    expect(box).to_contain_text("corrected for the number of rows (Benjamini & Hochberg)")


def test_the_differences_are_sorted_by_any_heading_and_kept_to_one_statistic(page, labels_apart):
    box = open_study(page, "differing")
    smallest = labels_apart.iloc[labels_apart["p_adjusted"].argmin()]
    box.get_by_role("button", name="p, corrected").click()
    sorts(box, "p, corrected", "ascending")
    assert as_number(cells(box, 0)[5]) == pytest.approx(smallest.p_adjusted, rel=0.006)
    expect(box.get_by_role("button", name="p, corrected")).to_be_focused()
    page.keyboard.press("Enter")
    sorts(box, "p, corrected", "descending")
    assert as_number(cells(box, 0)[5]) == pytest.approx(labels_apart["p_adjusted"].max(), rel=0.006)
    box.get_by_role("combobox", name="statistic").select_option("Selectivity for the own token")
    expect(box.locator("tbody tr")).to_have_count(8)
    box.get_by_role("button", name="head", exact=True).click()

    sorts(box, "head", "ascending")
    heads = [f"layer {layer}, head {head}" for layer in range(2) for head in range(4)]
    expect(box.locator("tbody th")).to_have_text(heads)
    expect(box.locator(".named")).to_have_text(["Selectivity for the own token"] * 8)


def test_right_answers_are_compared_with_wrong_ones(page, reference):
    table = pd.DataFrame.from_records(reference.differences)
    most = table[table["group_a"] == "correct"].sort_values("cohens_d", key=abs, ascending=False, kind="stable").iloc[0]
    box = open_study(page, "differing")
    box.get_by_role("combobox", name="compared groups").select_option("right answers − wrong answers")

    expect(box.locator("tbody tr").first.locator("td").last).to_have_text(f"{most.n_a} / {most.n_b}")
    expect(box.locator("tbody tr th").first).to_have_text(name_of(most))
    assert as_number(cells(box, 0)[2]) == pytest.approx(most.cohens_d, rel=0.006)


def test_a_row_of_the_differences_leads_to_its_head_and_statistic_and_back(page, labels_apart):
    row = labels_apart.iloc[3]
    box = open_study(page, "differing")
    box.locator("tbody tr").nth(3).locator("td").nth(3).click()  # anywhere in it
    expect(page.locator(".large h2")).to_have_text(name_of(row))
    chosen = page.locator(".overall").get_by_role("combobox", name="statistic").locator("option:checked")
    expect(chosen).to_have_text(words(row.statistic))
    expect(page.locator(".overall .apart")).to_have_text(
        re.compile(f"^not majority − majority: .*, d = {number(row.cohens_d)}$")
    )
    page.get_by_role("button", name="back to: Differences between classes").click()

    expect(box.locator("tbody tr").nth(3).get_by_role("button")).to_be_focused()
    expect(box.locator("tbody tr").nth(3)).to_be_in_viewport()


def test_a_head_that_is_opened_elsewhere_has_no_way_back_to_a_study(page):
    open_study(page, "worths").locator("tbody tr").nth(2).click()
    expect(page.get_by_role("button", name="back to: What each head is worth")).to_be_visible()
    page.get_by_role("button", name=re.compile("^layer 1, head 0,")).click()

    expect(page.locator(".large h2")).to_have_text("layer 1, head 0")
    expect(page.get_by_role("button", name="back to")).to_have_count(0)


def test_the_distribution_has_a_colour_for_each_class(page, reference):
    """Both are drawn, and each has as many sequences as the set has of it."""
    k = list(reference.statistics).index("entropy")
    counts = reference.histogram[1, 1, k].sum(axis=-1)
    open_large(page, 1, 1)
    expect(page.locator(".overall .class")).to_have_text([f"not majority: {counts[0]}", f"majority: {counts[1]}"])
    alone = page.locator(".spread-distribution canvas").evaluate(
        """(canvas) => {
            const style = getComputedStyle(canvas), hex = (x) => x.toString(16).padStart(2, "0");
            const colours = ["--class-0", "--class-1"].map((name) => style.getPropertyValue(name).trim());
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const found = new Set();
            for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] === 255) found.add("#" + [0, 1, 2].map((k) => hex(data[i + k])).join(""));
            }
            return colours.map((colour) => found.has(colour));
        }"""
    )

    assert counts.sum() == 500
    assert alone == [True, True]


# ---------------------------------------------------------------- what heads are worth


def test_what_each_head_is_worth_stands_beside_its_marks(page, reference):
    box = open_study(page, "worths")
    expect(box.locator("tbody tr")).to_have_count(8)
    rows = [[cells(box, i)[column] for column in (2, 3, 5, 6)] for i in range(8)]  # two by each method
    shown = np.array([[as_number(x.removesuffix(" %")) for x in row] for row in rows])
    expected = reference.worth[..., 0].reshape(8, 2, 2).transpose(0, 2, 1).reshape(8, 4) * [100, 100, 1, 1]

    assert shown == pytest.approx(expected, rel=0.006, abs=1e-9)


def test_the_marks_of_the_loss_stand_on_a_scale_that_is_logarithmic_beyond_a_ten_thousandth(page, reference):
    """From the least to the greatest end of an interval, or 0."""

    def place(x):
        size = np.abs(x) / 1e-4
        return np.sign(x) * np.where(size <= 1, size, 1 + np.log10(np.maximum(size, 1)))

    box = open_study(page, "worths")
    expect(box.locator("tbody tr")).to_have_count(8)
    ends = place(np.append(reference.worth[..., 1, :], 0))
    low, high = ends.min(), ends.max()
    for m, method in enumerate(("zero", "mean")):
        at = box.locator(f"td.spread:nth-child(5) .sign.{method}").evaluate_all(
            "marks => marks.map((mark) => parseFloat(mark.style.left))"
        )
        assert at == pytest.approx(
            100 * (place(reference.worth[:, :, m, 1, 0].flatten()) - low) / (high - low), abs=0.1
        )


def test_heads_are_sorted_by_what_they_are_worth_and_lead_to_the_head_and_back(page, reference):
    box = open_study(page, "worths")
    by_loss = reference.worth[..., 1, 1, 0].flatten().argsort(kind="stable")[::-1]  # the mean output in their place
    heading = box.locator("[data-sorts='1 1']").get_by_role("button", name="gives its mean")
    heading.click()
    first = f"layer {by_loss[0] // 4}, head {by_loss[0] % 4}"
    expect(box.locator("tbody th").first).to_have_text(first)
    expect(box.locator("[data-sorts='1 1']")).to_have_attribute("aria-sort", "descending")
    expect(heading).to_be_focused()
    box.get_by_role("button", name=first).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".large h2")).to_have_text(first)
    page.get_by_role("button", name="back to: What each head is worth").click()

    expect(box.get_by_role("button", name=first)).to_be_focused()
    expect(box.locator("tr.selected th")).to_have_text(first)


# ---------------------------------------------------------------- through training


def drawn_values(page, kind, head):
    """What a head's line says, read off its places and the ends of the axis."""
    line = page.locator(f".growth-{kind} polyline").nth(head)
    low, high, *rules = line.evaluate(
        """(line) => {
            const axis = line.closest("svg"), rules = [...axis.querySelectorAll(".rule")];
            return [axis.dataset.low, axis.dataset.high, ...rules.map((rule) => rule.getAttribute("y1"))].map(Number);
        }"""
    )
    heights = [float(point.split(",")[1]) for point in line.get_attribute("points").split()]
    return [low + (rules[0] - y) / (rules[0] - rules[-1]) * (high - low) for y in heights]


@pytest.fixture
def growing(open_page, grown):
    page = open_page(query="&checkpoint=grown")
    open_study(page, "growth")
    expect(page.locator(".growth-worth polyline")).to_have_count(8)
    return page


@pytest.mark.parametrize(
    ("kind", "title", "name"),
    [
        ("statistic", "Distance", "distance"),
        ("statistic", "Positional share", "positional_share"),
        ("worth", "Loss increase without it (nats)", "loss_increase"),
    ],
)
def test_lines_through_training_are_the_numbers_of_each_snapshot(growing, grown, kind, title, name):
    growing.locator(f".growth-{kind} select").select_option(title)
    expect(growing.locator(f".growth-{kind} svg")).to_have_accessible_name(re.compile(f"^{re.escape(title)}, "))
    expected = grown.training[..., list(grown.columns).index(name)].reshape(3, 8)  # by step and head
    reach = float(np.ptp(expected)) / 190  # a pixel

    for head in (0, 3, 6):
        assert drawn_values(growing, kind, head) == pytest.approx(expected[:, head], abs=reach)
    expect(growing.locator(f".growth-{kind} svg text").filter(has_text=re.compile("^(0|5|20)$"))).to_have_count(3)


def test_a_line_leads_to_its_head_which_is_lit_and_back(growing):
    line = growing.locator(".growth-statistic polyline").nth(5)
    x, y = line.evaluate("(line) => line.getAttribute('points').split(' ').at(-1).split(',').map(Number)")
    chart = growing.locator(".growth-statistic svg")
    chart.hover(position={"x": x - 2, "y": y})
    expect(growing.locator(".growth .said")).to_have_text(re.compile(r"^layer 1, head 1: Entropy \d.*after 20 steps$"))
    chart.click(position={"x": x - 2, "y": y})
    expect(growing.locator(".large h2")).to_have_text("layer 1, head 1")
    expect(growing.locator(".growth polyline.selected")).to_have_count(2)  # a line in each figure
    growing.get_by_role("button", name="back to: Every head through training").click()

    expect(growing.locator(".growth button.selected")).to_be_focused()
    expect(growing.locator(".growth button.selected")).to_have_text("layer 1, head 1")


def test_keys_reach_every_line(growing):
    growing.locator(".growth").get_by_role("button", name="layer 0, head 2").focus()
    expect(growing.locator(".growth polyline.pointed")).to_have_count(2)
    growing.keyboard.press("Enter")

    expect(growing.locator(".large h2")).to_have_text("layer 0, head 2")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault_among_the_lines(open_page, grown, theme):
    page = open_page(theme=theme, query="&checkpoint=grown&head=1.1")
    open_study(page, "growth")
    expect(page.locator(".growth polyline.selected")).to_have_count(2)

    assert faults(page) == []


def test_the_lines_stay_while_the_slider_moves_and_an_upright_one_follows(growing):
    at = growing.locator(".growth-worth .now").get_attribute("x1")
    growing.get_by_role("slider", name="Through training").focus()
    growing.keyboard.press("ArrowLeft")
    expect(grid(growing)).to_have_attribute("data-effects", re.compile("grown@5"))

    expect(growing.locator(".growth-worth polyline")).to_have_count(8)
    expect(growing.locator(".growth-worth .now")).not_to_have_attribute("x1", at)
    expect(growing.locator(".worths")).to_be_hidden()  # that is known of the trained weights only


def test_without_snapshots_there_are_no_lines(page):
    expect(page.locator(".worths")).to_be_visible()
    expect(page.locator(".growth")).to_be_hidden()


# ---------------------------------------------------------------- for everybody


def test_the_studies_speak_chinese(open_page, grown):
    page = open_page(query="&checkpoint=grown&language=zh")
    for name, title, text in (
        ("differing", "类别之间的差异", "非多数减多数"),
        ("worths", "每个头的价值", "输出平均值"),
        ("growth", "训练过程中的每个头", "去掉后损失函数的增加"),
    ):
        expect(open_study(page, name).locator("summary")).to_have_text(title)
        expect(page.locator(f".{name}")).to_contain_text(text)
    page.locator(".worths tbody tr").first.click()

    expect(page.locator(".overall .apart")).to_have_text(re.compile("^非多数减多数"))
    expect(page.get_by_role("button", name="返回：每个头的价值")).to_be_visible()


def test_another_language_keeps_what_is_open(page):
    open_study(page, "worths")
    page.get_by_role("radio", name="中文").check()

    expect(page.locator(".worths tbody th").first).to_have_text("第 0 层，头 0")


def test_the_studies_fit_a_phone(open_page, grown):
    page = open_page(query="&checkpoint=grown", width=390, height=844, has_touch=True, is_mobile=True)
    for name in ("differing", "worths", "growth"):
        open_study(page, name)
    expect(page.locator(".growth polyline").first).to_be_visible()
    width = page.locator(".growth-worth svg").evaluate("(svg) => [svg.clientWidth, svg.viewBox.baseVal.width]")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert width[0] == width[1] <= 390  # so that its text is not scaled


def test_a_checkpoint_that_nobody_has_measured_says_so_in_one_line(open_page):
    page = open_page(query=f"&checkpoint={COLOURS}")

    expect(page.locator(".why")).to_have_text(re.compile(r"^Nobody has read <i>colours over a whole set yet.* does\.$"))
    expect(page.locator(".study:visible")).to_have_count(0)


def test_a_reference_of_an_earlier_version_is_told_in_one_line(open_page, site, grown):
    file = site / "checkpoints" / "grown" / FILE
    whole = file.read_bytes()
    with np.load(file) as arrays:
        np.savez(file, **{name: arrays[name] for name in arrays if name not in {"worth", "training"}})
    page = open_page(query="&checkpoint=grown")

    expect(page.locator(".why")).to_have_text(
        re.compile(r"has no training, worth; make it anew with python -m analysis\.reference$")
    )
    expect(page.locator(".study:visible")).to_have_count(0)
    file.write_bytes(whole)


def test_what_no_visitor_opens_is_not_sent(page):
    """And what one opens is sent once."""
    answers = []
    page.on("response", lambda response: answers.append(response) if "queue/join" in response.url else None)
    open_study(page, "worths")
    expect(page.locator(".worths tbody tr")).to_have_count(8)
    sent = len(answers)
    open_study(page, "differing")
    expect(page.locator(".differing tbody tr").first).to_be_visible()

    assert (sent, len(answers)) == (1, 1)
