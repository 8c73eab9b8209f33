"""The page: which component calls what. `python demo/app.py` serves it; what it shows is computed in views.py."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

# A Space runs this file alone, from any folder; and nothing here phones home.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000"  # else a summary is rebuilt after every event
os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1000"  # kept for that summary; by default ten times as many
os.environ["DEMO_PORT"] = os.environ.pop("GRADIO_SERVER_PORT", "7860")  # gradio trips over what is no number

import gradio as gr
import torch

from demo import api, parts, served, words
from demo.events import (
    choose,
    compare,
    draw_lot,
    edit,
    effects,
    open_page,
    page,
    page_event,
    save,
    second_of,
    study,
    translate,
)
from demo.lanes import EDITS, REST
from demo.words import say


def build(subject: served.Subject | None = None) -> gr.Blocks:
    """The page of the checkpoints, or of a transformers model, without what only they have."""
    of_checkpoints = subject is None
    with gr.Blocks(title=say("en", "title"), analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        with gr.Row(elem_id="top"):
            intro = gr.Markdown(elem_id="intro")
            language = gr.Radio([(name, key) for key, name in words.LANGUAGES.items()], elem_id="language")
        none_yet = gr.Markdown(visible=False, elem_id="none-yet")
        with gr.Row(elem_id="everything") as everything:
            with gr.Column(scale=3, min_width=300, elem_id="left"):
                shape: dict[str, Any] = {"max_lines": 1} if of_checkpoints else {"lines": 2, "elem_classes": "text"}
                sequence = gr.Textbox(label=say("en", "sequence"), elem_id="sequence", **shape)
                two = subject is not None and subject.two_texts
                second = gr.Textbox(label=say("en", "second"), lines=2, elem_id="second", visible=two)
                problem = gr.HTML(elem_id="problem")
                with gr.Row(elem_id="tries"):
                    random = gr.Button(
                        say("en", "random"), size="sm", min_width=0, elem_id="random", visible=of_checkpoints
                    )
                    clear = gr.Button(say("en", "clear"), size="sm", min_width=0, elem_id="clear")
                    examples = gr.Dataset(components=[gr.Textbox(render=False)], samples=[], show_label=False)
                verdict = gr.HTML(elem_id="answer")
                ranks = gr.HTML(elem_id="ranks")
                checkpoint = gr.Dropdown(label=say("en", "checkpoint"), elem_id="checkpoint", visible=of_checkpoints)
                broken = gr.HTML(visible=False, elem_id="broken")
                how = gr.Markdown(elem_id="how")
            with gr.Column(scale=8, min_width=320, elem_id="right"):
                cells = parts.token_cells(visible=of_checkpoints)
                grid = parts.attention_grid()
        # The scripts write here what is asked beside the texts: see field.js.
        off = gr.Textbox(visible="hidden", elem_id="off")
        kind = gr.Textbox("", visible="hidden", elem_id="kind")
        replacement = gr.Textbox("zero", visible="hidden", elem_id="replacement")
        step = gr.Textbox("", visible="hidden", elem_id="step")
        again = gr.Textbox("", visible="hidden", elem_id="again")
        file = gr.HTML(html_template="", visible="hidden")  # a Download on its way to the browser

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        last = quiet | {"trigger_mode": "always_last"}  # what comes while an answer is on its way is asked after it
        asked = [language, checkpoint, sequence, off, replacement, step, second, kind]
        shown = [verdict, grid, cells]
        chosen = [sequence, second, examples, off, kind, step, *shown]
        spoken = [intro, language, none_yet, random, clear, checkpoint, broken, how]
        blocks.load(open_page, None, [everything, checkpoint, replacement, *chosen, *spoken], **quiet)
        language.input(page(translate), asked, [sequence, second, examples, grid, cells, *spoken], **last)
        checkpoint.input(page(choose), asked, chosen, **last)
        # While one types, what comes in between may be dropped. Each page has one edit on its way at most; it does not
        # pay for the three requests of gradio's queue.
        fields = [field.change for field in (sequence, second, off, replacement, step, kind, again)]
        gr.on([*fields, language.input], edit, asked, [problem, *shown], queue=False, **last)
        # Gradio lets two of them pass at once, and then the later answer may be the earlier question's: see asking.js.
        tell = "(...now) => void window.dispatchEvent(new CustomEvent('asked', { detail: now }))"
        grid.answered(None, asked, None, js=tell, **quiet)
        # What single changes would do takes longer: it follows the grid, so that typing never waits for it.
        grid.redraw(page_event(effects), asked, [grid, cells, ranks], trigger_mode="multiple", **quiet)
        grid.compare(page_event(compare), asked, grid, trigger_mode="multiple", **quiet)
        grid.study(page_event(study), asked, grid, **quiet)
        random.click(page(draw_lot), asked, sequence, **quiet)
        clear.click(None, None, [sequence, second], js="() => ['', '']")
        examples.click(second_of, examples, [sequence, second], **quiet)
        saved = grid.save(page_event(save), asked, file, **quiet)
        saved.success(None, file, None, js=parts.source("save.js"))

        for endpoint in (api.classify, api.attention, api.ablate) if of_checkpoints else (api.attention_of_text,):
            gr.api(endpoint, api_name=endpoint.__name__)
        blocks.queue(default_concurrency_limit=None)  # the limit is that of the lanes, for every way in
    return blocks


def main() -> None:
    parser = argparse.ArgumentParser(prog="demo/app.py", description="Serve the page of the checkpoints.")
    parser.add_argument("--hf", metavar="MODEL", help="a transformers model in their place: a folder or a hub name")
    hf = parser.parse_args().hf
    port = os.environ["DEMO_PORT"]
    torch.set_num_threads(1)  # models this small are faster on one, and visitors share the cores
    try:
        blocks = build(served.serve(hf)) if hf else demo
    except ValueError as error:
        sys.exit(str(error))
    try:
        blocks.launch(server_port=int(port), max_threads=EDITS.most + REST.most + 1, **parts.LAUNCH)
    except (OSError, OverflowError, ValueError):
        sys.exit(f"port {port} is in use, or none; choose another: GRADIO_SERVER_PORT=7861 python demo/app.py")


demo = build()
if __name__ == "__main__":
    main()
