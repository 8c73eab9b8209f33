"""What a person takes away: figures of what is shown, and the weights as tables. No gradio here."""

import base64
import io
from dataclasses import dataclass
from functools import cache
from textwrap import fill
from typing import Any, TypedDict

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager

from attnkit.arcs import attention_arcs
from attnkit.heatmaps import attention_grid, attention_map, side_of
from attnkit.plots import DPI, SVG_IDS
from attnkit.style import FONT, new_figure
from demo.sentences import Sentence
from demo.views import Head, Reading, known_heads, written
from demo.words import Refusal, of_figure

TYPES = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "npz": "application/x-npz",
}
CHINESE = (  # fonts that may be there, and have what figures are labelled with
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
)
# The same picture is the same file, whoever saves it and when.
NO_DATE: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


class Download(TypedDict):
    name: str
    type: str  # MIME
    data: str  # base64


# ---------------------------------------------------------------- what is shown


@dataclass(frozen=True)
class Shown:
    """The numbers that stand in the maps."""

    values: np.ndarray  # (L, H, R, T)
    label: str
    signed: bool

    def top(self, head: Head | None) -> float:
        return max(float(np.abs(self.values[head] if head else self.values).max()), 1e-9)


def shown(reading: Reading | Sentence, quantity: str, beside: Reading | Sentence | None = None) -> Shown:
    """Raises ValueError for a quantity that is none, or that this reading has not."""
    weights = reading.weights
    match quantity:
        case "weights":
            return Shown(weights, "attention weight", False)
        case "norms":
            if reading.value_norms is not None:
                return Shown(weights * reading.value_norms[:, :, None, :], "weight × length of the value", False)
        case "difference":
            means = reading.mean_maps
            if means is not None and means.shape == weights.shape:
                return Shown(weights - means, "weight − the head’s mean weight", True)
        case "beside":
            if beside is not None and beside.weights.shape == weights.shape:
                return Shown(weights - beside.weights, f"weight − weight of {named(beside)}", True)
    raise Refusal("unknown_quantity", quantity=repr(quantity))


def named(reading: Reading | Sentence) -> str:
    """A reading in the title of a figure."""
    off, second = ", ".join(written(reading.off)), two_parts(reading).get("second")
    texts = f"{reading.sequence} → {second}" if second else reading.sequence
    return f"{texts}, {reading.checkpoint}" + (f", without {off}" if off else "")


def two_parts(reading: Reading | Sentence) -> dict[str, str]:
    return reading.two_parts if isinstance(reading, Sentence) else {}


# ---------------------------------------------------------------- figures


def head_figure(
    reading: Reading | Sentence,
    head: Any,
    *,
    quantity: str = "weights",
    beside: Reading | Sentence | None = None,
    arcs: bool = False,
    shared_scale: bool,
) -> Figure:
    """One head, large: the article's figure; or that of another reading, its own and the difference, side by side.

    Raises ValueError for a head that the model has not.
    """
    L, H = reading.weights.shape[:2]
    ((layer, number),) = known_heads(L, H, [head])
    place, title = (layer, number), f"layer {layer}, head {number}"
    kind = two_parts(reading).get("kind")
    if kind:
        title = f"{kind} attention, {title}"
    if beside is not None and layer < beside.weights.shape[0] and number < beside.weights.shape[1]:
        plain = "weights" if quantity == "beside" else quantity
        sides = [shown(beside, plain), shown(reading, plain)]
        top = max(side.top(None if shared_scale else place) for side in sides)
        panels = [
            (side.values[place], top, side, f"{title}: {named(of)}", of)
            for side, of in zip(sides, (beside, reading), strict=True)
        ]
        if sides[0].values.shape == sides[1].values.shape:
            change = Shown(sides[1].values - sides[0].values, f"{sides[1].label}: second − first", True)
            panels.append((change.values[place], change.top(place), change, "second − first", reading))
    else:
        one = shown(reading, quantity, beside)
        panels = [(one.values[place], one.top(None if shared_scale else place), one, title, reading)]
    height, width = (side_of(max(values.shape[axis] for values, *_ in panels)) for axis in (0, 1))
    figure = new_figure(len(panels) * (width + 1.6), height + 0.9, layout="constrained")
    for ax, (values, top, what, title, of) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        look: dict[str, Any] = {"title": title, "vmax": top, "signed": what.signed, "ax": ax}
        if arcs:
            attention_arcs(values, of.labels, of.key_labels, **look)
        else:
            attention_map(values, of.labels, of.key_labels, label=what.label, **look)
    return figure


def grid_figure(
    reading: Reading | Sentence,
    *,
    quantity: str = "weights",
    beside: Reading | Sentence | None = None,
    shared_scale: bool,
) -> Figure:
    what, kind = shown(reading, quantity, beside), two_parts(reading).get("kind")
    return attention_grid(
        what.values,
        reading.labels,
        reading.key_labels,
        title=f"{kind} attention" if kind else None,
        shared_scale=shared_scale,
        uniform=0 if what.signed else None,
        label=what.label,
    )


@cache
def chinese_font() -> str | None:
    known = {font.name for font in fontManager.ttflist}
    return next((name for name in CHINESE if name in known), None)


def speak(figure: Figure, language: str) -> Figure:
    """Label a figure in a language; where no font here has it, it stays English. Tokens stay what they are."""
    font = chinese_font()
    if language == "zh" and font:
        for text in (*figure.texts, *(t for ax in figure.axes for t in (ax.title, ax.xaxis.label, ax.yaxis.label))):
            text.set(text=of_figure(language, text.get_text()), family=[FONT, font])
    return figure


def in_lines(figure: Figure) -> Figure:
    """Break titles into lines where they would run into each other, and what stands beside the colours where it would
    run out of the figure: texts are longer than a map is wide or high."""
    titles = [ax.title for ax in figure.axes if ax.get_title()]
    width, height = 72 * figure.get_size_inches()  # in points
    rooms = [(title, width / len(titles)) for title in titles]
    for text, room in rooms + [(ax.yaxis.label, height) for ax in figure.axes]:
        text.set_text(fill(text.get_text(), int(room / (0.62 * float(text.get_fontsize())))))
    return figure


# ---------------------------------------------------------------- tables


def weights_csv(reading: Reading | Sentence) -> bytes:
    """One line per weight: layer, head, query, query_token, key, key_token, weight; all are counted from 0.

    Of a model of two parts `kind` stands before them: encoder, decoder or cross.
    """
    layer, head, query, key = np.indices(reading.weights.shape).reshape(4, -1)
    tokens, keys = np.array(reading.pieces), np.array(reading.key_pieces)
    columns: dict[str, Any] = {name: value for name, value in two_parts(reading).items() if name == "kind"}
    columns |= {"layer": layer, "head": head, "query": query, "query_token": tokens[query]}
    columns |= {"key": key, "key_token": keys[key], "weight": reading.weights.ravel()}
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n").encode()


def weights_npz(reading: Reading | Sentence) -> bytes:
    """`weights` (L, H, T, T), `value_norms` (L, H, T), `tokens` (T,), `off` (n, 2), `checkpoint`, and what the model
    says: `logits` (C,), or `embedding` (D,) of a model that answers with one.

    Of a model of two parts `kind` as well: encoder, decoder or cross; `weights` are (L, H, R, T), `tokens` (R,) those
    that look, `keys` (T,) those that are looked at, and `off` (n,) has names as cross.0.1: kind, layer and head.
    """
    content = io.BytesIO()
    arrays: dict[str, Any] = {"weights": reading.weights, **reading.numbers}
    if reading.value_norms is not None:
        arrays["value_norms"] = reading.value_norms
    if kind := two_parts(reading).get("kind"):
        arrays |= {"kind": np.array(kind), "keys": np.array(reading.key_pieces)}
        arrays["off"] = np.array(written(reading.off), dtype=str)
    else:
        arrays["off"] = np.array(reading.off, dtype=np.int64).reshape(-1, 2)
    np.savez_compressed(content, **arrays, tokens=np.array(reading.pieces), checkpoint=np.array(reading.checkpoint))
    return content.getvalue()


# ---------------------------------------------------------------- files


def file(
    reading: Reading | Sentence, ending: str, head: Any, *, arcs: bool = False, language: str = "en", **how: Any
) -> Download:
    """One head, or all of them where `head` is None, as a file. Raises ValueError for an ending that is none.

    `how`: the quantity, the other reading, the scale, as `head_figure` and `grid_figure` take them.
    """
    name = "-".join(("attention", *filter(None, [two_parts(reading).get("kind")])))
    match ending:
        case "csv":
            return download(f"{name}.csv", weights_csv(reading))
        case "npz":
            return download(f"{name}.npz", weights_npz(reading))
        case "png" | "svg" | "pdf" if head is None:
            figure = grid_figure(reading, **how)
        case "png" | "svg" | "pdf":
            figure = head_figure(reading, head, arcs=arcs, **how)
            name = f"{name}-layer{head[0]}-head{head[1]}"
        case _:
            raise Refusal("unknown_ending", ending=repr(ending), known=", ".join(TYPES))
    return download(f"{name}.{ending}", drawn(in_lines(speak(figure, language)), ending))


def drawn(figure: Figure, ending: str) -> bytes:
    content = io.BytesIO()
    with SVG_IDS, mpl.rc_context({"svg.hashsalt": "attnkit"}):  # else the ids in it are drawn by lot
        figure.savefig(content, format=ending, dpi=DPI, metadata=NO_DATE[ending])
    return content.getvalue()


def download(name: str, content: bytes) -> Download:
    return Download(name=name, type=TYPES[name.rsplit(".", 1)[1]], data=base64.b64encode(content).decode())
