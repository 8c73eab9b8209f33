"""The laws of `+`: any way of cutting a stream into parts gives the moments of the whole."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnkit.moments import Moments

FIELDS = ("count", "mean", "m2", "low", "high")


def close(a, b):
    for name in FIELDS:
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-9)


@st.composite
def stream(draw):
    """Values (N, 3) far from zero, where they are defined, and a cut of them into parts, some of them empty."""
    n = draw(st.integers(0, 23))
    seed = draw(st.integers(0, 10**6))
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(n, 3, generator=g, dtype=torch.float64) * 0.01 + 100
    defined = torch.rand(n, 3, generator=g) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    cuts = sorted(draw(st.lists(st.integers(0, n), max_size=5)))
    return values, defined, list(zip([0, *cuts], [*cuts, n], strict=True))


@given(stream())
def test_any_cut_and_any_merge_tree_give_the_moments_of_the_whole(case):
    values, defined, spans = case
    parts = [Moments.of(values[a:b], defined[a:b]) for a, b in spans]
    whole = Moments.of(values, defined)

    left = Moments.empty(3)
    for part in parts:
        left = left + part
    right = Moments.empty(3)
    for part in reversed(parts):
        right = part + right
    while len(parts) > 1:  # a balanced tree
        parts = [a + b for a, b in zip(parts[::2], [*parts[1::2], Moments.empty(3)], strict=False)]

    close(left, whole)
    close(right, whole)
    close(parts[0], whole)


@given(stream())
def test_they_are_numpys_count_mean_and_sample_deviation(case):
    values, defined, _ = case
    m = Moments.of(values, defined)

    for column in range(3):
        v = values[defined[:, column], column].numpy()
        assert m.count[column] == len(v)
        if len(v):
            assert float(m.nan_mean[column]) == pytest.approx(v.mean(), rel=1e-12)
            assert (float(m.low[column]), float(m.high[column])) == (v.min(), v.max())
        else:
            assert m.nan_mean[column].isnan()
        if len(v) > 1:
            assert float(m.std[column]) == pytest.approx(v.std(ddof=1), rel=1e-9)
            assert float(m.sem[column]) == pytest.approx(v.std(ddof=1) / np.sqrt(len(v)), rel=1e-9)
        else:
            assert m.std[column].isnan()


def test_empty_is_the_identity_to_the_bit():
    m = Moments.of(torch.randn(7, 3, dtype=torch.float64))

    for total in (m + Moments.empty(3), Moments.empty(3) + m):
        assert all(torch.equal(getattr(total, name), getattr(m, name)) for name in FIELDS)


def test_adding_changes_neither_side():
    a, b = Moments.of(torch.randn(7, 3)), Moments.of(torch.randn(5, 3))
    before = copy.deepcopy((a, b))

    Moments.empty(3) + a + b + a

    for now, then in zip((a, b), before, strict=True):
        assert all(torch.equal(getattr(now, name), getattr(then, name)) for name in FIELDS)


def test_a_constant_stream_has_no_deviation_however_it_is_cut():
    """E[x²] − E[x]² in float32 would see some."""
    m = Moments.of(torch.full((5, 1), 0.1)) + Moments.of(torch.full((7, 1), 0.1))

    assert float(m.std) == 0


def test_moments_of_different_things_cannot_be_added():
    with pytest.raises(ValueError, match=r"moments of shape \(3,\) and \(5,\) cannot be added"):
        Moments.empty(3) + Moments.empty(5)
