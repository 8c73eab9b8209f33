"""How long does the page of a transformers model take? In a real Chromium: `python -m benchmarks.demo_texts`

A BERT of 12 layers of 12 heads with random weights and MiniLM's tokenizer, on texts of 128 tokens. An edit is timed
from the key press to the first frame that shows its maps; `longest task` is for how long the page answered nothing.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Page, sync_playwright

from attnkit.cli import run
from benchmarks import Row
from benchmarks.demo import EDIT
from benchmarks.sentences import sentences
from tests.serving import CHROMIUM, CHROMIUM_ARGS, build_site, serve

LAYERS = HEADS = 12
TOKENS, COUNT = 128, 5

WATCH = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
    }).observe({ entryTypes: ["longtask"] });
}"""


def rows() -> Iterator[Row]:
    what = f"a text of {TOKENS} tokens, {LAYERS} × {HEADS} heads"
    try:
        from transformers import AutoTokenizer, BertConfig, BertModel
        from transformers.utils import logging

        from benchmarks.transformers import minilm

        logging.disable_progress_bar()
        tokenizer = AutoTokenizer.from_pretrained(minilm())
    except ImportError as missing:
        yield Row(what, f"not measured: {missing}")
        return
    if not CHROMIUM:
        yield Row(what, "not measured: no chromium on this machine")
        return
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        (Path(folder) / "site").mkdir()
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=LAYERS, num_attention_heads=HEADS
        )
        for part in (BertModel(config), tokenizer):
            part.save_pretrained(Path(folder) / "bert")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        site = build_site(Path(folder) / "site")
        with serve(site, Path(folder) / "log", "--hf", str(Path(folder) / "bert")) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(300_000)  # on a busy machine, too, it ends with figures
            start = time.perf_counter()
            page.goto(address)
            page.locator(".attention[data-drawn]").wait_for()
            yield Row(f"{what}: a cold page until its first maps are there", f"{time.perf_counter() - start:.2f} s")
            page.evaluate(WATCH)
            texts = long_texts(tokenizer)
            seconds, worth = zip(*(edit(page, *next(texts)) for _ in range(COUNT)), strict=True)
            yield Row(
                f"{what}: an edit until it is drawn", f"median {median(seconds):.2f} s, at most {max(seconds):.2f}"
            )
            yield Row(f"{what}: until all {LAYERS * HEADS} heads' worth is there", f"median {median(worth):.1f} s")
            yield Row(f"{what}: the page's longest task", f"{page.evaluate('window.longest'):.0f} ms")
        browser.close()


def long_texts(tokenizer: Any) -> Iterator[tuple[str, list[str]]]:
    """Texts of so many tokens, [CLS] and [SEP] included, from running sentences."""
    text: list[str] = []
    for sentence in sentences():
        for word in sentence.split():
            longer = tokenizer(" ".join([*text, word]))["input_ids"]
            if len(longer) > TOKENS:
                tokens = tokenizer(" ".join(text))["input_ids"]
                yield " ".join(text), tokenizer.convert_ids_to_tokens(tokens)
                text = []
            text = [*text, word]


def edit(page: Page, text: str, tokens: list[str]) -> tuple[float, float]:
    """Seconds until it is drawn, and until it is known what each head is worth."""
    start = time.perf_counter()
    drawn = page.evaluate(EDIT, [text, tokens]) / 1000
    begins = json.dumps(text)[1:40]
    there = "(begins) => document.querySelector('.attention').dataset.effects.includes(begins)"
    page.wait_for_function(there, arg=begins)
    return drawn, time.perf_counter() - start


def main() -> None:
    for row in rows():
        print(row.what, row.result, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
