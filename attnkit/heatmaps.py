"""Figures of attention maps: one head large, or every head on one grid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from attnkit.style import (
    DIVERGING,
    SEQUENTIAL,
    TEXT,
    centred,
    dress,
    dress_bar,
    new_figure,
    printable,
    put_ticks,
    token_ticks,
)

Array = np.ndarray | Tensor | Sequence[Any]


def attention_map(
    weights: Array,
    tokens: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str | None = None,
    vmax: float | int | None = None,
    signed: bool = False,
    label: str = "attention weight",
    ax: Axes | None = None,
) -> Axes:
    """Draw one head's attention on one sequence: rows are queries, columns are keys, the first token at the top.

    `weights` (T, T): row i is how query i divides its attention, 0 to 1. `tokens`: T labels; those of the queries
    alone where these look at other tokens, the `keys`: then `weights` are (R, T). Colours run from 0 to `vmax`, by
    default the largest weight; with `signed`, from −`vmax`, white at 0. `label` names what the numbers are where they
    are no weights, such as a difference of two maps. Raises ValueError if these do not fit together.
    """
    weights = one_map(weights, tokens, keys)
    R, T = weights.shape
    if ax is None:
        ax = new_figure(side_of(T) + 1.6, side_of(R) + 0.9, layout="constrained").subplots()
    top = np.abs(weights).max() if vmax is None else vmax
    colours = {"cmap": DIVERGING, "vmin": -top} if signed else {"cmap": SEQUENTIAL, "vmin": 0}
    image = ax.imshow(weights, vmax=top, aspect="equal" if R == T else "auto", **colours)
    dress(ax, title=title, x="key", y="query")
    box = ax.get_window_extent()
    width, height = (float(min(box.width, box.height) if R == T else of) for of in (box.width, box.height))
    put_ticks(ax.xaxis, token_ticks(tokens if keys is None else keys, width / ax.figure.dpi))
    put_ticks(ax.yaxis, token_ticks(tokens, height / ax.figure.dpi))
    dress_bar(ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03), label)
    return ax


def attention_grid(
    maps: Array,
    tokens: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    shared_scale: bool = True,
    uniform: float | int | None = None,
    title: str | None = None,
    label: str = "attention weight",
) -> Figure:
    """Draw every head's map: layers are rows, heads are columns, and in each map as in `attention_map`.

    `maps` (L, H, T, T), or the model's own list of L arrays (1, H, T, T). With `shared_scale` one colour is one
    weight everywhere; without, the colours of each map end at the weights written above it. `uniform` is the weight
    that uniform attention would give: with it colours tell the departure, white there, blue below, red above;
    of differences that is 0, and `label` names them. Without `tokens` the positions are labelled, from 0; `keys` as
    in `attention_map`. Raises ValueError if the maps and tokens do not fit together.
    """
    maps = every_map(maps, tokens, keys)
    L, H, R, _ = maps.shape
    side = min(max(0.9, min(2.4, 12 / H)), 50 / max(L, H))  # inches, as every length here
    gap = 0.12 if shared_scale else 0.28
    rows = token_ticks(R if tokens is None else tokens, side)
    columns = rows if keys is None else token_ticks(keys, side)
    left, right = 0.75 + rows.length, 1.15 if shared_scale else 0.2
    top, bottom = 0.3 + 0.35 * bool(title) + 0.15 * (not shared_scale), 0.45 + columns.length
    width, height = left + H * side + (H - 1) * gap + right, top + L * side + (L - 1) * gap + bottom
    figure = new_figure(width, height)
    cells = figure.add_gridspec(
        L,
        H,
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=gap / side,
        hspace=gap / side,
    )
    panels = cells.subplots(squeeze=False)
    for (layer, head), ax in np.ndenumerate(panels):
        colours = colour_scale(maps if shared_scale else maps[layer, head], uniform)
        image = ax.imshow(maps[layer, head], aspect="auto", **colours)
        dress(ax)
        ax.set(xticks=[], yticks=[])
        above = [f"head {head}"] if layer == 0 else []
        if not shared_scale:
            above.append(f"{colours['vmin']:.2g} to {colours['vmax']:.2g}")
        ax.set_title("\n".join(above), size=9, pad=4, **TEXT)
        if head == 0:
            put_ticks(ax.yaxis, rows)
            ax.set_ylabel(f"layer {layer}", size=9, **TEXT)
        if layer == L - 1:
            put_ticks(ax.xaxis, columns)
    figure.supxlabel("key", x=(left + width - right) / 2 / width, y=0.1 / height, va="bottom", size=10, **TEXT)
    figure.supylabel("query", x=0.1 / width, y=(bottom + height - top) / 2 / height, ha="left", size=10, **TEXT)
    if title:
        figure.suptitle(printable(title), y=1 - 0.12 / height, va="top", size=12, **TEXT)
    if shared_scale:
        tall = min(height - top - bottom, 4.0)
        middle = (bottom + height - top) / 2
        bar = figure.add_axes((1 - (right - 0.2) / width, (middle - tall / 2) / height, 0.16 / width, tall / height))
        dress_bar(figure.colorbar(image, cax=bar), label + (" (white: uniform)" if uniform else ""))
    return figure


def colour_scale(weights: np.ndarray, uniform: float | int | None) -> dict[str, Any]:
    if uniform is None:
        return {"vmin": 0, "vmax": weights.max(), "cmap": SEQUENTIAL}
    return centred(weights, uniform, least=max(0.1 * uniform, 1e-9))  # rounding is not worth a colour


# ---------------------------------------------------------------- what goes in


def side_of(tokens: int) -> float:
    """How long a side of a large map of so many tokens is, in inches."""
    return min(max(3.0, 0.3 * tokens), 9.6)


def one_map(weights: Array, tokens: Sequence[str], keys: Sequence[str] | None = None) -> np.ndarray:
    """(T, T), with `keys` (R, T); one of (1, H, T, T) or (1, T, T) is taken where there is only one."""
    maps = to_numpy(weights)
    if maps.ndim == 4:
        maps = one_sequence("weights", maps, batch_axis=0)
    check_maps("weights", maps, tokens, keys)
    if maps.ndim == 3 and len(maps) == 1:
        maps = maps[0]
    if maps.ndim != 2:
        raise ValueError(f"weights: expects one sequence and one head, (T, T); got shape {maps.shape}")
    return maps


def every_map(weights: Array, tokens: Sequence[str] | None, keys: Sequence[str] | None = None) -> np.ndarray:
    """(L, H, T, T), with `keys` (L, H, R, T), from that or from (L, 1, H, T, T)."""
    maps = to_numpy(weights)
    if maps.ndim == 5:
        maps = one_sequence("maps", maps, batch_axis=1)
    check_maps("maps", maps, tokens, keys)
    if maps.ndim != 4:
        raise ValueError(f"maps: expects every layer and head of one sequence, (L, H, T, T); got shape {maps.shape}")
    return maps


def to_numpy(weights: Array) -> np.ndarray:
    if isinstance(weights, Tensor):
        return weights.detach().cpu().double().numpy()
    if isinstance(weights, np.ndarray):
        return weights.astype(float)
    return np.array([to_numpy(part) if isinstance(part, Tensor | Sequence) else part for part in weights], dtype=float)


def one_sequence(name: str, maps: np.ndarray, batch_axis: int) -> np.ndarray:
    if maps.shape[batch_axis] != 1:
        raise ValueError(f"{name}: expects one sequence, got a batch of {maps.shape[batch_axis]}")
    return maps.squeeze(batch_axis)


def check_maps(name: str, maps: np.ndarray, tokens: Sequence[str] | None, keys: Sequence[str] | None) -> None:
    if maps.ndim < 2 or not maps.size or (keys is None and maps.shape[-1] != maps.shape[-2]):
        raise ValueError(f"{name}: expects as many queries as keys, (…, T, T); got shape {maps.shape}")
    R, T = maps.shape[-2:]
    if tokens is not None and len(tokens) != R:
        raise ValueError(f"{name}: {R} positions but {len(tokens)} tokens")
    if keys is not None and len(keys) != T:
        raise ValueError(f"keys: {name} have {T} but {len(keys)} labels for them")
    if not np.isfinite(maps).all():
        raise ValueError(f"{name}: has values that are not finite; allowed are weights from 0 to 1")
