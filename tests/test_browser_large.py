"""One head, large, in a real Chromium: as a heat map and as arcs, with its statistics."""

import os
import re

import numpy as np
import pytest
from playwright.sync_api import expect

from attnkit.reference import Reference
from tests.browsing import (
    answer,
    bits,
    canvas,
    field,
    grid,
    large,
    model_says,
    open_large,
    point_at,
    settled,
    tip,
    type_in,
)
from tests.serving import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


def test_a_click_on_a_head_shows_it_large_and_close_puts_it_away(page):
    open_large(page, 1, 2)

    expect(page.locator(".large h2")).to_have_text("layer 1, head 2")
    expect(page.locator(".map[aria-pressed=true]")).to_have_accessible_name(re.compile("^layer 1, head 2,"))
    expect(large(page)).to_be_in_viewport(ratio=0.9)
    page.get_by_role("button", name="Close").click()
    expect(large(page)).to_be_hidden()
    expect(page.locator(".map[aria-pressed=true]")).to_have_count(0)


def test_the_large_head_follows_the_sequence(page, checkpoints):
    canvas(page, 0, 3).click()
    type_in(page, "1100")
    _, weights = model_says(checkpoints, "majority", bits("1100"))
    point_at(page, large(page), 2, 1, T=4)

    expect(tip(page).locator(".weight")).to_have_text(f"{weights[0, 3, 2, 1]:.4f}")


def usual(page, sequence):
    expect(grid(page)).to_have_attribute("data-usual", re.compile(f'"{sequence}"'))


def test_the_large_head_has_its_statistics_each_with_its_percentile(page, checkpoints):
    """The weight on ones of a sequence of ones is 1, and more than any sequence of the set has."""
    canvas(page, 0, 1).click()
    type_in(page, "1" * 16)
    usual(page, "1" * 16)
    row = page.locator(".statistics tr").filter(has_text="Weight on token 1")
    entropy = page.locator(".statistics tr").filter(has=page.get_by_role("rowheader", name="Entropy", exact=True))
    _, weights = model_says(checkpoints, "majority", [1] * 16)

    expect(row.locator("td").first).to_have_text("1.00")
    expect(row.locator(".percentile")).to_have_text("100.0")
    expect(row).to_have_class("odd")
    expect(entropy.locator(".value")).to_have_text(
        f"{-(weights[0, 1] * np.log(weights[0, 1])).sum(axis=1).mean():#.3g}"
    )
    expect(page.locator(".statistics p")).to_contain_text("all 500 sequences of length 16")


def test_unusual_heads_are_marked_and_say_with_what(page):
    type_in(page, "1" * 16)
    usual(page, "1" * 16)

    expect(page.locator(".mark:visible")).to_have_count(8)
    assert all("Weight on token 1" in title for title in page.locator(".mark").evaluate_all("m => m.map(m => m.title)"))


def test_a_length_without_reference_shows_statistics_and_says_why_no_percentile(page):
    canvas(page, 1, 0).click()
    type_in(page, "110")
    usual(page, "110")

    expect(page.locator(".statistics p")).to_have_text("What is usual is known for sequences of length 16 only.")
    expect(page.locator(".statistics .strip")).to_have_count(0)
    expect(page.locator(".statistics td.value").first).to_have_text(re.compile(r"\d"))
    expect(page.locator(".mark:visible")).to_have_count(0)


def test_the_sequences_at_the_ends_are_one_click_away(page, checkpoints):
    reference = Reference.load(checkpoints / "majority")
    canvas(page, 1, 1).click()
    for label, ids in (
        ("This head is sharpest on", reference.sharpest[1, 1, 0]),
        ("and flattest on", reference.flattest[1, 1, 0]),
        ("The model is nearest to wrong on", reference.nearest_wrong[0]),
    ):
        page.locator(".save").filter(has_text=label).get_by_role("button").first.click()
        expect(answer(page)).to_have_attribute("data-sequence", "".join(map(str, ids)))


# ---------------------------------------------------------------- arcs


def arcs(page):
    page.get_by_role("radio", name="arcs").check()
    expect(page.locator(".large")).to_have_attribute("data-as", "arcs")


def token_at(page, side, at, T):
    """The place of a token among the arcs: queries are in the left half, keys in the right."""
    box = large(page).bounding_box()
    return {"x": box["width"] * (0.25 if side == "query" else 0.75), "y": (at + 0.5) * box["height"] / T}


def inked(page):
    """How many pixels of the large picture are not empty."""
    return large(page).evaluate(
        """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data
            .filter((x, i) => i % 4 === 3 && x > 0).length"""
    )


def test_arcs_take_the_place_of_the_heat_map_and_give_it_back(page):
    open_large(page, 1, 2)
    full = inked(page)
    arcs(page)
    lines = inked(page)
    page.get_by_role("radio", name="heat map").check()
    expect(page.locator(".large")).to_have_attribute("data-as", "map")

    assert 0.05 * full < lines < 0.9 * full  # lines between two columns of tokens do not fill a square
    assert inked(page) == full


@pytest.mark.parametrize(("side", "at"), [("query", 2), ("key", 13)])
def test_a_token_that_is_pointed_at_keeps_its_own_lines_and_says_the_strongest(page, checkpoints, side, at):
    sequence = "1110000111011011"
    open_large(page, 1, 1)
    type_in(page, sequence)
    settled(page)
    arcs(page)
    all_lines = inked(page)
    large(page).hover(position=token_at(page, side, at, T=16))
    _, weights = model_says(checkpoints, "majority", bits(sequence))
    own = weights[1, 1, at] if side == "query" else weights[1, 1, :, at]
    other = int(own.argmax())
    query, key = (at, other) if side == "query" else (other, at)

    expect(page.locator(".said")).to_have_text(
        f"strongest: query {query} ‘{sequence[query]}’ → key {key} ‘{sequence[key]}’, {own[other]:.4f}"
    )
    assert inked(page) < all_lines
    expect(page.locator(".pointing .map .band.query:visible")).to_have_count(8)
    page.mouse.move(2, 2)
    expect(page.locator(".said")).to_contain_text("Point at a token")


def test_keys_alone_go_from_token_to_token(page):
    open_large(page, 0, 1)
    arcs(page)
    large(page).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator(".said")).to_contain_text("strongest: query 2 ")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".said")).to_contain_text("→ key 2 ")
    page.keyboard.press("Escape")
    expect(page.locator(".said")).to_contain_text("Point at a token")


def test_arcs_follow_a_shorter_sequence(page):
    """A token stays chosen by keys until it is gone; the field is written to without the focus, which would end it."""
    open_large(page, 0, 1)
    arcs(page)
    large(page).focus()
    for _ in range(16):
        page.keyboard.press("ArrowDown")
    expect(page.locator(".said")).to_contain_text("query 15")
    for sequence in ("1100110011001101", "110"):
        write = "(at, text) => { at.value = text; at.dispatchEvent(new Event('input', { bubbles: true })); }"
        field(page).evaluate(write, sequence)
        expect(grid(page)).to_have_attribute("data-tokens", " ".join(sequence))
        if len(sequence) == 16:
            expect(page.locator(".said")).to_contain_text("query 15")

    expect(page.locator(".said")).to_contain_text("Point at a token")
