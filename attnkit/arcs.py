"""One head's attention as arcs: queries on the left, keys on the right, a line for each weight."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from attnkit.heatmaps import Array, one_map, side_of
from attnkit.style import DIVERGING, TEXT, dress, new_figure, token_ticks

LINE = "#0d9488"
LEFT, RIGHT = 0.0, 1.0
FAINTEST = 0.02  # of the strongest: below that no line is drawn


def attention_arcs(
    values: Array,
    tokens: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str | None = None,
    vmax: float | int | None = None,
    signed: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Draw each of `values` (T, T), row i of query i, as a line that is the stronger the larger it is.

    `tokens` are those that look and, unless there are other `keys`, those that are looked at: then `values` are (R, T).
    How opaque a line is goes with the square of its size, so that the strong ones are seen among T² of them; it is
    full at `vmax`, by default the largest size. With `signed`, those below 0 are blue and those above red. After
    BertViz (Vig, 2019). Raises ValueError if values and tokens do not fit together.
    """
    values = one_map(values, tokens, keys)
    R, T = values.shape
    if ax is None:
        side = side_of(max(R, T))
        ax = new_figure(side, side + 0.4, layout="constrained").subplots()
    top = max(float(np.abs(values).max()) if vmax is None else vmax, 1e-9)
    strength = np.clip(np.abs(values) / top, 0, 1)
    query, key = np.nonzero(strength >= FAINTEST)
    along = np.linspace(0, 1, 40)
    ease = 3 * along**2 - 2 * along**3  # level at both ends
    lines = np.empty((len(query), len(along), 2))
    lines[..., 0] = LEFT + (RIGHT - LEFT) * along
    opposite = (key + 0.5) * R / T - 0.5  # both sides are as high, whichever has more tokens
    lines[..., 1] = query[:, None] + (opposite - query)[:, None] * ease
    colours = np.ones((len(query), 4))
    colours[:, :3] = to_rgb(LINE)
    if signed:
        colours[:, :3] = np.where(values[query, key, None] < 0, DIVERGING(0.0)[:3], DIVERGING(1.0)[:3])
    colours[:, 3] = strength[query, key] ** 2
    ax.add_collection(LineCollection(list(lines), colors=colours, linewidths=1.4, capstyle="butt"))
    ax.set(xlim=(LEFT - 0.02, RIGHT + 0.02), ylim=(R - 0.5, -0.5), xticks=[], yticks=[])
    dress(ax, title=title)
    for spine in ax.spines.values():
        spine.set_visible(False)
    height = float(ax.get_window_extent().height) / ax.figure.dpi
    for of, x, align in ((tokens, LEFT - 0.03, "right"), (tokens if keys is None else keys, RIGHT + 0.03, "left")):
        ticks = token_ticks(of, height)
        for position, label in zip(ticks.positions, ticks.labels, strict=True):
            at = (position + 0.5) * R / len(of) - 0.5
            ax.text(x, at, label, ha=align, va="center", size=ticks.size, **TEXT)
    ax.set_xlabel("query on the left, key on the right", size=9, **TEXT)
    return ax
