"""The figure of how heads count, from the tables of `analysis.counting`. Nothing is computed here."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnkit.plots import GROUP_COLOURS
from attnkit.style import FAINT, TEXT, dress, new_figure

WAYS = {
    "uniform": "uniform average",
    "leaning": "leaning average",
    "clustering": "clustering",
    "majority": "majority’s tokens",
    "readout": "1 / (ones + 1)",
    "positional": "position alone",
    "idle": "idle",
    "undecided": "undecided",
}
OWN = {0: (GROUP_COLOURS[0], "o"), 1: (GROUP_COLOURS[1], "s")}  # the query's token: colour, mark


def counting(curves: pd.DataFrame, ways: pd.DataFrame) -> Figure:
    """Draw the weight on the ones against their number, from `counting_curves` and `counting`: a panel for each head.

    Marks are measured, apart for queries that are 0 and that are 1; lines are what the best way foretells. Of several
    lengths the one with most sequences is drawn.
    """
    length = curves.groupby("length")["n"].sum().idxmax()
    curves = curves[curves["length"] == length]
    layers, heads = sorted(curves["layer"].unique()), sorted(curves["head"].unique())
    figure = new_figure(2.3 * len(heads) + 0.8, 2.3 * len(layers) + 1.0, "constrained")
    panels = figure.subplots(len(layers), len(heads), squeeze=False, sharex=True, sharey=True)
    for place in sorted(set(zip(curves["layer"], curves["head"], strict=True))):
        of_head, rows = (table[(table["layer"] == place[0]) & (table["head"] == place[1])] for table in (curves, ways))
        ax = panels[layers.index(place[0]), heads.index(place[1])]
        known = rows.dropna(subset="r2").sort_values("r2")
        ax.plot([0, length], [0, 1], color=FAINT, linewidth=0.6, linestyle=":")
        for own, (colour, marker) in OWN.items():
            part = of_head[of_head["token"] == own]
            if len(known):
                ax.plot(part["ones"], part[known["way"].iloc[-1]], color=colour, linewidth=1.2)
            ax.plot(part["ones"], part["measured"], color=colour, marker=marker, markersize=3.5, linestyle="none")
        verdict = WAYS[rows["verdict"].iloc[0]]
        best = f"{WAYS[known['way'].iloc[-1]]}, R² {known['r2'].iloc[-1]:.2f}" if len(known) else ""
        told = best if rows["verdict"].iloc[0] in set(rows["way"]) else f"{verdict}; best: {best}" if best else verdict
        dress(ax, title=f"layer {place[0]}, head {place[1]}\n{told}")
        ax.title.set_size(7.5)
        ax.tick_params(labelsize=7.5)
        ax.spines[["right", "top"]].set_visible(False)
    figure.supxlabel(f"ones among {length} tokens", size=10, **TEXT)
    figure.supylabel("weight on the ones", size=10, **TEXT)
    marks = [
        Line2D([], [], color=c, marker=m, linestyle="-", markersize=4, label=f"queries that are {own}")
        for own, (c, m) in OWN.items()
    ]
    uniform = Line2D([], [], color=FAINT, linestyle=":", label="uniform attention")
    legend = figure.legend(handles=[*marks, uniform], loc="outside upper center", ncols=3, frameon=False)
    for text in legend.get_texts():
        text.set(**TEXT, size=9)
    return figure
