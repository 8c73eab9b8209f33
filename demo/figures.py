"""What a person takes away: figures of what is shown, and the weights as tables. No gradio here."""

import base64
import io
from dataclasses import dataclass
from typing import Any, TypedDict

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnkit.arcs import attention_arcs
from attnkit.heatmaps import attention_grid, attention_map
from attnkit.plots import DPI, SVG_IDS
from attnkit.style import new_figure
from demo.shelf import open_reference
from demo.views import Head, Reading, known_heads
from demo.words import Refusal

TYPES = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "csv": "text/csv",
    "npz": "application/x-npz",
}
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

    values: np.ndarray  # (L, H, T, T)
    label: str
    signed: bool

    def top(self, head: Head | None) -> float:
        return max(float(np.abs(self.values[head] if head else self.values).max()), 1e-9)


def shown(reading: Reading, quantity: str, beside: Reading | None = None) -> Shown:
    """Raises ValueError for a quantity that is none, or that this reading has not."""
    weights = reading.weights
    match quantity:
        case "weights":
            return Shown(weights, "attention weight", False)
        case "norms":
            return Shown(weights * reading.value_norms[:, :, None, :], "weight × length of the value", False)
        case "difference":
            known = open_reference(reading.checkpoint)
            if known is not None and known.mean_attention.shape == weights.shape:
                return Shown(weights - known.mean_attention, "weight − the head’s mean weight", True)
        case "beside":
            if beside is not None and beside.weights.shape == weights.shape:
                return Shown(weights - beside.weights, f"weight − weight of {named(beside)}", True)
    raise Refusal("unknown_quantity", quantity=repr(quantity))


def named(reading: Reading) -> str:
    """A reading in the title of a figure."""
    off = ", ".join(f"{layer}.{head}" for layer, head in reading.off)
    return f"{reading.sequence}, {reading.checkpoint}" + (f", without {off}" if off else "")


# ---------------------------------------------------------------- figures


def head_figure(
    reading: Reading,
    head: Any,
    *,
    quantity: str = "weights",
    beside: Reading | None = None,
    arcs: bool = False,
    shared_scale: bool,
) -> Figure:
    """One head, large: the article's figure; or that of another reading, its own and the difference, side by side.

    Raises ValueError for a head that the model has not.
    """
    ((layer, number),) = known_heads(reading.info, [head])
    place, title = (layer, number), f"layer {layer}, head {number}"
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
    side = min(max(3.0, 0.3 * max(len(values) for values, *_ in panels)), 9.6)
    figure = new_figure(len(panels) * (side + 1.6), side + 0.9, layout="constrained")
    for ax, (values, top, what, title, of) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        look: dict[str, Any] = {"title": title, "vmax": top, "signed": what.signed, "ax": ax}
        if arcs:
            attention_arcs(values, list(of.sequence), **look)
        else:
            attention_map(values, list(of.sequence), label=what.label, **look)
    return figure


def grid_figure(
    reading: Reading, *, quantity: str = "weights", beside: Reading | None = None, shared_scale: bool
) -> Figure:
    what = shown(reading, quantity, beside)
    return attention_grid(
        what.values,
        list(reading.sequence),
        shared_scale=shared_scale,
        uniform=0 if what.signed else None,
        label=what.label,
    )


# ---------------------------------------------------------------- tables


def weights_csv(reading: Reading) -> bytes:
    """One line per weight: layer, head, query, query_token, key, key_token, weight; all are counted from 0."""
    layer, head, query, key = np.indices(reading.weights.shape).reshape(4, -1)
    tokens = np.array(list(reading.sequence))
    columns = {"layer": layer, "head": head, "query": query, "query_token": tokens[query]}
    columns |= {"key": key, "key_token": tokens[key], "weight": reading.weights.ravel()}
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n").encode()


def weights_npz(reading: Reading) -> bytes:
    """`weights` (L, H, T, T), `value_norms` (L, H, T), `logits` (C,), `tokens` (T,), `off` (n, 2), `checkpoint`."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        weights=reading.weights,
        value_norms=reading.value_norms,
        logits=reading.logits.numpy(),
        tokens=np.array(list(reading.sequence)),
        off=np.array(reading.off, dtype=np.int64).reshape(-1, 2),
        checkpoint=np.array(reading.checkpoint),
    )
    return content.getvalue()


# ---------------------------------------------------------------- files


def file(reading: Reading, ending: str, head: Any, *, arcs: bool = False, **how: Any) -> Download:
    """One head, or all of them where `head` is None, as a file. Raises ValueError for an ending that is none.

    `how`: the quantity, the other reading, the scale, as `head_figure` and `grid_figure` take them.
    """
    match ending:
        case "csv":
            return download("attention.csv", weights_csv(reading))
        case "npz":
            return download("attention.npz", weights_npz(reading))
        case "png" | "svg" | "pdf" if head is None:
            return download(f"attention.{ending}", drawn(grid_figure(reading, **how), ending))
        case "png" | "svg" | "pdf":
            figure = head_figure(reading, head, arcs=arcs, **how)
            layer, number = head
            return download(f"attention-layer{layer}-head{number}.{ending}", drawn(figure, ending))
    raise Refusal("unknown_ending", ending=repr(ending), known=", ".join(TYPES))


def drawn(figure: Figure, ending: str) -> bytes:
    content = io.BytesIO()
    with SVG_IDS, mpl.rc_context({"svg.hashsalt": "attnkit"}):  # else the ids in it are drawn by lot
        figure.savefig(content, format=ending, dpi=DPI, metadata=NO_DATE[ending])
    return content.getvalue()


def download(name: str, content: bytes) -> Download:
    return Download(name=name, type=TYPES[name.rsplit(".", 1)[1]], data=base64.b64encode(content).decode())
