"""Figures of what is lost without heads, from the tables of `analysis.head_importance`. Nothing is computed here."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from attnkit.labels import number, words
from attnkit.plots import GROUP_COLOURS, MAX_WRITTEN, draw_cells
from attnkit.style import FAINT, TEXT, dress, new_figure

METHODS = {  # method: its name, colour, marker
    "zero": ("removed (zero)", GROUP_COLOURS[0], "o"),
    "mean": ("its mean output", GROUP_COLOURS[1], "s"),
    "resample": ("of another sequence", GROUP_COLOURS[2], "D"),
    "gradient": ("foretold by the gradient", GROUP_COLOURS[3], "^"),
}
EFFECTS = {  # what a head may cost, in the order in which it is drawn
    "accuracy_drop": "accuracy lost",
    "loss_increase": "loss increase (nats)",
    "answers_changed": "answers that change",
    "divergence": "divergence (nats)",
    "similarity_change": "similarity of two texts: mean |change of the cosine|",
    "embedding_change": "embedding of a text: 1 − cosine",
}
PRUNED = {
    "accuracy": "accuracy",
    "loss": "loss (nats)",
    "answers_changed": "answers that change",
    "divergence": "divergence (nats)",
    "similarity_change": "change of the cosine",
    "embedding_change": "1 − cosine",
}
BEYOND = {
    "accuracy_beyond_sum": "accuracy lost beyond the sum",
    "loss_beyond_sum": "loss increase beyond the sum (nats)",
}
SHARES = ("accuracy_drop", "answers_changed")
MANY = 32  # heads, from which on a line for each is more than one sees at once
SMALL = 1e-4  # nats up to which the axis of the loss is linear; beyond, it is logarithmic


def importance(frame: pd.DataFrame) -> Figure:
    """Draw what each head is worth, from `head_importance`: a line for each head, a mark for each method.

    Bars are the frame's 95 % intervals, where it has them. Of many heads heat maps are drawn instead.
    """
    names = heads_of(frame)
    if len(names) > MANY:
        return importance_grid(frame)
    figure = new_figure(9.6, min(0.42 * len(names), 60) + 1.5, "constrained")
    panels = figure.subplots(1, 2, sharey=True)
    effects = [effect for effect in EFFECTS if effect in frame]  # always two
    for ax, effect in zip(panels, effects, strict=True):
        methods = [m for m in METHODS if frame.loc[frame["method"] == m, effect].notna().any()]
        for k, method in enumerate(methods):
            rows = frame[(frame["method"] == method) & frame[effect].notna()]
            shift = 0.62 * ((k + 0.5) / len(methods) - 0.5)
            y = [names.index(head) + shift for head in zip(rows["layer"], rows["head"], strict=True)]
            _, colour, marker = METHODS[method]
            marks(ax, rows, effect, y, color=colour, marker=marker, label=METHODS[method][0])
        ax.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
        dress(ax, x=EFFECTS[effect])
        lines_of_heads(ax, names)
        if effect in SHARES:
            ax.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        else:
            ends = frame.filter(regex=f"^{effect}").to_numpy()
            ax.set_xscale("symlog", linthresh=SMALL)
            ax.set_xlim(1.5 * min(np.nanmin(ends), 0) - SMALL / 3, 1.5 * np.nanmax(ends) + SMALL / 3)
            ax.tick_params(axis="x", labelsize=8)
    legend_below(figure, panels[1])
    return figure


def importance_grid(frame: pd.DataFrame) -> Figure:
    """Draw what each head is worth as heat maps of layers and heads: a line for each effect, a panel for each method.

    White is nothing lost, red something, blue something gained; each panel on its own scale.
    """
    effects = [effect for effect in (*EFFECTS, "gradient_importance") if effect in frame]
    lines = [
        [(effect, method) for method in METHODS if frame.loc[frame["method"] == method, effect].notna().any()]
        for effect in effects
    ]
    L, H = frame["layer"].nunique(), frame["head"].nunique()
    width, height = min(max(2.5, 0.36 * H), 4.2), min(max(0.8, 0.36 * L), 4.2)
    columns = max(map(len, lines))
    figure = new_figure(columns * (width + 0.3) + 0.4, len(lines) * (height + 0.85), "constrained")
    panels = figure.subplots(len(lines), columns, squeeze=False)
    for line, axes in zip(lines, panels, strict=True):
        for ax in axes[len(line) :]:
            ax.set_axis_off()
        for ax, (effect, method) in zip(axes, line, strict=False):
            rows = frame[frame["method"] == method]
            draw_cells(ax, rows.pivot(index="layer", columns="head", values=effect), 0.0, size=None)
            what = EFFECTS.get(effect, words(effect))
            dress(ax, title=what if effect == "gradient_importance" else f"{METHODS[method][0]}\n{what}")
            ax.title.set_size(9)
            ax.tick_params(labelsize=7)
            ax.set_xlabel(f"{number(rows[effect].min())} to {number(rows[effect].max())}", size=7.5, **TEXT)
    figure.supxlabel("head", size=9, **TEXT)
    figure.supylabel("layer", size=9, **TEXT)
    return figure


def pruning(frame: pd.DataFrame) -> Figure:
    """Draw how the model does as one head after the other is removed, from `pruning`.

    Its accuracy and loss, or where it has none what is lost; of many heads without their names.
    """
    values = [value for value in ("accuracy", "loss") if value in frame] or [e for e in EFFECTS if e in frame]
    named = len(frame) <= MANY + 1
    figure = new_figure(max(6.4, 0.62 * len(frame) + 1.6) if named else 8.0, 2.3 * len(values), "constrained")
    panels = figure.subplots(len(values), 1, sharex=True)
    for ax, value in zip(panels, values, strict=True):
        rows = frame[frame[value].notna()]
        ax.plot(rows["removed"], rows[value], color=GROUP_COLOURS[0], marker="o", markersize=5, linewidth=1.4)
        dress(ax, y=PRUNED[value])
        ax.spines[["right", "top"]].set_visible(False)
        ax.grid(axis="y", color=FAINT, linewidth=0.3, alpha=0.5)
        if value in ("accuracy", *SHARES):
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        if value == "loss":
            ax.set_yscale("log")
    last = "heads removed so far"
    if named:
        heads = frame[["layer", "head"]].iloc[1:].astype(int).to_numpy()  # read from a file they are 1.0 and not 1
        ticks = ["none"] + [f"+ {layer}.{head}" for layer, head in heads]
        x, last = frame["removed"].to_numpy(), f"{last} (layer.head), one after the other"
        panels[-1].set_xticks(x, ticks, size=8, rotation=90 if len(x) > MAX_WRITTEN else 0, **TEXT)
    panels[-1].set_xlabel(last, size=10, **TEXT)
    return figure


def pairs(frame: pd.DataFrame) -> Figure:
    """Draw what two heads cost together beyond the sum of what each costs alone, from `pairs`.

    Red: they cover for each other. Blue: together they cost less than the sum.
    """
    sides = [list(zip(frame[f"layer_{s}"], frame[f"head_{s}"], strict=True)) for s in "ab"]
    names = sorted({*sides[0], *sides[1]})
    labels = [f"{layer}.{head}" for layer, head in names]
    side = min(max(0.62 * len(names), 3.0), 12)
    figure = new_figure(2 * side + 1.0, side + 0.9, "constrained")
    for ax, effect in zip(figure.subplots(1, 2), ("accuracy_beyond_sum", "loss_beyond_sum"), strict=True):
        table = pd.DataFrame(np.nan, index=labels, columns=labels)
        for (a, b), value in zip(zip(*sides, strict=True), frame[effect], strict=True):
            table.loc[f"{b[0]}.{b[1]}", f"{a[0]}.{a[1]}"] = value
        table = table.iloc[1:, :-1]
        draw_cells(ax, table, 0.0, size=7.0 if len(names) <= MAX_WRITTEN else None)
        dress(ax, title=BEYOND[effect], x="head (layer.head)", y="head (layer.head)")
        ax.title.set_size(10)
    return figure


def predictors(frame: pd.DataFrame) -> Figure:
    """Draw how well each statistic foretells the damage, from `predictors`: Spearman's ρ with its 95 % interval."""
    strength = frame.assign(size=frame["spearman"].abs()).groupby("statistic")["size"].max()
    statistics = list(strength.sort_values(ascending=False, kind="stable").index)
    figure = new_figure(7.6, 0.36 * len(statistics) + 1.4, "constrained")
    ax = figure.subplots()
    effects = [effect for effect in EFFECTS if effect in set(frame["effect"])]
    for k, effect in enumerate(effects):
        rows = frame[frame["effect"] == effect].rename(
            columns={"ci_low": "spearman_ci_low", "ci_high": "spearman_ci_high"}
        )
        y = [statistics.index(s) + 0.4 * ((k + 0.5) / len(effects) - 0.5) for s in rows["statistic"]]
        marks(ax, rows, "spearman", y, color=GROUP_COLOURS[k], marker="os"[k], label=EFFECTS[effect])
    ax.axvline(0, color=FAINT, linewidth=0.8, zorder=0)
    dress(ax, x="Spearman’s rank correlation with what is lost, over the heads")
    ax.set_xlim(-1.04, 1.04)
    ax.set_yticks(range(len(statistics)), [words(s) for s in statistics], size=9, **TEXT)
    ax.set_ylim(len(statistics) - 0.5, -0.5)
    ax.spines[["left", "right", "top"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    legend_below(figure, ax)
    return figure


def heads_of(frame: pd.DataFrame) -> list[tuple[int, int]]:
    return sorted(set(zip(frame["layer"], frame["head"], strict=True)))


def marks(ax: Axes, rows: pd.DataFrame, value: str, y: list[float], **style: Any) -> None:
    """Marks with the bars of their intervals, which may be missing."""
    low, high = rows[f"{value}_ci_low"].to_numpy(), rows[f"{value}_ci_high"].to_numpy()
    x = rows[value].to_numpy()
    bars = np.nan_to_num([x - low, high - x])
    ax.errorbar(x, y, xerr=bars, linestyle="none", markersize=5, elinewidth=1.1, **style)


def lines_of_heads(ax: Axes, names: list[tuple[int, int]]) -> None:
    for line in range(1, len(names)):
        ax.axhline(line - 0.5, color=FAINT, linewidth=0.8 if names[line][0] != names[line - 1][0] else 0.2)
    ax.set_yticks(range(len(names)), [f"layer {layer}, head {head}" for layer, head in names], size=9, **TEXT)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines[["left", "right", "top"]].set_visible(False)


def legend_below(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    for text in legend.get_texts():
        text.set(**TEXT, size=9)
