"""Two readings side by side, in a real Chromium."""

import os
import re

import pytest
from playwright.sync_api import expect

from attnkit.checkpoint import TaskInfo
from attnkit.data import DataConfig
from tests.browsing import (
    ONE_MORE,
    TIED,
    answer,
    bits,
    canvas,
    grid,
    large,
    model_says,
    open_large,
    point_at,
    switch,
    tip,
    type_in,
)
from tests.serving import ARTICLE, CHROMIUM, COLOURS, write

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


def pin(page):
    page.get_by_role("button", name="pin this sequence").click()


def test_a_pinned_sequence_stays_beside_what_is_typed_next(page, checkpoints):
    open_large(page, 1, 1)
    type_in(page, TIED)
    pin(page)
    type_in(page, ONE_MORE)
    before, after = (model_says(checkpoints, "majority", bits(s))[1][1, 1, 3, 12] for s in (TIED, ONE_MORE))

    expect(page.locator(".compare .answered code")).to_have_text([TIED, ONE_MORE])
    expect(page.locator(".picture figcaption")).to_have_text(["pinned", "now", "now − pinned"])
    point_at(page, large(page).nth(1), 3, 12, T=16)
    assert numbers(tip(page).locator(".weight")) == near([after])
    assert numbers(tip(page).get_by_text("pinned")) == near([before, after - before])


def numbers(locator):
    expect(locator).to_be_visible()
    return [float(x.replace("−", "-")) for x in re.findall(r"[+−]?\d\.\d{4}", locator.inner_text())]


def near(values):
    """To the four digits that are shown, of weights that travel as 16-bit integers."""
    return pytest.approx(values, abs=9e-5)


def test_the_grid_shows_the_difference_from_what_is_pinned(page, checkpoints):
    type_in(page, TIED)
    pin(page)
    type_in(page, ONE_MORE)
    page.get_by_role("radio", name="difference from what is compared").check()
    before, after = (model_says(checkpoints, "majority", bits(s))[1] for s in (TIED, ONE_MORE))
    largest = abs(after - before).max()

    expect(page.locator(".legend .low")).to_have_text(f"−{largest:.2f}")
    expect(page.locator(".legend .top")).to_have_text(f"{largest:.2f}")
    point_at(page, canvas(page, 1, 2), 3, 9, T=16)
    assert numbers(tip(page).get_by_text("difference"))[0] == near((after - before)[1, 2, 3, 9])


def test_a_head_that_is_switched_off_is_compared_with_how_it_was(page):
    """What the second layer sees changes with the first: the pinned answer stays, the present one follows."""
    type_in(page, TIED)
    pin(page)
    was = page.locator(".compare .answered").first.inner_text()
    switch(page, 0, 3).click()
    expect(grid(page)).to_have_attribute("data-off", "0.3")

    expect(page.locator(".compare .answered").first).to_have_text(was)
    expect(page.locator(".compare .answered").nth(1)).not_to_have_text(was)


def test_sequences_of_two_lengths_stand_side_by_side_without_a_difference(page):
    open_large(page, 1, 1)
    type_in(page, TIED)
    pin(page)
    type_in(page, "110")

    expect(large(page)).to_have_count(2)
    expect(page.get_by_role("radio", name="difference from what is compared")).to_have_count(0)


def test_unpinning_gives_the_page_back(page):
    open_large(page, 1, 1)
    pin(page)
    expect(large(page)).to_have_count(3)
    page.get_by_role("button", name="unpin").click()

    expect(large(page)).to_have_count(1)
    expect(page.locator(".compare")).to_be_hidden()
    expect(page.get_by_role("button", name="pin this sequence")).to_be_focused()


@pytest.fixture
def second(checkpoints, tmp_path):
    """Another checkpoint of the same shape, as long as the test runs."""
    write(checkpoints / "second", ARTICLE, TaskInfo(), DataConfig(), seed=7)
    yield "second"
    (checkpoints / "second").rename(tmp_path / "second")


def test_two_checkpoints_read_one_sequence_and_the_other_follows_each_edit(open_page, checkpoints, second):
    page = open_page()
    open_large(page, 1, 1)
    page.get_by_label("with the checkpoint").select_option(second)
    expect(page.locator(".picture figcaption")).to_have_text([second, "majority", f"majority − {second}"])
    for sequence in (TIED, "1110000111011011"):
        type_in(page, sequence)
        other, mine = (model_says(checkpoints, name, bits(sequence))[1][1, 1, 5, 6] for name in (second, "majority"))
        expect(large(page)).to_have_count(3)
        point_at(page, large(page).nth(1), 5, 6, T=16)
        assert numbers(tip(page).get_by_text(second)) == near([other, mine - other])
        page.mouse.move(2, 2)
        expect(tip(page)).to_be_hidden()
    probabilities, _ = model_says(checkpoints, second, bits(sequence))
    expect(page.locator(".compare .answered").first).to_contain_text(
        ("not majority", "majority")[probabilities[1] > probabilities[0]]
    )


def test_a_checkpoint_that_cannot_read_the_sequence_says_why(page):
    page.get_by_label("with the checkpoint").select_option(COLOURS)

    expect(page.locator(".compare")).to_contain_text("not in the vocabulary {a,<,&}")
    expect(answer(page)).to_have_attribute("data-sequence", ONE_MORE)
