"""The majority task: the article's data to the bit, the tie rule, and every sequence in its order."""

import hashlib
import json
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnkit import exhaustive, make_data
from attnkit.tasks import MAJORITY, get_task, is_majority, share_seen
from tests.conftest import DATA

RECORDED = json.loads((DATA / "make_data.json").read_text())


@pytest.mark.parametrize("call", RECORDED)
def test_make_data_is_the_articles_to_the_last_bit(call):
    n, L, seed = map(int, call.split(","))

    x, y = make_data(n, L, seed)

    recorded = RECORDED[call]
    assert (x.dtype, y.dtype) == (torch.int64, torch.int64)
    assert x[0].tolist() == recorded["first_row"]
    assert x[-1].tolist() == recorded["last_row"]
    assert int(x.sum()) == recorded["ones"]
    assert int(y.sum()) == recorded["positives"]
    as_bytes = x.to(torch.uint8).numpy().tobytes() + y.to(torch.uint8).numpy().tobytes()
    assert hashlib.sha256(as_bytes).hexdigest() == recorded["sha256"]


def test_drawing_data_leaves_the_callers_random_numbers_alone():
    before = torch.get_rng_state()

    make_data(7, 5, 3)

    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("ones", range(17))
def test_a_majority_is_more_than_half_and_a_tie_is_not(ones):
    x = torch.tensor([[1] * ones + [0] * (16 - ones)])

    assert int(is_majority(x)) == (ones >= 9)


def test_the_rule_that_people_read_says_what_a_tie_is():
    assert "more than half" in MAJORITY.rule
    assert "tie, such as 8 of 16, is not" in MAJORITY.rule


def test_sequences_are_enumerated_in_counting_order():
    x, y = exhaustive(3)

    assert ["".join(map(str, row)) for row in x.tolist()] == ["000", "001", "010", "011", "100", "101", "110", "111"]
    assert y.tolist() == [0, 0, 0, 1, 0, 1, 1, 1]


@pytest.mark.parametrize("L", [1, 2, 11, 16])
def test_every_sequence_is_there_once(L):
    x, y = exhaustive(L)

    assert x.shape == (2**L, L)
    assert len(x.unique(dim=0)) == 2**L
    assert int(y.sum()) == sum(comb(L, k) for k in range(L + 1) if 2 * k > L)


@given(L=st.integers(1, 9), data=st.data())
def test_a_slice_of_the_enumeration_is_that_slice_of_the_whole(L, data):
    start = data.draw(st.integers(0, 2**L))
    stop = data.draw(st.integers(start, 2**L + 3))

    x, y = MAJORITY.enumerate(L, start, stop)

    assert torch.equal(x, exhaustive(L)[0][start:stop])
    assert torch.equal(y, exhaustive(L)[1][start:stop])


@pytest.mark.parametrize("L", [-1, 0, 21, 64, 10_000])
def test_lengths_that_cannot_be_enumerated_are_refused(L):
    with pytest.raises(ValueError, match=rf"^L: got {L}; 2 tokens can be enumerated from length 1 to 1,048,576 "):
        exhaustive(L)


def test_share_seen_counts_test_sequences_that_stand_in_the_training_set():
    train = torch.tensor([[0, 1], [0, 1], [1, 1]])
    test = torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0], [0, 1]])

    assert share_seen(test, train) == 3 / 5


def test_an_unknown_task_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"^task: got 'parity', allowed is one of majority"):
        get_task("parity")
