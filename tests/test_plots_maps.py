"""Maps show the weights they are given, queries down and keys across, with their tokens."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from attnkit import plots
from attnkit.plots import attention_grid, attention_map
from tests.drawing import H, L, T, labels, luminance, maps, pixels

# One layer, d_model 4, identity projections: rows (1,0,0,0), (0,1,0,0), (0,0,1,0) as seen by head 0.
HEAD_0 = np.array([[0.50349, 0.24826, 0.24826], [0.24826, 0.50349, 0.24826], [1 / 3, 1 / 3, 1 / 3]])
ODD = ["$x$", "a$b$c", r"$\frac$", "$", "_x", "", "\t", "Ġthe", "中文", "😀", "مرحبا", "\u200b", "##ing"]


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
