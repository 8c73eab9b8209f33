"""One look for every figure: paper, ink, font, labels. It does not depend on matplotlib's global settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from attnkit.labels import readable

INK, FAINT, PAPER = "#1b1f24", "#57606a", "#ffffff"  # both inks have more than 4.5 : 1 against the paper
FONT = "DejaVu Sans"  # comes with matplotlib: a figure looks the same on every machine
TEXT: dict[str, Any] = {"family": FONT, "color": INK, "parse_math": False}  # a $ in a token is a $, not a formula
SEQUENTIAL = sns.color_palette("mako_r", as_cmap=True)  # lightness falls evenly: safe for colour-blind eyes and in grey
DIVERGING = sns.color_palette("vlag", as_cmap=True)


def new_figure(width: float, height: float, layout: Any = None) -> Figure:
    """`width` and `height` in inches."""
    return Figure(figsize=(width, height), layout=layout, facecolor=PAPER)


def dress(ax: Axes, *, title: str | None = None, x: str | None = None, y: str | None = None) -> None:
    """The same paper, ink and font everywhere, whatever matplotlib's settings are."""
    ax.figure.set_facecolor(PAPER)
    ax.set_facecolor(PAPER)
    ax.set_title(printable(title or ""), size=11, pad=8, **TEXT)
    ax.set_xlabel(x or "", size=10, **TEXT)
    ax.set_ylabel(y or "", size=10, **TEXT)
    ax.tick_params(colors=INK, labelsize=9, length=2, labelfontfamily=FONT)
    for spine in ax.spines.values():
        spine.set(color=INK, linewidth=0.6)


def dress_bar(bar: Colorbar, label: str) -> None:
    bar.set_label(label, size=9, **TEXT)
    bar.ax.tick_params(colors=INK, labelsize=8, length=2, labelfontfamily=FONT)
    bar.outline.set_visible(False)


def centred(values: np.ndarray, centre: float | int, *, least: float = 0.0) -> dict[str, Any]:
    """Colours that are white at `centre`, blue below and red above, and reach at least `least` to both sides."""
    reach = max(np.nanmax(np.abs(values - centre)), least)
    return {"vmin": centre - reach, "vmax": centre + reach, "cmap": DIVERGING}


@dataclass(frozen=True)
class Ticks:
    positions: list[int]
    labels: list[str]
    size: float  # of the font, in points
    length: float  # of the longest label, in inches
    upright: bool  # whether labels side by side would touch


def token_ticks(tokens: Sequence[str] | int, side: float) -> Ticks:
    """Labels for a side of so many inches: of every token, or of every k-th with its position where all would not fit.

    A number of tokens in the place of the tokens is labelled with positions alone.
    """
    T = tokens if isinstance(tokens, int) else len(tokens)
    room = side * 72 / T  # points
    step = math.ceil(7 / room)
    positions = list(range(0, T, step))
    if isinstance(tokens, int):
        labels = [str(p) for p in positions]
    else:
        words = readable(tokens, drawable=has_glyph)
        labels = [words[p] if step == 1 else f"{p} {words[p]}" for p in positions]
    size = min(9.0, max(6.0, 0.8 * room * step))
    longest = 0.62 * size * max(map(len, labels))  # points, about
    return Ticks(positions, labels, size, longest / 72, upright=longest > 0.9 * room * step)


def put_ticks(axis: Axis, ticks: Ticks) -> None:
    rotation = 90 if ticks.upright and isinstance(axis, XAxis) else 0
    axis.set_ticks(ticks.positions, ticks.labels, rotation=rotation, size=ticks.size, **TEXT)


@cache
def glyphs() -> frozenset[int]:
    return frozenset(get_font(findfont(FONT)).get_charmap())


def has_glyph(character: str) -> bool:
    return ord(character) in glyphs()


def printable(text: str) -> str:
    """A title as it is, but with a code in the place of what the font has no glyph for."""
    return "".join(c if c == "\n" or has_glyph(c) else f"U+{ord(c):04X}" for c in text)


def ink_on(colour: np.ndarray) -> str:
    """Black or white on this RGB colour, whichever reads better: at least 4.5 : 1 (WCAG 2.2, relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"
