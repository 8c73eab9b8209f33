"""The page in a real Chromium: what is typed, pressed, pointed at and saved is what the model says."""

import csv
import io
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from attnkit import load_checkpoint
from tests.serving import CHROMIUM, CHROMIUM_ARGS, COLOURS, TORN, build_site, fill, serve

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine"),
]

TIED, ONE_MORE = "0101010101010101", "0101010110101011"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site, tmp_path_factory):
    with serve(site, tmp_path_factory.mktemp("log") / "app.log") as address:
        yield address


@pytest.fixture(scope="module")
def window():
    """A function that opens a browser window of a kind; windows of one kind share a cache, as a visitor's do."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        kinds = {}

        def window(**kind):
            key = tuple(sorted(kind.items()))
            if key not in kinds:
                kinds[key] = browser.new_context(**kind)
            return kinds[key].new_page()

        yield window
        browser.close()


@pytest.fixture
def open_page(window, address):
    """Open the page, drawn. No request may leave this machine, no script may fail."""
    pages, requests, faults = [], [], []

    def open_page(*, theme="light", width=1280, height=800, drawn=True, **kind):
        page = window(**kind)
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.set_default_timeout(10_000)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{address}/?__theme={theme}")
        if drawn:
            grid(page).wait_for()
        return page

    yield open_page
    for page in pages:
        page.close()
    assert requests
    assert [url for url in requests if not url.startswith((address, "data:", f"blob:{address}"))] == []
    assert faults == []


@pytest.fixture(autouse=True)
def checkpoints(site):
    folder = site / "checkpoints"
    if not any(folder.iterdir()):
        fill(folder)
    return folder


@pytest.fixture
def page(open_page):
    return open_page()


def grid(page):
    return page.locator(".attention[data-drawn]")


def field(page):
    return page.get_by_label("Sequence")


def type_in(page, sequence):
    field(page).fill(sequence)
    expect(answer(page)).to_have_attribute("data-sequence", sequence)


def answer(page):
    return page.locator(".answer")


def canvas(page, layer, head):
    return page.get_by_role("button", name=re.compile(f"^layer {layer}, head {head},")).locator("canvas")


def cell(page, layer, head, query, key, T):
    """The place of a cell's middle in the canvas of its head, after the labels, of T cells side by side."""
    box = canvas(page, layer, head).bounding_box()
    gutter = max(12, min(16, 0.07 * box["width"]))
    step = (box["width"] - gutter) / T
    return {"x": gutter + (key + 0.5) * step, "y": gutter + (query + 0.5) * step}


def model_says(checkpoints, name, ids):
    logits, attentions = load_checkpoint(checkpoints / name)(torch.tensor([ids]))
    return logits[0].softmax(0).tolist(), torch.stack(attentions)[:, 0].detach().numpy()


def bits(sequence):
    return [int(bit) for bit in sequence]


# ---------------------------------------------------------------- question and answer


def test_typing_gives_the_class_its_probability_the_count_and_the_rule(page, checkpoints):
    sequence = "1110000111011011"
    type_in(page, sequence)
    probabilities, _ = model_says(checkpoints, "majority", bits(sequence))
    predicted = ("not majority", "majority")[probabilities[1] > probabilities[0]]

    expect(answer(page).locator(".prediction")).to_have_text(predicted)
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(answer(page)).to_contain_text("10 of 16 are ones. By the rule: majority.")
    expect(answer(page)).to_contain_text("agrees" if predicted == "majority" else "wrong here")
    expect(answer(page)).to_contain_text("more than half of its tokens are ones; a tie, such as 8 of 16, is not")


def test_each_key_press_is_answered(page):
    field(page).fill("")
    for typed in ("1", "10", "101"):
        field(page).press(typed[-1])
        expect(answer(page)).to_have_attribute("data-sequence", typed)
        expect(grid(page)).to_have_attribute("data-tokens", " ".join(typed))
    expect(answer(page)).to_contain_text("3 tokens: the model was trained on sequences of 16")


def test_random_draws_a_sequence_and_answers_it(page):
    before = field(page).input_value()
    page.get_by_role("button", name="random").click()
    expect(field(page)).not_to_have_value(before)

    assert re.fullmatch("[01]{16}", field(page).input_value())
    expect(answer(page)).to_have_attribute("data-sequence", field(page).input_value())


def test_an_example_is_one_click_away(page):
    page.get_by_role("button", name="a tie: 8 of 16").click()

    expect(answer(page)).to_have_attribute("data-sequence", TIED)
    expect(answer(page)).to_contain_text("8 of 16 are ones. By the rule: not majority.")


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("", "the sequence is empty"),
        ("0120", "character '2' at position 3"),
        ("1" * 17, "17 tokens; this checkpoint takes at most 16"),
        ("<img src=x onerror=alert(1)>", "character '<' at position 1"),
    ],
)
def test_a_mistake_is_named_under_the_field_and_the_old_answer_fades(page, sequence, sentence):
    field(page).fill(sequence)

    expect(page.locator("#sequence div.validation-error")).to_contain_text(sentence)
    assert float(answer_opacity(page)) < 1
    type_in(page, TIED)
    expect(page.locator("#sequence div.validation-error")).to_have_count(0)
    assert float(answer_opacity(page)) == 1


def answer_opacity(page):
    return page.locator("#answer").evaluate("element => getComputedStyle(element).opacity")


# ---------------------------------------------------------------- every head


@pytest.mark.parametrize(("layer", "head", "query", "key"), [(0, 0, 0, 0), (0, 3, 2, 13), (1, 1, 15, 0), (1, 2, 7, 15)])
def test_a_cell_under_the_pointer_tells_its_query_key_and_weight(page, checkpoints, layer, head, query, key):
    """The corners, and cells whose mirror image has another weight."""
    sequence = "1110000111011011"
    type_in(page, sequence)
    _, weights = model_says(checkpoints, "majority", bits(sequence))
    canvas(page, layer, head).hover(position=cell(page, layer, head, query, key, T=16))
    tip = page.locator(".tip")

    expect(tip).to_contain_text(f"query {query} ‘{sequence[query]}’ → key {key} ‘{sequence[key]}’")
    expect(tip).to_contain_text(f"layer {layer}, head {head}")
    assert float(tip.locator(".weight").inner_text()) == pytest.approx(weights[layer, head, query, key], abs=6e-5)
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()


def test_colours_run_with_the_weights(page, checkpoints):
    """Read back from the canvas: the darker cell is the larger weight, in the row and column where it belongs."""
    sequence = "1110000111011011"
    type_in(page, sequence)
    _, weights = model_says(checkpoints, "majority", bits(sequence))
    places = [cell(page, 1, 2, query, key, T=16) for query in range(16) for key in range(16)]
    brightness = canvas(page, 1, 2).evaluate(
        """(canvas, places) => {
            const context = canvas.getContext("2d");
            return places.map(({x, y}) => {
                const [r, g, b] = context.getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data;
                return r + g + b;
            });
        }""",
        places,
    )

    assert spearman(weights[1, 2].flatten(), -np.array(brightness)) > 0.99


def spearman(a, b):
    return np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1]


def test_the_scale_is_common_until_each_head_gets_its_own(page, checkpoints):
    type_in(page, ONE_MORE)
    _, weights = model_says(checkpoints, "majority", bits(ONE_MORE))
    legend, notes = page.locator(".scale .top"), page.locator(".caption .note")

    expect(legend).to_have_text(f"{weights.max():.2f}")
    page.get_by_label("each head its own").check()
    expect(notes).to_have_text([f"0 – {own:.2f}" for own in weights.max(axis=(2, 3)).flatten()])
    page.get_by_label("one for all heads").check()
    expect(notes).to_have_text([""] * 8)


def test_keys_alone_reach_a_cell_and_open_a_head(page):
    page.get_by_role("button", name=re.compile("^layer 0, head 1,")).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".tip")).to_contain_text(re.compile("query 1 .* key 1 "))
    page.keyboard.press("Enter")

    expect(large_figure(page)).to_be_visible()


# ---------------------------------------------------------------- one head, large


def large_figure(page):
    return page.locator("#one-head img")


def open_head(page, layer, head):
    canvas(page, layer, head).click()
    expect(large_figure(page)).to_be_visible()


def test_a_click_on_a_head_shows_it_large_and_close_puts_it_away(page):
    open_head(page, 1, 2)

    expect(page.locator("#layer").get_by_label("1")).to_be_checked()
    expect(page.locator("#head").get_by_label("2")).to_be_checked()
    expect(page.locator(".head[aria-pressed=true]")).to_have_accessible_name(re.compile("^layer 1, head 2,"))
    expect(large_figure(page)).to_be_in_viewport(ratio=0.9)
    page.get_by_role("button", name="Close").click()
    expect(large_figure(page)).to_be_hidden()
    expect(page.locator(".head[aria-pressed=true]")).to_have_count(0)


def test_the_large_figure_follows_the_sequence_and_the_head(page):
    open_head(page, 0, 0)
    for act in (lambda: type_in(page, "1100"), lambda: page.locator("#head").get_by_label("3").check()):
        before = large_figure(page).get_attribute("src")
        act()
        expect(large_figure(page)).not_to_have_attribute("src", before)

    expect(page.locator(".head[aria-pressed=true]")).to_have_accessible_name(re.compile("^layer 0, head 3,"))


# ---------------------------------------------------------------- to take away


def save(page, row, ending):
    with page.expect_download() as download:
        page.locator(".save").filter(has_text=row).get_by_role("button", name=ending).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def test_all_weights_are_saved_as_csv(page, checkpoints):
    type_in(page, "1100101")
    name, content = save(page, "Save all heads", "CSV")
    _, weights = model_says(checkpoints, "majority", bits("1100101"))
    rows = list(csv.DictReader(io.StringIO(content.decode())))

    assert name == "attention.csv"
    assert len(rows) == 2 * 4 * 7 * 7
    saved = np.array([float(row["weight"]) for row in rows]).reshape(2, 4, 7, 7)
    assert np.allclose(saved, weights, atol=1e-7)


def test_figures_are_saved_as_png_and_svg_as_often_as_one_likes(page):
    open_head(page, 1, 0)
    for row, stem in (("Save all heads", "attention"), ("Save this head", "attention-layer1-head0")):
        name, content = save(page, row, "PNG")
        assert name == f"{stem}.png"
        assert len(Image.open(io.BytesIO(content)).convert("RGB").getcolors(1 << 24)) > 20
        name, content = save(page, row, "SVG")
        assert name == f"{stem}.svg"
        assert ET.fromstring(content).tag.endswith("svg")

    assert save(page, "Save this head", "SVG")[0] == "attention-layer1-head0.svg"


# ---------------------------------------------------------------- checkpoints


def choose(page, name):
    page.get_by_label("Checkpoint").click()
    page.get_by_role("option", name=name).click()


def test_another_checkpoint_answers_in_its_own_words_shown_as_they_are(page, checkpoints):
    """Its vocabulary and classes are full of markup and template code, which must do nothing."""
    choose(page, COLOURS)
    expect(page.locator(".head")).to_have_count(6)
    type_in(page, "a<&a<")
    probabilities, _ = model_says(checkpoints, COLOURS, [0, 1, 2, 0, 1])

    expect(answer(page).locator("dt")).to_have_text(["<b>red</b>", "${1+1}"])
    expect(answer(page).locator("dd")).to_have_text([f"{p:.4f}" for p in probabilities])
    expect(answer(page)).to_contain_text("2 × a, 2 × <, 1 × &.")
    expect(answer(page)).to_contain_text("<i>None</i>.")
    canvas(page, 0, 0).hover(position=cell(page, 0, 0, 1, 2, T=5))
    expect(page.locator(".tip")).to_contain_text("query 1 ‘<’ → key 2 ‘&’")
    field(page).fill("b")
    expect(page.locator("#sequence div.validation-error")).to_contain_text("not in the vocabulary {a,<,&}")


def test_what_was_typed_stays_where_the_other_checkpoint_can_take_it(page):
    choose(page, COLOURS)
    expect(field(page)).to_have_value(re.compile("^[a<&]{5}$"))
    type_in(page, "a<")
    choose(page, "majority")
    expect(field(page)).to_have_value(ONE_MORE)
    expect(page.locator(".head")).to_have_count(8)


def test_a_broken_checkpoint_is_named_and_left_out(page):
    expect(page.locator("#broken")).to_contain_text(TORN)
    expect(page.locator("#broken")).to_contain_text("config.json: is not JSON")
    page.get_by_label("Checkpoint").click()

    expect(page.get_by_role("option")).to_have_text([re.compile("majority"), re.compile(COLOURS)])


def test_without_a_checkpoint_the_page_says_how_to_make_one_and_finds_it_later(open_page, checkpoints, tmp_path):
    aside = [folder.rename(tmp_path / folder.name) for folder in checkpoints.iterdir()]
    page = open_page(drawn=False)
    expect(page.locator("#none-yet")).to_contain_text("make train")
    expect(field(page)).to_be_hidden()
    for folder in aside:
        folder.rename(checkpoints / folder.name)
    page.reload()

    grid(page).wait_for()
    expect(page.locator("#none-yet")).to_be_hidden()


def test_a_checkpoint_that_went_away_is_told_in_plain_words(page, checkpoints, tmp_path):
    choose(page, COLOURS)
    expect(page.locator(".head")).to_have_count(6)
    (checkpoints / COLOURS).rename(tmp_path / "away")
    page.get_by_role("button", name="random").click()
    expect(page.get_by_test_id("toast-text")).to_contain_text(
        f"checkpoint: got '{COLOURS}', allowed is {TORN} or majority"
    )
    (tmp_path / "away").rename(checkpoints / COLOURS)


# ---------------------------------------------------------------- looks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everything_that_is_read_stands_out_from_its_background(open_page, theme):
    """WCAG's 4.5 : 1, measured on the computed colours of every text on the page."""
    page = open_page(theme=theme)
    open_head(page, 0, 1)
    page.get_by_label("each head its own").check()
    texts = page.evaluate(
        """() => {
            const solid = (element) => {
                for (let e = element; e; e = e.parentElement) {
                    const colour = getComputedStyle(e).backgroundColor;
                    if (!colour.endsWith(", 0)")) return colour;
                }
            };
            return [...document.querySelectorAll("main *")]
                .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
                .map((e) => [e.textContent.trim().slice(0, 30), getComputedStyle(e).color, solid(e)]);
        }"""
    )

    assert len(texts) > 30
    assert [(text, contrast(ink, paper)) for text, ink, paper in texts if contrast(ink, paper) < 4.5] == []


def contrast(*colours):
    light = sorted(luminance([int(float(x)) for x in re.findall(r"[\d.]+", colour)[:3]]) for colour in colours)
    return (light[1] + 0.05) / (light[0] + 0.05)


def luminance(rgb):
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (c / 255 for c in rgb)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def test_a_phone_needs_no_sideways_scrolling_and_a_tap_opens_a_head(open_page):
    page = open_page(width=390, height=844, has_touch=True, is_mobile=True)
    canvas(page, 1, 1).tap()
    expect(large_figure(page)).to_be_visible()

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert canvas(page, 0, 0).bounding_box()["width"] > 140
