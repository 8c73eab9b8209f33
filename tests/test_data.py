"""From what people type to batches, and data sets that are read a batch at a time."""

import re

import pytest
import torch

from attnkit.data import Batch, DataConfig, encode, pad, separator, task_dataset, task_sets
from attnkit.tasks import MAJORITY, exhaustive, make_data

BITS = MAJORITY.vocab


@pytest.mark.parametrize("size", [1, 3, 5, 7])
def test_batches_in_order_are_the_whole(size):
    whole = Batch(torch.arange(10).view(5, 2), torch.ones(5, 2, dtype=torch.bool), torch.arange(5))

    parts = list(whole.split(size))

    assert [len(part) for part in parts] == [min(size, 5 - i) for i in range(0, 5, size)]
    for name in ("tokens", "mask", "labels"):
        assert torch.equal(torch.cat([getattr(part, name) for part in parts]), getattr(whole, name))


def test_sequences_are_picked_with_their_labels():
    picked = Batch(torch.tensor([[1, 2], [3, 4], [5, 6]]), labels=torch.tensor([7, 8, 9]))[torch.tensor([2, 0])]

    assert picked.tokens.tolist() == [[5, 6], [1, 2]]
    assert picked.labels.tolist() == [9, 7]
    assert picked.mask is None


def test_padding_keeps_every_token_and_marks_it():
    sequences = [torch.tensor([1]), torch.tensor([0, 1, 1]), torch.tensor([1, 0])]

    left, right = pad(sequences, "left"), pad(sequences)

    assert right.mask.tolist() == [[True, False, False], [True, True, True], [True, True, False]]
    assert left.mask.tolist() == [[False, False, True], [True, True, True], [False, True, True]]
    for batch in (left, right):
        assert [row[m].tolist() for row, m in zip(batch.tokens, batch.mask, strict=True)] == [[1], [0, 1, 1], [1, 0]]


def test_typed_sequences_become_ids():
    assert encode("0110", BITS, max_len=16).tolist() == [0, 1, 1, 0]
    assert encode("ba", ("a", "b"), max_len=2).tolist() == [1, 0]
    assert encode("up down up", ("up", "down"), max_len=3).tolist() == [0, 1, 0]


def test_what_stands_between_tokens_is_what_is_read_between_them():
    for vocab in (BITS, ("up", "down"), ("a", "down")):
        assert encode(separator(vocab).join(vocab), vocab, max_len=2).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the sequence is empty; type 1 to 16 of the characters {0,1}"),
        ("0120", "character '2' at position 3 is not in the vocabulary {0,1}"),
        ("0 1", "character ' ' at position 2 is not in the vocabulary {0,1}"),
        ("１", "character '１' at position 1 is not in the vocabulary {0,1}"),
        ("1" * 17, "17 tokens; this checkpoint takes at most 16"),
        ("1" * 1000, "1000 tokens; this checkpoint takes at most 16"),
    ],
)
def test_what_cannot_be_read_is_said_to_the_person_who_typed_it(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        encode(text, BITS, max_len=16)


def test_the_data_of_a_checkpoint_are_drawn_by_their_seeds():
    train_set, test_set = task_sets(MAJORITY, DataConfig())

    assert torch.equal(train_set.tokens, make_data(2000, 16, 1)[0])
    assert torch.equal(test_set.labels, make_data(500, 16, 2)[1])


@pytest.mark.parametrize(("split", "whole"), [("test", make_data(23, 5, 2)), ("exhaustive", exhaustive(5))])
def test_a_dataset_gives_its_sequences_whatever_the_batch_size(split, whole):
    dataset = task_dataset(MAJORITY, DataConfig(length=5, n_test=23), split)

    for batch_size in (1, 7, 1000):
        batches = list(dataset.batches(batch_size))
        assert torch.equal(torch.cat([b.tokens for b in batches]), whole[0])
        assert torch.equal(torch.cat([b.labels for b in batches]), whole[1])
    assert dataset.size == len(whole[0])
    assert dataset.population == (split == "exhaustive")


def test_an_unknown_split_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"^split: got 'all', allowed is test or exhaustive$"):
        task_dataset(MAJORITY, DataConfig(), "all")


@pytest.mark.parametrize("name", ["length", "n_train", "n_test"])
def test_a_data_set_has_at_least_one_of_everything(name):
    with pytest.raises(ValueError, match=f"^{name}: got 0, allowed is a whole number of at least 1$"):
        DataConfig(**{name: 0})
