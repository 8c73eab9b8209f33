"""Heads replaced while the model runs: it answers as with other weights would, and nothing stays behind."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.ablation import Donors, MeanOutputs, ablate, head_outputs, intervene, mean_outputs, replaced
from attnkit.data import Batch, pad
from attnkit.model import TinyTransformer

D, H, WIDTH, LONGEST = 15, 3, 5, 11
LAYERS_OF_HEADS = [(layer, head) for layer in range(2) for head in range(H)]


@pytest.fixture
def model():
    return TinyTransformer(2, D, H, 7, 2, LONGEST).double().eval().requires_grad_(False)


def sequences(lengths, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 2, (length,), generator=g) for length in lengths]


def batches_of(some, cuts, side="right"):
    edges = [0, *sorted(cuts), len(some)]
    return [pad(some[a:b], side) for a, b in pairwise(edges) if a < b]


def logits(model, batch):
    return model(batch.tokens, batch.mask)[0]


def slice_of(model, layer, head):
    return model.layers[layer].attn.W_o.weight[:, head * WIDTH : (head + 1) * WIDTH]


@pytest.mark.parametrize(("layer", "head"), LAYERS_OF_HEADS)
def test_zero_ablation_is_a_model_without_that_slice_of_the_output_projection(model, layer, head):
    batch = pad(sequences([7, 11, 3]))
    without = copy.deepcopy(model)
    slice_of(without, layer, head).zero_()

    with ablate(model, {(layer, head): 0.0}):
        ablated = logits(model, batch)

    torch.testing.assert_close(ablated, logits(without, batch), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(ablated, logits(model, batch))


def test_a_head_that_is_not_projected_may_put_out_anything(model):
    batch = pad(sequences([7, 11, 3]))
    slice_of(model, 1, 2).zero_()
    before = logits(model, batch)

    with ablate(model, {(1, 2): 1e3 * torch.randn(3, 11, WIDTH)}):
        assert torch.equal(logits(model, batch), before)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mean_of_a_head_that_always_puts_out_the_same_changes_nothing(model, side):
    """Without a weight on the values, all that a head adds is its bias."""
    model.layers[0].attn.W_v.weight[:WIDTH].zero_()
    batch = pad(sequences([7, 11, 3]), side)
    before = logits(model, batch)
    means = mean_outputs(model, [batch])

    with ablate(model, {(0, 0): means.at(batch)[:, 0, 0]}):
        torch.testing.assert_close(logits(model, batch), before, rtol=1e-12, atol=1e-12)
    with ablate(model, {(0, 1): means.at(batch)[:, 0, 1]}):
        assert not torch.allclose(logits(model, batch), before)


def test_several_heads_go_at_once(model):
    batch = pad(sequences([7, 11, 3]))
    without = copy.deepcopy(model)
    for layer, head in [(0, 1), (1, 0), (1, 2)]:
        slice_of(without, layer, head).zero_()

    with ablate(model, {(0, 1): 0.0, (1, 0): 0.0, (1, 2): 0.0}):
        torch.testing.assert_close(logits(model, batch), logits(without, batch), rtol=1e-12, atol=1e-12)


def test_afterwards_the_model_is_as_before_even_after_an_exception(model):
    batch, keys = pad(sequences([7, 11])), list(model.state_dict())
    before = logits(model, batch)

    def broken(layer, output):
        raise RuntimeError("in the middle of the model")

    with pytest.raises(RuntimeError, match="in the middle"), intervene(model, broken):
        model(batch.tokens)
    with pytest.raises(KeyError), ablate(model, {(0, 0): 0.0}):
        raise KeyError

    assert torch.equal(logits(model, batch), before)
    assert list(model.state_dict()) == keys
    assert not any(m._forward_hooks for m in model.modules())


def test_attention_weights_stay_what_they_are(model):
    """The output is replaced, not the weights: a map drawn beside an ablation is still that of the head."""
    x = sequences([7])[0][None]
    _, before = model(x)
    with ablate(model, {(0, 0): 0.0}):
        _, after = model(x)

    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])  # the next layer sees something else


def test_replacing_leaves_the_given_outputs_alone():
    output = torch.randn(2, H, 7, WIDTH)
    before = output.clone()
    new = replaced(output, {1: 0.0})

    assert torch.equal(output, before)
    assert torch.equal(new[:, 1], torch.zeros(2, 7, WIDTH))
    assert torch.equal(new[:, [0, 2]], before[:, [0, 2]])
    assert replaced(output, {}) is output


@pytest.mark.parametrize("head", [(2, 0), (0, 3), (-1, 0), (0, -1)])
def test_a_head_that_is_not_there_is_refused(model, head):
    with (
        pytest.raises(ValueError, match=rf"layer {head[0]}, head {head[1]}; the model has 2 layers of 3 heads"),
        ablate(model, {head: 0.0}),
    ):
        pass


def test_a_replacement_of_another_shape_is_refused(model):
    with (
        pytest.raises(ValueError, match=r"head 1 got one of shape \(5, 5\), the head's output is \(2, 7, 5\)"),
        ablate(model, {(0, 1): torch.zeros(5, WIDTH)}),
    ):
        model(torch.zeros(2, 7, dtype=torch.int64))


# ---------------------------------------------------------------- means


def mean_by_hand(model, some, layer, head, position):
    """In plain words: the mean of what this head puts out there, over the sequences that reach so far."""
    outputs = [head_outputs(model, Batch(s[None]))[0, layer, head] for s in some]
    return torch.stack([o[position] for o in outputs if len(o) > position]).mean(dim=0)


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 13), max_size=4), side=st.sampled_from(["left", "right"]))
def test_means_are_those_of_a_loop_however_the_sequences_are_cut_and_padded(cuts, side):
    torch.manual_seed(0)
    model = TinyTransformer(2, D, H, 7, 2, LONGEST).double().eval().requires_grad_(False)
    some = sequences([3, 11, 7, 1, 7, 11, 2, 5, 3, 9, 11, 4, 8])
    means = mean_outputs(model, batches_of(some, cuts, side))

    assert means.count.tolist() == [13, 12, 11, 9, 8, 7, 7, 5, 4, 3, 3]
    for layer, head, position in [(0, 0, 0), (0, 2, 4), (1, 1, 10)]:
        by_hand = mean_by_hand(model, some, layer, head, position)
        mean = means.total[layer, head, position] / means.count[position]
        torch.testing.assert_close(mean, by_hand, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("side", ["left", "right"])
def test_means_stand_at_the_positions_of_real_tokens(side):
    """Head 2 of layer 1 puts out its position; a sequence of 2 then has 0 and 1, wherever its padding is."""
    place = torch.arange(5.0)[None, None, None, :, None].expand(1, 2, 3, 5, 4)
    means = MeanOutputs.of(place, None, 7)
    batch = pad([torch.tensor([1, 0]), torch.tensor([1, 1, 0, 1])], side)

    at = means.at(batch)[:, 1, 2, :, 0]
    assert at[batch.mask].tolist() == [0, 1, 0, 1, 2, 3]


def test_a_sequence_longer_than_all_that_the_means_are_of_is_refused(model):
    means = mean_outputs(model, [pad(sequences([3, 5]))])

    means.at(pad(sequences([5])))
    with pytest.raises(ValueError, match="has a sequence of 6 tokens; the mean outputs are of at most 5"):
        means.at(pad(sequences([3, 6])))
    with pytest.raises(ValueError, match="has a sequence of 6 tokens"):
        means.at(Batch(sequences([6])[0][None]))


# ---------------------------------------------------------------- donors


def numbered(lengths):
    """Sequences that say who they are: every token is the number of its sequence."""
    return [torch.full((length,), k) for k, length in enumerate(lengths)]


LENGTHS = [3, 5, 3, 2, 5, 3, 5, 3, 5, 5]  # one of length 2


def drawn(batches, seed=0, n=2):
    """Who gives to whom: for each sequence the numbers of its donors, None where it has none."""
    pairs = []
    for batch, donors, found in Donors(batches, seed).draws(batches, n):
        for row in range(len(batch)):
            own = batch.tokens[row, batch.mask[row]] if batch.mask is not None else batch.tokens[row]
            given = [d.tokens[row, d.mask[row]] if d.mask is not None else d.tokens[row] for d in donors]
            assert all(len(g) == len(own) and len(set(g.tolist())) == 1 for g in given)  # one whole sequence
            pairs.append([int(g[0]) for g in given] if found[row] else None)
            if not found[row]:
                assert all(torch.equal(g, own) for g in given)
    return pairs


@settings(max_examples=30)
@given(
    cuts=st.lists(st.integers(0, 10), max_size=4),
    side=st.sampled_from(["left", "right"]),
    seed=st.integers(0, 2**31),
)
def test_donors_are_others_of_the_same_length_however_the_sequences_are_cut(cuts, side, seed):
    some = numbered(LENGTHS)
    pairs = drawn(batches_of(some, cuts, side), seed)

    assert pairs == drawn(batches_of(some, [], "right"), seed)
    for own, given_by in enumerate(pairs):
        if LENGTHS[own] == 2:
            assert given_by is None
        else:
            assert all(LENGTHS[g] == LENGTHS[own] and g != own for g in given_by)


def test_every_other_sequence_is_as_likely_to_be_drawn():
    """4 of length 3 over 600 seeds: each draws each of the 3 others a third of the time, within 5 standard errors."""
    some = numbered([3, 3, 3, 3])
    counts = np.zeros((4, 4))
    for seed in range(600):
        for own, given_by in enumerate(drawn([pad(some)], seed)):
            for g in given_by:
                counts[own, g] += 1

    share = counts / 1200
    assert (share.diagonal() == 0).all()
    assert np.abs(share[~np.eye(4, dtype=bool)] - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 1200)


def test_memory_does_not_grow_with_the_set(monkeypatch):
    """With room for 6 sequences of 5 tokens: 6 of 500 are kept, from all over the set, and still none is its own."""
    monkeypatch.setattr("attnkit.ablation.DONOR_TOKENS", 30)
    some = numbered([5] * 500)
    batches = batches_of(some, range(0, 500, 50))
    donors = Donors(batches, 1)

    assert {T: rows.shape for T, rows in donors.rows.items()} == {5: (6,)}
    assert donors.rows[5].max() - donors.rows[5].min() > 100
    assert donors.rows[5].tolist() == Donors(batches_of(some, []), 1).rows[5].tolist()
    pairs = drawn(batches, 1)
    assert {g for given_by in pairs for g in given_by} == set(donors.rows[5].tolist())
    assert all(own not in given_by for own, given_by in enumerate(pairs))
