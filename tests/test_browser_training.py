"""Through training, in a real Chromium: a slider over the snapshots of a checkpoint."""

import os
import re

import pytest
import torch
from playwright.sync_api import expect

from tests.browsing import TIED, answer, bits, grid, open_large, type_in
from tests.serving import CHROMIUM, write_grown

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


@pytest.fixture
def models(checkpoints, tmp_path):
    """A checkpoint with snapshots, as long as the test runs."""
    yield write_grown(checkpoints / "grown")
    (checkpoints / "grown").rename(tmp_path / "grown")


def slider(page):
    return page.get_by_label("Through training")


def expect_answer_of(page, model, sequence):
    probabilities = model(torch.tensor([bits(sequence)]))[0][0].softmax(0).tolist()
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])


def test_the_slider_goes_back_through_training_and_the_answer_follows(open_page, models):
    page = open_page(query=f"&checkpoint=grown&sequence={TIED}")
    expect(page.locator(".training .step")).to_have_text("after 20 steps (trained)")
    expect_answer_of(page, models[20], TIED)
    slider(page).focus()
    for step in (5, 0):
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".training .step")).to_have_text(f"after {step} steps")
        expect_answer_of(page, models[step], TIED)
        expect(grid(page)).to_have_attribute("data-effects", re.compile(f"grown@{step}"))
        expect(slider(page)).to_be_focused()
    type_in(page, "1101")
    expect_answer_of(page, models[0], "1101")
    slider(page).focus()
    page.keyboard.press("End")
    expect_answer_of(page, models[20], "1101")


def test_a_link_leads_to_the_same_step(open_page, models):
    page = open_page(query=f"&checkpoint=grown%405&sequence={TIED}")

    expect(page.locator(".training .step")).to_have_text("after 5 steps")
    expect(slider(page)).to_have_value("1")
    expect_answer_of(page, models[5], TIED)
    page.evaluate("() => void (navigator.clipboard.writeText = () => Promise.reject())")
    page.get_by_role("button", name="copy a link to this view").click()
    expect(page.locator(".link-field")).to_have_value(re.compile("checkpoint=grown%405&"))


def test_weights_on_the_way_are_compared_with_the_trained_ones(open_page, models):
    page = open_page(query=f"&checkpoint=grown%400&sequence={TIED}")
    open_large(page, 1, 1)
    page.get_by_label("with the checkpoint").select_option("grown")

    expect(page.locator("figcaption")).to_have_text(["grown", "grown@0", "grown@0 − grown"])


def test_without_snapshots_there_is_no_slider(page):
    expect(page.locator(".training")).to_be_hidden()


def test_a_link_to_a_step_that_was_not_kept_opens_the_trained_weights(open_page, models):
    page = open_page(query="&checkpoint=grown%407")

    expect(page.locator(".training .step")).to_have_text("after 20 steps (trained)")
