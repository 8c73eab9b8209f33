"""What figures are drawn of in tests, and how what is drawn is read back."""

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg

L, H, T = 2, 3, 5
CLASSES = ["label=no", "label=<b>$yes$</b>"]


def maps(layers=L, heads=H, tokens=T, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(tokens), size=(layers, heads, tokens))


def table():
    """Entropy of head (l, h) is (l + h) / 10 below its uniform value of ln 5, in either class one more tenth."""
    rows = []
    for group, lower in zip(["all", *CLASSES], (0.0, 0.1, 0.2), strict=True):
        for layer, head in np.ndindex(L, H):
            mean = math.log(T) - (layer + head) / 10 - lower
            rows.append((layer, head, "entropy", group, mean, mean - 0.02, mean + 0.03, math.log(T)))
            rows.append((layer, head, "offset", group, layer - head, np.nan, np.nan, 0.0))
            rows.append((layer, head, "positional_share", group, layer / 2, np.nan, np.nan, np.nan))
    columns = ["layer", "head", "statistic", "group", "mean", "ci_low", "ci_high", "uniform"]
    return pd.DataFrame(rows, columns=columns)


def bins():
    """Head h of layer l has 10 sequences in bin l + h and 5 two bins further; empty bins are absent."""
    rows = [
        (layer, head, "entropy", "all", (layer + head + skip) / 8, (layer + head + skip + 1) / 8, count)
        for layer, head in np.ndindex(L, H)
        for skip, count in ((0, 10), (2, 5))
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "low", "high", "count"])


def pixels(figure):
    """(height, width, 4), 0 to 255."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def luminance(colour):
    """Relative luminance of an RGB colour, 0 to 1, as WCAG 2.2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour)]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]
