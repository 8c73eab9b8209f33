"""The model: the article's numbers, what a mask promises, and odd sizes."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from attnkit import ModelConfig, TinyTransformer, load_checkpoint
from attnkit.data import pad
from attnkit.model import MultiHeadAttention, PositionalEncoding, ScaledDotProductAttention, TransformerEncoderLayer
from tests.conftest import DATA

EXPECTED = load_file(DATA / "expected.safetensors")
SIDES = ["left", "right"]


def small_model(**sizes):
    """Every size a different prime or its product, so that a swapped axis cannot pass."""
    return TinyTransformer(
        **{"vocab_size": 5, "d_model": 21, "n_heads": 3, "d_ff": 13, "n_layers": 2, "max_len": 11} | sizes
    )


@pytest.mark.parametrize("file", ["weights.safetensors", "article_state_dict.pt"])
def test_the_articles_weights_give_its_recorded_logits_and_maps(file):
    logits, attentions = load_checkpoint(DATA / file)(EXPECTED["inputs"])

    torch.testing.assert_close(logits, EXPECTED["logits"], atol=1e-5, rtol=0)
    assert len(attentions) == 2
    for layer, weights in enumerate(attentions):
        torch.testing.assert_close(weights, EXPECTED[f"attention.{layer}"], atol=1e-6, rtol=0)


def test_parameters_are_named_as_in_the_article(article_model):
    assert set(article_model.state_dict()) == set(load_file(DATA / "weights.safetensors")) - {"pos.pe"}


def test_two_hand_sized_heads_give_the_weights_worked_out_by_hand():
    """Identity projections, tokens e0 e1 and zero: a token meets itself with 1/√2 if its 1 is in the head's half."""
    attention = MultiHeadAttention(4, 2)
    for projection in (attention.W_q, attention.W_k, attention.W_v, attention.W_o):
        torch.nn.init.eye_(projection.weight)
        torch.nn.init.zeros_(projection.bias)
    x = torch.tensor([[[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]])
    self_weight = math.exp(2**-0.5) / (math.exp(2**-0.5) + 2)
    s, o, third = self_weight, (1 - self_weight) / 2, 1 / 3

    out, weights = attention(x)

    first_half = torch.tensor([[s, o, o], [o, s, o], [third, third, third]])
    second_half = torch.tensor([[third, third, third], [third, third, third], [o, o, s]])
    torch.testing.assert_close(weights, torch.stack([first_half, second_half])[None])
    torch.testing.assert_close(out, torch.cat([first_half @ x[0, :, :2], second_half @ x[0, :, 2:]], dim=1)[None])


def test_heads_are_independent_of_each_other():
    """Changing the queries of one head changes its map and no other."""
    attention = MultiHeadAttention(21, 3)
    x = torch.randn(2, 5, 21)
    before = attention(x)[1]

    attention.W_q.weight.data[7:14] *= -2

    same = [torch.equal(a, b) for a, b in zip(before.unbind(1), attention(x)[1].unbind(1), strict=True)]
    assert same == [True, False, True]


@pytest.mark.parametrize("d_model", [1, 2, 5, 32])
def test_position_table_is_vaswanis_formula_for_odd_widths_too(d_model):
    table = PositionalEncoding(d_model, max_len=7).pe

    expected = [
        [(math.cos if c % 2 else math.sin)(t / 10000 ** ((c - c % 2) / d_model)) for c in range(d_model)]
        for t in range(7)
    ]
    torch.testing.assert_close(table, torch.tensor(expected))


def test_a_layer_normalises_after_each_addition():
    """Post-norm: with fresh norms each token leaves with mean 0 and variance 1, whatever came in."""
    out, _ = TransformerEncoderLayer(21, 3, 13)(100 * torch.randn(2, 5, 21))

    torch.testing.assert_close(out.mean(dim=-1), torch.zeros(2, 5), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(dim=-1, unbiased=False), torch.ones(2, 5), atol=1e-3, rtol=0)


def test_every_axis_has_its_own_size():
    logits, attentions = small_model(n_classes=4).eval()(torch.zeros(2, 7, dtype=torch.int64))

    assert logits.shape == (2, 4)
    assert [a.shape for a in attentions] == [(2, 3, 7, 7)] * 2


@pytest.mark.parametrize("side", SIDES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_sequence_alone_and_padded_in_a_batch_are_the_same(article_model, side, data):
    sequences = data.draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=16), min_size=1, max_size=5))
    batch = pad([torch.tensor(s) for s in sequences], side)

    logits, attentions = article_model(batch.tokens, batch.mask)

    for row, sequence in enumerate(sequences):
        alone, maps = article_model(torch.tensor([sequence]))
        torch.testing.assert_close(logits[row], alone[0], atol=1e-5, rtol=0)
        real = batch.mask[row]
        for padded, weights in zip(attentions, maps, strict=True):
            torch.testing.assert_close(padded[row][:, real][:, :, real], weights[0], atol=1e-5, rtol=0)
            assert (padded[row][:, :, ~real] == 0).all()
            torch.testing.assert_close(padded[row].sum(dim=-1), torch.ones(padded[row].shape[:2]))


def test_mask_true_means_a_real_token():
    """Lengths 2 and 4: nobody looks at the two last columns of the first, and its rows still sum to 1."""
    batch = pad([torch.tensor([1, 0]), torch.tensor([1, 0, 1, 0])])

    for weights in small_model().eval()(batch.tokens, batch.mask)[1]:
        assert (weights[0, :, :, 2:] == 0).all()
        assert (weights[0, :, :, :2] > 0).all()
        assert (weights[1] > 0).all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 4))


def test_token_0_is_no_padding(article_model):
    """Sixteen zeros without a mask are sixteen real tokens; as padding they would leave nothing to attend to."""
    x = torch.zeros(1, 16, dtype=torch.int64)

    without, attentions = article_model(x)
    with_mask, _ = article_model(x, torch.ones(1, 16, dtype=torch.bool))

    torch.testing.assert_close(without, with_mask, atol=1e-6, rtol=0)
    assert (attentions[0] > 0).all()


def test_what_stands_on_padding_is_never_read(article_model):
    batch = pad([torch.tensor([1, 0, 1]), torch.tensor([1] * 9)])
    other = batch.tokens.where(batch.mask, 1)

    logits, _ = article_model(batch.tokens, batch.mask)

    assert torch.equal(article_model(other, batch.mask)[0], logits)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_masks_work_in_every_precision(dtype, side):
    batch = pad([torch.tensor([1]), torch.tensor([0, 1, 1, 0, 1, 0, 1])], side)

    logits, attentions = small_model().to(dtype).eval()(batch.tokens, batch.mask)

    assert logits.dtype == dtype
    assert logits.isfinite().all()
    for weights in attentions:
        assert weights.isfinite().all()
        assert (weights[0, :, :, ~batch.mask[0]] == 0).all()


def test_padding_stays_at_0_when_every_real_score_is_hugely_negative():
    """A mask of -1e9 would lose to these scores and let padding through."""
    q = torch.full((1, 1, 3, 2), 1e6)
    k = torch.full((1, 1, 3, 2), -1e6)
    mask = torch.tensor([[[[True, True, False]]]])

    _, weights = ScaledDotProductAttention()(q, k, torch.ones(1, 1, 3, 2), mask)

    assert weights[0, 0, 0].tolist() == [0.5, 0.5, 0]


def test_columns_that_are_padding_in_every_row_shorten_nothing():
    """Under eval and no_grad torch's own layers take a fast path that does; also, all ways of reading agree."""
    batch = pad([torch.tensor([1, 0, 1]), torch.tensor([0, 1])])
    tokens = torch.nn.functional.pad(batch.tokens, (0, 2))
    mask = torch.nn.functional.pad(batch.mask, (0, 2))
    model = small_model()

    with torch.no_grad():
        frozen = model.eval()(tokens, mask)
    ways = [model.eval()(tokens, mask), model.train()(tokens, mask)]

    assert [w.shape for w in frozen[1]] == [(2, 3, 5, 5)] * 2
    for logits, attentions in ways:
        assert torch.equal(logits, frozen[0])
        assert all(torch.equal(a, b) for a, b in zip(attentions, frozen[1], strict=True))


def test_twenty_calls_give_one_answer_in_train_mode_too():
    model, x = small_model().train(), torch.tensor([[1, 4, 0, 2]])

    answers = [model(x) for _ in range(20)]

    assert all(torch.equal(logits, answers[0][0]) for logits, _ in answers)
    torch.testing.assert_close(answers[0][1][0].sum(dim=-1), torch.ones(1, 3, 4))


@pytest.mark.parametrize("T", [0, 12, 1000])
def test_a_length_that_does_not_fit_is_said_in_tokens(T):
    with pytest.raises(ValueError, match=rf"^x: {T} tokens; this checkpoint takes 1 to 11$"):
        small_model()(torch.zeros(1, T, dtype=torch.int64))


@pytest.mark.parametrize("wrong", [-1, 5, 7])
def test_a_token_outside_the_vocabulary_is_named(wrong):
    x = torch.tensor([[0, 4], [wrong, 1]])

    with pytest.raises(ValueError, match=rf"^x: token id {wrong} is not in the vocabulary; allowed is 0 to 4$"):
        small_model().eval()(x)


def test_a_sequence_of_padding_alone_is_refused():
    mask = torch.tensor([[True, True], [False, False]])

    with pytest.raises(ValueError, match=r"^mask: a sequence without any real token"):
        small_model().eval()(torch.zeros(2, 2, dtype=torch.int64), mask)


def test_an_empty_batch_is_no_mistake():
    logits, attentions = small_model().eval()(torch.zeros(0, 3, dtype=torch.int64))

    assert logits.shape == (0, 2)
    assert attentions[0].shape == (0, 3, 3, 3)


def test_widths_that_heads_do_not_divide_are_refused_at_construction():
    with pytest.raises(ValueError, match=r"^n_heads: d_model 10 is not divisible by 4 heads$"):
        small_model(d_model=10, n_heads=4)


@pytest.mark.parametrize("name", ["vocab_size", "d_model", "n_heads", "d_ff", "n_layers", "max_len", "n_classes"])
@pytest.mark.parametrize("value", [0, -3, True])
def test_sizes_are_whole_numbers_of_at_least_1(name, value):
    sizes = {"vocab_size": 2, "d_model": 4, "n_heads": 2, "d_ff": 3, "n_layers": 1, "max_len": 5, "n_classes": 2}

    with pytest.raises(ValueError, match=rf"^{name}: got {value!r}, allowed is a whole number of at least 1$"):
        ModelConfig(**{**sizes, name: value})
