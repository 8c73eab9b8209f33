"""What a person takes away, saved by a real Chromium."""

import csv
import io
import os
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from demo.figures import chinese_font
from tests.browsing import (
    ONE_MORE,
    TIED,
    answer,
    bits,
    copied,
    grid,
    large,
    model_says,
    open_large,
    save,
    switch,
    type_in,
)
from tests.serving import CHROMIUM

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]


def test_all_weights_are_saved_as_csv(page, checkpoints):
    type_in(page, "1100101")
    name, content = save(page, "Save all heads", "CSV")
    _, weights = model_says(checkpoints, "majority", bits("1100101"))
    rows = list(csv.DictReader(io.StringIO(content.decode())))

    assert name == "attention.csv"
    assert len(rows) == 2 * 4 * 7 * 7
    saved = np.array([float(row["weight"]) for row in rows]).reshape(2, 4, 7, 7)
    assert np.allclose(saved, weights, atol=1e-7)


def test_all_weights_are_saved_as_npz(page, checkpoints):
    type_in(page, "1100101")
    switch(page, 0, 1).click()
    expect(grid(page)).to_have_attribute("data-off", "0.1")
    name, content = save(page, "Save all heads", "NPZ")
    arrays = np.load(io.BytesIO(content), allow_pickle=False)

    assert name == "attention.npz"
    assert arrays["weights"].shape == (2, 4, 7, 7)
    assert np.allclose(arrays["weights"][0], model_says(checkpoints, "majority", bits("1100101"))[1][0], atol=1e-7)
    assert arrays["off"].tolist() == [[0, 1]]


def test_figures_are_saved_as_png_svg_and_pdf_as_often_as_one_likes(page):
    open_large(page, 1, 0)
    for row, stem in (("Save all heads", "attention"), ("Save this head", "attention-layer1-head0")):
        name, content = save(page, row, "PNG")
        assert name == f"{stem}.png"
        assert len(Image.open(io.BytesIO(content)).convert("RGB").getcolors(1 << 24)) > 20
        name, content = save(page, row, "SVG")
        assert name == f"{stem}.svg"
        assert ET.fromstring(content).tag.endswith("svg")
        name, content = save(page, row, "PDF")
        assert name == f"{stem}.pdf"
        assert content.startswith(b"%PDF-")

    assert save(page, "Save this head", "SVG")[0] == "attention-layer1-head0.svg"


def words_in(svg):
    """What a figure is labelled with: matplotlib leaves each text of an SVG as a comment."""
    return re.findall(r"<!-- (.*?) -->", svg.decode())


def test_what_is_shown_is_what_is_saved(page):
    """The quantity, arcs, and the other reading: each is told by the words in the figure."""
    open_large(page, 1, 0)
    assert "attention weight" in words_in(save(page, "Save this head", "SVG")[1])
    page.get_by_role("radio", name="weight × length of the value").check()
    for row in ("Save all heads", "Save this head"):
        assert "weight × length of the value" in words_in(save(page, row, "SVG")[1])
    page.get_by_role("radio", name="difference from the head’s mean map").check()
    for row in ("Save all heads", "Save this head"):
        assert "weight − the head’s mean weight" in words_in(save(page, row, "SVG")[1])
    page.get_by_role("radio", name="arcs").check()
    assert "query on the left, key on the right" in words_in(save(page, "Save this head", "SVG")[1])
    page.get_by_role("button", name="pin this sequence").click()
    type_in(page, TIED)
    assert "second − first" in words_in(save(page, "Save this head", "SVG")[1])
    page.get_by_role("radio", name="difference from what is compared").check()
    assert f"weight − weight of {ONE_MORE}, majority" in words_in(save(page, "Save all heads", "SVG")[1])


# ---------------------------------------------------------------- a link


def test_a_link_restores_everything_that_one_has_done(open_page, address):
    allowed = {"permissions": ["clipboard-read", "clipboard-write"]}
    page = open_page(**allowed)
    type_in(page, "1100101")
    page.get_by_role("button", name="pin this sequence").click()
    type_in(page, "0100101")
    for layer, head in ((0, 1), (1, 3)):
        switch(page, layer, head).click()
        expect(switch(page, layer, head)).to_have_attribute("aria-checked", "false")
    page.get_by_role("radio", name="difference from what is compared").check()
    page.get_by_role("radio", name="each head its own").check()
    open_large(page, 1, 2)
    page.get_by_role("radio", name="arcs").check()
    link = copied(page)
    assert link.startswith(f"{address}/?")
    there = open_page(query="&" + link.split("?")[1])

    expect(answer(there)).to_have_attribute("data-sequence", "0100101")
    expect(grid(there)).to_have_attribute("data-off", "0.1 1.3")
    expect(there.locator(".compare .answered code")).to_have_text(["1100101", "0100101"])
    expect(there.locator(".large h2")).to_have_text("layer 1, head 2")
    expect(large(there)).to_have_count(3)
    for chosen in ("arcs", "each head its own", "difference from what is compared"):
        expect(there.get_by_role("radio", name=chosen)).to_be_checked()
    there.evaluate("() => void (navigator.clipboard.writeText = () => Promise.reject())")
    there.get_by_role("button", name="copy a link to this view").click()
    expect(there.locator(".link-field")).to_have_value(link)


@pytest.mark.parametrize(
    "query",
    ["&head=9.9&as=<b>&show=<b>", "&beside=../x&pinned=01", "&beside=majority&pinned=2&pinned_off=x", "&show=toString"],
)
def test_a_link_that_says_nothing_sensible_shows_the_page_as_it_is(open_page, query):
    page = open_page(query=query)

    expect(page.get_by_role("radio", name="weights", exact=True)).to_be_checked()
    expect(page.locator(".large")).to_be_hidden()
    expect(page.locator(".compare")).to_be_hidden()


def test_a_chinese_page_saves_figures_in_chinese(open_page):
    if not chinese_font():
        pytest.skip("no Chinese font on this machine")
    page = open_page(query="&language=zh&head=1.2")
    expect(large(page)).to_be_visible()

    assert {"第 1 层，头 2", "查询", "键", "注意力权重"} <= set(words_in(save(page, "保存这个头", "SVG")[1]))
