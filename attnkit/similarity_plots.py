"""Figures of how alike heads are, from the tables of `analysis.head_similarity`. Only places are computed here."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.cluster.hierarchy import dendrogram

from attnkit.plots import GROUP_COLOURS, MAX_WRITTEN, draw_cells
from attnkit.style import FAINT, INK, TEXT, dress, new_figure

Head = tuple[int, int]  # layer, head
MARKERS = "osD^vPX*"


def clustered(frame: pd.DataFrame, tree: pd.DataFrame) -> Figure:
    """Draw every two heads' JS distance and CKA, from `similarity` and `similarity_tree`, in the order of the tree."""
    heads = heads_of(frame)
    layout = dendrogram(tree[["left", "right", "distance", "heads"]].to_numpy(float), no_plot=True)
    order = labels([heads[leaf] for leaf in layout["leaves"]])
    side = min(max(0.62 * len(heads), 3.4), 12)
    figure = new_figure(2 * side + 0.8, 1.22 * side + 0.6, "constrained")
    panels = figure.subplots(2, 2, height_ratios=[0.2, 1], sharex="col")
    titles = {"js_distance": "where they look: JS distance (0: alike)", "cka": "what they write: linear CKA (1: alike)"}
    for (above, ax), (value, title) in zip(panels.T, titles.items(), strict=True):
        for x, y in zip(layout["icoord"], layout["dcoord"], strict=True):
            above.plot(np.array(x) / 10, y, color=INK, linewidth=1.0)  # scipy puts leaves at 5, 15, 25, …
        table = square(frame, value, 0.0 if value == "js_distance" else 1.0).loc[order, order]
        cells(ax, table)
        dress(above, title=title, y="distance" if value == "js_distance" else None)
        above.set_ylim(bottom=0)
        above.tick_params(axis="x", length=0, labelbottom=False)
        above.tick_params(axis="y", labelsize=7)
        above.spines[["right", "top", "bottom"]].set_visible(False)
    panels[0, 1].set_axis_off()
    panels[0, 1].set_title(titles["cka"], size=11, y=0.02, **TEXT)
    for line in panels[0, 1].lines:
        line.set_visible(False)
    return figure


def head_map(frame: pd.DataFrame) -> Figure:
    """Draw the heads as points, near to each other where they look alike, from `similarity_map`."""
    scale = min(max((len(frame) / 16) ** 0.5, 1.0), 2.2)  # 16 heads have room in 6 inches by 5
    figure = new_figure(6.0 * scale, 5.0 * scale, "constrained")
    ax = figure.subplots()
    for k, layer in enumerate(sorted(frame["layer"].unique())):
        rows = frame[frame["layer"] == layer]
        colour, marker = GROUP_COLOURS[k % len(GROUP_COLOURS)], MARKERS[k % len(MARKERS)]
        ax.plot(
            rows["x"], rows["y"], linestyle="none", marker=marker, color=colour, markersize=7, label=f"layer {layer}"
        )
    places = frame[["x", "y"]].to_numpy()
    for place, layer, head in zip(places, frame["layer"], frame["head"], strict=True):
        others = places[(places != place).any(axis=1)]
        away = place - others[((others - place) ** 2).sum(axis=1).argmin()] if len(others) else np.ones(2)
        right, up = away >= 0  # the label stands on the side where the nearest head is not
        side: dict[str, Any] = {"ha": "left" if right else "right", "va": "bottom" if up else "top"}
        offset = (4 if right else -4, 3 if up else -3)
        x, y = place.tolist()
        ax.annotate(f"{layer}.{head}", (x, y), xytext=offset, textcoords="offset points", size=8, **side, **TEXT)
    stress = frame["stress"].iloc[0]
    dress(ax, x=f"JS distance (stress of the map: {stress:.2f}; 0 is a true map)", y="JS distance")
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.12)
    ax.spines[["right", "top"]].set_visible(False)
    legend = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for text in legend.get_texts():
        text.set(**TEXT, size=9)
    return figure


def matching(frame: pd.DataFrame, matched: pd.DataFrame) -> Figure:
    """Draw the JS distance of every head of one checkpoint to every head of another, the matched ones framed.

    From `similarity_between` and `matching`.
    """
    rows, columns = (sorted(set(zip(frame[f"layer_{s}"], frame[f"head_{s}"], strict=True))) for s in "ab")
    table = frame.pivot(index=["layer_a", "head_a"], columns=["layer_b", "head_b"], values="js_distance")
    height, width = (min(max(0.62 * n, 3.0), 14) for n in table.shape)
    figure = new_figure(width + 1.0, height + 1.0, "constrained")
    ax = figure.subplots()
    cells(ax, pd.DataFrame(table.to_numpy(), index=labels(rows), columns=labels(columns)))
    dress(ax, x="heads of the second checkpoint (layer.head)", y="heads of the first checkpoint (layer.head)")
    for layer, a, b in zip(matched["layer"], matched["head_a"], matched["head_b"], strict=True):
        corner = (columns.index((layer, b)), rows.index((layer, a)))
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=GROUP_COLOURS[1], linewidth=2.5, clip_on=False))
    return figure


def heads_of(frame: pd.DataFrame) -> list[Head]:
    sides = [zip(frame[f"layer_{side}"], frame[f"head_{side}"], strict=True) for side in "ab"]
    return sorted({head for side in sides for head in side})


def labels(heads: list[Head]) -> list[str]:
    return [f"{layer}.{head}" for layer, head in heads]


def square(frame: pd.DataFrame, value: str, itself: float) -> pd.DataFrame:
    """The values as a symmetric table, `itself` on the diagonal."""
    heads = heads_of(frame)
    places = {head: i for i, head in enumerate(heads)}
    table = np.full((len(heads), len(heads)), itself)
    columns = (frame[c] for c in ("layer_a", "head_a", "layer_b", "head_b", value))
    for layer_a, head_a, layer_b, head_b, number in zip(*columns, strict=True):
        a, b = places[layer_a, head_a], places[layer_b, head_b]
        table[a, b] = table[b, a] = number
    return pd.DataFrame(table, index=labels(heads), columns=labels(heads))


def cells(ax: Axes, table: pd.DataFrame) -> None:
    few = max(table.shape) <= MAX_WRITTEN
    draw_cells(ax, table, None, size=7.0 if few else None)
    dress(ax)
    for axis, names in ((ax.xaxis, table.columns), (ax.yaxis, table.index)):
        size = 8 if few else min(8.0, max(3.0, 500 / len(names)))  # a cell of 12 inches over so many, and some air
        turned = 90 if axis is ax.xaxis and not few else 0
        axis.set_ticks(np.arange(len(names)) + 0.5, list(names), size=size, rotation=turned, **TEXT)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set(color=FAINT, linewidth=0.4)
