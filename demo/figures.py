"""What a person takes away: figures, and the weights as a table. No gradio here."""

import base64
import io
from typing import Any, TypedDict

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnkit.maps import attention_grid, attention_map
from attnkit.plots import DPI
from demo.views import Reading, known_heads
from demo.words import Refusal

TYPES = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv"}


class Download(TypedDict):
    name: str
    type: str  # MIME
    data: str  # base64


def head_figure(reading: Reading, layer: int, head: int, *, shared_scale: bool) -> Figure:
    """The article's figure: one head, large. Raises ValueError for a head that the model has not."""
    ((layer, head),) = known_heads(reading.info, [[layer, head]])
    strongest = float(reading.weights.max()) if shared_scale else None
    title = f"layer {layer}, head {head}"
    figure = attention_map(reading.weights[layer, head], list(reading.sequence), title=title, vmax=strongest).figure
    assert isinstance(figure, Figure)
    return figure


def grid_figure(reading: Reading, *, shared_scale: bool) -> Figure:
    return attention_grid(reading.weights, list(reading.sequence), shared_scale=shared_scale)


def weights_csv(reading: Reading) -> str:
    """One line per weight: layer, head, query, query_token, key, key_token, weight; all are counted from 0."""
    layer, head, query, key = np.indices(reading.weights.shape).reshape(4, -1)
    tokens = np.array(list(reading.sequence))
    columns = {"layer": layer, "head": head, "query": query, "query_token": tokens[query]}
    columns |= {"key": key, "key_token": tokens[key], "weight": reading.weights.ravel()}
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")


def file(reading: Reading, ending: str, head: Any, *, shared_scale: bool) -> Download:
    """One head, or all of them where `head` is None, as a file. Raises ValueError for an ending that is none."""
    if ending not in TYPES:
        raise Refusal("unknown_ending", ending=repr(ending), known=", ".join(TYPES))
    if ending == "csv":
        return download("attention.csv", weights_csv(reading))
    if head is None:
        return download(f"attention.{ending}", grid_figure(reading, shared_scale=shared_scale))
    ((layer, number),) = known_heads(reading.info, [head])
    figure = head_figure(reading, layer, number, shared_scale=shared_scale)
    return download(f"attention-layer{layer}-head{number}.{ending}", figure)


def download(name: str, content: Figure | str) -> Download:
    """A file for the browser to save; the ending of its name says what is made of the content."""
    ending = name.rsplit(".", 1)[1]
    if isinstance(content, Figure):
        file = io.BytesIO()
        content.savefig(file, format=ending, dpi=DPI)
        raw = file.getvalue()
    else:
        raw = content.encode()
    return Download(name=name, type=TYPES[ending], data=base64.b64encode(raw).decode())
