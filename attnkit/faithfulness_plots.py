"""Figures of how far attributions and flips agree, from the table of `analysis.faithfulness`. Nothing is computed."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnkit.labels import number
from attnkit.plots import GROUP_COLOURS
from attnkit.style import FAINT, TEXT, dress, new_figure

NAMES = {  # attribution: its name, colour, marker
    "last_layer": ("attention, last layer", GROUP_COLOURS[0], "o"),
    "mean_layers": ("attention, all layers", GROUP_COLOURS[1], "s"),
    "rollout": ("attention rollout", GROUP_COLOURS[2], "D"),
    "gradient_x_input": ("gradient × input", GROUP_COLOURS[3], "^"),
    "integrated_gradients": ("integrated gradients", GROUP_COLOURS[4], "v"),
}
EFFECTS = {"absolute": "sizes", "signed": "with signs"}
BY = {"margin": "margin of the answer (logits), in quarters", "ones_minus_half": "ones minus half the length"}


def agreement(frame: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw the mean τ of every attribution over all sequences, from `faithfulness`: a line for each, a mark for each
    effect. Thin bars reach one standard deviation to both sides, thick ones are the frame's 95 % intervals, where it
    has them."""
    rows = frame[frame["by"] == "all"].dropna(subset="mean")
    names = [name for name in NAMES if name in set(rows["attribution"])]
    if ax is None:
        ax = new_figure(7.6, 0.5 * len(names) + 1.7, "constrained").subplots()
    has_bars = "ci_low" in frame
    for k, (effect, label) in enumerate(EFFECTS.items()):
        part = rows[rows["effect"] == effect]
        y = np.array([names.index(name) for name in part["attribution"]]) + (-0.14, 0.14)[k]
        style: dict[str, Any] = {"color": GROUP_COLOURS[k], "linestyle": "none"}
        ax.errorbar(part["mean"], y, xerr=part["std"], elinewidth=0.9, alpha=0.55, **style)
        bars = [part["mean"] - part["ci_low"], part["ci_high"] - part["mean"]] if has_bars else None
        ax.errorbar(part["mean"], y, xerr=bars, elinewidth=3, marker="os"[k], markersize=5.5, label=label, **style)
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    dress(ax, x="Kendall’s τ with what a flip of the token does to the margin")
    ax.set_xlim(-1.04, 1.04)
    ax.set_yticks(range(len(names)), [NAMES[name][0] for name in names], size=9, **TEXT)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)
    legend(ax)
    return ax


def by_group(frame: pd.DataFrame) -> Figure:
    """Draw the mean τ of every attribution by groups of sequences, from `faithfulness`: a panel for each grouping and
    effect, a line for each attribution. Bars are the frame's 95 % intervals, where it has them."""
    groupings = [by for by in BY if by in set(frame["by"])]
    effects = [effect for effect in EFFECTS if effect in set(frame["effect"])]
    figure = new_figure(5.0 * len(groupings) + 0.6, 2.9 * len(effects) + 0.8, "constrained")
    panels = figure.subplots(len(effects), len(groupings), squeeze=False, sharey=True, sharex="col")
    for line, effect in enumerate(effects):
        for column, by in enumerate(groupings):
            ax = panels[line, column]
            part = frame[(frame["by"] == by) & (frame["effect"] == effect)]
            for name, (label, colour, marker) in NAMES.items():
                rows = part[part["attribution"] == name].dropna(subset="mean").sort_values("value")
                if rows.empty:
                    continue
                bars = [rows["mean"] - rows["ci_low"], rows["ci_high"] - rows["mean"]] if "ci_low" in frame else None
                style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}
                ax.errorbar(
                    rows["value"], rows["mean"], yerr=np.nan_to_num(bars) if bars else None, label=label, **style
                )
            ax.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
            last = line == len(effects) - 1
            dress(ax, title=EFFECTS[effect], x=BY[by] if last else None, y="Kendall’s τ" if not column else None)
            ax.title.set_size(9)
            ax.set_ylim(-1.04, 1.04)
            ax.spines[["right", "top"]].set_visible(False)
            if by == "margin":
                groups = part.drop_duplicates("value").sort_values("value")
                ends = zip(groups["margin_low"], groups["margin_high"], strict=True)
                ax.set_xticks(
                    groups["value"], [f"{number(low)}\nto {number(high)}" for low, high in ends], size=8, **TEXT
                )
    handles, labels = panels[0, 0].get_legend_handles_labels()
    below = figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    for text in below.get_texts():
        text.set(**TEXT, size=9)
    return figure


def legend(ax: Axes) -> None:
    beside = ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    for text in beside.get_texts():
        text.set(**TEXT, size=9)
