"""A whole data set: any batches, order, padding or merge tree give one table, and it is what a loop would give."""

import copy
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data import Batch, pad
from attnkit.headstats import HeadStats, collect
from attnkit.measures import applicable
from attnkit.model import TinyTransformer
from attnkit.reading import read_batch
from attnkit.tables import (
    accuracy_and_loss,
    dictionary_frame,
    histogram_frame,
    long_frame,
    offset_profile_frame,
    wide_frame,
)
from tests.oracle import sequence_values
from tests.synthetic import BITS

CLASSES = ["even", "odd"]
MEASURES = applicable(BITS)


@pytest.fixture(scope="module")
def model():
    """Untrained, odd-sized, with sharpened attention so that heads differ; in float64, so that laws hold to 1e-9."""
    torch.manual_seed(5)
    model = TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)
    for layer in model.layers:
        layer.attn.W_q.weight.data *= 4
        layer.attn.W_k.weight.data *= 4
    return model


def sequences(n, lengths, seed=0):
    g = torch.Generator().manual_seed(seed)
    picked = [lengths[int(torch.randint(0, len(lengths), (), generator=g))] for _ in range(n)]
    return [torch.randint(0, 2, (length,), generator=g) for length in picked]


def labels_of(some):
    return torch.tensor([int(s.sum()) % 2 for s in some])


def batch_of(some, side="right", width=0):
    """A padded batch with labels; `width` adds columns of padding."""
    batch = pad(some, side)
    extra = max(width - batch.tokens.shape[1], 0)
    where = (extra, 0) if side == "left" else (0, extra)
    tokens, mask = torch.nn.functional.pad(batch.tokens, where), torch.nn.functional.pad(batch.mask, where)
    return Batch(tokens, None if mask.all() else mask, labels_of(some))


def table(stats):
    return long_frame(stats, MEASURES, CLASSES, population=False)


def assert_same(a, b):
    """The tables of both, within 1e-9 of one another."""
    left, right = table(a), table(b)
    keys = ["layer", "head", "statistic", "group"]
    assert left[keys].equals(right[keys])
    np.testing.assert_allclose(left.drop(columns=keys), right.drop(columns=keys), rtol=1e-9, atol=1e-9)
    assert a.maps.keys() == b.maps.keys()
    for T in a.maps:
        torch.testing.assert_close(a.maps[T].mean, b.maps[T].mean, rtol=1e-9, atol=1e-12)


def measure_batch(model, batch):
    return HeadStats.of(read_batch(model, batch, MEASURES), MEASURES, model.config.max_len)


def measure(model, some, **how):
    return measure_batch(model, batch_of(some, **how))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_batches_padding_order_and_merge_tree_change_nothing(model, seed, sizes, data):
    some = sequences(sum(sizes), [1, 2, 3, 7, 11], seed)
    whole = measure(model, some)
    order = data.draw(st.permutations(range(len(some))))
    parts, start = [], 0
    for size in sizes:
        chosen = [some[i] for i in order[start : start + size]]
        side, width = data.draw(st.sampled_from(["left", "right"])), data.draw(st.sampled_from([0, 9, 11]))
        parts.append(measure(model, chosen, side=side, width=width))
        start += size

    empty = HeadStats(whole.names, whole.longest)
    assert_same(reduce(add, parts, empty), whole)
    assert_same(reduce(lambda total, part: part + total, reversed(parts), empty), whole)


def test_the_ids_under_the_padding_never_matter(model):
    batch = batch_of(sequences(7, [2, 3, 7]))
    other = Batch(torch.where(batch.mask, batch.tokens, 1 - batch.tokens), batch.mask, batch.labels)

    assert_same(measure_batch(model, batch), measure_batch(model, other))


def test_adding_changes_neither_side_and_empty_is_the_identity(model):
    a, b = measure(model, sequences(5, [7], 1)), measure(model, sequences(3, [7, 2], 2))
    before = copy.deepcopy((a, b))

    total = a + b
    assert total.count == 8
    assert_same(a, before[0])
    assert_same(b, before[1])
    assert_same(HeadStats(a.names, a.longest) + a, a)


def test_the_table_is_what_a_loop_over_sequences_heads_and_rows_gives(model):
    some = sequences(13, [1, 3, 7, 11], 3)
    frame = table(measure(model, some))

    values: dict[tuple, list[float]] = {}
    for s in some:
        logits, attentions = model(s[None])
        label, predicted = CLASSES[int(s.sum()) % 2], CLASSES[int(logits.argmax())]
        groups = ["all", f"label={label}", f"predicted={predicted}", "correct" if label == predicted else "wrong"]
        for layer, maps in enumerate(attentions):
            for head, p in enumerate(maps[0].detach().numpy()):
                for name, value in sequence_values(p, s.tolist()).items():
                    for group in groups:
                        values.setdefault((layer, head, name, group), []).append(value)

    rows = frame[~frame["statistic"].isin(["output_norm", "entropy_of_mean", "positional_share"])]
    assert len(rows) == len(values)
    for row in rows.itertuples():
        v = np.array(values[row.layer, row.head, row.statistic, row.group])
        assert row.n == len(v)
        assert row.mean == pytest.approx(v.mean(), abs=1e-10)
        assert (row.min, row.max) == pytest.approx((v.min(), v.max()), abs=1e-10)
        if len(v) > 1:
            assert row.std == pytest.approx(v.std(ddof=1), abs=1e-9)
            half = 1.96 * v.std(ddof=1) / np.sqrt(len(v))
            assert (row.ci_low, row.ci_high) == pytest.approx((v.mean() - half, v.mean() + half), abs=1e-9)


def test_output_norm_is_the_length_of_what_each_head_adds(model):
    """By taking the head's slice of W_O and the values apart by hand."""
    (s,) = sequences(1, [7])
    frame = table(measure(model, [s]))
    attn = model.layers[0].attn
    h = model.pos(model.embed(s[None]))
    _, weights = attn(h)
    for head in range(3):
        columns = slice(5 * head, 5 * head + 5)
        value = attn.W_v(h)[0, :, columns]
        added = weights[0, head] @ value @ attn.W_o.weight[:, columns].T

        row = frame.query(f"layer == 0 and head == {head} and statistic == 'output_norm' and group == 'all'")
        assert float(row["mean"].iloc[0]) == pytest.approx(float(added.norm(dim=-1).mean()), rel=1e-12)


def test_mean_maps_offsets_and_positional_share_are_numpys(model):
    some = sequences(7, [7], 4)
    stats = measure(model, some)
    maps = (
        torch.stack([torch.stack([m[0] for m in model(s[None])[1]]) for s in some]).detach().numpy()
    )  # (N, L, H, T, T)
    mean = maps.mean(axis=0)

    np.testing.assert_allclose(stats.maps[7].mean, mean, rtol=1e-12)
    profile = offset_profile_frame(stats).set_index(["layer", "head", "offset"])
    assert profile.loc[(1, 2, -3), "mean"] == pytest.approx(np.diagonal(mean[1, 2], -3).mean())
    assert profile.loc[(1, 2, -3), "n"] == 7 * 4
    frame = table(stats).query("group == 'all'").set_index(["statistic", "layer", "head"])["mean"]
    by_hand = ((mean - 1 / 7) ** 2).sum(axis=(-2, -1)) / ((maps - 1 / 7) ** 2).sum(axis=(-2, -1)).mean(axis=0)
    entropy = -(mean * np.log(mean)).sum(axis=-1).mean(axis=-1)
    for (layer, head), value in np.ndenumerate(by_hand):
        assert frame["positional_share", layer, head] == pytest.approx(value, rel=1e-9)
        assert frame["entropy_of_mean", layer, head] == pytest.approx(entropy[layer, head], rel=1e-12)


def test_uniform_heads_have_no_positional_share(model):
    """Absent, never 0 or NaN: a head that never departs from uniform has no departure to explain."""
    flat = copy.deepcopy(model)
    for layer in flat.layers:
        for linear in (layer.attn.W_q, layer.attn.W_k):
            torch.nn.init.zeros_(linear.weight)
            torch.nn.init.zeros_(linear.bias)
    frame = table(measure(flat, sequences(5, [7])))

    assert "positional_share" not in set(frame["statistic"])
    assert frame["mean"].notna().all()
    enrichment = frame[(frame["group"] == "all") & frame["log2_enrichment"].notna()]["log2_enrichment"]
    np.testing.assert_allclose(enrichment, 0, atol=1e-9)


def test_histograms_count_every_defined_value_between_its_edges(model):
    stats = measure(model, sequences(13, [3, 7, 11], 5))
    histograms, frame = histogram_frame(stats, MEASURES, CLASSES), table(stats)
    keys = ["layer", "head", "statistic", "group"]
    joined = histograms.merge(frame, on=keys)

    assert joined.groupby(keys)["count"].sum().equals(joined.groupby(keys)["n"].first())
    spans = joined.groupby(keys).agg(
        low=("low", "min"), high=("high", "max"), min=("min", "first"), max=("max", "first")
    )
    ends = joined.groupby("statistic").agg(low=("low", "min"), high=("high", "max")).reindex(spans.index, level=2)
    assert ((spans["low"] <= spans["min"] + 1e-9) | (spans["low"] == ends["low"])).all()  # the end bins are open
    assert ((spans["max"] <= spans["high"] + 1e-9) | (spans["high"] == ends["high"])).all()


def test_a_population_has_no_sampling_error_and_one_sequence_no_deviation(model):
    stats = measure(model, sequences(1, [7]))

    assert not {"sem", "ci_low", "ci_high"} & set(long_frame(stats, MEASURES, CLASSES, population=True))
    assert table(stats)["std"].isna().all()


def test_the_wide_table_has_a_row_per_head_and_a_column_per_statistic(model):
    wide = wide_frame(table(measure(model, sequences(5, [7]))))

    assert len(wide) == 2 * 3
    assert list(wide)[:3] == ["layer", "head", "entropy"]
    assert {"token_weight[0]", "output_norm", "positional_share"} < set(wide)
    assert set(wide) - {"layer", "head"} == set(dictionary_frame(MEASURES)["statistic"])


def test_accuracy_and_loss_are_those_of_the_answers(model):
    some = sequences(13, [7, 3], 6)
    logits = torch.cat([model(s[None])[0] for s in some])
    accuracy, loss = accuracy_and_loss(measure(model, some))

    assert accuracy == (logits.argmax(1) == labels_of(some)).double().mean()
    assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels_of(some))))


def test_without_labels_there_are_predictions_and_no_answers(model):
    batch = batch_of(sequences(5, [7]))
    stats = measure_batch(model, Batch(batch.tokens))

    assert accuracy_and_loss(stats) == (None, None)
    assert set(table(stats)["group"]) <= {"all", "predicted=even", "predicted=odd"}


def test_a_model_in_train_mode_is_refused(model):
    trained = copy.deepcopy(model).train()

    with pytest.raises(ValueError, match=r"model: is in train mode; call model.eval\(\) first"):
        collect(trained, [batch_of(sequences(3, [7]))], list(BITS))


def test_attention_that_is_none_is_refused(model):
    """NaN weights must not become a table."""
    broken = copy.deepcopy(model)
    broken.layers[1].attn.W_q.weight.data[:] = torch.nan

    with pytest.raises(ValueError, match="layer 1: rows of attention do not sum to 1"):
        measure(broken, sequences(3, [7]))


def test_batch_size_does_not_change_a_bit_in_float32():
    """On this kind of machine the maps of a sequence do not depend on its neighbours, so the table does not either."""
    torch.manual_seed(0)
    model = TinyTransformer(2, 32, 4, 64, 2, 16).eval()
    some = torch.stack(sequences(257, [16]))
    results = []
    for size in (1, 7, 64, 257):
        batches = (Batch(some[i : i + size], labels=some[i : i + size].sum(1) % 2) for i in range(0, 257, size))
        results.append(collect(model, batches, list(BITS)))

    for other in results[1:]:
        assert_same(results[0], other)


@pytest.mark.parametrize("threads", [1, 3])
def test_batches_read_side_by_side_come_in_their_order_and_leave_torch_as_it_was(model, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        some = sequences(41, [7])
        seen = []
        stats = collect(model, batch_of(some).split(2), list(BITS), on_readings=seen.append)

        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.cat([readings.labels for readings in seen]).tolist() == labels_of(some).tolist()
    assert_same(stats, collect(model, [batch_of(some)], list(BITS)))


def test_a_batch_that_cannot_be_read_stops_the_rest(model):
    """The fault of one of many side by side is the caller's to see, and torch has its threads back."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="token id 2"):
            collect(model, [batch_of(sequences(2, [7])), Batch(torch.full((1, 3), 2))] * 9, list(BITS))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
