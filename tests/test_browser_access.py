"""The page for everybody: axe-core finds no serious fault, and keys alone reach all of it."""

import os

import pytest
from playwright.sync_api import expect

from tests.browsing import TIED, answer, faults, field, grid, open_large, settled, switch, type_in
from tests.serving import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


def use_everything(page):
    """The page with all its parts open."""
    open_large(page, 1, 1)
    page.get_by_role("radio").and_(page.locator("[value=arcs]")).check()
    expect(page.locator(".large")).to_have_attribute("data-as", "arcs")
    page.locator(".pin").click()
    expect(page.locator(".large .picture canvas")).to_have_count(3)
    open_studies(page)
    page.locator(".set thead button").nth(3).click()
    expect(page.locator(".set th[aria-sort=descending]")).to_have_count(1)
    switch(page, 0, 3).click()
    expect(grid(page)).to_have_attribute("data-off", "0.3")
    settled(page)  # numbers of the sequence before are pale until the new ones come
    expect(page.locator(".ranks li")).to_have_count(5)
    expect(page.locator(".stale")).to_have_count(0)


def open_studies(page):
    """Of the differences those of one statistic: axe takes its time for each cell."""
    for study in (".set", ".worths", ".differing"):
        page.locator(f"{study} summary").click()
        expect(page.locator(f"{study} tbody tr").first).to_be_visible()
    page.locator(".choose-statistic").select_option("entropy")
    expect(page.locator(".differing tbody tr")).to_have_count(8)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(open_page, theme):
    page = open_page(theme=theme)
    assert faults(page) == []
    use_everything(page)
    assert faults(page) == []
    field(page).fill("012")
    expect(page.locator(".problem")).to_be_visible()
    page.add_style_tag(content="#answer, #right { opacity: 1 !important }")  # what does not count is pale on purpose
    assert faults(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault_on_a_phone_in_chinese(open_page, theme):
    page = open_page(theme=theme, query="&language=zh&head=1.1", width=390, height=844, is_mobile=True)
    expect(page.locator(".large h2")).to_have_text("第 1 层，头 1")
    open_studies(page)

    assert faults(page) == []


def test_axe_would_have_found_a_pale_text_and_a_button_without_a_name(page):
    """That it finds nothing means something."""
    page.evaluate(
        """() => {
            document.querySelector(".answer .margin").style.color = "#ccc";
            document.querySelector(".toggle").removeAttribute("aria-label");
        }"""
    )

    assert {rule for rule, _ in faults(page)} >= {"color-contrast", "button-name"}


def test_tab_alone_reaches_every_part_of_the_page_and_is_caught_nowhere(page):
    use_everything(page)
    field(page).focus()
    reached = set()
    for _ in range(130):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.className || document.activeElement.tagName")
        reached |= {part for part in name.split() if not part.startswith("svelte")}

    assert reached >= {"cell", "toggle", "map", "unpin", "link", "pin", "sequence", "close", "to-table", "scroll", "go"}


def test_what_has_the_focus_is_seen_to_have_it(page):
    """Every control of the heads and the cells has an outline of its own when keys have brought one there."""
    use_everything(page)
    page.locator(".cell").first.focus()
    for _ in range(70):
        page.keyboard.press("Tab")
        style = page.evaluate(
            """() => {
                const e = document.activeElement;
                return e.closest(".attention, .cells") ? getComputedStyle(e).outlineStyle : "elsewhere";
            }"""
        )
        assert style != "none"


def test_keys_alone_classify_switch_a_head_off_and_read_it_large(page):
    field(page).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(TIED)
    expect(answer(page)).to_have_attribute("data-sequence", TIED)
    switch(page, 1, 2).focus()
    page.keyboard.press("Space")
    expect(grid(page)).to_have_attribute("data-off", "1.2")
    expect(switch(page, 1, 2)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.locator(".large h2")).to_have_text("layer 1, head 2")


def test_a_choice_that_changes_the_answer_keeps_the_focus(page):
    """The choices are built anew when heads are switched: who moves by keys must not be thrown back to the top."""
    switch(page, 0, 3).click()
    expect(grid(page)).to_have_attribute("data-off", "0.3")
    drawn = grid(page).get_attribute("data-drawn")
    page.get_by_role("radio", name="nothing").focus()
    page.keyboard.press("ArrowRight")
    expect(grid(page)).not_to_have_attribute("data-drawn", drawn)

    expect(page.get_by_role("radio", name="its mean output")).to_be_focused()
    type_in(page, TIED)
