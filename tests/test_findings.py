"""What stands out is read off the numbers: heads whose behaviour is known by thought are found and named."""

import math

import pandas as pd
import pytest

from analysis.findings import find

N = 16.0  # keys
HEADS = [(layer, head) for layer in range(2) for head in range(3)]
UNIFORM = {
    "entropy": math.log(N),
    "entropy_normalized": 1.0,
    "effective_keys": N,
    "self_weight": 1 / N,
    "previous_weight": 1 / N,
    "selectivity": 0.0,
    "token_weight[0]": 0.5,
    "entropy_of_mean": math.log(N),
}


def table(special=None, *, groups=("all",)):
    """Every head is uniform in everything, but for `special`: {(statistic, layer, head): mean}."""
    special = special or {}
    rows = [
        (layer, head, statistic, group, special.get((statistic, layer, head), uniform), uniform)
        for group in groups
        for statistic, uniform in UNIFORM.items()
        for layer, head in HEADS
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "mean", "uniform"])


def text(long, topic, differences=None):
    (found,) = [finding.text for finding in find(long, differences) if finding.topic == topic]
    return found


def test_uniform_heads_are_said_to_look_nowhere_in_particular():
    assert text(table(), "Sharpness") == ("All 6 heads attend uniformly within 1 %: none looks anywhere in particular.")
    assert text(table(), "Places").endswith("every such weight is what uniform attention gives, within 1 %.")
    assert text(table(), "Tokens") == "No head leans to a token: each gets what uniform attention gives, within 1 %."
    assert text(table(), "Own token").startswith("No head tells tokens like its own")


def test_the_sharpest_head_is_named_and_the_uniform_ones_are_counted():
    sharp = {("entropy_normalized", 1, 2): 0.25, ("effective_keys", 1, 2): 2.0, ("entropy_normalized", 0, 1): 0.9}

    said = text(table(sharp), "Sharpness")

    assert said.startswith("Layer 1, head 2 is the sharpest: on average it attends as if to 2.00 keys")
    assert said.endswith("4 of 6 heads are uniform within 1 %: layer 0, heads 0 and 2; layer 1, heads 0 and 1.")


def test_a_head_that_looks_at_the_previous_token_is_found():
    said = text(table({("previous_weight", 0, 1): 0.5, ("self_weight", 1, 0): 1.4 / N}), "Places")

    assert said == (
        "Heads whose weight is at least 1.5 times what uniform attention gives: layer 0, head 1 on the previous token "
        "(8.00 times)."
    )


def test_without_a_fixed_place_the_one_furthest_from_uniform_is_named():
    """Half as much is further from uniform than 1.4 times as much."""
    said = text(table({("previous_weight", 0, 1): 1.4 / N, ("self_weight", 1, 0): 0.5 / N}), "Places")

    assert "that of layer 1, head 0 on the token itself, with 0.50 times" in said


def test_of_many_heads_that_look_at_a_place_the_strongest_is_named_and_the_others_are_counted():
    everywhere = {("previous_weight", *head): 0.25 for head in HEADS}
    special = everywhere | {("previous_weight", 1, 1): 0.5, ("self_weight", 0, 2): 1.0}

    assert text(table(special), "Places").endswith(
        "layer 0, head 2 on the token itself (16 times); layer 1, head 1 on the previous token (8.00 times, "
        "and 5 more)."
    )


def test_heads_that_follow_and_that_flee_their_own_token_are_told_apart():
    said = text(table({("selectivity", 0, 0): math.log(2), ("selectivity", 1, 1): -math.log(4)}), "Own token")

    assert "Layer 0, head 0 gathers from tokens like its own: each gets 2.00 times" in said
    assert "Layer 1, head 1 looks away from tokens like its own: each gets 0.25 times" in said


def test_the_head_that_leans_to_a_token_is_named_with_both_shares():
    said = text(table({("token_weight[0]", 1, 1): 0.75}), "Tokens")

    assert "Layer 1, head 1" in said
    assert "75\N{NO-BREAK SPACE}% of its weight is on token 0" in said
    assert "would put 50\N{NO-BREAK SPACE}%" in said


def test_a_one_hot_head_that_follows_the_content_is_told_from_a_fixed_pattern():
    """On each sequence it has entropy 0, averaged over all ln 16: position explains nothing."""
    long = table({("entropy", 1, 2): 0.0})
    shares = pd.DataFrame(
        [
            (*head, "positional_share", "all", 1.0 if head == (0, 0) else 0.0 if head == (1, 2) else 0.5)
            for head in HEADS
        ],
        columns=["layer", "head", "statistic", "group", "mean"],
    )

    said = text(pd.concat([long, shares], ignore_index=True), "Position or content")

    assert "100\N{NO-BREAK SPACE}% of how layer 0, head 0" in said
    assert "0.0\N{NO-BREAK SPACE}% for layer 1, head 2, the least" in said
    assert "0 nats on one sequence, 2.77 averaged over all" in said


@pytest.fixture
def differences():
    """By tokens the classes differ most, which the data bring with them; then by the entropy of (1, 0)."""
    rows = [
        (1, 0, "entropy", "label=no", "label=yes", -3.25),
        (0, 1, "entropy", "label=no", "label=yes", 2.0),
        (0, 0, "token_weight[0]", "label=no", "label=yes", 9.0),
        (1, 1, "entropy", "correct", "wrong", 8.0),
        (1, 2, "entropy", "label=no", "label=yes", float("nan")),
    ]
    return pd.DataFrame(rows, columns=["layer", "head", "statistic", "group_a", "group_b", "cohens_d"])


def test_classes_are_compared_where_uniform_attention_would_not_differ(differences):
    long = table({("entropy", 1, 0): 1.0}, groups=("all", "label=no", "label=yes", "correct", "wrong"))
    of_token = (long["statistic"] == "token_weight[0]") & (long["group"] == "label=yes")
    long.loc[of_token, "uniform"] = 0.3

    said = text(long, "Classes", differences)

    assert said == (
        "Layer 1, head 0 differs most between classes: its entropy (nats) is 1.00 on “no” and 1.00 on “yes”, "
        "3.2 standard deviations apart."
    )


def test_an_empty_table_of_differences_says_nothing(differences):
    assert "Classes" not in [finding.topic for finding in find(table(), differences.head(0))]


def test_a_table_without_a_statistic_says_nothing_of_it():
    only = table()
    only = only[only["statistic"] == "entropy"]

    assert find(only) == []
