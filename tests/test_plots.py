"""Figures show what they are given, the right way round, and can be read on any machine and in any theme."""

import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from attnkit import plots
from attnkit.plots import attention_grid, attention_map, by_group, distribution, statistic_grid, statistic_heatmap

# One layer, d_model 4, identity projections: rows (1,0,0,0), (0,1,0,0), (0,0,1,0) as seen by head 0.
HEAD_0 = np.array([[0.50349, 0.24826, 0.24826], [0.24826, 0.50349, 0.24826], [1 / 3, 1 / 3, 1 / 3]])
L, H, T = 2, 3, 5
CLASSES = ["label=no", "label=<b>$yes$</b>"]
ODD = ["$x$", "a$b$c", r"$\frac$", "$", "_x", "", "\t", "Ġthe", "中文", "😀", "مرحبا", "\u200b", "##ing"]


def maps(layers=L, heads=H, tokens=T, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(tokens), size=(layers, heads, tokens))


@pytest.fixture
def frame():
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


@pytest.fixture
def histograms():
    """Head h of layer l has 10 sequences in bin l + h and 5 two bins further; empty bins are absent."""
    rows = [
        (layer, head, "entropy", "all", (layer + head + skip) / 8, (layer + head + skip + 1) / 8, count)
        for layer, head in np.ndindex(L, H)
        for skip, count in ((0, 10), (2, 5))
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "low", "high", "count"])


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


def pixels(figure):
    """(height, width, 4), 0 to 255."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def luminance(colour):
    """Relative luminance of an RGB colour, 0 to 1, as WCAG 2.2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(colour)]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def contrast(a, b):
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


# --- attention maps ---


def test_rows_are_queries_and_the_first_is_at_the_top():
    ax = attention_map(HEAD_0, ["a", "b", "c"])

    np.testing.assert_array_equal(ax.images[0].get_array()[0], [0.50349, 0.24826, 0.24826])
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert labels(ax.yaxis) == labels(ax.xaxis) == ["a", "b", "c"]


def test_the_weight_of_the_first_query_on_the_last_key_is_drawn_top_right():
    weights = np.zeros((3, 3))
    weights[0, 2] = 1.0
    ax = attention_map(weights, ["a", "b", "c"])
    picture = pixels(ax.figure)
    x, y = ax.transData.transform((2, 0))  # of key 2, query 0; y counts from below
    mirrored = ax.transData.transform((0, 2))

    dark = picture[len(picture) - int(y), int(x), :3].mean()
    light = picture[len(picture) - int(mirrored[1]), int(mirrored[0]), :3].mean()

    assert dark < 50 < 200 < light


def test_colours_run_from_zero_to_the_largest_weight_or_to_vmax():
    assert attention_map(HEAD_0, "abc").images[0].get_clim() == (0, 0.50349)
    assert attention_map(HEAD_0, "abc", vmax=1.0).images[0].get_clim() == (0, 1)


def test_a_batch_of_two_is_refused():
    with pytest.raises(ValueError, match="weights: expects one sequence, got a batch of 2"):
        attention_map(torch.ones(2, H, 16, 16) / 16, ["0"] * 16)
    with pytest.raises(ValueError, match="maps: expects one sequence, got a batch of 2"):
        attention_grid([torch.ones(2, H, 16, 16) / 16] * L, ["0"] * 16)


def test_another_number_of_tokens_is_refused():
    for draw in (attention_map, attention_grid):
        with pytest.raises(ValueError, match="16 positions but 15 tokens"):
            draw(torch.ones(1, H, 16, 16) / 16, ["0"] * 15)


def test_several_heads_are_no_map():
    with pytest.raises(
        ValueError, match=r"weights: expects one sequence and one head, \(T, T\); got shape \(3, 5, 5\)"
    ):
        attention_map(maps()[:1], list("abcde"))


def test_weights_that_are_not_square_or_not_numbers_are_refused():
    with pytest.raises(ValueError, match=r"expects as many queries as keys, \(…, T, T\); got shape \(3, 2\)"):
        attention_map(HEAD_0[:, :2], "ab")
    with pytest.raises(ValueError, match="weights: has values that are not finite"):
        attention_map(HEAD_0 * np.nan, "abc")


def test_tokens_may_look_at_others_of_another_number():
    """Each side has its own labels; the numbers stand where they stood."""
    weights = np.arange(1, 3 * 7 * 2 + 1).reshape(1, 3, 2, 7) / 100
    ax = attention_map(weights[0, 1], "ab", "tuvwxyz")
    grid = attention_grid(weights, ["a", "b"], list("tuvwxyz")).axes

    for drawn in (ax, grid[1]):
        np.testing.assert_array_equal(drawn.images[0].get_array(), weights[0, 1])
    assert (labels(ax.yaxis), labels(ax.xaxis)) == (["a", "b"], list("tuvwxyz"))
    assert (labels(grid[0].yaxis), labels(grid[0].xaxis)) == (["a", "b"], list("tuvwxyz"))
    with pytest.raises(ValueError, match="weights: 2 positions but 3 tokens"):
        attention_map(weights[0, 1], "abc", "tuvwxyz")
    with pytest.raises(ValueError, match="keys: maps have 7 but 2 labels for them"):
        attention_grid(weights, "ab", "ab")


def test_the_models_own_list_of_attentions_can_be_drawn(article_model):
    _, attentions = article_model(torch.zeros(1, 16, dtype=torch.int64))

    figure = attention_grid(attentions, ["0"] * 16)

    drawn = [ax.images[0].get_array() for ax in figure.axes if ax.images]
    np.testing.assert_allclose(drawn, torch.cat(attentions).flatten(0, 1))


def test_the_grid_has_every_head_layers_as_rows_on_one_scale():
    figure = attention_grid(maps())
    panels = figure.axes[: L * H]

    for (layer, head), ax in zip(np.ndindex(L, H), panels, strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), maps()[layer, head])
        assert ax.get_subplotspec().rowspan.start == layer
        assert ax.get_subplotspec().colspan.start == head
        assert ax.images[0].get_clim() == (0, maps().max())
    assert len(figure.axes) == L * H + 1  # the colour bar
    assert [ax.get_ylabel() for ax in panels[::H]] == ["layer 0", "layer 1"]


def test_without_a_shared_scale_every_map_says_its_own():
    figure = attention_grid(maps(), shared_scale=False)

    assert len(figure.axes) == L * H  # no colour bar, which would be of one map alone
    for weights, ax in zip(maps().reshape(-1, T, T), figure.axes, strict=True):
        assert ax.images[0].get_clim() == (0, weights.max())
        assert ax.get_title().endswith(f"0 to {weights.max():.2g}")


def test_uniform_attention_is_white_where_departures_are_drawn():
    image = attention_grid(maps(), uniform=1 / T).axes[0].images[0]

    assert luminance(image.cmap(image.norm(1 / T))) > 0.9
    assert image.norm(maps().min()) >= 0
    assert image.norm(maps().max()) <= 1


def test_rounding_errors_of_uniform_attention_stay_white():
    flat = np.full((L, H, T, T), 1 / T) + np.linspace(0, 1e-12, L * H * T * T).reshape(L, H, T, T)

    image = attention_grid(flat, uniform=1 / T).axes[0].images[0]

    assert luminance(image.cmap(image.norm(flat.min()))) > 0.9
    assert luminance(image.cmap(image.norm(flat.max()))) > 0.9


def test_tokens_are_drawn_as_they_are_typed():
    """A dollar sign starts no formula, a glyph that the font has not draws no box, and no draw warns."""
    ax = attention_map(np.eye(len(ODD)), ODD, title=r"$\frac$ 中")
    pixels(ax.figure)

    expected = ["$x$", "a$b$c", r"$\frac$", "$", "_x", "∅", "⇥", "␣the"]
    assert labels(ax.xaxis)[:8] == labels(ax.yaxis)[:8] == expected
    assert labels(ax.xaxis)[8] == "U+4E2D U+6587"
    assert labels(ax.xaxis)[10] == "مرحبا"
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())
    assert ax.get_title() == r"$\frac$ U+4E2D"


def test_sixty_four_tokens_have_sixty_four_labels():
    tokens = [f"t{i}" for i in range(64)]

    ax = attention_map(np.eye(64), tokens)

    assert labels(ax.xaxis) == labels(ax.yaxis) == tokens


def test_labels_that_do_not_fit_are_thinned_and_numbered():
    tokens = [f"t{i}" for i in range(200)]

    shown = labels(attention_map(np.eye(200), tokens).yaxis)

    assert 20 < len(shown) < 100
    step = int(shown[1].split()[0])
    assert shown == [f"{i} t{i}" for i in range(0, 200, step)]


def test_a_map_fits_into_axes_that_are_given():
    ax = Figure().subplots()

    assert attention_map(HEAD_0, "abc", ax=ax) is ax


@pytest.mark.parametrize("shape", [(12, 12, 128), (100, 1, 3), (1, 100, 3)])
def test_no_grid_has_a_side_of_more_than_ten_thousand_pixels(shape):
    layers, heads, tokens = shape

    figure = attention_grid(np.full((layers, heads, tokens, tokens), 1 / tokens))

    assert max(figure.get_size_inches()) * plots.DPI <= 10_000


# --- tables ---


def test_a_heat_map_has_layers_as_rows_and_its_values_written_in(frame):
    ax = statistic_heatmap(frame, "entropy")

    expected = [[math.log(T) - (layer + head) / 10 for head in range(H)] for layer in range(L)]
    np.testing.assert_allclose(ax.collections[0].get_array().reshape(L, H), expected)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert [text.get_text() for text in ax.texts] == ["1.61", "1.51", "1.41", "1.51", "1.41", "1.31"]
    assert ax.get_title() == "Entropy"
    assert "uniform attention, 1.61" in ax.get_xlabel()
    assert "nats" in ax.figure.axes[-1].get_ylabel()


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


# --- every figure ---


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
