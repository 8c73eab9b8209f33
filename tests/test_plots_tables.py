"""Figures of tables of statistics show their numbers, each where it belongs."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from attnkit import plots
from attnkit.plots import by_group, distribution, statistic_grid, statistic_heatmap
from tests.drawing import CLASSES, H, L, T, bins, labels, luminance, pixels, table


@pytest.fixture
def frame():
    return table()


@pytest.fixture
def histograms():
    return bins()


def test_a_heat_map_has_layers_as_rows_and_its_values_written_in(frame):
    ax = statistic_heatmap(frame, "entropy")

    expected = [[math.log(T) - (layer + head) / 10 for head in range(H)] for layer in range(L)]
    np.testing.assert_allclose(ax.collections[0].get_array().reshape(L, H), expected)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert [text.get_text() for text in ax.texts] == ["1.61", "1.51", "1.41", "1.51", "1.41", "1.31"]
    assert ax.get_title() == "Entropy"
    assert "uniform attention, 1.61" in ax.get_xlabel()
    assert "nats" in ax.figure.axes[-1].get_ylabel()


def test_every_row_and_column_of_a_heat_map_has_its_number(frame):
    ax = statistic_heatmap(frame[frame["layer"] == 1], "entropy")

    assert (labels(ax.yaxis), labels(ax.xaxis)) == (["1"], ["0", "1", "2"])
    assert [*ax.get_xticks(), *ax.get_yticks()] == [0.5, 1.5, 2.5, 0.5]


def test_where_not_all_numbers_fit_each_that_is_there_stands_at_its_own_cell():
    rows = [(0, head, "entropy", "all", head, 20.0) for head in range(131)]
    many = pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "mean", "uniform"])
    ax = statistic_heatmap(many, "entropy")

    ax.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert [float(label) + 0.5 for label in labels(ax.xaxis)] == ax.get_xticks().tolist()
    assert 20 < len(boxes) < 131
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_another_group_is_another_picture_and_says_so(frame):
    ax = statistic_heatmap(frame, "entropy", group="label=no")

    assert ax.texts[0].get_text() == "1.51"
    assert ax.get_title() == "Entropy (label: no)"


def test_white_is_uniform_attention(frame):
    mesh = statistic_heatmap(frame, "offset").collections[0]

    assert luminance(mesh.cmap(mesh.norm(0.0))) > 0.9
    assert mesh.norm(1.0) + mesh.norm(-1.0) == pytest.approx(1)  # as far to either side


def test_heads_that_are_nearly_uniform_are_nearly_white(frame):
    """Rounding errors and thousandths must not look like findings."""
    close = frame.assign(mean=frame["uniform"] * (1 + frame["head"] / 1000))

    mesh = statistic_heatmap(close, "entropy").collections[0]

    mesh.update_scalarmappable()
    assert all(luminance(colour[:3]) > 0.8 for colour in mesh.get_facecolor())


def test_heads_that_do_not_differ_at_all_can_be_drawn(frame):
    pixels(statistic_heatmap(frame.assign(mean=0.5), "positional_share").figure)
    pixels(statistic_heatmap(frame.assign(mean=0.0), "positional_share").figure)


def test_a_head_without_a_value_is_an_empty_cell(frame):
    missing = frame[~((frame["layer"] == 1) & (frame["head"] == 2))]

    ax = statistic_heatmap(missing, "entropy")
    pixels(ax.figure)

    assert len(ax.texts) == L * H - 1


def test_many_heads_are_colours_alone():
    rows = [(layer, head, "entropy", "all", head, 20.0) for layer, head in np.ndindex(3, 17)]
    many = pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "mean", "uniform"])

    assert not statistic_heatmap(many, "entropy").texts
    assert "0 to 16.0" in statistic_grid(many).axes[0].get_xlabel()


def test_the_grid_of_statistics_has_a_panel_for_each(frame):
    figure = statistic_grid(frame, group="label=no")

    drawn = [ax for ax in figure.axes if ax.collections]
    assert [ax.get_title() for ax in drawn] == ["Entropy (nats)", "Offset (tokens)", "Positional share"]
    assert drawn[0].texts[0].get_text() == "1.51"


def test_a_histogram_has_a_row_for_each_head_and_keeps_empty_bins(histograms):
    figure = distribution(histograms, "entropy")

    assert [ax.get_title() for ax in figure.axes] == ["layer 0", "layer 1"]
    assert labels(figure.axes[0].yaxis) == ["head 0", "head 1", "head 2"]
    for layer, ax in enumerate(figure.axes):
        for head, row in enumerate(ax.patches):
            heights, edges, baseline = row.get_data()
            shares = (heights - baseline) / (heights - baseline).max()
            expected = np.zeros(len(edges) - 1)
            expected[edges[:-1] == (layer + head) / 8] = 1.0
            expected[edges[:-1] == (layer + head + 2) / 8] = 0.5
            np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_a_histogram_of_one_layer_is_one_panel(histograms):
    assert [ax.get_title() for ax in distribution(histograms, "entropy", layer=1).axes] == ["layer 1"]


def test_bins_that_are_even_in_the_logarithm_are_drawn_so(histograms):
    even = histograms.assign(low=np.exp(histograms["low"]), high=np.exp(histograms["high"]))

    assert distribution(even, "entropy").axes[0].get_xscale() == "log"
    assert distribution(histograms, "entropy").axes[0].get_xscale() == "linear"


def test_classes_are_drawn_with_the_intervals_of_the_table(frame):
    ax = by_group(frame, "entropy", groups=CLASSES)

    assert labels(ax.yaxis)[:2] == ["layer 0, head 0", "layer 0, head 1"]
    assert len(ax.containers) == len(CLASSES)
    for container, group in zip(ax.containers, CLASSES, strict=True):
        rows = frame[(frame["group"] == group) & (frame["statistic"] == "entropy")]
        points, _, (bars,) = container
        np.testing.assert_allclose(points.get_xdata().astype(float), rows["mean"])
        ends = np.array([segment[:, 0] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, rows[["ci_low", "ci_high"]])
    assert "95 % interval" in ax.get_xlabel()


def test_a_population_has_no_bars_and_says_why(frame):
    ax = by_group(frame.drop(columns=["ci_low", "ci_high"]), "entropy", groups=CLASSES)

    assert not any(container.has_xerr for container in ax.containers)
    assert "these are all sequences there are" in ax.get_xlabel()


def test_a_legend_says_what_each_mark_is(frame):
    ax = by_group(frame, "entropy", groups=CLASSES)

    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    assert shown == ["label: no", "label: <b>$yes$</b>", "uniform attention"]


def test_what_the_table_has_not_is_refused(frame, histograms):
    with pytest.raises(ValueError, match="statistic: got 'entrpy', the table has entropy, offset, positional_share"):
        statistic_heatmap(frame, "entrpy")
    with pytest.raises(ValueError, match="group: got 'label=maybe', the table has all, label=no, "):
        by_group(frame, "entropy", groups=["label=maybe"])
    with pytest.raises(ValueError, match="groups: is empty"):
        by_group(frame, "entropy", groups=[])
    with pytest.raises(ValueError, match="group: 'label=maybe' is not in the table"):
        statistic_grid(frame, group="label=maybe")
    with pytest.raises(ValueError, match="layer: 7 is not in the table"):
        distribution(histograms, "entropy", layer=7)


def test_offsets_stand_where_they_are_said_to_a_row_for_each_head():
    """Head h of layer l has all its weight at offset h − 2 l, the third one's beyond what is drawn."""
    rows = [
        (layer, head, k, float(k == head - 2 * layer))
        for layer, head in np.ndindex(L, H)
        for k in range(-5, 6)
        if (layer, k) != (1, 4)  # no query has such a key
    ]
    profile = pd.DataFrame(rows, columns=["layer", "head", "offset", "mean"])

    figure = plots.offset_grid(profile, reach=1)

    panels = [ax for ax in figure.axes if ax.get_title().startswith("layer")]
    drawn = [ax.collections[0].get_array().reshape(H, 3).tolist() for ax in panels]
    assert drawn == [[[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0, 0, 0], [1, 0, 0], [0, 1, 0]]]
    assert panels[0].get_ylim()[0] > panels[0].get_ylim()[1]  # head 0 on top
    with pytest.raises(ValueError, match="reach: got -1, the table has no such offset"):
        plots.offset_grid(profile, reach=-1)
