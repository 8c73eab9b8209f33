"""Figures of attention maps and of the tables of their statistics.

A frame or an array goes in, Axes come out, or a Figure where there is more than one panel. Nothing is computed
here but places and colours, and pyplot's global state is never touched, so that threads can draw side by side.

The frames are those of `analysis.head_stats`: `head_stats_long` (layer, head, statistic, group, mean, uniform, and
ci_low, ci_high where there is a sampling error) and `histograms` (layer, head, statistic, group, low, high, count).
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from torch import Tensor

from attnkit.files import staged
from attnkit.labels import group_words, words, words_and_unit
from attnkit.style import (
    DIVERGING,
    FAINT,
    PAPER,
    SEQUENTIAL,
    TEXT,
    dress,
    dress_bar,
    ink_on,
    new_figure,
    printable,
    put_ticks,
    token_ticks,
)

DPI = 144
LARGEST = 10_000  # pixels on a side; beyond, programs refuse to open an image
MAX_WRITTEN = 16  # layers or heads, up to which the cells of a heat map have their values written in
GROUP_COLOURS = [
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#000000",
    "#e69f00",
]  # Okabe & Ito, safe for colour-blind eyes

Array = np.ndarray | Tensor | Sequence[Any]


def attention_map(
    weights: Array,
    tokens: Sequence[str],
    *,
    title: str | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw one head's attention on one sequence: rows are queries, columns are keys, the first token at the top.

    `weights` (T, T): row i is how query i divides its attention, 0 to 1. `tokens`: T labels. Colours run from 0
    to `vmax`, by default the largest weight. Raises ValueError if these do not fit together.
    """
    weights = one_map(weights, tokens)
    if ax is None:
        side = min(max(3.0, 0.3 * len(weights)), 9.6)
        ax = new_figure(side + 1.6, side + 0.9, layout="constrained").subplots()
    image = ax.imshow(weights, cmap=SEQUENTIAL, vmin=0, vmax=weights.max() if vmax is None else vmax)
    dress(ax, title=title, x="key", y="query")
    box = ax.get_window_extent()
    ticks = token_ticks(tokens, min(box.width, box.height) / ax.figure.dpi)
    put_ticks(ax.xaxis, ticks)
    put_ticks(ax.yaxis, ticks)
    dress_bar(ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03), "attention weight")
    return ax


def attention_grid(
    maps: Array, tokens: Sequence[str] | None = None, *, shared_scale: bool = True, title: str | None = None
) -> Figure:
    """Draw every head's map: layers are rows, heads are columns, and in each map as in `attention_map`.

    `maps` (L, H, T, T), or the model's own list of L arrays (1, H, T, T). With `shared_scale` one colour is one
    weight everywhere; without, the colours of each map end at the weight written above it. Without `tokens` the
    positions are labelled, from 0. Raises ValueError if the maps and tokens do not fit together.
    """
    maps = every_map(maps, tokens)
    L, H, T, _ = maps.shape
    side = min(max(0.9, min(2.4, 12 / H)), 50 / max(L, H))  # inches, as every length here
    gap = 0.12 if shared_scale else 0.28
    ticks = token_ticks(T if tokens is None else tokens, side)
    left, right = 0.75 + ticks.length, 1.15 if shared_scale else 0.2
    top, bottom = 0.3 + 0.35 * bool(title) + 0.15 * (not shared_scale), 0.45 + ticks.length
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
        strongest = maps.max() if shared_scale else maps[layer, head].max()
        image = ax.imshow(maps[layer, head], cmap=SEQUENTIAL, vmin=0, vmax=strongest, aspect="auto")
        dress(ax)
        ax.set(xticks=[], yticks=[])
        above = [f"head {head}"] if layer == 0 else []
        if not shared_scale:
            above.append(f"0 to {strongest:.2g}")
        ax.set_title("\n".join(above), size=9, pad=4, **TEXT)
        if head == 0:
            put_ticks(ax.yaxis, ticks)
            ax.set_ylabel(f"layer {layer}", size=9, **TEXT)
        if layer == L - 1:
            put_ticks(ax.xaxis, ticks)
    figure.supxlabel("key", x=(left + width - right) / 2 / width, y=0.1 / height, va="bottom", size=10, **TEXT)
    figure.supylabel("query", x=0.1 / width, y=(bottom + height - top) / 2 / height, ha="left", size=10, **TEXT)
    if title:
        figure.suptitle(printable(title), y=1 - 0.12 / height, va="top", size=12, **TEXT)
    if shared_scale:
        tall = min(height - top - bottom, 4.0)
        middle = (bottom + height - top) / 2
        bar = figure.add_axes((1 - (right - 0.2) / width, (middle - tall / 2) / height, 0.16 / width, tall / height))
        dress_bar(figure.colorbar(image, cax=bar), "attention weight")
    return figure


# ---------------------------------------------------------------- tables of statistics


def statistic_heatmap(frame: pd.DataFrame, statistic: str, *, group: str = "all", ax: Axes | None = None) -> Axes:
    """Draw one statistic of every head, layers as rows and heads as columns, with the means written in.

    What uniform attention would give stands under the heads. Raises ValueError for a statistic or group that the
    frame has not.
    """
    rows = select(frame, statistic, group)
    table = layer_by_head(rows)
    L, H = table.shape
    if ax is None:
        ax = new_figure(min(max(4.2, 0.72 * H + 1.8), 16), min(max(1.9, 0.5 * L + 1.3), 16), "constrained").subplots()
    draw_cells(ax, table, size=9)
    uniform = same_for_all(rows["uniform"])
    note = "" if uniform is None else f"\nuniform attention would be {number(uniform)}"
    dress(
        ax, title=words(statistic) + ("" if group == "all" else f" ({group_words(group)})"), x="head" + note, y="layer"
    )
    bar = ax.figure.colorbar(ax.collections[0], ax=ax, fraction=0.05, pad=0.02)
    dress_bar(bar, words_and_unit(statistic).replace(" (", "\n("))
    return ax


def statistic_grid(frame: pd.DataFrame, *, group: str = "all") -> Figure:
    """Draw every statistic of the frame as a small heat map of layers (rows) and heads (columns), on its own scale."""
    frame = frame[frame["group"] == group]
    if frame.empty:
        raise ValueError(f"group: {group!r} is not in the table")
    statistics = list(frame["statistic"].unique())
    L, H = frame["layer"].nunique(), frame["head"].nunique()
    columns = 4 if H <= 8 else 3
    lines = -(-len(statistics) // columns)
    width, height = min(max(2.5, 0.36 * H), 4.2), min(max(0.8, 0.36 * L), 4.2)
    figure = new_figure(columns * (width + 0.3), lines * (height + 0.8), "constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for ax, statistic in zip(panels, statistics, strict=False):
        rows = select(frame, statistic, group)
        draw_cells(ax, layer_by_head(rows), size=7)
        dress(ax, title=words_and_unit(statistic))
        ax.title.set_size(9)
        ax.tick_params(labelsize=7)
        reference = same_for_all(rows["uniform"])
        if reference is not None:
            ax.set_xlabel(f"uniform attention: {number(reference)}", size=7.5, **TEXT | {"color": FAINT})
    for ax in panels[len(statistics) :]:
        ax.set_axis_off()
    figure.supxlabel("head", size=9, **TEXT)
    figure.supylabel("layer", size=9, **TEXT)
    return figure


def distribution(histograms: pd.DataFrame, statistic: str, *, group: str = "all", layer: int | None = None) -> Figure:
    """Draw how the sequences spread: for each head a histogram of the sequence values of one statistic.

    A panel for each layer (or for `layer` alone), a row for each head. Heights are scaled to the row's own peak.
    Raises ValueError for a statistic, group or layer that the frame has not.
    """
    rows = select(histograms, statistic, group)
    rows = rows[rows["count"] > 0]
    if layer is not None:
        rows = rows[rows["layer"] == layer]
    if rows.empty:
        raise ValueError(f"layer: {layer} is not in the table")
    edges = np.unique(rows[["low", "high"]])
    steps = rows["high"] - rows["low"]
    layers = sorted(rows["layer"].unique())
    heads = sorted(rows["head"].unique())
    columns = min(len(layers), 4)
    lines = -(-len(layers) // columns)
    figure = new_figure(columns * 3.4 + 0.4, lines * (0.34 * len(heads) + 0.7), "constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).flat)
    for ax, number_of_layer in zip(panels, layers, strict=False):
        for line, head in enumerate(heads):
            of_head = rows[(rows["layer"] == number_of_layer) & (rows["head"] == head)]
            counts = of_head.set_index("low")["count"].reindex(edges[:-1], fill_value=0).to_numpy(float)
            heights = 0.86 * counts / max(counts.max(), 1)
            ax.stairs(heights - line, edges, baseline=-line, fill=True, color=SEQUENTIAL(0.6))
            ax.axhline(-line, color=FAINT, linewidth=0.5)
        dress(ax, title=f"layer {number_of_layer}")
        ax.set_yticks([0.3 - line for line in range(len(heads))], [f"head {head}" for head in heads])
        ax.tick_params(axis="y", length=0)
        ax.spines[["left", "right", "top"]].set_visible(False)
        if steps.max() > 1.001 * steps.min():  # the bins are even in the logarithm
            ax.set_xscale("log")
    for ax in panels[len(layers) :]:
        ax.set_axis_off()
    figure.supxlabel(f"{words_and_unit(statistic)}, one value a sequence", size=10, **TEXT)
    return figure


def by_group(frame: pd.DataFrame, statistic: str, *, groups: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw one statistic of every head for several groups of sequences side by side.

    Points are means; bars are the frame's own 95 % intervals (`ci_low`, `ci_high`), where it has them. Grey strokes
    are what uniform attention would give on the same sequences.
    """
    parts = {group: select(frame, statistic, group) for group in groups}
    if not parts:
        raise ValueError("groups: is empty; expects at least one group of the table")
    names = sorted({head for part in parts.values() for head in zip(part["layer"], part["head"], strict=True)})
    places = {head: line for line, head in enumerate(names)}
    if ax is None:
        ax = new_figure(7.4, min(0.42 * len(names), 60) + 1.1, "constrained").subplots()
    has_bars = "ci_low" in frame and all(part["ci_low"].notna().all() for part in parts.values())
    for k, (group, part) in enumerate(parts.items()):
        shift = 0.6 * ((k + 0.5) / len(parts) - 0.5)
        y = [places[head] + shift for head in zip(part["layer"], part["head"], strict=True)]
        bars = [part["mean"] - part["ci_low"], part["ci_high"] - part["mean"]] if has_bars else None
        style: dict[str, Any] = {
            "color": GROUP_COLOURS[k % len(GROUP_COLOURS)],
            "marker": "osD^vP"[k % 6],
            "linestyle": "none",
        }
        ax.errorbar(part["mean"], y, xerr=bars, markersize=5.5, capsize=2.5, label=group_words(group), **style)
        if part["uniform"].notna().any():
            label = "uniform attention" if k == len(parts) - 1 else None
            ax.scatter(part["uniform"], y, marker="|", s=60, color=FAINT, linewidth=1.2, zorder=1, label=label)
    for line in range(1, len(names)):
        ax.axhline(line - 0.5, color=FAINT, linewidth=0.8 if names[line][0] != names[line - 1][0] else 0.2)
    meaning = (
        "bars: 95 % interval of the mean over sequences" if has_bars else "no bars: these are all sequences there are"
    )
    dress(ax, title=words(statistic), x=f"{words_and_unit(statistic)}\n{meaning}")
    ax.set_yticks(range(len(names)), [f"layer {layer}, head {head}" for layer, head in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for text in legend.get_texts():
        text.set(**TEXT, size=9)
    return ax


def select(frame: pd.DataFrame, statistic: str, group: str) -> pd.DataFrame:
    for column, value in (("statistic", statistic), ("group", group)):
        frame, found = frame[frame[column] == value], list(frame[column].unique())
        if frame.empty:
            raise ValueError(f"{column}: got {value!r}, the table has {', '.join(map(str, found))}")
    return frame


def layer_by_head(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.pivot(index="layer", columns="head", values="mean")


def same_for_all(values: pd.Series) -> float | None:
    """The one value that all heads have, if they do."""
    return float(values.iloc[0]) if values.notna().all() and np.ptp(values) <= 1e-9 * abs(values.iloc[0]) else None


def draw_cells(ax: Axes, table: pd.DataFrame, *, size: float) -> None:
    """A heat map with its values written in, in `size` points; where it has many cells, colours alone."""
    low, high = np.nanmin(table), np.nanmax(table)
    if high - low <= 1e-5 * max(abs(low), abs(high)):  # no head differs: rounding is not worth a colour
        margin = abs(high) / 2 or 0.5
        low, high = low - margin, high + margin
    cmap = SEQUENTIAL
    if low < 0 < high:  # white is 0
        low, high, cmap = min(low, -high), max(-low, high), DIVERGING
    sns.heatmap(table, vmin=low, vmax=high, cmap=cmap, cbar=False, linewidths=1, linecolor=PAPER, ax=ax)
    ax.tick_params(axis="y", rotation=0)
    if max(table.shape) > MAX_WRITTEN:
        return
    mesh = ax.collections[0]
    mesh.update_scalarmappable()  # the colours of the cells, which are otherwise mixed only when drawn
    for ((row, column), value), colour in zip(
        np.ndenumerate(table.to_numpy()), to_rgba_array(mesh.get_facecolor()), strict=True
    ):
        if np.isfinite(value):
            ink = {"color": ink_on(colour)}
            ax.text(column + 0.5, row + 0.5, number(value), ha="center", va="center", size=size, **TEXT | ink)


def number(value: float) -> str:
    """Three digits that matter, short enough for a cell."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0e}" if 0 < abs(value) < 0.001 else f"{value:.3g}"


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg, and return these two paths. The same figure gives the same bytes.

    Each file is complete or not there. No side of the image has more than 10,000 pixels.
    """
    path = Path(path)
    png, svg = path.with_name(path.name + ".png"), path.with_name(path.name + ".svg")
    dpi = min(DPI, LARGEST / max(figure.get_size_inches()))
    with staged(path.parent, last=svg.name) as folder, SVG_IDS, mpl.rc_context({"svg.hashsalt": "attnkit"}):
        figure.savefig(folder / png.name, dpi=dpi, metadata={"Software": None})
        figure.savefig(folder / svg.name, metadata={"Date": None, "Creator": None})
    return png, svg


SVG_IDS = threading.Lock()  # matplotlib keeps the salt of an SVG's ids in its global settings


# ---------------------------------------------------------------- what goes in


def one_map(weights: Array, tokens: Sequence[str]) -> np.ndarray:
    """(T, T); one of (1, H, T, T) or (1, T, T) is taken where there is only one."""
    maps = to_numpy(weights)
    if maps.ndim == 4:
        maps = one_sequence("weights", maps, batch_axis=0)
    check_maps("weights", maps, tokens)
    if maps.ndim == 3 and len(maps) == 1:
        maps = maps[0]
    if maps.ndim != 2:
        raise ValueError(f"weights: expects one sequence and one head, (T, T); got shape {maps.shape}")
    return maps


def every_map(weights: Array, tokens: Sequence[str] | None) -> np.ndarray:
    """(L, H, T, T), from that or from (L, 1, H, T, T)."""
    maps = to_numpy(weights)
    if maps.ndim == 5:
        maps = one_sequence("maps", maps, batch_axis=1)
    check_maps("maps", maps, tokens)
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


def check_maps(name: str, maps: np.ndarray, tokens: Sequence[str] | None) -> None:
    if maps.ndim < 2 or maps.shape[-1] != maps.shape[-2] or not maps.size:
        raise ValueError(f"{name}: expects as many queries as keys, (…, T, T); got shape {maps.shape}")
    if tokens is not None and len(tokens) != maps.shape[-1]:
        raise ValueError(f"{name}: {maps.shape[-1]} positions but {len(tokens)} tokens")
    if not np.isfinite(maps).all():
        raise ValueError(f"{name}: has values that are not finite; allowed are weights from 0 to 1")
