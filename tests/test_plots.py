"""Every figure can be read on any machine and in any theme, and is saved as it is."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnkit import plots
from attnkit.plots import attention_grid, attention_map, by_group, distribution, statistic_grid, statistic_heatmap
from tests.drawing import CLASSES, T, bins, luminance, maps, pixels, table


@pytest.fixture
def frame():
    return table()


@pytest.fixture
def histograms():
    return bins()


@pytest.fixture(params=["map", "grid", "own scales", "departure", "heatmap", "statistics", "distribution", "classes"])
def draw(request, frame, histograms):
    """A function that draws one of every kind of figure."""
    return {
        "map": lambda: attention_map(maps()[0, 0], list("abcde"), title="A title").figure,
        "grid": lambda: attention_grid(maps(), list("abcde"), title="A title"),
        "own scales": lambda: attention_grid(maps(), shared_scale=False),
        "departure": lambda: attention_grid(maps(), uniform=1 / T),
        "heatmap": lambda: statistic_heatmap(frame, "entropy").figure,
        "statistics": lambda: statistic_grid(frame),
        "distribution": lambda: distribution(histograms, "entropy"),
        "classes": lambda: by_group(frame, "entropy", groups=CLASSES).figure,
    }[request.param]


def contrast(a, b):
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def test_a_figure_has_its_own_opaque_paper_in_any_theme(draw):
    with mpl.rc_context(mpl.rcParamsDefault | {"figure.facecolor": "none", "axes.facecolor": "#ff00ff"}):
        picture = pixels(draw())

    assert (picture[0, 0] == 255).all()
    assert (picture[..., 3] == 255).all()
    assert not (picture == [255, 0, 255, 255]).all(axis=-1).any()


def test_text_is_read_against_its_ground_in_any_theme(draw):
    dark = {"text.color": "white", "axes.labelcolor": "white", "xtick.color": "white", "ytick.color": "white"}
    with mpl.rc_context(mpl.rcParamsDefault | dark):
        figure = draw()
    figure.draw_without_rendering()
    in_cells = {text: cell for ax in figure.axes for text, cell in cells(ax)}

    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible():
            assert contrast(text.get_color(), in_cells.get(text, "white")) >= 4.5, text.get_text()


def cells(ax):
    if not ax.texts:
        return []
    colours = ax.collections[0].get_facecolor()
    return [(text, colours[i][:3]) for i, text in enumerate(ax.texts)]


def test_a_figure_is_not_one_flat_colour(draw):
    assert len(np.unique(pixels(draw()).reshape(-1, 4), axis=0)) > 20


def test_pyplot_knows_of_no_figure(draw):
    import matplotlib.pyplot as plt

    draw()

    assert plt.get_fignums() == []


def test_what_is_given_is_not_changed(frame, histograms):
    weights, before = maps(), (frame.copy(), histograms.copy())

    attention_map(weights[0, 0], list("abcde"))
    attention_grid(weights, shared_scale=False)
    statistic_heatmap(frame, "entropy")
    statistic_grid(frame)
    by_group(frame, "entropy", groups=CLASSES)
    distribution(histograms, "entropy")

    np.testing.assert_array_equal(weights, maps())
    pd.testing.assert_frame_equal(frame, before[0])
    pd.testing.assert_frame_equal(histograms, before[1])


def test_the_same_figure_is_the_same_bytes(tmp_path, frame):
    for name in ("one", "two"):
        plots.save(statistic_grid(frame), tmp_path / name / "figure")

    for suffix in (".png", ".svg"):
        one, two = ((tmp_path / name / f"figure{suffix}").read_bytes() for name in ("one", "two"))
        assert one == two


def test_saving_gives_both_files_and_leaves_no_other(tmp_path, frame):
    figure = statistic_heatmap(frame, "entropy").figure

    paths = plots.save(figure, tmp_path / "token_weight[1.5]")

    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["token_weight[1.5].png", "token_weight[1.5].svg"]


def test_a_huge_figure_is_saved_within_ten_thousand_pixels(tmp_path):
    png, _ = plots.save(Figure(figsize=(200, 0.5)), tmp_path / "huge")

    width = int.from_bytes(png.read_bytes()[16:20], "big")  # the IHDR chunk of a PNG starts with its width
    assert width == 10_000
