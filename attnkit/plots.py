"""Figures of attention maps and of the tables of their statistics.

A frame or an array goes in, Axes come out, or a Figure where there is more than one panel. Nothing is computed
here but places and colours, and pyplot's global state is never touched, so that threads can draw side by side.

The frames are those of `analysis.head_stats`: `head_stats_long` (layer, head, statistic, group, mean, uniform, and
ci_low, ci_high where there is a sampling error) and `histograms` (layer, head, statistic, group, low, high, count).
"""

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import PowerNorm, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from attnkit.files import staged
from attnkit.heatmaps import attention_grid, attention_map
from attnkit.labels import group_words, number, unit, words, words_and_unit
from attnkit.style import (
    FAINT,
    PAPER,
    SEQUENTIAL,
    TEXT,
    centred,
    dress,
    dress_bar,
    ink_on,
    new_figure,
)

__all__ = [
    "attention_grid",
    "attention_map",
    "by_group",
    "distribution",
    "offset_grid",
    "save",
    "statistic_grid",
    "statistic_heatmap",
]

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


def statistic_heatmap(frame: pd.DataFrame, statistic: str, *, group: str = "all", ax: Axes | None = None) -> Axes:
    """Draw one statistic of every head, layers as rows and heads as columns, with the means written in.

    White is what uniform attention would give, blue is less, red is more; a statistic for which that is not said
    runs from light to dark. Raises ValueError for a statistic or group that the frame has not.
    """
    rows = select(frame, statistic, group)
    table = layer_by_head(rows)
    L, H = table.shape
    if ax is None:
        ax = new_figure(
            min(max(4.2, 0.72 * H + 1.8), 16.0), min(max(1.9, 0.5 * L + 1.3), 16.0), "constrained"
        ).subplots()
    uniform = same_for_all(rows["uniform"])
    draw_cells(ax, table, uniform, size=9.0 if max(L, H) <= MAX_WRITTEN else None)
    note = "" if uniform is None else f"\nwhite: uniform attention, {number(uniform)}"
    dress(
        ax, title=words(statistic) + ("" if group == "all" else f" ({group_words(group)})"), x="head" + note, y="layer"
    )
    bar = ax.figure.colorbar(ax.collections[0], ax=ax, fraction=0.05, pad=0.02)
    dress_bar(bar, words_and_unit(statistic).replace(" (", "\n("))
    return ax


def statistic_grid(frame: pd.DataFrame, *, group: str = "all") -> Figure:
    """Draw every statistic of the frame as a small heat map of layers (rows) and heads (columns).

    Colours as in `statistic_heatmap`, each statistic on its own scale. Up to 8 heads the values are written in.
    """
    frame = frame[frame["group"] == group]
    if frame.empty:
        raise ValueError(f"group: {group!r} is not in the table")
    statistics = list(frame["statistic"].unique())
    L, H = frame["layer"].nunique(), frame["head"].nunique()
    columns = 4 if H <= 8 else 3
    lines = -(-len(statistics) // columns)
    width, height = min(max(2.5, 0.36 * H), 4.2), min(max(0.8, 0.36 * L), 4.2)
    figure = new_figure(columns * (width + 0.3), lines * (height + 0.85), ConstrainedLayoutEngine(h_pad=0.1))
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    written = H <= 8
    for ax, statistic in zip(panels, statistics, strict=False):
        rows = select(frame, statistic, group)
        uniform = same_for_all(rows["uniform"])
        draw_cells(ax, layer_by_head(rows), uniform, size=7.0 if written else None)
        dress(ax, title=words_and_unit(statistic))
        ax.title.set_size(9)
        ax.tick_params(labelsize=7)
        notes = [] if written else [f"{number(rows['mean'].min())} to {number(rows['mean'].max())}"]
        notes += [] if uniform is None else [f"white: uniform, {number(uniform)}"]
        ax.set_xlabel("; ".join(notes), size=7.5, **TEXT | {"color": FAINT})
    for ax in panels[len(statistics) :]:
        ax.set_axis_off()
    figure.supxlabel("head", size=9, **TEXT)
    figure.supylabel("layer", size=9, **TEXT)
    return figure


def distribution(
    histograms: pd.DataFrame, statistic: str, *, group: str = "all", layer: int | np.integer | None = None
) -> Figure:
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


def offset_grid(profile: pd.DataFrame, *, reach: int = 16) -> Figure:
    """Draw the mean weight that each head gives to keys so far before (left) and behind (right) the query.

    A panel for each layer, a row for each head. `profile` is `offset_profile` (layer, head, offset, mean); offsets
    beyond `reach` are left out. Colours run with the square root of the weight, the same in all panels.
    """
    near = profile[profile["offset"].abs() <= reach]
    if near.empty:
        raise ValueError(f"reach: got {reach}, the table has no such offset")
    layers = sorted(near["layer"].unique())
    H = near["head"].nunique()
    columns = min(len(layers), 3)
    lines = -(-len(layers) // columns)
    figure = new_figure(columns * 3.9 + 1.0, lines * (0.2 * H + 0.75) + 0.4, "constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).flat)
    scale = PowerNorm(0.5, vmin=0, vmax=near["mean"].max())
    for ax, layer in zip(panels, layers, strict=False):
        table = near[near["layer"] == layer].pivot(index="head", columns="offset", values="mean")
        offsets = table.columns.to_numpy()
        edges = np.append(offsets - 0.5, offsets[-1] + 0.5), np.arange(H + 1) - 0.5
        mesh = ax.pcolormesh(*edges, table.to_numpy(), norm=scale, cmap=SEQUENTIAL)
        dress(ax, title=f"layer {layer}")
        ax.set_yticks(range(0, H, 1 + H // 17))
        ax.tick_params(labelsize=7)
    panels[0].invert_yaxis()
    for ax in panels[len(layers) :]:
        ax.set_axis_off()
    figure.supxlabel("where the key stands, in tokens from the query: left before it, right behind it", size=9, **TEXT)
    figure.supylabel("head", size=9, **TEXT)
    dress_bar(figure.colorbar(mesh, ax=panels, fraction=0.03, pad=0.02), "mean weight (colours by its square root)")
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
    has_bars = "ci_low" in frame
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
        ax.scatter(part["uniform"], y, marker="|", s=60, color=FAINT, linewidth=1.2, zorder=1)
    for line in range(1, len(names)):
        ax.axhline(line - 0.5, color=FAINT, linewidth=0.8 if names[line][0] != names[line - 1][0] else 0.2)
    meaning = "bars: 95 % interval of the mean" if has_bars else "no bars: these are all sequences there are"
    dress(ax, title=words(statistic), x=" · ".join(filter(None, [unit(statistic), meaning])))
    ax.set_yticks(range(len(names)), [f"layer {layer}, head {head}" for layer, head in names])
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    if any(part["uniform"].notna().any() for part in parts.values()):
        handles, labels = [*handles, ax.collections[-1]], [*labels, "uniform attention"]
    legend = ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
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
    """The one value that all heads have, if they do; what rounding leaves of a 0 is 0."""
    first = float(values.iloc[0])
    same = values.notna().all() and np.ptp(values) <= 1e-9 * abs(first)
    return round(first, 12) if same else None


def draw_cells(ax: Axes, table: pd.DataFrame, reference: float | None, *, size: float | None) -> None:
    """A heat map whose colours tell the departure from `reference`, with its values written in `size` points."""
    colours = cell_colours(table.to_numpy(), reference)
    # Without labels: seaborn measures its own one by one, each with an empty picture of the whole figure's size.
    bare: dict[str, Any] = {"cbar": False, "xticklabels": False, "yticklabels": False}
    sns.heatmap(table, linewidths=1, linecolor=PAPER, ax=ax, **bare, **colours)
    room = ax.get_window_extent()
    label_cells(ax.xaxis, table.columns, room.width / ax.figure.dpi)
    label_cells(ax.yaxis, table.index, room.height / ax.figure.dpi)
    if size is None:
        return
    mesh = ax.collections[0]
    mesh.update_scalarmappable()  # the colours of the cells, which are otherwise mixed only when drawn
    inks = map(ink_on, to_rgba_array(mesh.get_facecolor()))
    for ((row, column), value), ink in zip(np.ndenumerate(table.to_numpy()), inks, strict=True):
        if np.isfinite(value):
            look = TEXT | {"color": ink, "size": size}
            ax.text(column + 0.5, row + 0.5, number(value), ha="center", va="center", **look)


def label_cells(axis: Axis, names: pd.Index, inches: float) -> None:
    """Name every cell on a side of so many inches, or every k-th where all would not fit."""
    words = [str(name) for name in names]
    wide = 6 * max(2, *map(len, words))  # points, in a font of 9
    step = math.ceil(len(words) * wide / (inches * 72))
    axis.set_ticks(np.arange(0, len(words), step) + 0.5, words[::step])


def cell_colours(values: np.ndarray, reference: float | None) -> dict[str, Any]:
    """Full colour is at least 10 % away from the reference: a head that is nearly uniform looks nearly white."""
    if reference is not None:
        return centred(values, reference, least=max(0.1 * abs(reference), 1e-3))
    low, high = np.nanmin(values), np.nanmax(values)
    least = max(0.01 * abs(high), 1e-9)  # rounding is not worth a colour
    return {"vmin": low - max(least - (high - low), 0), "vmax": high, "cmap": SEQUENTIAL}


def save(figure: Figure, path: str | Path) -> tuple[Path, Path]:
    """Write `path`.png and `path`.svg, and return these two paths. The same figure gives the same bytes.

    Each file is complete or not there. No side of the image has more than 10,000 pixels.
    """
    path = Path(path)
    png, svg = path.with_name(path.name + ".png"), path.with_name(path.name + ".svg")
    dpi = min(DPI, LARGEST / max(figure.get_size_inches()))
    with staged(path.parent, last=svg.name) as folder, SVG_IDS, mpl.rc_context({"svg.hashsalt": "attnkit"}):
        figure.savefig(folder / png.name, dpi=dpi, metadata={"Software": None})
        layout = figure.get_layout_engine()
        figure.set_layout_engine("none")  # what has just been found for the one file is right for the other
        figure.savefig(folder / svg.name, metadata={"Date": None, "Creator": None})
        figure.set_layout_engine(layout)
    return png, svg


SVG_IDS = threading.Lock()  # matplotlib keeps the salt of an SVG's ids in its global settings
