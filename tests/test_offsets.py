"""Sums over the diagonals of maps: whole, in pieces, of texts of any lengths."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from attnkit.offsets import OffsetSums, add_diagonals


def diagonals(maps):
    """By torch's own, from the lowest to the highest."""
    T = maps.shape[-1]
    return torch.stack([maps.diagonal(k, -2, -1).sum(dim=-1) for k in range(-(T - 1), T)], dim=-1)


@given(T=st.integers(1, 11), row=st.integers(0, 10), column=st.integers(0, 10))
def test_pieces_of_a_map_add_up_to_its_diagonals(T, row, column):
    maps = torch.arange(3.0 * T * T, dtype=torch.float64).view(3, T, T)
    sums = torch.zeros(3, 2 * T - 1, dtype=torch.float64)
    row, column = min(row, T), min(column, T)

    for rows in (slice(0, row), slice(row, T)):
        for columns in (slice(0, column), slice(column, T)):
            piece = maps[:, rows, columns]
            if piece.numel():
                add_diagonals(sums, piece, rows.start, columns.start)

    assert torch.equal(sums, diagonals(maps))


def test_sums_of_short_and_long_texts_meet_in_the_middle_and_neither_changes():
    short = OffsetSums(torch.tensor([[[1.0, 2, 3]]]), torch.tensor([[1.0, 2, 1]]))
    long = OffsetSums(torch.tensor([[[10.0, 20, 30, 40, 50]]]), torch.tensor([[1.0, 2, 3, 2, 1]]))

    for both in (short + long, long + short):
        assert both.weights.tolist() == [[[10, 21, 32, 43, 50]]]
        assert both.pairs.tolist() == [[1, 3, 5, 3, 1]]
    assert short.weights.tolist() == [[[1, 2, 3]]]
