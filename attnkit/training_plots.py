"""Figures of heads on the way through training, from the tables of `analysis.training_dynamics`.

Nothing is computed here but places and colours. Steps are drawn on a logarithmic axis that has room for 0.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from attnkit.labels import words_and_unit
from attnkit.plots import GROUP_COLOURS
from attnkit.style import FAINT, SEQUENTIAL, TEXT, centred, dress, dress_bar, new_figure

Head = tuple[int, int]  # layer, head
HEAD_COLOURS = [GROUP_COLOURS[k] for k in (0, 1, 2, 3, 5, 4)]
LAYER_LINES = ["-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5))]
FRAME = "#d8dbdf"  # between the maps
STRIP = 16  # snapshots side by side in `maps`, at most
GIF_DPI = 80
FRAMES_A_SECOND, HELD = 2, 5  # of the animation, and how many of them its last step stays


class Animation(NamedTuple):
    figure: Figure
    show: Callable[[int], None]  # puts the snapshot of a step into it
    steps: Sequence[int]


def curve(frame: pd.DataFrame, changes: pd.DataFrame) -> Figure:
    """Draw loss and accuracy along training, as far as they are known, and under them when each head changes.

    `frame` is `training_curve`, a line for each checkpoint; `changes` is `training_changes` of one, a row of cells
    for each head, the darker the more it changes with each doubling of the steps; its largest is framed.
    """
    heads = heads_of(changes)
    tall = min(0.3 * len(heads) + 0.3, 12)
    known = [value for value in ("loss", "accuracy") if value in frame]
    figure = new_figure(9.2, 1.0 + 1.5 * len(known) + tall, "constrained")
    *panels, ax = figure.subplots(
        len(known) + 1, 1, sharex=True, height_ratios=[*[1.5] * len(known), tall], squeeze=False
    )[:, 0]
    steps = steps_in(frame)
    for of_value, value in zip(panels, known, strict=True):
        for _, rows in frame.groupby("checkpoint", sort=False):
            of_value.plot(rows["step"], rows[value], color=GROUP_COLOURS[0], marker="o", markersize=4, linewidth=1.4)
        dress(of_value, y="loss (nats)" if value == "loss" else "accuracy")
        of_value.spines[["right", "top"]].set_visible(False)
        of_value.grid(axis="y", color=FAINT, linewidth=0.3, alpha=0.5)
        if value == "loss":
            if frame["loss"].max() > 10 * frame["loss"].min():  # ticks of a shorter logarithmic axis are hard to read
                of_value.set_yscale("log")
        else:
            of_value.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    table = changes.pivot(index=["layer", "head"], columns=["step_from", "step_to"], values="per_doubling").loc[heads]
    ends: list[Any] = table.columns.to_list()
    edges = [ends[0][0], *(to for _, to in ends)]
    mesh = ax.pcolormesh(
        edges,
        np.arange(len(heads) + 1),
        table.to_numpy(),
        cmap=SEQUENTIAL,
        vmin=0,
        edgecolors="white",
        linewidth=0.8,
    )
    frame_of: dict[str, Any] = {"fill": False, "edgecolor": GROUP_COLOURS[1], "linewidth": 2.2}
    for line, row in enumerate(table.to_numpy()):
        start, end = ends[row.argmax()]
        if row.max() > 0:
            ax.add_patch(Rectangle((start, line), end - start, 1, **frame_of))
    dress(ax, x="training step")
    ax.set_yticks(np.arange(len(heads)) + 0.5, [f"layer {layer}, head {head}" for layer, head in heads])
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(heads), 0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    dress_bar(figure.colorbar(mesh, ax=ax, fraction=0.05, pad=0.015), "change, JS distance\nper doubling of the steps")
    log_axis(ax, steps, labelled=steps)
    return figure


def statistics(frame: pd.DataFrame, names: Sequence[str], *, columns: int = 4) -> Figure:
    """Draw statistics along training, a panel for each of `names`, a line for each head.

    `frame` is `training_dynamics` of one checkpoint, or `training_average`. Bands are its `low` to `high`, where it has
    those, else its 95 % intervals, where it has these. Grey: uniform attention.
    """
    columns, lines = min(columns, len(names)), -(-len(names) // min(columns, len(names)))
    wide, high = (2.2, 1.55) if columns > 2 else (3.7, 2.6)  # inches, as every length here: a grid that is not to be
    left, right, top, bottom, gap_x, gap_y = 0.6, 0.12, 0.35, 1.05, 0.58, 0.62  # found by trial is drawn much faster
    width = left + columns * wide + (columns - 1) * gap_x + right
    height = top + lines * high + (lines - 1) * gap_y + bottom
    figure = new_figure(width, height)
    cells = figure.add_gridspec(
        lines,
        columns,
        left=left / width,
        right=1 - right / width,
        top=1 - top / height,
        bottom=bottom / height,
        wspace=gap_x / wide,
        hspace=gap_y / high,
    )
    panels = list(cells.subplots(squeeze=False, sharex=True).flat)
    steps = steps_in(frame)
    for ax, name in zip(panels, names, strict=False):
        rows = frame[frame["statistic"] == name]
        head_lines(ax, rows)
        uniform = rows.groupby("step")["uniform"].mean()
        if uniform.notna().any():
            ax.plot(uniform.index, uniform, color=FAINT, linewidth=3.2, alpha=0.35, zorder=0)
        dress(ax, title=words_and_unit(name))
        ax.title.set_size(9)
        ax.tick_params(labelsize=7)
        ax.spines[["right", "top"]].set_visible(False)
        if name == "accuracy_drop":
            ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        log_axis(ax, steps, labelled=few(steps, 5 if columns > 2 else 8))
    for ax in panels[len(names) :]:
        ax.set_axis_off()
    for ax in panels[max(len(names) - columns, 0) : len(names)]:
        ax.tick_params(axis="x", labelbottom=True)
        ax.set_xlabel("training step", size=8.5, **TEXT)
    legend_of_heads(
        figure, heads_of(frame), reference=bool(frame[frame["statistic"].isin(names)]["uniform"].notna().any())
    )
    return figure


def maps(frame: pd.DataFrame) -> Figure:
    """Draw the mean map of every head, a row each, at up to 16 steps, from `training_maps` of one checkpoint.

    White is uniform attention; one colour is one weight everywhere.
    """
    heads, steps = heads_of(frame), steps_in(frame)
    shown = few(steps, STRIP)
    side = min(0.95, 11 / len(shown), 60 / len(heads))
    figure = new_figure(side * len(shown) + 1.9, side * len(heads) + 1.0, "constrained")
    ax = figure.subplots()
    stack, colours = arrays(frame), scale(frame)
    tiles = np.block([[framed(stack[step][head]) for step in shown] for head in heads])
    colours["cmap"] = colours["cmap"].with_extremes(bad=FRAME)
    image = ax.imshow(np.ma.masked_invalid(tiles), **colours)
    dress(ax, x="training step; in each map the query goes down, the key to the right", y="layer.head")
    tile = tiles.shape[0] / len(heads)
    for axis, names in ((ax.xaxis, [str(s) for s in shown]), (ax.yaxis, [f"{layer}.{head}" for layer, head in heads])):
        axis.set_ticks((np.arange(len(names)) + 0.5) * tile - 0.5, names, size=8.5, **TEXT)
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    dress_bar(figure.colorbar(image, ax=ax, fraction=0.02, pad=0.01), "mean attention weight\n(white: uniform)")
    return figure


def framed(tile: np.ndarray) -> np.ndarray:
    """With a frame of one cell, which is no weight."""
    return np.pad(tile, 1, constant_values=np.nan)


def moving_maps(frame: pd.DataFrame, of_model: pd.DataFrame) -> Animation:
    """All heads' mean maps over the loss curve, from step to step.

    From `training_maps` and `training_curve` of one checkpoint. Layers are rows, heads columns; white is uniform
    attention, and one colour is one weight in every head at every step.
    """
    heads, steps = heads_of(frame), steps_in(frame)
    layers, columns = sorted({layer for layer, _ in heads}), sorted({head for _, head in heads})
    side = min(1.75, 14 / len(columns))
    figure = new_figure(side * len(columns) + 1.7, side * len(layers) + 2.5, "constrained")
    parts = figure.add_gridspec(2, 1, height_ratios=[side * len(layers) + 0.5, 2.0])
    above, below = figure.add_subfigure(parts[0]), figure.add_subfigure(parts[1])
    panels = above.subplots(len(layers), len(columns), squeeze=False)
    stack, colours, images = arrays(frame), scale(frame), {}
    for (line, place), ax in np.ndenumerate(panels):
        head = (layers[line], columns[place])
        dress(ax)
        ax.set(xticks=[], yticks=[])
        if head in stack[steps[0]]:
            images[head] = ax.imshow(stack[steps[0]][head], **colours)
        if line == 0:
            ax.set_title(f"head {columns[place]}", size=9, pad=4, **TEXT)
        if place == 0:
            ax.set_ylabel(f"layer {layers[line]}", size=9, **TEXT)
    title = above.suptitle(" ", size=12, **TEXT)
    bar = above.colorbar(next(iter(images.values())), ax=panels, fraction=0.03, pad=0.015)
    dress_bar(bar, "mean weight (white: uniform)")
    ax = below.subplots()
    ax.plot(of_model["step"], of_model["loss"], color=FAINT, marker="o", markersize=3, linewidth=1.2)
    (dot,) = ax.plot([], [], color=GROUP_COLOURS[1], marker="o", markersize=9)
    dress(ax, x="training step", y="loss (nats)")
    ax.set_yscale("log")
    ax.spines[["right", "top"]].set_visible(False)
    log_axis(ax, steps, labelled=steps)

    columns_of = (of_model[c].tolist() for c in ("step", "loss", "accuracy", "n"))
    values = {step: rest for step, *rest in zip(*columns_of, strict=True)}

    def show(step: int) -> None:
        for head, image in images.items():
            image.set_data(stack[step][head])
        loss, accuracy, n = values[step]
        dot.set_data([step], [loss])
        title.set_text(f"step {step}: {accuracy * n:,.0f} of {n:,.0f} right, loss {loss:.3g} nats")

    show(steps[0])
    return Animation(figure, show, steps)


def save_gif(animation: Animation, path: str | Path) -> Path:
    """Write `path`.gif and return its path: it starts anew after it has stayed on its last step for a while."""
    figure, show, steps = animation
    path = Path(path).with_suffix(".gif")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".first"), format="png", dpi=GIF_DPI)  # the layout is found once and then stays,
    path.with_suffix(".first").unlink()
    figure.set_layout_engine("none")  # so that nothing trembles
    writer = PillowWriter(fps=FRAMES_A_SECOND)
    with writer.saving(figure, path, dpi=GIF_DPI):
        for step in [*steps, *[steps[-1]] * (HELD - 1)]:
            show(step)
            writer.grab_frame()
    return path


# ---------------------------------------------------------------- parts


def heads_of(frame: pd.DataFrame) -> list[Head]:
    return sorted(set(zip(frame["layer"], frame["head"], strict=True)))


def steps_in(frame: pd.DataFrame) -> list[int]:
    return sorted(map(int, frame["step"].unique()))


def few(steps: Sequence[int], most: int) -> list[int]:
    """At most so many of them, evenly chosen, the first and the last among them."""
    places = np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int)
    return [steps[place] for place in places]


def log_axis(ax: Axes, steps: Sequence[int], *, labelled: Sequence[int]) -> None:
    """Even ratios are even lengths; from 0 to the first step is as far as from one step to the next, about."""
    first = steps[1] if len(steps) > 1 else 1
    gap = np.log10(max(steps[-1] / first, 10)) / max(len(steps) - 2, 1)
    ax.set_xscale("symlog", linthresh=first, linscale=gap, subs=[])
    ax.set_xticks(list(labelled), [str(step) for step in labelled], family=TEXT["family"])
    ax.set_xlim(-0.25 * first, steps[-1] * 10 ** (0.25 * gap))
    ax.minorticks_off()


def style_of(head: Head, heads: Sequence[Head]) -> dict[str, Any]:
    """The colour tells the head, the stroke its layer; of more than these, those with too many share one."""
    layers = sorted({layer for layer, _ in heads})
    stroke = LAYER_LINES[layers.index(head[0]) % len(LAYER_LINES)]
    return {"color": HEAD_COLOURS[head[1] % len(HEAD_COLOURS)], "linestyle": stroke}


def head_lines(ax: Axes, rows: pd.DataFrame) -> None:
    heads = heads_of(rows)
    ends = next((e for e in (("low", "high"), ("ci_low", "ci_high")) if set(e) <= set(rows)), None)
    for head in heads:
        own = rows[(rows["layer"] == head[0]) & (rows["head"] == head[1])].sort_values("step")
        style = style_of(head, heads)
        ax.plot(own["step"], own["mean"], linewidth=1.3, **style)
        if ends:
            ax.fill_between(own["step"], own[ends[0]], own[ends[1]], color=style["color"], alpha=0.15, linewidth=0)


def legend_of_heads(figure: Figure, heads: Sequence[Head], *, reference: bool) -> None:
    """A column for each head's number, a row for each layer, as far as they differ."""
    shown = sorted((h for h in heads if h[0] < len(LAYER_LINES) and h[1] < len(HEAD_COLOURS)), key=lambda h: h[::-1])
    handles = [Line2D([], [], linewidth=1.6, **style_of(head, heads)) for head in shown]
    names = [f"layer {layer}, head {head}" for layer, head in shown]
    if reference:
        handles, names = [*handles, Line2D([], [], color=FAINT, linewidth=3.2, alpha=0.35)], [*names, "uniform"]
    rows = len({layer for layer, _ in shown})
    legend = figure.legend(
        handles, names, loc="lower center", ncols=-(-len(names) // rows), frameon=False, handlelength=2.4
    )
    for text in legend.get_texts():
        text.set(**TEXT, size=8)


def arrays(frame: pd.DataFrame) -> dict[int, dict[Head, np.ndarray]]:
    """By step and head: the map (T, T)."""
    T = int(frame["query"].max()) + 1
    ordered = frame.sort_values(["step", "layer", "head", "query", "key"], kind="stable")
    first = ordered[(ordered["query"] == 0) & (ordered["key"] == 0)]
    places = zip(*(first[column].tolist() for column in ("step", "layer", "head")), strict=True)
    found: dict[int, dict[Head, np.ndarray]] = {}
    for (step, layer, head), weights in zip(places, ordered["weight"].to_numpy().reshape(-1, T, T), strict=True):
        found.setdefault(step, {})[layer, head] = weights
    return found


def scale(frame: pd.DataFrame) -> dict[str, Any]:
    uniform = float(frame["uniform"].iloc[0])
    return centred(frame["weight"].to_numpy(), uniform, least=0.1 * uniform)
