"""Differences between groups, held to scipy on the sequences themselves."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnkit.differences import difference_frame


def long_of(samples):
    """A long table of {(statistic, group): values} for one head."""
    rows = [(0, 0, s, g, len(v), np.mean(v), np.std(v, ddof=1)) for (s, g), v in samples.items()]
    return pd.DataFrame(rows, columns=["layer", "head", "statistic", "group", "n", "mean", "std"])


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    return {
        (s, g): rng.normal(shift, scale, n)
        for s, shift in (("entropy", 0.0), ("offset", 5.0))
        for g, scale, n in (("label=no", 1.0, 23), ("label=yes", 3.0, 11), ("correct", 1.0, 31), ("wrong", 2.0, 3))
    }


def test_intervals_and_p_values_are_scipys_welch(samples):
    table = difference_frame(long_of(samples), population=False)

    assert len(table) == 4
    for row in table.itertuples():
        a, b = samples[row.statistic, row.group_a], samples[row.statistic, row.group_b]
        welch = stats.ttest_ind(a, b, equal_var=False)
        interval = welch.confidence_interval(0.95)
        assert row.difference == pytest.approx(a.mean() - b.mean())
        assert row.p == pytest.approx(welch.pvalue)
        assert (row.ci_low, row.ci_high) == pytest.approx((interval.low, interval.high))


def test_p_values_are_adjusted_over_all_heads_and_statistics(samples):
    """Benjamini–Hochberg by hand: p · m / rank, made monotone from the largest down."""
    table = difference_frame(long_of(samples), population=False).sort_values("p")

    m = len(table)
    by_hand = np.minimum.accumulate((table["p"] * m / np.arange(1, m + 1)).to_numpy()[::-1])[::-1]
    np.testing.assert_allclose(table["p_adjusted"], by_hand)


def test_cohens_d_of_groups_one_deviation_apart_is_one():
    table = difference_frame(
        long_of({("entropy", "label=a"): [1.0, 2.0, 3.0], ("entropy", "label=b"): [0.0, 1.0, 2.0]}), population=False
    )

    assert table["cohens_d"].tolist() == pytest.approx([1.0])


def test_a_population_has_differences_and_no_p_values(samples):
    table = difference_frame(long_of(samples), population=True)

    assert not {"p", "p_adjusted", "ci_low", "ci_high"} & set(table)
    assert table["difference"].notna().all()


def test_a_side_with_one_sequence_or_no_deviation_at_all_is_absent():
    one = {("entropy", "label=a"): [1.0, 2.0], ("entropy", "label=b"): [1.0, 1.0], ("offset", "correct"): [1.0, 2.0]}
    same = {("offset", "label=a"): [1.0, 1.0], ("offset", "label=b"): [2.0, 2.0]}

    assert difference_frame(long_of(one | same), population=False)["statistic"].tolist() == ["entropy"]
