"""Mistakes that tools and papers published: for each an input on which it shows, what it says there, and what is so.

Those that are only a matter of words, or tested beside their module, are named here with the test.
"""

import math

import numpy as np
import pytest
import torch

from analysis.head_tables import warn
from attnkit.data import Batch
from attnkit.headstats import collect
from attnkit.importance import heads_of, measure_importance
from attnkit.measures import applicable, row_values
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.reading import Reader, blocks_of
from attnkit.rows import Block, Rows
from attnkit.similarity import compare, compare_batch, match
from attnkit.tables import long_frame
from tests.synthetic import BITS, call_of, padded, read

T = 17


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(5)
    return TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)


@pytest.fixture
def batch():
    tokens = torch.randint(0, 2, (13, 7), generator=torch.Generator().manual_seed(2))
    return Batch(tokens, labels=tokens.sum(dim=1) % 2)


def one_head(map_, **given):
    """The statistics of one head with this map (T, T) over zeros."""
    weights = torch.as_tensor(map_, dtype=torch.float64)[None, None]
    return read(weights, torch.zeros(1, weights.shape[-1], dtype=torch.int64), **given)[0][0]


def causal_uniform(T):
    return np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]


def previous(T):
    """Every query on the one before it; the first, which has none, on itself."""
    map_ = np.eye(T, k=-1)
    map_[0, 0] = 1
    return map_


def test_entropy_over_ln_T_calls_a_uniform_causal_head_peaked():
    p = causal_uniform(16)
    mistaken = np.log(np.arange(1, 17)).mean() / math.log(16)

    assert mistaken < 0.7
    assert one_head(p, causal=True)["entropy_normalized"] == pytest.approx(1, abs=1e-12)


def test_a_diagonal_divided_by_T_misses_a_perfect_previous_token_head():
    p = previous(16)
    mistaken = np.trace(p, offset=-1) / 16

    assert mistaken == 15 / 16
    assert one_head(p)["previous_weight"] == 1


def test_previous_is_the_key_before_the_query_and_next_the_one_after():
    found = one_head(previous(T))
    assert (found["previous_weight"], found["next_weight"]) == (1, 0)

    turned = one_head(previous(T)[::-1, ::-1].copy())
    assert (turned["previous_weight"], turned["next_weight"]) == (0, 1)


@pytest.mark.parametrize("length", [2, 5, 9])
def test_the_first_row_is_no_evidence_of_a_sink(length):
    """A causal head that looks at itself alone has no sink; its first row has no choice."""
    itself = np.eye(length)
    assert itself[:, 0].mean() == 1 / length
    assert one_head(itself, causal=True)["first_weight"] == 0

    uniform = causal_uniform(length)
    assert uniform[:, 0].mean() > 0.3  # a threshold that calls it a sink
    reader = Reader(applicable(BITS, causal=True), blocks_of(torch.zeros(1, length, dtype=torch.int64), causal=True))
    k = list(reader.measures).index("first_weight")
    reference = float(reader.uniform()[0][0, 0, k])
    assert one_head(uniform, causal=True)["first_weight"] == pytest.approx(reference)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_queries_are_no_rows(side):
    """A uniform head over 3 tokens with 4 of padding, whose rows are on one key: their entropy, 0, would count."""
    weights, ids, mask = padded(np.full((3, 3), 1 / 3), [0, 1, 0], 4, side)
    mistaken = float(torch.special.entr(weights).sum(dim=-1).mean())

    assert mistaken == pytest.approx(3 / 7 * math.log(3))
    assert read(weights, ids, mask)[0][0]["entropy"] == pytest.approx(math.log(3))


def test_special_tokens_stay_and_their_weight_is_told_apart():
    """[CLS] a b c [SEP]: half on the token itself, half on [SEP]. Cropped, every row would sum to 1/2."""
    special = torch.tensor([[True, False, False, False, True]])
    p = torch.eye(5, dtype=torch.float64) / 2
    p[:, 4] += 0.5
    assert p[1:4, 1:4].sum(dim=-1).tolist() == [0.5, 0.5, 0.5]

    rows = Rows(Block.of(torch.zeros(1, 5, dtype=torch.int64), special=special), p[None, None])
    found = {}
    for name in ("special_weight", "self_weight", "distance"):
        values, where = row_values(applicable(BITS, special=True)[name], rows)
        found[name] = float(values[where.expand_as(values)].mean())

    # Rows 1 to 3 have 1/2 on [SEP]; all but the last have 1/2 on themselves, it has 1; the way to [SEP] counts.
    assert found == {"special_weight": 1 / 2, "self_weight": (4 / 2 + 1) / 5, "distance": (4 + 3 + 2 + 1) / 2 / 5}


def test_weights_are_not_read_in_train_mode(model, batch):
    try:
        with pytest.raises(ValueError, match="model: is in train mode"):
            collect(model.train(), [batch], BITS)
    finally:
        model.eval()


def test_flat_rows_are_not_long_range():
    """argmax puts ties on key 0, as if every query looked to the start."""
    p = np.full((T, T), 1 / T)
    mistaken = np.abs(p.argmax(axis=1) - np.arange(T)).mean()

    assert mistaken == (T - 1) / 2
    assert one_head(p)["distance"] == pytest.approx((T**2 - 1) / (3 * T))  # the mean of |i − j|


def test_one_peaked_row_is_no_confident_head():
    p = np.full((5, 5), 1 / 5)
    p[2] = np.eye(5)[2]

    assert p.max() == 1
    assert one_head(p)["max_weight"] == pytest.approx((4 / 5 + 1) / 5)


def between(*maps):
    """The divergences of heads with these maps (T, T), over as many sequences as each has."""
    weights = torch.stack([torch.as_tensor(m, dtype=torch.float64) for m in maps], dim=1)
    B, _, _, length = weights.shape
    return compare_batch([[call_of(weights)]], Batch(torch.zeros(B, length, dtype=torch.int64))).divergence


def test_heads_without_a_key_in_common_are_one_bit_apart_where_kl_is_infinite():
    itself, other = np.eye(5), np.roll(np.eye(5), 1, axis=1)
    with np.errstate(divide="ignore"):
        mistaken = (itself * np.log(np.divide(itself, other, where=itself > 0, out=np.ones((5, 5))))).sum()

    assert math.isinf(mistaken)
    assert float(between(itself[None], other[None]).mean[0, 1]) == pytest.approx(1)


@pytest.mark.parametrize("length", [3, 11])
@pytest.mark.parametrize("documents", [1, 7])
def test_a_divergence_does_not_grow_with_rows_or_documents(length, documents):
    itself, other = (np.tile(m, (documents, 1, 1)) for m in (np.eye(length), np.roll(np.eye(length), 1, axis=1)))

    assert float(between(itself, other).mean[0, 1]) == pytest.approx(1)


def test_gradients_of_one_batch_do_not_count_in_the_next(model, batch):
    """Were they never set to zero, what comes last would weigh least, and the order would change the ranks."""
    turned = Batch(batch.tokens.flip(0), labels=batch.labels.flip(0))
    found = [
        measure_importance(model, lambda some=some: some.split(2), methods=("gradient",)).of_head["gradient"].mean
        for some in (batch, turned)
    ]

    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=0)


def test_importances_are_not_rescaled_within_a_layer(model, batch):
    """What the second layer writes is made a thousandth: then its heads are worth next to nothing, and it says so."""
    quiet = TinyTransformer.from_config(model.config).double().eval().requires_grad_(False)
    quiet.load_state_dict(model.state_dict())
    quiet.layers[1].attn.W_o.weight.data *= 1e-3
    loud, hushed = (
        measure_importance(m, lambda: [batch], methods=("gradient",)).of_head["gradient"].mean[..., 1]
        for m in (model, quiet)
    )

    assert (hushed[1] < loud[1] / 100).all()
    assert (hushed[0] > loud[0] / 100).all()


def test_one_sequence_is_one_observation(model, batch):
    """13 sequences of 7 queries and 49 pairs: the interval is that of 13 numbers. Many tests are adjusted for:
    test_differences.py, test_p_values_are_adjusted_over_all_heads_and_statistics."""
    readings = []
    stats = collect(model, [batch], BITS, on_readings=readings.append)
    long = long_frame(stats, applicable(BITS), ("even", "odd"), population=False)
    row = long.query("layer == 1 and head == 2 and statistic == 'distance' and group == 'all'").iloc[0]

    values = readings[0].values[:, 1, 2, stats.names.index("distance")]
    assert row["n"] == 13
    assert row["sem"] == pytest.approx(float(values.std() / math.sqrt(13)))


def test_heads_of_two_models_are_matched_not_paired_by_number(model, batch):
    """The same model with its heads in another order: by number they would be far apart."""
    turned = TinyTransformer.from_config(model.config).double().eval().requires_grad_(False)
    turned.load_state_dict(model.state_dict())
    order = torch.cat([torch.arange(5) + 5 * head for head in (2, 0, 1)])
    for layer in turned.layers:
        for W in (layer.attn.W_q, layer.attn.W_k, layer.attn.W_v):
            W.weight.data, W.bias.data = W.weight[order], W.bias[order]
        layer.attn.W_o.weight.data = layer.attn.W_o.weight[:, order]
    heads = heads_of(model)

    found = compare(model, turned, [batch]).divergence.mean.numpy()

    assert np.diagonal(found).min() > 1e-6
    assert match(found, heads, heads) == {(layer, h): (layer, (h + 1) % 3) for layer, h in heads}


def test_reading_leaves_what_it_reads_alone():
    g = torch.Generator().manual_seed(1)
    weights = torch.rand(3, 2, 7, 7, generator=g, dtype=torch.float64).softmax(dim=-1)
    tokens = torch.randint(0, 2, (3, 7), generator=g)
    mask = torch.arange(7).expand(3, 7) < torch.tensor([[7], [4], [1]])
    weights = weights.masked_fill(~mask[:, None, None], 0)
    weights /= weights.sum(dim=-1, keepdim=True)
    before = [t.clone() for t in (weights, tokens, mask)]
    first = read(weights, tokens, mask)

    assert read(weights, tokens, mask) == first
    assert all(torch.equal(a, b) for a, b in zip(before, (weights, tokens, mask), strict=True))
    moments = Moments.of(weights)
    kept = moments.mean.clone()
    assert (moments + moments).count.max() == 6
    assert torch.equal(moments.mean, kept)


def test_when_all_heads_are_uniform_that_is_an_alarm(batch):
    """As of a model into which no weights were loaded: queries of zeros attend to all alike."""
    torch.manual_seed(0)
    blank = TinyTransformer(2, 15, 3, 7, 2, 11).eval().requires_grad_(False)
    for layer in blank.layers:
        layer.attn.W_q.weight.data.zero_()
        layer.attn.W_q.bias.data.zero_()
    long = long_frame(collect(blank, [batch], BITS), applicable(BITS), ("even", "odd"), population=False)

    assert [warning[:41] for warning in warn(long)] == ["Every head is uniform within 1 %, as in a"]
    long.loc[long["layer"] == 1, "mean"] /= 2
    assert warn(long) == []
