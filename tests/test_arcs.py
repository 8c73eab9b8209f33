"""Arcs: a line for each weight, from its query on the left to its key on the right."""

import numpy as np
import pytest

from attnkit.arcs import attention_arcs

ONE_EACH = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]])  # query 0 looks at 1, 1 at 2, 2 at 0


def lines(ax):
    (collection,) = ax.collections
    return [(segment[0].tolist(), segment[-1].tolist()) for segment in collection.get_segments()], collection


def test_each_line_runs_from_its_query_to_its_key():
    ends, _ = lines(attention_arcs(ONE_EACH, "abc"))

    assert ends == [([0, 0], [1, 1]), ([0, 1], [1, 2]), ([0, 2], [1, 0])]


def test_the_first_token_is_at_the_top_and_each_stands_on_both_sides():
    ax = attention_arcs(ONE_EACH, ["x", "$y$", "z"], title="A title")

    assert ax.yaxis_inverted()
    assert [text.get_text() for text in ax.texts] == 2 * ["x", "$y$", "z"]
    assert ax.get_title() == "A title"


def test_opacity_is_the_square_of_the_share_of_the_largest():
    _, collection = lines(attention_arcs(np.array([[1.0, 0.5], [0.0, 0.25]]), "ab"))

    assert collection.get_colors()[:, 3] == pytest.approx([1, 1 / 4, 1 / 16])


def test_a_common_scale_makes_a_weak_head_pale():
    _, collection = lines(attention_arcs(np.eye(2) * 0.5, "ab", vmax=1.0))

    assert collection.get_colors()[:, 3] == pytest.approx([1 / 4, 1 / 4])


def test_below_and_above_0_differ_in_colour_where_there_are_signs():
    _, collection = lines(attention_arcs(np.array([[1.0, -1.0], [0, 0]]), "ab", signed=True))
    (_, _, blue, _), (red, _, _, _) = collection.get_colors()[1], collection.get_colors()[0]

    assert blue > 0.5
    assert red > 0.5


def test_nothing_but_0_is_no_error():
    assert lines(attention_arcs(np.zeros((3, 3)), "abc"))[0] == []


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ValueError, match="3 positions but 2 tokens"):
        attention_arcs(ONE_EACH, "ab")


def test_other_keys_stand_as_high_as_the_tokens_that_look():
    """Two queries and four keys: each query's height is that of two keys."""
    ax = attention_arcs(np.array([[1, 0, 0, 0], [0, 0, 0, 1]]), "ab", "wxyz")

    assert lines(ax)[0] == [([0, 0], [1, -0.25]), ([0, 1], [1, 1.25])]
    assert [(text.get_text(), text.get_position()[1]) for text in ax.texts] == [
        ("a", 0),
        ("b", 1),
        ("w", -0.25),
        ("x", 0.25),
        ("y", 0.75),
        ("z", 1.25),
    ]
    with pytest.raises(ValueError, match="keys: weights have 4 but 3 labels for them"):
        attention_arcs(np.ones((2, 4)), "ab", "wxy")
