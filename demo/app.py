"""The page: wiring and words. `python demo/app.py` serves it; what it shows is computed in views.py."""

import os
import sys
from collections.abc import Callable
from functools import partial, wraps
from html import escape
from pathlib import Path
from typing import Any

# A Space runs this file alone, from any folder; and nothing here phones home.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = "1000"  # else a summary is rebuilt after every event

import gradio as gr
import torch
from jinja2 import Environment, FileSystemLoader

from demo import views

HERE = Path(__file__).parent
TITLE = "What do the heads look at?"
INTRO = f"""
# {TITLE}
A small transformer reads a sequence of bits and says whether ones are the majority.
Type one, and see where each of its attention heads looks.
"""
HOW_TO_READ = """
Each square is one head. A **row** is a query, the token that looks; a **column** is a key, a token that is looked at.
The darker a cell, the more of its attention the query gives that key; each row adds up to 1.
In the maps, layers, heads and positions are counted from 0. **Click a head** to see it large.
"""
NO_CHECKPOINT = "There is no checkpoint yet: `make train` makes one in under a minute. Then reload this page."
LEFT_OUT = "Left out, for it does not open: <b>{name}</b> ({reason})."
SHARED, OWN = "one for all heads", "each head its own"
EXAMPLES = {  # by the names in views.near_ties
    "tie": "a tie: {ones} of {length}",
    "sorted": "a tie, sorted",
    "more": "one more: {ones}",
    "fewer": "one fewer: {ones}",
    "all": "all ones",
}

SCROLL = "() => document.querySelector('#one-head').scrollIntoView({behavior: 'smooth', block: 'nearest'})"
HTML = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
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

# ---------------------------------------------------------------- what the page calls


def told(view: Callable[..., Any], *, as_html: bool = True) -> Callable[..., Any]:
    """Hand the sentence of a view's ValueError to the person who asked; neither they nor the log get a traceback.

    The page shows it as HTML, the clients of the API as it is.
    """

    @wraps(view)
    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return view(*args, **kwargs)
        except ValueError as error:
            sentence = escape(str(error), quote=False) if as_html else str(error)
            raise gr.Error(sentence, print_exception=False) from None

    return telling


def check(checkpoint: str, sequence: str, *others: Any) -> list[dict[str, Any]]:
    """Read the sequence before the event runs: the message then stands under the field."""
    problem = views.complaint(checkpoint, sequence)
    return [gr.validate(True, ""), gr.validate(not problem, problem), *(gr.validate(True, "") for _ in others)]


@told
def show(checkpoint: str, sequence: str, scale: str, layer: int | None, head: int | None) -> tuple[str, dict[str, Any]]:
    """The answer and the grid."""
    reading = views.read(checkpoint, sequence)
    answer = HTML.get_template("answer.html").render(
        views.verdict(reading), task=reading.info.task.name, trained_length=reading.info.data.length
    )
    selected = None if layer is None or head is None else (layer, head)
    return answer, views.packed(reading, shared_scale=scale == SHARED, selected=selected)


@told
def choose(checkpoint: str, sequence: str, scale: str, layer: int | None, head: int | None) -> tuple[Any, ...]:
    """All that depends on the checkpoint. What was typed and selected stays where this checkpoint can take it."""
    info, _ = views.open_checkpoint(checkpoint)
    found = views.near_ties(checkpoint)
    if views.complaint(checkpoint, sequence):
        sequence = found.get("more") or views.random_sequence(checkpoint)
    layers, heads = range(info.model.n_layers), range(info.model.n_heads)
    if layer not in layers or head not in heads:
        layer = head = None
    labels = [EXAMPLES[kind].format(ones=s.count("1"), length=len(s)) for kind, s in found.items()]
    return (
        gr.Textbox(value=sequence, placeholder=f"1 to {info.model.max_len} of {' '.join(info.task.vocab)}"),
        gr.Dataset(samples=[[s] for s in found.values()], sample_labels=labels, visible=bool(found)),
        gr.Radio(choices=list(layers), value=layer),
        gr.Radio(choices=list(heads), value=head),
        gr.Row(visible=layer is not None),
        *show(checkpoint, sequence, scale, layer, head),
    )


def open_page(scale: str) -> tuple[Any, ...]:
    """The checkpoints that are there now, and the page of the first."""
    names, broken = views.shelf()
    left_out = "<br>".join(LEFT_OUT.format(name=escape(name), reason=escape(why)) for name, why in broken.items())
    rest = choose(names[0], "", scale, None, None) if names else [gr.skip()] * 7
    return (
        gr.Markdown(visible=not names),
        gr.Row(visible=bool(names)),
        gr.Dropdown(choices=names, value=names[0] if names else None),
        gr.HTML(left_out, visible=bool(broken)),
        *rest,
    )


@told
def enlarge(checkpoint: str, sequence: str, scale: str, layer: int | None, head: int | None) -> Any:
    if layer is None or head is None:
        return gr.skip()
    return views.head_figure(views.read(checkpoint, sequence), layer, head, shared_scale=scale == SHARED)


@told
def pick(checkpoint: str, sequence: str, scale: str, event: gr.EventData) -> tuple[Any, ...]:
    """Select the head that was clicked."""
    return gr.Row(visible=True), event.layer, event.head, *show(checkpoint, sequence, scale, event.layer, event.head)


@told
def close(checkpoint: str, sequence: str, scale: str) -> tuple[Any, ...]:
    return gr.Row(visible=False), None, None, *show(checkpoint, sequence, scale, None, None)


@told
def save_all(ending: str, checkpoint: str, sequence: str, scale: str) -> views.Download:
    reading = views.read(checkpoint, sequence)
    if ending == "csv":
        return views.download("attention.csv", views.weights_csv(reading))
    return views.download(f"attention.{ending}", views.grid_figure(reading, shared_scale=scale == SHARED))


@told
def save_head(ending: str, checkpoint: str, sequence: str, scale: str, layer: int, head: int) -> views.Download:
    figure = views.head_figure(views.read(checkpoint, sequence), layer, head, shared_scale=scale == SHARED)
    return views.download(f"attention-layer{layer}-head{head}.{ending}", figure)


# ---------------------------------------------------------------- the API


def classify(sequence: str, checkpoint: str = views.FIRST_CHOICE) -> views.Verdict:
    """Classify one sequence: its class, the probability of each class, and the counts behind it."""
    return views.verdict(views.read(checkpoint, sequence))


def attention(sequence: str, checkpoint: str = views.FIRST_CHOICE) -> views.Maps:
    """Every head's attention on one sequence: weights[layer][head][query][key]; the weights of a query sum to 1."""
    return views.maps(views.read(checkpoint, sequence))


# ---------------------------------------------------------------- the page


def attention_grid() -> gr.HTML:
    """A plain gr.HTML: a subclass would make gradio write a .pyi file beside this one."""
    template, style, script = ((HERE / f"grid.{ending}").read_text("utf-8") for ending in ("html", "css", "js"))
    return gr.HTML(
        html_template=template,
        css_template=style,
        js_on_load=script,
        apply_default_css=False,
        elem_id="heads",
        colours=views.colours(),
    )


def save_row(what: str, endings: tuple[str, ...]) -> dict[str, gr.Button]:
    with gr.Row(elem_classes="save"):
        gr.HTML(what, elem_classes="what")
        return {ending: gr.Button(ending.upper(), size="sm", min_width=0) for ending in endings}


def build() -> gr.Blocks:
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gr.Markdown(INTRO, elem_id="intro")
        none_yet = gr.Markdown(NO_CHECKPOINT, visible=False, elem_id="none-yet")
        with gr.Row(elem_id="everything") as everything:
            with gr.Column(scale=3, min_width=300, elem_id="left"):
                sequence = gr.Textbox(label="Sequence", max_lines=1, elem_id="sequence")
                with gr.Row(elem_id="tries"):
                    random = gr.Button("random", size="sm", min_width=0, elem_id="random")
                    examples = gr.Dataset(components=[gr.Textbox(render=False)], samples=[], show_label=False)
                answer = gr.HTML(elem_id="answer")
                checkpoint = gr.Dropdown(label="Checkpoint", elem_id="checkpoint")
                broken = gr.HTML(visible=False, elem_id="broken")
                gr.Markdown(HOW_TO_READ, elem_id="how")
            with gr.Column(scale=8, min_width=320, elem_id="right"):
                scale = gr.Radio([SHARED, OWN], value=SHARED, label="Colour scale", elem_id="scale")
                grid = attention_grid()
                all_buttons = save_row("Save all heads", ("png", "svg", "csv"))
                with gr.Row(visible=False, elem_id="one-head") as panel:
                    with gr.Column(scale=5, min_width=300):
                        plot = gr.Plot(format="png", show_label=False, elem_id="figure")
                    with gr.Column(scale=2, min_width=180):
                        layer = gr.Radio([], label="Layer", elem_id="layer")
                        head = gr.Radio([], label="Head", elem_id="head")
                        head_buttons = save_row("Save this head", ("png", "svg"))
                        shut = gr.Button("Close", size="sm", elem_id="close")
        file = gr.HTML(html_template="", visible="hidden")  # a Download on its way to the browser

        quiet: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
        typed = [checkpoint, sequence, scale]
        selected = [*typed, layer, head]
        shown = [answer, grid]
        chosen = [sequence, examples, layer, head, panel, *shown]
        page.load(open_page, scale, [none_yet, everything, checkpoint, broken, *chosen], **quiet)
        checkpoint.input(choose, selected, chosen, **quiet)
        gr.on(
            [sequence.change, scale.input, layer.input, head.input],
            show,
            selected,
            shown,
            validator=check,
            trigger_mode="always_last",  # while one types, what comes in between may be dropped
            **quiet,
        )
        random.click(told(views.random_sequence), checkpoint, sequence, **quiet)
        examples.click(lambda sample: sample[0], examples, sequence, **quiet)
        grid.pick(pick, typed, [panel, layer, head, *shown], validator=check, **quiet).success(js=SCROLL)
        shut.click(close, typed, [panel, layer, head, *shown], validator=check, **quiet)
        # The large figure is slower to draw: it follows the grid, so that typing never waits for it.
        grid.redraw(enlarge, selected, plot, trigger_mode="always_last", **quiet)
        script = (HERE / "save.js").read_text("utf-8")
        for save, inputs, buttons in ((save_all, typed, all_buttons), (save_head, selected, head_buttons)):
            for ending, button in buttons.items():
                click = button.click(partial(save, ending), inputs, file, validator=check, **quiet)
                click.success(None, file, None, js=script)

        gr.api(told(classify, as_html=False), api_name="classify")
        gr.api(told(attention, as_html=False), api_name="attention")
        page.queue(max_size=64, default_concurrency_limit=2)  # two cores; who comes 65th is told to try again
    return page


def main() -> None:
    torch.set_num_threads(2)
    port = os.environ.get("GRADIO_SERVER_PORT", "7860")
    try:
        demo.launch(server_port=int(port), **LAUNCH)
    except (OSError, OverflowError):
        sys.exit(f"port {port} is in use, or none; choose another: GRADIO_SERVER_PORT=7861 python demo/app.py")


demo = build()
if __name__ == "__main__":
    main()
