"""The page on a model of an encoder and a decoder, in a real Chromium: three kinds of attention, one at a time."""

import io
import os

import numpy as np
import pytest
from playwright.sync_api import expect

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from transformers import AutoModel, AutoTokenizer

from attnkit.pretrained import inputs_of
from attnkit.text import Text, encode, stack
from tests.browsing import (
    answer,
    canvas,
    copied,
    faults,
    field,
    grid,
    held,
    hold,
    in_map,
    large,
    let_go,
    save,
    settled,
    switch,
    tip,
)
from tests.models import save_two_parts
from tests.serving import CHROMIUM, build_site, serve
from tests.texts import build_tokenizer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]
TEXT, SECOND = "the cat sat the mat", "the cat"
KEYS, QUERIES = "[CLS] the cat sat the mat [SEP]", "[PAD] [CLS] the cat"  # T = 7, R = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_two_parts("t5", tmp_path_factory.mktemp("models"), build_tokenizer(side="right"))


@pytest.fixture(scope="module")
def address(folder, tmp_path_factory):
    """In the place of the checkpoints' address; the site has none."""
    site = build_site(tmp_path_factory.mktemp("site"))
    with serve(site, tmp_path_factory.mktemp("log") / "app.log", "--hf", str(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def cross(folder):
    """(L, H, R, T), by the model's own eager attention."""
    ((read,), *_), _ = encode(AutoTokenizer.from_pretrained(folder), [Text(TEXT, SECOND)], 99, start=0)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval().requires_grad_(False)
    said = model(**inputs_of(model, stack([read], 0)), output_attentions=True)
    return np.stack([w[0].numpy() for w in said.cross_attentions])


@pytest.fixture
def page(open_page):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    write(page)
    return page


def write(page):
    """One text after the other: each is answered."""
    field(page).fill(TEXT)
    expect(answer(page)).to_have_attribute("data-sequence", TEXT)
    page.locator("#second textarea").fill(SECOND)
    expect(answer(page)).to_have_attribute("data-second", SECOND)
    expect(grid(page)).to_have_attribute("data-keys", KEYS)
    settled(page)


def show(page, kind, tokens):
    page.get_by_role("radio", name=kind).check()
    expect(grid(page)).to_have_attribute("data-tokens", tokens)
    expect(grid(page)).to_have_attribute("data-keys", tokens if kind != "cross" else KEYS)
    settled(page)


def test_each_kind_is_drawn_and_cross_attention_from_the_decoder_s_tokens_to_the_encoder_s(page, cross):
    show(page, "decoder", QUERIES)
    expect(page.get_by_role("switch")).to_have_count(15)
    show(page, "encoder", KEYS)
    expect(page.get_by_role("switch")).to_have_count(6)
    show(page, "cross", QUERIES)
    expect(page.get_by_role("switch")).to_have_count(15)

    canvas(page, 4, 2).click()
    expect(page.locator(".large h2")).to_have_text("cross attention, layer 4, head 2")
    for where in (canvas(page, 4, 2), large(page)):
        for query, key in ((0, 6), (3, 2)):
            where.hover(position=in_map(where, query, key, R=4, T=7))
            expect(tip(page).locator(".weight")).to_have_text(f"{cross[4, 2, query, key]:.4f}")
            told = f"query {query} ‘{QUERIES.split()[query]}’ → key {key} ‘{KEYS.split()[key]}’"
            expect(tip(page)).to_contain_text(told)
    expect(page.locator(".statistics")).to_contain_text("Weight on special tokens")
    expect(page.locator(".statistics")).not_to_contain_text("previous token")


def test_arcs_run_from_the_decoder_s_tokens_to_the_encoder_s(page, cross):
    show(page, "cross", QUERIES)
    open_head(page, 1, 0)
    page.get_by_role("radio", name="arcs").check()
    expect(page.locator(".large")).to_have_attribute("data-as", "arcs")
    box = large(page).bounding_box()
    large(page).hover(position={"x": 0.75 * box["width"], "y": 6.5 * box["height"] / 7})
    query = int(cross[1, 0, :, 6].argmax())

    expect(page.locator(".said")).to_have_text(
        f"strongest: query {query} ‘{QUERIES.split()[query]}’ → key 6 ‘[SEP]’, {cross[1, 0, query, 6]:.4f}"
    )
    expect(page.locator(".map .band.key:visible")).to_have_count(15)
    expect(page.locator(".map .band.query:visible")).to_have_count(0)  # the sixth key is no query


def open_head(page, layer, head, kind="cross"):
    canvas(page, layer, head).click()
    expect(page.locator(".large h2")).to_have_text(f"{kind} attention, layer {layer}, head {head}")


def test_heads_of_a_kind_stay_off_while_another_is_shown(page):
    number = page.locator(".answer .prediction")
    switch(page, 1, 2).click()
    expect(grid(page)).to_have_attribute("data-off", "encoder.1.2")
    show(page, "cross", QUERIES)
    expect(switch(page, 1, 2)).to_be_checked()
    switch(page, 4, 0).click()

    expect(grid(page)).to_have_attribute("data-off", "encoder.1.2 cross.4.0")
    expect(answer(page)).to_have_attribute(
        "data-off", "encoder attention, layer 1, head 2, cross attention, layer 4, head 0"
    )
    expect(number).not_to_have_text("1.0000")
    expect(page.locator(".ranks li")).to_have_count(5)
    page.get_by_role("button", name="all heads on").click()
    expect(number).to_have_text("1.0000")


def test_what_is_pinned_is_compared_kind_by_kind(page):
    show(page, "cross", QUERIES)
    open_head(page, 2, 1)
    page.locator(".pin").click()
    switch(page, 0, 1).click()
    expect(grid(page)).to_have_attribute("data-off", "cross.0.1")
    expect(page.locator(".picture")).to_have_count(3)
    show(page, "decoder", QUERIES)

    expect(page.locator(".large h2")).to_have_text("decoder attention, layer 2, head 1")
    expect(page.locator(".picture")).to_have_count(3)
    expect(page.locator(".compare")).to_contain_text(f"{TEXT} → {SECOND} +1.0000")


def test_a_comparison_keeps_up_with_quick_choices(page):
    open_head(page, 0, 1, kind="encoder")
    page.locator(".pin").click()
    expect(page.locator(".picture")).to_have_count(3)
    hold(page, '"kind":"decoder"}},')  # what the comparison asks for, which has no number
    page.get_by_role("radio", name="decoder").check()
    held(page)
    page.get_by_role("radio", name="cross").check()
    expect(grid(page)).to_have_attribute("data-keys", KEYS)
    expect(page.locator(".large h2")).to_have_text("cross attention, layer 0, head 1")
    page.evaluate("letGo()")

    expect(page.locator(".picture")).to_have_count(3)


def test_a_pinned_word_without_end_does_not_make_a_phone_scroll_sideways(page):
    page.set_viewport_size({"width": 390, "height": 844})
    field(page).fill("x" * 90)
    expect(answer(page)).to_have_attribute("data-sequence", "x" * 90)
    page.locator(".pin").click()
    expect(page.locator(".compare")).to_contain_text("x" * 90)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_files_and_links_are_of_the_kind_that_is_shown(page, open_page, cross):
    show(page, "cross", QUERIES)
    switch(page, 4, 2).click()
    expect(grid(page)).to_have_attribute("data-off", "cross.4.2")
    open_head(page, 3, 1)
    name, content = save(page, "Save all heads", "NPZ")
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    there = open_page(query="&" + copied(page).split("?")[1])

    assert (name, arrays["keys"].tolist()) == ("attention-cross.npz", KEYS.split())
    assert np.allclose(arrays["weights"], cross, atol=1e-5)  # what a head puts out in the last layer moves no map
    assert save(page, "Save this head", "PNG")[0] == "attention-cross-layer3-head1.png"
    expect(there.locator(".large h2")).to_have_text("cross attention, layer 3, head 1")
    expect(grid(there)).to_have_attribute("data-off", "cross.4.2")
    expect(grid(there)).to_have_attribute("data-tokens", QUERIES)
    expect(there.locator("#second textarea")).to_have_value(SECOND)


def test_a_kind_that_is_chosen_before_the_last_answer_is_there_stays(page):
    hold(page, '"the cat sat"')
    page.locator("#second textarea").fill("the cat sat")
    held(page)
    for kind in ("decoder", "cross"):
        page.get_by_role("radio", name=kind).check()
    let_go(page)

    expect(grid(page)).to_have_attribute("data-tokens", "[PAD] [CLS] the cat sat")
    expect(grid(page)).to_have_attribute("data-keys", KEYS)
    expect(page.get_by_role("radio", name="cross")).to_be_checked()


def test_keys_alone_choose_the_kind_and_keep_the_focus(page):
    page.get_by_role("radio", name="encoder").focus()
    for kind, tokens in (("decoder", QUERIES), ("cross", QUERIES)):
        page.keyboard.press("ArrowRight")
        expect(grid(page)).to_have_attribute("data-tokens", tokens)
        expect(page.get_by_role("radio", name=kind)).to_be_focused()
    expect(grid(page)).to_have_attribute("data-keys", KEYS)
    expect(page.get_by_role("group", name="Attention")).to_have_count(1)


def test_without_a_text_the_decoder_reads_what_it_begins_with_and_too_much_is_refused(page):
    show(page, "cross", QUERIES)
    page.locator("#second textarea").fill("")
    expect(grid(page)).to_have_attribute("data-tokens", "[PAD] [CLS]")
    page.locator("#second textarea").fill("cat " * 127)

    expect(page.locator(".problem")).to_contain_text("129 tokens for the decoder; this page takes at most 128")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(open_page, theme):
    page = open_page(theme=theme, query="&language=zh&kind=cross&head=1.1", width=390, height=844, is_mobile=True)
    expect(page.locator(".large h2")).to_have_text("交叉注意力，第 1 层，头 1")
    expect(page.locator(".ranks li")).to_have_count(5)

    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
