"""What the page is made of: its look, and the components that are drawn by scripts and templates of its own."""

from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from jinja2 import Environment, FileSystemLoader

from attnkit.labels import number
from attnkit.style import DIVERGING, SEQUENTIAL
from demo import packing, sentences, views, words
from demo.sentences import Sentence
from demo.served import Subject
from demo.usual import ORDINARY, statistics

HERE = Path(__file__).parent
HTML = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
# The grid's script, in the order in which its parts run.
GRID = (
    "props",
    "field",
    "maps",
    "asking",
    "grid",
    "tools",
    "pointing",
    "arcs",
    "large",
    "overall",
    "studies",
    "table",
    "differences",
    "worth",
    "training",
    "growth",
    "compare",
    "link",
    "start",
)
MOST_RANKED = 5  # heads that are listed; the grid has the numbers of all

# The semi-bold that gradio ships has a handful of letters only: the others would come from another font.
SANS = gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700))
THEME = gr.themes.Base(
    primary_hue="teal", neutral_hue="slate", font=[SANS, "ui-sans-serif", "system-ui", "sans-serif"]
).set(
    body_text_color_subdued="*neutral_500",  # 4.5 : 1 against the page, as everything that is read
    body_text_color_subdued_dark="*neutral_400",
    checkbox_border_color="*neutral_400",
    checkbox_border_color_dark="*neutral_500",
)
LAUNCH: dict[str, Any] = {
    "theme": THEME,
    "css_paths": HERE / "page.css",
    "ssr_mode": False,  # slower here, and it wants Node
    "run_history": False,  # it would cost hundreds of milliseconds an event
    "footer_links": ["api", "settings"],
    "max_file_size": 1,  # byte: nothing is ever uploaded
    "share": False,
}


def source(name: str) -> str:
    return (HERE / name).read_text("utf-8")


def attention_grid() -> gr.HTML:
    """A plain gr.HTML: a subclass would make gradio write a .pyi file beside this one."""
    return gr.HTML(
        html_template=source("grid.html"),
        css_template=source("grid.css"),
        js_on_load="\n".join(source(f"{part}.js") for part in GRID),
        apply_default_css=False,
        elem_id="heads",
        colours=packing.hexes(SEQUENTIAL(range(256))),
        diverging=packing.hexes(DIVERGING(range(256))),
        words=None,
        asked=None,
        effects=None,
        usual=None,
        over_set=None,
        studies=None,
        beside=None,
        checkpoints=None,
    )


def token_cells(*, visible: bool) -> gr.HTML:
    return gr.HTML(
        html_template=source("cells.html"),
        css_template=source("cells.css"),
        js_on_load="\n".join(source(f"{part}.js") for part in ("props", "field", "cells")),
        apply_default_css=False,
        elem_id="cells",
        visible=visible,
        words=None,
        flips=None,
    )


def answer(language: str, reading: views.Reading | Sentence) -> str:
    off = ", ".join(place(language, head) for head in reading.off)
    if isinstance(reading, Sentence):
        told = sentences.verdict(reading)
        return HTML.get_template("sentence.html").render(told, off=off, say=partial(words.say, language))
    return HTML.get_template("answer.html").render(
        views.verdict(reading),
        off=off,
        length=len(reading.pieces),
        task=reading.info.task.name,
        trained_length=reading.info.data.length,
        say=partial(words.say, language),
        named=partial(words.of_checkpoint, language),
    )


def place(language: str, head: tuple[Any, ...]) -> str:
    """A head in words: (layer, head), or (kind of attention, layer, head)."""
    *kind, layer, number = head
    if not kind:
        return words.say(language, "layer_head", layer=layer, head=number)
    return words.say(language, "head_of_kind", kind=words.say(language, f"kind_{kind[0]}"), layer=layer, head=number)


def usual(language: str, reading: views.Reading | Sentence) -> dict[str, Any]:
    """Every head's statistics in words, for the grid."""
    found = sentences.statistics(reading) if isinstance(reading, Sentence) else statistics(reading)
    titles = {one["name"]: words.statistic(language, one["name"]) for one in found["statistics"]}
    among, why = found["among"], found["why"]
    return {
        "of": packing.state(reading),
        "statistics": [
            {
                "title": titles[one["name"]][0],
                "meaning": titles[one["name"]][1],
                "values": [["–" if x is None else number(x) for x in row] for row in one["values"]],
                "percentiles": one["percentiles"],
            }
            for one in found["statistics"]
        ],
        "ordinary": ORDINARY,
        "unusual": [[[titles[name][0] for name in head] for head in layer] for layer in found["unusual"]],
        "note": words.say(language, "usual_among", count=f"{among['count']:,}", length=among["length"])
        if among
        else words.sentence(language, why)
        if why
        else "",
    }


def over_set(language: str, checkpoint: str) -> dict[str, Any]:
    """What is known of every head over a whole set, with its statistics in words; or `why` nothing is."""
    try:
        known = packing.over_set(checkpoint)
    except ValueError as error:
        return {"checkpoint": checkpoint, "why": words.sentence(language, error)}

    def told(name: str) -> dict[str, str]:
        title, meaning = words.statistic(language, name)
        return {"name": name, "title": title, "meaning": meaning}

    return known | {kind: [told(name) for name in known[kind]] for kind in ("statistics", "columns")}


def text_words(language: str, subject: Subject) -> dict[str, str]:
    """Every text of a page that reads texts by a transformers model."""
    say = partial(words.say, language)
    texts = words.page_words(language) | {"title": say("text_title", name=subject.name), "sequence": say("text")}
    if subject.start is None:
        texts["intro"] = say("text_intro", layers=len(subject.sites), heads=subject.heads)
        texts["how"] = say("text_how")
    else:
        layers = {kind: subject.layers(kind) for kind in subject.kinds}
        known = {**layers, "heads": subject.heads}
        texts["intro"] = say("two_intro", **known) if "encoder" in layers else say("two_intro_decoder", **known)
        parts = say("two_how") if subject.two_texts else say("two_how_classifier")
        texts["how"] = f"{parts}\n\n{say('text_how')}"
    if subject.two_texts:
        texts["sequence"] = say("text_of_encoder")
    if subject.task == "embedding":
        texts["without"] = words.say(language, "without_cosine")
    return texts


def problem(sentence: str) -> str:
    return f'<p class="problem" role="alert">{escape(sentence, quote=False)}</p>'


def ranks(language: str, effects: dict[str, Any], reading: views.Reading | Sentence) -> str:
    """The heads that are on, those first without which the margin changes most."""
    found = [
        {"layer": layer, "head": head, "size": abs(change), "change": f"{change:+.{reading.digits}f}".replace("-", "−")}
        | {"turns": effects["turns"][layer][head]}
        for layer, row in enumerate(effects["heads"])
        for head, change in enumerate(row)
        if (layer, head) not in reading.off_here
    ]
    found = sorted(found, key=lambda head: -head["size"])[:MOST_RANKED]
    for head in found:
        head["share"] = head["size"] / max(found[0]["size"], 1e-9)
    cosine = isinstance(reading, Sentence) and reading.subject.task == "embedding"
    hint = words.say(language, "cosine_matters_hint") if cosine else words.say(language, "which_matters_hint")
    say = partial(words.say, language)
    kind = None
    if isinstance(reading, Sentence) and reading.two_parts:
        kind = words.say(language, f"kind_{reading.kind}")
    return HTML.get_template("ranks.html").render(ranks=found, kind=kind, state=effects["of"], hint=hint, say=say)
