"""Draw the pictures of the README in a real Chromium: `python -m docs.screenshots [NAME …]`.

One function a picture; each is handed a browser and writes one file beside this one.
"""

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from analysis import head_stats
from benchmarks.transformers import minilm
from tests.browsing import settled
from tests.serving import CHROMIUM, CHROMIUM_ARGS, ROOT, serve

HERE = Path(__file__).parent


def open_app(browser: Browser, address: str, theme: str, **window: int) -> Page:
    """The page of a sequence on the edge of the rule, with everything drawn."""
    page = browser.new_page(viewport={"width": window["width"], "height": window["height"]})
    page.goto(f"{address}/?__theme={theme}")
    settled(page)
    page.evaluate("document.fonts.ready")
    return page


def app(browser: Browser, address: str) -> Path:
    """The app on a laptop, the pointer on a cell."""
    page = open_app(browser, address, "light", width=1280, height=760)
    page.locator(".head canvas").nth(6).hover(position={"x": 92, "y": 115})
    return shoot(page, "app.png")


def app_phone(browser: Browser, address: str) -> Path:
    return shoot(open_app(browser, address, "light", width=390, height=844), "app-phone.png")


def app_compare(browser: Browser, address: str) -> Path:
    """One bit flipped: a head before, now, and the difference."""
    page = open_app(browser, address, "light", width=1280, height=900)
    page.locator(".pin").click()
    page.locator(".cell").nth(8).click()
    page.locator(".compare .answered").nth(1).filter(has_text="not majority").wait_for()
    page.locator(".head canvas").nth(5).click()
    return shoot(page, "app-compare.png", ".pictures")


def app_arcs(browser: Browser, address: str) -> Path:
    """A head as arcs, one token pointed at."""
    page = open_app(browser, address, "light", width=1280, height=900)
    page.locator(".head canvas").nth(5).click()
    page.locator("[value=arcs]").check()
    page.locator(".picture canvas").hover(position={"x": 60, "y": 65})
    return shoot(page, "app-arcs.png", ".drawn")


def app_table(browser: Browser, address: str) -> Path:
    """Every head over the whole set, sorted by a statistic."""
    page = open_app(browser, address, "light", width=1280, height=900)
    page.locator(".set summary").click()
    page.locator(".set thead button").filter(has_text="Distance").click()
    page.mouse.move(2, 2)
    return shoot(page, "app-table.png", ".set")


def app_worth(browser: Browser, address: str) -> Path:
    """What each head is worth, one of them chosen."""
    page = open_app(browser, address, "light", width=1280, height=900)
    page.locator(".worths summary").click()
    page.locator(".worths tbody tr").nth(3).click()
    page.mouse.move(2, 2)
    return shoot(page, "app-worth.png", ".worths")


def app_growth(browser: Browser, address: str) -> Path:
    """Every head through training, one of them lit."""
    page = open_app(browser, address, "light", width=1280, height=900)
    page.locator(".growth summary").click()
    page.locator(".growth-statistic select").select_option("selectivity")
    page.locator(".growth .line-of").nth(3).click()
    page.mouse.move(2, 2)
    return shoot(page, "app-growth.png", ".growth")


def app_text(browser: Browser, _: str) -> Path:
    """MiniLM on a sentence: every head, and what each is worth to the sentence's embedding."""
    with (
        tempfile.TemporaryDirectory() as logs,
        serve(ROOT, Path(logs) / "app.log", "--hf", minilm()) as address,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.goto(f"{address}/?__theme=light")
        page.locator(".attention[data-drawn]").wait_for()
        page.locator("#sequence textarea, #sequence input").fill("The key that opens the old chest is lost.")
        page.locator(".attention[data-effects*='old chest']").wait_for(timeout=120_000)
        return shoot(page, "app-text.png")


def report(browser: Browser, _: str) -> Path:
    """The top of the report: what stands out, and every statistic of every head."""
    with tempfile.TemporaryDirectory() as folder:
        head_stats.main(["--split", "exhaustive", "--out", folder])
        page = browser.new_page(viewport={"width": 1200, "height": 1500})
        page.goto((Path(folder) / "report.html").as_uri())
        return shoot(page, "report.png")


def shoot(page: Page, name: str, part: str | None = None) -> Path:
    """The window, or a part of the page alone, in 256 colours: rare ones, such as those of the marks, are kept."""
    page.wait_for_timeout(900)  # what fades or scrolls in has done so
    taken = page.locator(part).screenshot() if part else page.screenshot()
    page.close()
    with Image.open(io.BytesIO(taken)) as picture:
        small = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        small.save(HERE / name, optimize=True)
    return HERE / name


Picture = Callable[[Browser, str], Path]
PICTURES: list[Picture] = [
    app,
    app_phone,
    app_compare,
    app_arcs,
    app_table,
    app_worth,
    app_growth,
    app_text,
    report,
]


def main() -> None:
    names = [picture.__name__ for picture in PICTURES]
    wanted = sys.argv[1:] or names
    if unknown := [name for name in wanted if name not in names]:
        sys.exit(f"picture: got {', '.join(unknown)}, allowed is {', '.join(names)}")
    if not CHROMIUM:
        sys.exit("no chromium on this machine: the pictures need one")
    with tempfile.TemporaryDirectory() as logs, serve(ROOT, Path(logs) / "app.log") as address, sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        for picture in PICTURES:
            if picture.__name__ in wanted:
                print(picture(browser, address), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
