"""The page: which component calls what. `python demo/app.py` serves it; what it shows is computed in views.py."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

# A Space runs this file alone, from any folder; and nothing here phones home.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000"  # else a summary is rebuilt after every event
os.environ["DEMO_PORT"] = os.environ.pop("GRADIO_SERVER_PORT", "7860")  # gradio trips over what is no number

import gradio as gr
import torch

from demo import api, figures, packing, parts, samples, views, words
from demo.packing import wire
from demo.shelf import at_step, open_checkpoint, shelf
from demo.words import say


@dataclass(frozen=True)
class Asked:
    """What stands on the page when it asks; the fields are the event's inputs, in this order."""

    language: str
    checkpoint: str
    sequence: str
    off: str  # the heads that are switched off, as "0.1 1.3": layer.head
    replacement: str  # what stands in the place of their outputs
    step: str = ""  # after how many steps of training; empty: after all of them

    @property
    def weights(self) -> str:
        return f"{self.checkpoint}@{self.step}" if self.step else self.checkpoint

    def read(self) -> views.Reading:
        return views.read(self.weights, self.sequence, views.heads_of(self.off), self.replacement)


# ---------------------------------------------------------------- what the page calls


def refusal(language: str, error: ValueError) -> gr.Error:
    """Neither the person who asked nor the log gets a traceback; the page shows the sentence as HTML."""
    return gr.Error(escape(words.sentence(language, error), quote=False), print_exception=False)


def page(view: Callable[[Asked], Any]) -> Callable[..., Any]:
    """A view of what stands on the page, as gradio calls it."""

    def call(*values: Any) -> Any:
        try:
            return view(Asked(*values))
        except ValueError as error:
            raise refusal(values[0], error) from None

    return call


def page_event(view: Callable[[gr.EventData, Asked], Any]) -> Callable[..., Any]:
    """The same for an event that brings something of its own."""

    def call(event: gr.EventData, *values: Any) -> Any:
        try:
            return view(event, Asked(*values))
        except ValueError as error:
            raise refusal(values[0], error) from None

    return call


def show(asked: Asked) -> tuple[Any, ...]:
    """The answer, the grid and the cells."""
    reading = asked.read()
    return parts.answer(asked.language, reading), wire(packing.packed(reading)), wire(packing.cells(reading))


def answer(asked: Asked) -> tuple[Any, ...]:
    """What is shown of what was typed; or what is wrong with it, and what is shown stays.

    Not by gradio's `validator`: that is a request of its own before each answer.
    """
    try:
        return "", *show(asked)
    except ValueError as error:
        return parts.problem(words.sentence(asked.language, error)), gr.skip(), gr.skip(), gr.skip()


def effects(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """What single changes would do to what the grid has drawn, and what of it is usual.

    The grid waits for the answer to its question, which has a number, before it asks the next.
    """
    try:
        reading = views.read(event.checkpoint, event.sequence, event.off, event.replacement)
    except ValueError:  # the event that this one follows has told
        return gr.HTML(effects=wire({"of": "", "number": event.number})), gr.skip(), gr.skip()
    heads, tokens = packing.effects(reading)
    usual = parts.usual(asked.language, reading)
    return (
        gr.HTML(effects=wire(heads | {"number": event.number}), usual=wire(usual)),
        gr.HTML(flips=wire(tokens)),
        parts.ranks(asked.language, heads, reading.off),
    )


def compare(event: gr.EventData, asked: Asked) -> Any:
    """Another reading, to stand beside what the grid has drawn; or why there is none."""
    try:
        found = packing.packed(views.read(event.checkpoint, event.sequence, event.off, event.replacement))
    except ValueError as error:
        refused = words.sentence(asked.language, error)
        found = {"checkpoint": event.checkpoint, "sequence": event.sequence, "refused": refused}
    return gr.HTML(beside=wire(found))


def ablate(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """Switch heads off or on, as the grid says."""
    after = replace(asked, off=event.off, replacement=event.replacement)
    return after.off, after.replacement, *show(after)


def travel(event: gr.EventData, asked: Asked) -> tuple[Any, ...]:
    """The same sequence after more or fewer steps of training."""
    after = replace(asked, step=str(event.step))
    return after.step, *show(after)


def choose(asked: Asked) -> tuple[Any, ...]:
    """All that depends on the checkpoint. What was typed and switched stays where this checkpoint can take it.

    A component is told everything in one update: of two in one answer the first would be lost.
    """
    info, _ = open_checkpoint(asked.checkpoint)
    found = samples.near_ties(asked.checkpoint)
    sequence, off = asked.sequence, asked.off
    try:
        views.token_ids(info, sequence)
    except ValueError:
        sequence = found.get("more") or samples.random_sequence(asked.checkpoint)
    try:
        views.known_heads(info, views.heads_of(off))
    except ValueError:
        off = ""
    step = asked.step if asked.step in map(str, info.snapshots) else ""
    after = replace(asked, sequence=sequence, off=off, step=step)
    verdict, grid, cells = show(after)
    texts = words.page_words(asked.language)
    placeholder = say(asked.language, "placeholder", longest=info.model.max_len, vocab=" ".join(info.task.vocab))
    labels = [say(asked.language, kind, ones=s.count("1"), length=len(s)) for kind, s in found.items()]
    return (
        gr.Textbox(value=sequence, placeholder=placeholder, label=texts["sequence"]),
        gr.Dataset(samples=[[s] for s in found.values()], sample_labels=labels, visible=bool(found)),
        off,
        step,
        verdict,
        gr.HTML(
            value=grid,
            over_set=wire(parts.over_set(asked.language, asked.checkpoint)),
            words=wire(texts),
            checkpoints=wire(shelf()[0]),
        ),
        gr.HTML(value=cells, words=wire(texts)),
    )


def speak(language: str) -> tuple[Any, ...]:
    """The words of what `choose` does not tell anyway."""
    texts = words.page_words(language)
    names, broken = shelf()
    left_out = "<br>".join(
        say(language, "left_out", name=escape(name), reason=escape(reason)) for name, reason in broken.items()
    )
    return (
        gr.Markdown(f"# {texts['title']}\n{texts['intro']}"),
        gr.Radio(label=texts["language"], value=language),
        gr.Markdown(texts["no_checkpoint"], visible=not names),
        texts["random"],
        texts["clear"],
        gr.Dropdown(label=texts["checkpoint"]),
        gr.HTML(left_out, visible=bool(broken)),
        texts["how"],
    )


def open_page(request: gr.Request) -> tuple[Any, ...]:
    """The checkpoints that are there now, and the page as its address says: else that of the first of them."""
    names, _ = shelf()
    link = dict(request.query_params)
    language = link.get("language") if link.get("language") in words.LANGUAGES else None
    language = language or words.preferred(request.headers.get("accept-language"))
    wanted, step = at_step(link.get("checkpoint", ""))
    chosen = wanted if wanted in names else next(iter(names), None)
    replacement = link["replacement"] if link.get("replacement") in views.REPLACEMENTS else views.REPLACEMENTS[0]
    asked = Asked(language, chosen or "", link.get("sequence", ""), link.get("off", ""), replacement, step or "")
    dropdown = gr.Dropdown(choices=names, value=chosen)
    return (
        gr.Row(visible=bool(names)),
        dropdown,
        asked.replacement,
        *(choose(asked) if names else [gr.skip()] * 7),
        *speak(language),
    )


def translate(asked: Asked) -> tuple[Any, ...]:
    return *choose(asked), *speak(asked.language)


def save(event: gr.EventData, asked: Asked) -> figures.Download:
    """What is shown, as a file; `beside` is the other reading where two are compared."""
    how = {"quantity": event.quantity, "shared_scale": bool(event.shared), "arcs": bool(event.arcs)}
    return figures.file(asked.read(), event.ending, event.head, beside=other_reading(event.beside), **how)


def other_reading(of: dict[str, Any] | None) -> views.Reading | None:
    return views.read(of["checkpoint"], of["sequence"], of["off"], of["replacement"]) if of else None


def draw_lot(asked: Asked) -> str:
    return samples.random_sequence(asked.checkpoint)


# ---------------------------------------------------------------- the page


def build() -> gr.Blocks:
    with gr.Blocks(title=say("en", "title"), analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        with gr.Row(elem_id="top"):
            intro = gr.Markdown(elem_id="intro")
            language = gr.Radio([(name, key) for key, name in words.LANGUAGES.items()], elem_id="language")
        none_yet = gr.Markdown(visible=False, elem_id="none-yet")
        with gr.Row(elem_id="everything") as everything:
            with gr.Column(scale=3, min_width=300, elem_id="left"):
                sequence = gr.Textbox(label=say("en", "sequence"), max_lines=1, elem_id="sequence")
                problem = gr.HTML(elem_id="problem")
                with gr.Row(elem_id="tries"):
                    random = gr.Button(say("en", "random"), size="sm", min_width=0, elem_id="random")
                    clear = gr.Button(say("en", "clear"), size="sm", min_width=0, elem_id="clear")
                    examples = gr.Dataset(components=[gr.Textbox(render=False)], samples=[], show_label=False)
                verdict = gr.HTML(elem_id="answer")
                ranks = gr.HTML(elem_id="ranks")
                checkpoint = gr.Dropdown(label=say("en", "checkpoint"), elem_id="checkpoint")
                broken = gr.HTML(visible=False, elem_id="broken")
                how = gr.Markdown(elem_id="how")
            with gr.Column(scale=8, min_width=320, elem_id="right"):
                cells = parts.token_cells()
                grid = parts.attention_grid()
        off = gr.Textbox(visible="hidden", elem_id="off")
        replacement = gr.Textbox("zero", visible="hidden")
        step = gr.Textbox("", visible="hidden")
        file = gr.HTML(html_template="", visible="hidden")  # a Download on its way to the browser

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        asked = [language, checkpoint, sequence, off, replacement, step]
        shown = [verdict, grid, cells]
        chosen = [sequence, examples, off, step, *shown]
        spoken = [intro, language, none_yet, random, clear, checkpoint, broken, how]
        blocks.load(open_page, None, [everything, checkpoint, replacement, *chosen, *spoken], **quiet)
        language.input(page(translate), asked, [*chosen, *spoken], **quiet)
        checkpoint.input(page(choose), asked, chosen, **quiet)
        # While one types, what comes in between may be dropped. An edit takes milliseconds and each page has one on its
        # way at most: it does not wait in the queue behind files and rankings, nor pay for the queue's three requests.
        sequence.change(page(answer), asked, [problem, *shown], trigger_mode="always_last", queue=False, **quiet)
        grid.ablate(page_event(ablate), asked, [off, replacement, *shown], **quiet)
        # What single changes would do takes longer: it follows the grid, so that typing never waits for it.
        grid.redraw(page_event(effects), asked, [grid, cells, ranks], trigger_mode="multiple", **quiet)
        grid.travel(page_event(travel), asked, [step, *shown], trigger_mode="always_last", queue=False, **quiet)
        grid.compare(page_event(compare), asked, grid, **quiet)
        random.click(page(draw_lot), asked, sequence, **quiet)
        clear.click(None, None, sequence, js="() => ''")
        examples.click(lambda sample: sample[0], examples, sequence, **quiet)
        saved = grid.save(page_event(save), asked, file, **quiet)
        saved.success(None, file, None, js=parts.source("save.js"))

        gr.api(api.classify, api_name="classify")
        gr.api(api.attention, api_name="attention")
        gr.api(api.ablate, api_name="ablate")
        blocks.queue(max_size=64, default_concurrency_limit=2)  # two cores; who comes 65th is told to try again
    return blocks


def main() -> None:
    port = os.environ["DEMO_PORT"]
    torch.set_num_threads(1)  # models this small are faster on one, and visitors share the cores
    try:
        demo.launch(server_port=int(port), **parts.LAUNCH)
    except (OSError, OverflowError, ValueError):
        sys.exit(f"port {port} is in use, or none; choose another: GRADIO_SERVER_PORT=7861 python demo/app.py")


demo = build()
if __name__ == "__main__":
    main()
