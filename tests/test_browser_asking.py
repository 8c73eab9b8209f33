"""What is shown answers what is asked, in a real Chromium: answers that come late, and questions that come fast."""

import os
import re

import pytest
from playwright.sync_api import expect

from tests.browsing import TIED, answer, bits, field, grid, held, hold, let_go, model_says, switch, type_in
from tests.serving import CHROMIUM, write_grown

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


@pytest.fixture
def grown(checkpoints, tmp_path):
    """A checkpoint with snapshots, as long as the test runs."""
    write_grown(checkpoints / "grown")
    yield
    (checkpoints / "grown").rename(tmp_path / "grown")


@pytest.fixture
def late(page):
    """The page with an edit whose answer is still on its way."""
    hold(page, TIED)
    field(page).fill(TIED)
    held(page)
    return page


def test_an_answer_that_comes_after_a_change_of_language_is_not_left_in_the_other(late):
    late.get_by_label("中文").check()
    expect(late.get_by_role("switch", name="第 0 层，头 1")).to_be_visible()
    let_go(late)

    expect(answer(late)).to_contain_text("16 个中有 8 个是 1")
    expect(grid(late)).to_have_attribute("data-tokens", " ".join(TIED))


def test_an_answer_that_comes_after_a_switch_does_not_turn_it_back(late):
    switch(late, 0, 3).click()
    let_go(late)

    expect(grid(late)).to_have_attribute("data-off", "0.3")
    expect(answer(late)).to_have_attribute("data-off", "layer 0, head 3")
    expect(answer(late)).to_have_attribute("data-sequence", TIED)


def test_an_answer_of_the_checkpoint_before_gives_way_to_that_of_the_one_that_is_chosen(open_page, grown, checkpoints):
    page = open_page(query="&checkpoint=grown")
    hold(page, TIED)
    field(page).fill(TIED)
    held(page)
    page.get_by_label("Checkpoint", exact=True).click()
    page.get_by_test_id("dropdown-option").filter(has_text="majority").click()
    expect(page.locator(".training")).to_be_hidden()
    let_go(page)
    probabilities, _ = model_says(checkpoints, "majority", bits(TIED))

    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(page.locator(".training")).to_be_hidden()


def test_statistics_that_come_after_a_change_of_language_are_asked_for_in_the_new_one(page):
    page.locator(".map").first.click()
    hold(page, '"number":2')
    type_in(page, TIED)
    held(page)
    page.get_by_label("中文").check()
    expect(page.get_by_role("switch", name="第 0 层，头 1")).to_be_visible()
    page.evaluate("letGo()")

    expect(page.locator(".ranks")).to_contain_text("第 1 层")
    expect(page.locator(".statistics th").nth(3)).to_have_text("熵")


def test_of_two_quick_choices_of_a_language_the_last_counts(page):
    hold(page, '"zh"')
    page.get_by_label("中文").check()
    held(page)
    page.get_by_label("English").check()
    let_go(page)

    expect(page.get_by_role("heading", name="What do the heads look at?")).to_be_visible()
    expect(switch(page, 1, 2)).to_be_visible()


def test_of_two_quick_switches_both_count(page):
    page.evaluate("document.querySelectorAll('.toggle').forEach((toggle, i) => [1, 6].includes(i) && toggle.click())")

    expect(grid(page)).to_have_attribute("data-off", "0.1 1.2")
    expect(page.get_by_role("switch", checked=False)).to_have_count(2)


def test_a_slider_that_is_faster_than_the_answers_ends_where_it_stands(open_page, grown):
    page = open_page(query=f"&checkpoint=grown&sequence={TIED}")
    slider = page.get_by_label("Through training")
    hold(page, '"5"')
    slider.press("ArrowLeft")
    held(page)
    slider.press("ArrowLeft")
    let_go(page)

    expect(grid(page)).to_have_attribute("data-effects", re.compile("grown@0"))
    expect(page.locator(".training .step")).to_have_text("after 0 steps")


def test_a_text_that_is_refused_stays_when_the_language_changes(page):
    field(page).fill("0120")
    expect(page.locator(".problem")).to_contain_text("character '2' at position 3")
    page.get_by_label("中文").check()

    expect(page.locator(".problem")).to_contain_text("第 3 个字符 '2' 不在词表 {0,1} 中")
    expect(field(page)).to_have_value("0120")
