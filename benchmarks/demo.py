"""How long does the page take? In a real Chromium: `python -m benchmarks.demo`.

An edit is timed from the key press to the first frame that shows its maps, over checkpoints with random weights.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from attnkit.checkpoint import TaskInfo
from attnkit.cli import run
from attnkit.data import DataConfig
from attnkit.model import ModelConfig
from benchmarks import Row
from tests.serving import ARTICLE, CHROMIUM, CHROMIUM_ARGS, build_site, serve, write

LARGE = ModelConfig(vocab_size=2, d_model=144, n_heads=12, d_ff=64, n_layers=12, max_len=64)
SUBJECTS = {  # name: the model, how long its sequences are, how many edits, the aim in milliseconds
    "2 × 4 heads of 16 tokens": (ARTICLE, 16, 40, 150),
    "12 × 12 heads of 64 tokens": (LARGE, 64, 12, 500),
}

EDIT = """async ([text, tokens]) => {
    const grid = document.querySelector(".attention");
    const field = document.querySelector("#sequence input, #sequence textarea");
    const drawn = new Promise((done) => {
        const seen = new MutationObserver(() => {
            if (grid.dataset.tokens !== tokens.join(" ")) return;
            seen.disconnect();
            requestAnimationFrame(() => setTimeout(() => done(performance.now())));
        });
        seen.observe(grid, { attributeFilter: ["data-tokens"] });
    });
    const setter = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set;
    const start = performance.now();
    setter.call(field, text);
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return (await drawn) - start;
}"""


def rows() -> Iterator[Row]:
    if not CHROMIUM:
        yield Row("the page in a browser", "not measured: no chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "site").mkdir()
        site = build_site(Path(folder) / "site")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        for what, (config, length, count, aim) in SUBJECTS.items():
            with alone(site, config, length), serve(site, Path(folder) / "log") as address:
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                start = time.perf_counter()
                page.goto(address)
                page.locator(".attention[data-drawn]").wait_for()
                yield Row(f"{what}: a cold page until its maps are there", f"{time.perf_counter() - start:.2f} s")
                milliseconds = edits(page, length, count)
                low, high = milliseconds[len(milliseconds) // 10], milliseconds[-len(milliseconds) // 10]
                result = f"median {median(milliseconds):.0f} ms, {low:.0f} to {high:.0f} (the aim is {aim})"
                yield Row(f"{what}: an edit until it is drawn", result)
                page.close()
        browser.close()


@contextmanager
def alone(site: Path, config: ModelConfig, length: int) -> Iterator[None]:
    """One checkpoint in the site, for as long as the block runs."""
    folder = site / "checkpoints" / "majority"
    write(folder, config, TaskInfo(), DataConfig(length=length), seed=0)
    yield
    shutil.rmtree(folder)


def edits(page: Page, length: int, count: int) -> list[float]:
    """Milliseconds, sorted; each edit waits until the one before and what follows it is done."""
    found = []
    for i in range(count + 3):
        text = format(i * 40503 % 65536, "016b") * (length // 16)
        milliseconds = page.evaluate(EDIT, [text, list(text)])
        page.locator(f'.attention[data-effects*="{text}"]').wait_for()
        if i >= 3:  # the first ones also warm up
            found.append(milliseconds)
    return sorted(found)


def main() -> None:
    for row in rows():
        print(row.what, row.result, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
