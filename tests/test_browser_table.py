"""Every head over the whole set, in a real Chromium: sorted, and one click from a row to its head and back."""

import os
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from attnkit.reference import LEVELS, Reference
from tests.browsing import large, open_large, type_in
from tests.serving import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


@pytest.fixture
def table(page):
    page.get_by_text("Every head over all 500 sequences of length 16").click()
    return page.locator(".set table")


def heads(table):
    return table.locator("tbody th").all_inner_texts()


def medians(checkpoints, name):
    """Of a statistic, head by head, layer by layer."""
    known = Reference.load(checkpoints / "majority")
    return known.quantiles[:, :, list(known.statistics).index(name), list(LEVELS).index(0.5)].flatten()


HEADS = np.array([f"layer {layer}, head {head}" for layer in range(2) for head in range(4)])


def test_the_table_has_the_medians_of_every_head(table, checkpoints):
    expect(table.locator("tbody tr")).to_have_count(8)
    column = table.locator("thead th").all_inner_texts().index("Distance")
    shown = [float(row.locator("th, td").nth(column).inner_text()) for row in table.locator("tbody tr").all()]

    assert heads(table) == list(HEADS)
    assert shown == pytest.approx(medians(checkpoints, "distance"), rel=0.006)


def test_a_heading_sorts_by_its_column_both_ways_and_the_first_gives_the_order_back(table, checkpoints):
    order = medians(checkpoints, "output_norm").argsort(kind="stable")
    heading = table.get_by_role("button", name="Length of the output")
    heading.click()
    expect(table.get_by_role("columnheader", name="Length of the output").last).to_have_attribute(
        "aria-sort", "descending"
    )
    assert heads(table) == list(HEADS[order[::-1]])
    expect(heading).to_be_focused()
    expect(table.locator("th.spread")).to_have_text("distribution: Length of the output")
    table.page.keyboard.press("Enter")
    assert heads(table) == list(HEADS[order])
    table.get_by_role("button", name="head", exact=True).click()

    assert heads(table) == list(HEADS)


def test_a_click_goes_from_a_row_to_its_head_and_back(table, page):
    table.get_by_role("button", name="layer 1, head 2").click()
    expect(page.locator(".large h2")).to_have_text("layer 1, head 2")
    expect(large(page)).to_be_in_viewport(ratio=0.5)
    expect(table.locator("tr.selected th")).to_have_text("layer 1, head 2")
    page.get_by_role("button", name="among all heads").click()

    expect(table.get_by_role("button", name="layer 1, head 2")).to_be_focused()
    expect(table.locator("tr.selected")).to_be_in_viewport()


def test_the_way_to_the_table_opens_it(page):
    open_large(page, 0, 3)
    page.get_by_role("button", name="among all heads").click()

    expect(page.locator(".set tr.selected th")).to_have_text("layer 0, head 3")
    expect(page.locator(".set tr.selected")).to_be_in_viewport()


def test_each_distribution_has_a_dot_where_this_sequence_stands(table, page):
    """All ones: the weight on ones is 1 in every head, more than in the set, so that each dot is at the right end."""
    type_in(page, "1" * 16)
    table.get_by_role("button", name="Weight on token 1").click()
    expect(page.locator(".attention")).to_have_attribute("data-usual", re.compile("1" * 16))
    dots = table.locator(".here:visible")

    expect(dots).to_have_count(8)
    assert dots.evaluate_all("dots => dots.map((dot) => dot.style.left)") == ["100%"] * 8


def test_the_table_scrolls_inside_itself_on_a_phone(open_page):
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    page.get_by_text("Every head over all 500 sequences").tap()
    expect(page.locator(".set table")).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".scroll").evaluate("box => box.scrollWidth > box.clientWidth")
