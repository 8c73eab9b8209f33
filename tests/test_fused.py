"""The fused pass against the plain formulas, where the small maps of test_measures do not reach."""

from dataclasses import replace

import pytest
import torch

from attnkit.data import Batch
from attnkit.fused import OnePass, in_parallel
from attnkit.measures import MEASURES, applicable, weight
from attnkit.model import ScaledDotProductAttention, TinyTransformer
from attnkit.reading import Reader, blocks_of, plain, read_batch
from attnkit.rows import Block, Rows
from tests.synthetic import BITS, call_of


def random_rows(B, H, T, seed=0):
    """Random maps (B, H, T, T) in float64, of sequences padded on the left, and the block that they are of."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 2, (B, T), generator=g)
    lengths = torch.randint(1, T + 1, (B, 1), generator=g)
    mask = torch.arange(T) >= T - lengths
    block = Block.of(tokens, mask)
    scores = torch.randn(B, H, T, T, generator=g, dtype=torch.float64) * 3
    weights = scores.masked_fill(~block.allowed[:, None], -torch.inf).softmax(dim=-1).nan_to_num(0)
    call = call_of(weights)
    return Rows(block, weights, call.output, call.w_o), mask


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("T", [1, 67])
def test_long_rows_are_read_in_pieces_and_batches_in_parallel_with_the_same_numbers(T, three_threads):
    """67 · 67 weights are more than are read at a time, and 11 · 3 such maps more than one thread takes."""
    rows, _ = random_rows(11, 3, T)
    measures = applicable(BITS)

    sums, counts, _ = OnePass(measures).read(rows)
    expected, n = plain(measures, rows)

    assert torch.equal(counts, n)
    torch.testing.assert_close(sums, expected, rtol=1e-10, atol=1e-11)


def test_half_precision_is_read_in_float32():
    """A weight of 1/4 is exact in bfloat16: the entropy is ln 4 as float32 knows it."""
    block = Block.of(torch.zeros(1, 4, dtype=torch.int64))
    quarter = torch.full((1, 1, 4, 4), 0.25, dtype=torch.bfloat16)

    sums, _, off = OnePass(applicable(BITS)).read(Rows(block, quarter))

    assert float(sums[0, 0, 0]) / 4 == float(torch.tensor(0.25).log() * -1)
    assert off == 0


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("times", "off"), [(1.25, "0.25"), (0.5, "0.5"), (torch.nan, "nan")])
def test_one_row_that_does_not_sum_to_1_is_told_whatever_the_others_do(fused, times, off):
    weights = torch.eye(5).expand(7, 3, 5, 5).clone()
    weights[2, 1, 3] *= times
    reader = Reader(applicable(BITS), blocks_of(torch.zeros(7, 5, dtype=torch.int64)), fused=fused)

    with pytest.raises(ValueError, match=rf"layer 4: rows of attention do not sum to 1 \(off by {off}\)"):
        reader.read(reader.rows(call_of(weights)), 4)


def test_a_statistic_that_the_pass_does_not_know_is_read_by_its_formula(monkeypatch):
    """Another function under a known name is another statistic: its own formula must be used."""
    twice = replace(weight(lambda block: (2.0 * (block.j == block.i), block.real), "all rows"))
    monkeypatch.setitem(MEASURES, "twice_self", twice)
    measures = applicable(BITS) | {"self_weight": twice}
    rows, mask = random_rows(5, 2, 7)

    reader = Reader(measures, blocks_of(rows.block.tokens, mask))
    values, _ = reader.read([rows], 0)

    names = list(measures)
    itself = rows.weights.diagonal(dim1=-2, dim2=-1).sum(dim=-1) / rows.block.real.sum(dim=-1)[:, None]
    for name in ("twice_self", "self_weight"):
        torch.testing.assert_close(values[..., names.index(name)], 2 * itself, rtol=1e-12, atol=0)


def test_work_is_cut_into_parts_that_join_without_gap_or_overlap(three_threads):
    seen = []
    in_parallel(lambda start, stop: seen.extend(range(start, stop)), 7, size=1 << 20)

    assert sorted(seen) == list(range(7))


def test_what_a_part_raises_reaches_the_caller(three_threads):
    def fail(start, stop):
        if stop == 7:
            raise ValueError("the last part")

    with pytest.raises(ValueError, match="the last part"):
        in_parallel(fail, 7, size=1 << 20)


def test_a_batch_read_without_the_pass_gives_the_same_readings():
    """Values, uniform references and mean maps, of sequences of three lengths with padding on both sides."""
    model = TinyTransformer(2, 15, 3, 7, 2, 11).double().eval()
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 2, (7, 11), generator=g)
    mask = torch.ones(7, 11, dtype=torch.bool)
    mask[2:4, :5], mask[4:6, 2:], mask[6, 1:] = False, False, False
    measures = applicable(BITS)

    one, other = (read_batch(model, Batch(tokens, mask), measures, fused=fused) for fused in (True, False))

    for name in ("defined", "said", "predicted"):
        assert torch.equal(getattr(one, name), getattr(other, name))
    for name in ("values", "uniform"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-11)
    assert sorted(one.maps) == sorted(other.maps) == [1, 2, 6, 11]
    for length, sums in one.maps.items():
        for name in ("weights", "squares", "uniform"):
            torch.testing.assert_close(getattr(sums, name), getattr(other.maps[length], name))


# ---------------------------------------------------------------- softmax and statistics in one


def random_scores(B, H, T, size, seed=0):
    """Scores of sequences padded on the right, of which the last token is special; hidden keys have the lowest."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 2, (B, T), generator=g)
    mask = torch.arange(T) < torch.randint(1, T + 1, (B, 1), generator=g)
    last = mask & (torch.arange(T) == mask.sum(dim=1, keepdim=True) - 1)
    block = Block.of(tokens, mask, special=last)
    scores = torch.randn(B, H, T, T, generator=g) * size
    return scores.masked_fill(~block.allowed[:, None], torch.finfo(torch.float32).min), block


@pytest.mark.parametrize(("size", "T"), [(1, 1), (3, 7), (20, 17), (3, 67)])
def test_scores_become_their_softmax_and_are_read_as_it_is(size, T, three_threads):
    """67 · 67 weights are more than are read at a time. In float32, as the exponentials are."""
    scores, block = random_scores(11, 3, T, size)
    weights = scores.softmax(dim=-1)
    measures = applicable(BITS, special=True)
    del measures["output_norm"]
    if size > 3:
        del measures["selectivity"]  # of weights that float32 no longer holds

    read = scores.clone()
    sums, counts, off = OnePass(measures).read_scores(read, block)
    real = block.real[:, None, :, None]
    expected, n = plain(measures, Rows(block, weights.masked_fill(~real, 0)))

    assert off < 1e-12
    torch.testing.assert_close(read, weights, rtol=2e-6, atol=1e-35)
    assert torch.equal(counts, n)
    torch.testing.assert_close(sums, expected, rtol=2e-6, atol=2e-6 * T)


def test_of_a_row_of_scores_far_below_the_others_nothing_is_lost():
    """Each row is taken from its own highest: adding to all of a row changes nothing."""
    scores, block = random_scores(5, 2, 7, 3)
    far = scores + torch.arange(7)[:, None] * -300.0
    measures = applicable(BITS)

    one, _, _ = OnePass(measures).read_scores(scores.clone(), block)
    other, _, _ = OnePass(measures).read_scores(far.clone(), block)

    torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)  # −1800 and −1803 are 1e-4 less apart in float32


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_scores_that_are_no_numbers_are_told(wrong):
    model = TinyTransformer(2, 15, 3, 7, 2, 11).eval()
    with torch.no_grad():
        model.layers[1].attn.W_q.weight[0, 0] = wrong

    with pytest.raises(ValueError, match=r"layer 1: rows of attention do not sum to 1 \(off by nan\)"):
        read_batch(model, Batch(torch.tensor([[0, 1, 1]])), applicable(BITS))


def test_reading_in_one_pass_gives_the_models_own_answers_and_leaves_it_as_it_was():
    model = TinyTransformer(2, 15, 3, 7, 2, 11).eval()
    tokens = torch.randint(0, 2, (7, 11), generator=torch.Generator().manual_seed(0))
    before = model(tokens)

    read = read_batch(model, Batch(tokens, labels=torch.zeros(7, dtype=torch.int64)), applicable(BITS))

    own = -before[0].double().log_softmax(dim=-1)[:, 0]
    torch.testing.assert_close(read.loss, own, rtol=1e-5, atol=1e-6)
    after = model(tokens)
    assert torch.equal(after[0], before[0])
    assert all(torch.equal(a, b) for a, b in zip(after[1], before[1], strict=True))


class Sharp(ScaledDotProductAttention):
    """All of the weight on the first key."""

    def forward(self, q, k, v, mask=None):
        weights = torch.zeros(*q.shape[:3], k.shape[2])
        weights[..., 0] = 1
        return weights @ v, weights


@pytest.mark.parametrize("whole", [True, False])
def test_an_attention_of_ones_own_is_read_as_it_is_and_stays(whole):
    """Only the article's is computed in the pass: another class is not, nor is another function in its place."""
    model = TinyTransformer(2, 15, 3, 7, 2, 11).eval()
    for layer in model.layers:
        if whole:
            layer.attn.attention = Sharp()
        else:
            layer.attn.attention.forward = Sharp().forward
    measures = applicable(BITS)

    read = read_batch(model, Batch(torch.tensor([[0, 1, 1]])), measures)

    assert (read.values[..., list(measures).index("first_weight")] == 1).all()
    assert (read.values[..., list(measures).index("entropy")] == 0).all()
    assert all((weights[..., 0] == 1).all() for weights in model(torch.tensor([[0, 1, 1]]))[1])


def test_exp_is_that_of_torch_to_the_last_bits_of_float32():
    import numpy as np

    from attnkit.exponential import LOWEST, exp_below

    x = torch.linspace(float(LOWEST) + 0.01, 0, 1009)
    found = torch.tensor([float(exp_below(np.float32(one))) for one in x.numpy()])

    torch.testing.assert_close(found, x.exp(), rtol=3e-7, atol=0)
    assert exp_below(np.float32(0)) == 1
    assert exp_below(np.float32(-1e30)) == exp_below(LOWEST) == 0
    assert np.isnan(exp_below(np.float32(np.nan)))
