"""The page in a real Chromium: one server and one browser for all tests, and what they do on a page."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from playwright.sync_api import BrowserType, expect, sync_playwright

from attnkit import load_checkpoint
from tests.serving import CHROMIUM, CHROMIUM_ARGS, add_reference, build_site, fill, serve

TIED, ONE_MORE = "0101010101010101", "0101010110101011"
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
PATIENCE = 120_000  # ms for whatever a page is to show: no test here is of speed, and a busy machine takes its time


@contextmanager
def playing() -> Iterator[BrowserType]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = build_site(tmp_path_factory.mktemp("site"))
    add_reference(fill(folder / "checkpoints") / "majority")
    return folder


@pytest.fixture(scope="session")
def address(site, tmp_path_factory):
    with serve(site, tmp_path_factory.mktemp("log") / "app.log") as address:
        yield address


@pytest.fixture
def browser():
    """A Chromium for pages that need no server."""
    if not CHROMIUM and not os.environ.get("CI"):
        pytest.skip("no chromium on this machine")
    with playing() as chromium:
        browser = chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def profile(tmp_path_factory):
    """A function that gives each kind of window its folder, in which Chromium keeps what it has compiled of scripts.

    In a window without one it compiles them anew for every page, which is half of what opening a page costs.
    """
    return cache(lambda kind: tmp_path_factory.mktemp("profile"))


@pytest.fixture(scope="module")  # a browser that outlived its module would be in the way of another's
def window(profile):
    """A function that opens a browser window of a kind; windows of one kind share a cache, as a visitor's do."""
    with playing() as chromium, ExitStack() as opened:
        kinds = {}

        def window(**kind):
            key = repr(sorted(kind.items()))
            if key not in kinds:
                context = chromium.launch_persistent_context(
                    profile(key), executable_path=CHROMIUM, args=CHROMIUM_ARGS, **kind
                )
                opened.callback(context.close)
                context.set_default_timeout(PATIENCE)
                kinds[key] = context
            return kinds[key].new_page()

        yield window


@pytest.fixture
def open_page(window, address):
    """Open the page, drawn and settled. No request may leave this machine, no script may fail."""
    pages, requests, faults = [], [], []

    def open_page(*, theme="light", width=1280, height=800, drawn=True, query="", **kind):
        page = window(**kind)
        pages.append(page)
        page.set_viewport_size({"width": width, "height": height})
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"{address}/?__theme={theme}{query}")
        if drawn:
            settled(page)
            page.evaluate("document.fonts.ready.then(() => true)")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert requests
    assert [url for url in requests if not url.startswith((address, "data:", f"blob:{address}"))] == []
    assert faults == []


@pytest.fixture
def checkpoints(site):
    return site / "checkpoints"


@pytest.fixture
def page(open_page):
    return open_page()


def grid(page):
    return page.locator(".attention[data-drawn]")


def field(page):
    return page.locator("#sequence textarea, #sequence input")


def settled(page):
    """Wait for what follows the grid: what single changes would do, and what is usual. After it nothing moves."""
    page.wait_for_function(
        """() => {
            const dataOf = (part) => document.querySelector(part)?.dataset ?? {};
            const { effects, usual } = dataOf(".attention"), { flips = effects } = dataOf(".cells");
            return effects && usual === effects && flips === effects && dataOf(".ranks").state === effects;
        }"""
    )


def type_in(page, sequence):
    """A sequence whose tokens are characters; then its answer and its maps are there."""
    field(page).fill(sequence)
    expect(answer(page)).to_have_attribute("data-sequence", sequence)
    expect(grid(page)).to_have_attribute("data-tokens", " ".join(sequence))


def answer(page):
    return page.locator(".answer")


def hold(page, part):
    """From now on: keep back the first answer to a question that has `part` in it."""
    page.evaluate(
        """(part) => {
            const ask = window.fetch;
            window.fetch = async (...question) => {
                const answer = await ask(...question);
                if (!window.letGo && String(question[1]?.body).includes(part)) {
                    await new Promise((letGo) => (window.letGo = letGo));
                }
                return answer;
            };
        }""",
        part,
    )


def held(page):
    page.wait_for_function("Boolean(window.letGo)")


def let_go(page):
    """Let the answer come, and wait until it has been drawn."""
    drawn = grid(page).get_attribute("data-drawn")
    page.evaluate("letGo()")
    expect(grid(page)).not_to_have_attribute("data-drawn", drawn)


def canvas(page, layer, head):
    return page.get_by_role("button", name=re.compile(f"^layer {layer}, head {head},")).locator("canvas")


def large(page):
    return page.locator(".large .picture canvas")


def open_large(page, layer, head):
    canvas(page, layer, head).click()
    expect(page.locator(".large h2")).to_have_text(f"layer {layer}, head {head}")


def switch(page, layer, head):
    return page.get_by_role("switch", name=f"layer {layer}, head {head}")


def model_without(checkpoints, name, ids, off):
    """The logits with the output projection's columns of these heads at 0."""
    model = load_checkpoint(checkpoints / name)
    with torch.no_grad():
        for layer, head in off:
            d = model.config.d_model // model.config.n_heads
            model.layers[layer].attn.W_o.weight[:, head * d : (head + 1) * d] = 0
        return model(torch.tensor([ids]))[0][0]


def tip(page):
    return page.locator(".tip")


def point_at(page, canvas, query, key, T):
    """The pointer on a cell, and its numbers are told."""
    settled(page)
    canvas.hover(position=in_canvas(canvas, query, key, T))
    expect(tip(page)).to_contain_text(re.compile(f"query {query} .* key {key} "))


def in_canvas(canvas, query, key, T):
    """The place of a cell's middle: after the labels there are T cells side by side."""
    box = canvas.bounding_box()
    gutter = max(12, min(16, 0.07 * box["width"]))
    step = (box["width"] - gutter) / T
    return {"x": gutter + (key + 0.5) * step, "y": gutter + (query + 0.5) * step}


def in_map(canvas, query, key, R, T):
    """The place of a cell of R × T of them behind the labels, whose room the canvas says."""
    box, room = canvas.bounding_box(), canvas.evaluate("canvas => canvas.room")
    width, height = (box["width"] - room["left"]) / T, (box["height"] - room["top"]) / R
    return {"x": room["left"] + (key + 0.5) * width, "y": room["top"] + (query + 0.5) * height}


def save(page, row, ending):
    """Press a row's button; returns the name of the file that comes, and what is in it."""
    with page.expect_download() as download:
        page.locator(".save").filter(has_text=row).get_by_role("button", name=ending).click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def copied(page):
    """The link to the view that is shown."""
    page.get_by_role("button", name="copy a link to this view").click()
    expect(page.locator(".link-said")).to_have_text("copied")
    return page.evaluate("navigator.clipboard.readText()")


def model_says(checkpoints, name, ids):
    logits, attentions = load_checkpoint(checkpoints / name)(torch.tensor([ids]))
    return logits[0].softmax(0).tolist(), torch.stack(attentions)[:, 0].detach().numpy()


def bits(sequence):
    return [int(bit) for bit in sequence]


def faults(page):
    """(rule, element) of each serious or critical fault, after axe has looked at every text's contrast."""
    page.evaluate(AXE)
    # A colour on its way is paler than where it ends.
    page.wait_for_function("!document.getAnimations().some((animation) => animation instanceof CSSTransition)")
    found = page.evaluate("axe.run(document)")
    looked_at = [rule for rule in found["passes"] + found["violations"] if rule["id"] == "color-contrast"]
    assert sum(len(rule["nodes"]) for rule in looked_at) > 30
    grave = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
    return [(rule["id"], node["html"][:80]) for rule in grave for node in rule["nodes"]]
