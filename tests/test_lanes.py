"""The limit for every way in: who comes when too many are there is told so, in their language, and nobody else is."""

import asyncio
import os
import re
import threading

import gradio as gr
import pytest
from anyio import CapacityLimiter
from playwright.sync_api import expect

from demo import events
from demo.lanes import EDITS, REST, Lane
from demo.words import Refusal
from tests.browsing import field, grid
from tests.serving import CHROMIUM, build_site, fill, serve


def crowd(lane, number):
    """`number` computations at once, which hold their places until all have come; what each got."""

    async def come():
        gate = threading.Event()
        tasks = [asyncio.create_task(lane.run(lambda k=k: (gate.wait(10), k)[1])) for k in range(number)]
        await asyncio.sleep(0.05)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(come())


def test_a_lane_answers_as_many_as_it_holds_and_refuses_those_after_them():
    found = crowd(Lane(CapacityLimiter(2), most=5), 8)

    assert found[:5] == [0, 1, 2, 3, 4]
    assert [type(answer) for answer in found[5:]] == [Refusal] * 3
    assert "5 are in line" in str(found[5])


def test_after_a_crowd_there_is_room_again():
    lane = Lane(CapacityLimiter(1), most=2)
    crowd(lane, 5)

    assert crowd(lane, 2) == [0, 1]


@pytest.mark.parametrize(("language", "sentence"), [("en", "please try again in a moment"), ("zh", "请稍后再试")])
def test_a_visitor_is_told_in_their_language(language, sentence, monkeypatch):
    asked = (language, "majority", "01", "", "zero")
    for lane in (EDITS, REST):
        monkeypatch.setattr(lane, "most", 0)
    with pytest.raises(gr.Error, match=sentence):
        asyncio.run(events.page(lambda asked: asked)(*asked))
    problem, answer, *_ = asyncio.run(events.edit(*asked))

    assert sentence in problem
    assert answer == gr.skip()


# ---------------------------------------------------------------- in a browser


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM and not os.environ.get("CI"), reason="no chromium on this machine")
@pytest.mark.parametrize(("lane", "drawn"), [("EDITS", True), ("REST", False)])
def test_the_page_says_so_whichever_lane_is_full(lane, drawn, window, tmp_path):
    """A site whose lane takes nobody: an edit goes one way, opening the page the other."""
    folder = build_site(tmp_path)
    fill(folder / "checkpoints")
    code = (folder / "demo" / "lanes.py").read_text("utf-8")
    full = code.replace(f"{lane} = Lane(CapacityLimiter(2), most=64)", f"{lane} = Lane(CapacityLimiter(2), most=0)")
    assert full != code
    (folder / "demo" / "lanes.py").write_text(full, "utf-8")
    with serve(folder, tmp_path / "app.log") as address:
        page = window(locale="zh-CN")
        page.goto(address)
        if drawn:
            expect(grid(page)).to_be_visible()
            field(page).fill("0101")

        told = page.locator("[data-testid=toast-text], .problem")
        expect(told).to_have_text(re.compile("请稍后再试"))
        page.close()
