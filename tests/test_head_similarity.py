"""How alike heads are: known divergences, CKA as defined, trees, maps and matchings of heads known by thought."""

import json
import math
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from scipy.spatial.distance import jensenshannon

from analysis import head_similarity
from analysis.head_similarity import between_frame, map_frame, matching_frame, tree_frame, within_frame
from attnkit import similarity_plots
from attnkit.data import Batch, pad
from attnkit.importance import heads_of
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.observe import AttentionCall
from attnkit.similarity import Comoments, Similarity, change, compare, compare_batch, match

T = 5


def call(weights, value=None, layer=0):
    """A layer with these weights (B, H, T, T) whose values are the positions, or `value` (B, H, T, d)."""
    B, H, T, _ = weights.shape
    if value is None:
        value = torch.arange(T).double()[None, None, :, None].expand(B, H, T, 1)
    w_o = torch.ones(H, value.shape[-1], 4, dtype=torch.float64)
    return AttentionCall(layer, value, value, value, None, 1.0, weights, weights @ value, w_o)


def divergence(*maps):
    """Between the heads with these maps (T, T), over one sequence."""
    weights = torch.stack([torch.as_tensor(m, dtype=torch.float64) for m in maps])[None]
    found = compare_batch([[call(weights)]], Batch(torch.zeros(1, weights.shape[-1], dtype=torch.int64)))
    return found.divergence.mean.numpy()


def shifted(k):
    return np.roll(np.eye(T), k, axis=1)


UNIFORM = np.full((T, T), 1 / T)


# ---------------------------------------------------------------- where they look


def test_the_same_heads_are_at_0_and_heads_without_a_key_in_common_at_1_bit():
    found = divergence(shifted(1), shifted(1), shifted(2), UNIFORM, UNIFORM)

    assert found[0, 1] == found[3, 4] == 0
    assert found[0, 2] == pytest.approx(1)
    # One key against all: H of (1/2 + 1/2T, then T − 1 times 1/2T), less half of ln T, in bits.
    mixed = [0.5 + 0.5 / T] + [0.5 / T] * (T - 1)
    assert found[0, 3] == pytest.approx((-sum(p * math.log(p) for p in mixed) - 0.5 * math.log(T)) / math.log(2))
    assert np.array_equal(found, found.T)


def softmaxed(seed, heads, B=3, length=T):
    g = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(B, heads, length, length, generator=g, dtype=torch.float64)).softmax(dim=-1)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31))
def test_its_root_is_a_metric_and_scipys(seed):
    weights = softmaxed(seed, 3, B=1)
    found = np.sqrt(divergence(*weights[0].numpy()))

    one_row = np.sqrt(divergence(*(np.tile(w[0], (T, 1)) for w in weights[0].numpy())))
    assert one_row[0, 1] == pytest.approx(jensenshannon(weights[0, 0, 0], weights[0, 1, 0], base=2), abs=1e-7)
    assert (found >= 0).all()
    assert (found <= 1 + 1e-12).all()
    # The mean over rows of a squared metric: its root still is one (Minkowski).
    assert found[0, 2] <= found[0, 1] + found[1, 2] + 1e-9


def by_hand(p, q):
    """Two maps of one sequence: the mean over its rows."""
    return np.mean([jensenshannon(a, b, base=2) ** 2 for a, b in zip(p, q, strict=True)])


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(4)
    two = [TinyTransformer(2, 15, H, 7, layers, 11) for H, layers in ((3, 2), (5, 1))]
    for model in two:
        for layer in model.layers:
            layer.attn.W_q.weight.data *= 6
    return [model.double().eval().requires_grad_(False) for model in two]


LENGTHS = [7, 3, 7, 1, 5, 3, 7, 11, 1, 5]


def sequences():
    g = torch.Generator().manual_seed(1)
    return [torch.randint(0, 2, (length,), generator=g) for length in LENGTHS]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_count_and_every_sequence_counts_once(models, side):
    """Against scipy, row by row; a sequence of one token has nothing to choose and is left out."""
    found = compare(models[0], models[1], [pad(sequences(), side)])

    values = []
    for s in sequences():
        maps = [torch.cat([layer[0] for layer in model(s[None])[1]]).numpy() for model in models]
        if len(s) > 1:
            values.append([[by_hand(p, q) for q in maps[1]] for p in maps[0]])
    assert found.divergence.count.unique().tolist() == [8]
    np.testing.assert_allclose(found.divergence.mean, np.mean(values, axis=0), rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(found.divergence.std, np.std(values, axis=0, ddof=1), rtol=1e-6, atol=1e-12)


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 10), max_size=4), side=st.sampled_from(["left", "right"]))
def test_batches_change_nothing(models, cuts, side):
    some, edges = sequences(), [0, *sorted(cuts), 10]
    batches = [pad(some[a:b], side) for a, b in pairwise(edges) if a < b]
    whole, parts = compare(models[0], None, [pad(some)]), compare(models[0], None, batches)

    np.testing.assert_allclose(parts.divergence.mean, whole.divergence.mean, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(parts.cka, whole.cka, rtol=1e-9)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_change_of_a_head_is_its_divergence_from_itself(models, side):
    """Every head and itself alone: the diagonal of comparing all with all, however the sequences are cut."""
    import copy

    after = copy.deepcopy(models[0])
    after.layers[1].attn.W_q.weight.data[5:10] *= -1
    some = sequences()
    whole = compare(models[0], after, [pad(some, side)]).divergence
    found = change(models[0], after, [pad(some[:3], side), pad(some[3:], side)])

    for name in ("count", "mean", "m2"):
        np.testing.assert_allclose(getattr(found, name), getattr(whole, name).diagonal(), rtol=1e-9, atol=1e-15)
    assert found.mean.argmax() == 4  # layer 1, head 1
    assert found.mean[:3].abs().max() == 0  # the layer below does not notice
    with pytest.raises(ValueError, match=r"^batches: there are no sequences"):
        change(models[0], after, [])


def test_a_matching_has_the_least_sum_in_each_layer():
    """Greedily, 0.0 would go with 0.0 at 0.1, and 0.1 be left with 0.9; the cheap pairs across layers do not count."""
    first, second = [(0, 0), (0, 1), (1, 0)], [(0, 0), (0, 1), (1, 0), (1, 1)]
    costs = np.array([[0.1, 0.2, 0.0, 0.0], [0.2, 0.9, 0.0, 0.0], [0.0, 0.0, 0.5, 0.4]])

    assert match(costs, first, second) == {(0, 0): (0, 1), (0, 1): (0, 0), (1, 0): (1, 1)}
    assert match(costs.T, second, first) == {(0, 0): (0, 1), (0, 1): (0, 0), (1, 1): (1, 0)}


def test_blocks_of_rows_change_nothing(models, monkeypatch):
    from attnkit import reading

    whole = compare(models[0], models[1], [pad(sequences())])
    monkeypatch.setattr("attnkit.similarity.blocks_of", partial(reading.blocks_of, rows=3))
    parts = compare(models[0], models[1], [pad(sequences())])

    torch.testing.assert_close(parts.divergence.mean, whole.divergence.mean, rtol=1e-12, atol=1e-15)


def test_what_cannot_be_compared_is_refused(models):
    with pytest.raises(ValueError, match="batches: there are no sequences to compare heads on"):
        compare(models[0], None, [])
    with pytest.raises(ValueError, match="model: is in train mode"):
        compare(TinyTransformer(2, 15, 3, 7, 2, 11), None, [])
    broken = call(softmaxed(0, 2) * 1.1)
    with pytest.raises(ValueError, match="layer 0: rows of attention do not sum to 1"):
        compare_batch([[broken]], Batch(torch.zeros(3, T, dtype=torch.int64)))


# ---------------------------------------------------------------- what they write


def cka_by_definition(x, y):
    """Kornblith et al. 2019, equation 5, of centred features (tokens, D)."""
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return np.linalg.norm(y.T @ x) ** 2 / (np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y))


def test_cka_is_its_definition_on_what_heads_add_to_the_residual_stream(models):
    """Sequences of one length, so that every token weighs the same."""
    tokens = torch.randint(0, 2, (41, 7), generator=torch.Generator().manual_seed(1))
    written = []
    for model in models:
        from attnkit.ablation import head_outputs

        outputs = head_outputs(model, Batch(tokens))
        for layer, block in enumerate(model.layers):
            w_o = block.attn.W_o.weight.T.unflatten(0, (model.config.n_heads, -1))
            written += [(outputs[:, layer, h] @ w_o[h]).flatten(0, 1).numpy() for h in range(model.config.n_heads)]

    found = compare(models[0], models[1], Batch(tokens).split(6)).cka
    assert found.shape == (6, 5)
    for a in range(6):
        for b in range(5):
            assert found[a, b] == pytest.approx(cka_by_definition(written[a], written[6 + b]), rel=1e-9)
    within = compare(models[0], None, Batch(tokens).split(6)).cka
    np.testing.assert_allclose(within.diagonal(), 1)
    np.testing.assert_allclose(within, within.T)


def test_turning_and_scaling_change_no_cka_and_a_constant_head_has_none():
    g = torch.Generator().manual_seed(2)
    weights = softmaxed(3, 1).expand(3, 3, T, T)
    value = torch.randn(3, T, 2, generator=g, dtype=torch.float64)
    turned = 5 * value @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
    three = torch.stack([value, turned, torch.ones_like(value)], dim=1)
    w_o = torch.eye(2, 4, dtype=torch.float64).expand(3, 2, 4)
    layer = AttentionCall(0, three, three, three, None, 1.0, weights, weights @ three, w_o)
    cka = compare_batch([[layer]], Batch(torch.zeros(3, T, dtype=torch.int64))).cka

    assert cka[0, 1] == pytest.approx(1)
    assert np.isnan(cka[2]).all()
    assert np.isfinite(cka[:2, :2]).all()


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(1, 22), max_size=3, unique=True), far=st.sampled_from([0.0, 1e6]))
def test_comoments_add_up(cuts, far):
    """However cut, and far from 0 where sums of squares would lose everything."""
    g = torch.Generator().manual_seed(0)
    x, w = far + torch.randn(23, 3, generator=g, dtype=torch.float64), torch.rand(23, generator=g, dtype=torch.float64)
    edges = [0, *sorted(cuts), 23]
    parts = [Comoments.of(x[a:b], w[a:b]) for a, b in pairwise(edges)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part

    expected = np.cov(x.numpy().T, aweights=w.numpy(), ddof=0) * float(w.sum())
    np.testing.assert_allclose(total.products, expected, rtol=1e-6, atol=1e-7)


# ---------------------------------------------------------------- tables and figures


def known(distances):
    """Heads at these distances, without having looked at anything."""
    d = torch.as_tensor(distances, dtype=torch.float64)
    of_pairs = Moments(torch.full_like(d, 9.0), d.square(), torch.zeros_like(d), d.square(), d.square())
    n = len(d)
    outputs = Comoments(torch.tensor(9.0).double(), torch.zeros(n).double(), torch.eye(n).double())
    return Similarity(of_pairs, outputs, (1,) * n)


LINE = np.abs(np.subtract.outer([0.0, 0.1, 0.5, 0.7], [0.0, 0.1, 0.5, 0.7]))
FOUR = [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_tree_joins_the_nearest_first():
    tree = tree_frame(known(LINE))

    assert [set(row) for row in tree[["left", "right"]].to_numpy().tolist()] == [{0, 1}, {2, 3}, {4, 5}]
    # The mean of 0.5, 0.7, 0.4 and 0.6.
    assert tree["distance"].tolist() == pytest.approx([0.1, 0.2, 0.55])
    assert tree["heads"].tolist() == [2, 2, 4]


def test_the_map_keeps_the_distances_of_heads_on_a_plane():
    places = np.array([[0.0, 0.0], [0.3, 0.0], [0.0, 0.4], [0.2, 0.1]])
    d = np.linalg.norm(places[:, None] - places[None], axis=-1)
    table = map_frame(known(d), FOUR)

    drawn = table[["x", "y"]].to_numpy()
    np.testing.assert_allclose(np.linalg.norm(drawn[:, None] - drawn[None], axis=-1), d, atol=1e-9)
    assert table["stress"].max() < 1e-7
    tetrahedron = map_frame(known(1 - np.eye(4)), FOUR)  # four heads all alike far from each other fit no plane
    assert tetrahedron["stress"].iloc[0] > 0.1


def test_tables_have_a_row_for_every_two_heads_and_intervals_only_of_a_sample(models):
    found = compare(models[0], None, [pad(sequences())])
    sample, population = (within_frame(found, heads_of(models[0]), population=p) for p in (False, True))

    assert len(sample) == 15
    assert sample["js_distance"].tolist() == pytest.approx(np.sqrt(sample["js_divergence"]).tolist())
    half = 1.96 * found.divergence.sem[0, 1]
    assert sample["js_divergence_ci_high"][0] == pytest.approx(float(found.divergence.mean[0, 1] + half))
    assert not [column for column in population if "_ci_" in column]
    between = between_frame(
        compare(models[0], models[1], [pad(sequences())]), heads_of(models[0]), heads_of(models[1]), population=True
    )
    assert len(between) == 6 * 5


def test_shuffled_heads_are_matched_back(models):
    """Both layers' heads in another order are the same model; the matching finds the order."""
    import copy

    order = {0: [2, 0, 1], 1: [1, 2, 0]}
    shuffled = copy.deepcopy(models[0])
    for number, layer in enumerate(shuffled.layers):
        rows = torch.cat([torch.arange(5) + 5 * head for head in order[number]])
        for projection in (layer.attn.W_q, layer.attn.W_k, layer.attn.W_v):
            projection.weight.data, projection.bias.data = projection.weight[rows], projection.bias[rows]
        layer.attn.W_o.weight.data = layer.attn.W_o.weight[:, rows]
    heads = heads_of(models[0])
    found = compare(models[0], shuffled, [pad(sequences())])
    matched = matching_frame(between_frame(found, heads, heads, population=True))

    assert len(matched) == 6
    for layer, a, b in matched[["layer", "head_a", "head_b"]].to_numpy().tolist():
        assert order[layer][b] == a
    assert matched["js_divergence"].max() < 1e-12
    assert matched["cka"].min() > 1 - 1e-9


def test_layers_of_unlike_width_are_matched_as_far_as_they_go(models):
    found = compare(models[0], models[1], [pad(sequences())])
    matched = matching_frame(between_frame(found, heads_of(models[0]), heads_of(models[1]), population=True))

    assert matched["layer"].tolist() == [0, 0, 0]  # the second model has no layer 1
    assert matched["head_a"].tolist() == [0, 1, 2]
    assert matched["head_b"].nunique() == 3


def test_figures_show_the_tables(models):
    found = compare(models[0], None, [pad(sequences())])
    heads = heads_of(models[0])
    table, tree = within_frame(found, heads, population=True), tree_frame(found)
    figure = similarity_plots.clustered(table, tree)

    _, _, left, right = figure.axes
    order = [label.get_text() for label in left.get_xticklabels()]
    assert sorted(order) == sorted(f"{layer}.{head}" for layer, head in heads)
    assert order == [label.get_text() for label in right.get_yticklabels()]
    cells = left.collections[0].get_array().reshape(6, 6)
    row = table.set_index(["layer_a", "head_a", "layer_b", "head_b"]).loc[(0, 1, 1, 2)]
    assert cells[order.index("0.1"), order.index("1.2")] == pytest.approx(row["js_distance"])
    assert right.collections[0].get_array().reshape(6, 6)[order.index("1.2"), order.index("0.1")] == pytest.approx(
        row["cka"]
    )
    drawn = similarity_plots.head_map(map_frame(found, heads))
    assert isinstance(drawn, Figure)
    assert sorted(text.get_text() for text in drawn.axes[0].texts) == sorted(order)


# ---------------------------------------------------------------- the command


ARTICLE = "tests/data/weights.safetensors"


def run(out, *arguments, checkpoints=(ARTICLE,)):
    given = [part for path in checkpoints for part in ("--checkpoint", path)]
    head_similarity.main([str(a) for a in (*given, "--out", out, "--device", "cpu", *arguments)])


def test_two_checkpoints_are_compared_and_told_of(tmp_path):
    weights = load_file(ARTICLE)
    rows = torch.cat([torch.arange(8) + 8 * head for head in (3, 1, 0, 2)])
    for name in ("W_q.weight", "W_q.bias", "W_k.weight", "W_k.bias", "W_v.weight", "W_v.bias"):
        weights[f"layers.0.attn.{name}"] = weights[f"layers.0.attn.{name}"][rows]
    weights["layers.0.attn.W_o.weight"] = weights["layers.0.attn.W_o.weight"][:, rows].contiguous()
    save_file(weights, tmp_path / "shuffled.safetensors")
    run(tmp_path / "out", checkpoints=(ARTICLE, tmp_path / "shuffled.safetensors"))

    matched = pd.read_csv(tmp_path / "out" / "matching.csv")
    assert matched["head_b"].tolist() == [2, 1, 3, 0, 0, 1, 2, 3]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "5 of 8 heads have the same number in both." in page
    assert "Heads of two checkpoints" in page
    record = json.loads((tmp_path / "out" / "similarity.json").read_text())
    assert record["against"]["checkpoint"].endswith("shuffled.safetensors")

    run(tmp_path / "out")  # alone: the earlier comparison is no longer told of
    assert "Heads of two checkpoints" not in (tmp_path / "out" / "report.html").read_text()


def test_every_promised_file_is_there_and_the_words_fit(tmp_path):
    run(tmp_path)

    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    figures = {f"figures/similarity_{name}.{kind}" for name in ("clustered", "map") for kind in ("png", "svg")}
    tables = {"similarity.csv", "similarity_tree.csv", "similarity_map.csv"}
    assert files == {*tables, *figures, "similarity.json", "run.json", "report.html"}
    table = pd.read_csv(tmp_path / "similarity.csv")
    nearest = table.loc[table["js_distance"].idxmin()]
    first = f"Layer {nearest['layer_a']:.0f}, head {nearest['head_a']:.0f}"
    assert (
        f"{first} and layer {nearest['layer_b']:.0f}, head {nearest['head_b']:.0f} look most alike"
        in (tmp_path / "report.html").read_text()
    )


def test_checkpoints_that_read_other_tokens_or_too_many_are_refused(tmp_path, capsys):
    from attnkit.checkpoint import Checkpoint, TaskInfo, save_checkpoint
    from attnkit.model import ModelConfig

    config = ModelConfig(vocab_size=3, d_model=15, n_heads=3, d_ff=7, n_layers=2, max_len=16)
    other = Checkpoint(config, TaskInfo(vocab=["r", "g", "b"]))
    folder = save_checkpoint(tmp_path / "other", TinyTransformer.from_config(config), other, [], "# a card\n")
    with pytest.raises(ValueError, match=r"reads the tokens \['r', 'g', 'b'\].*only heads that read the same"):
        run(tmp_path / "out", checkpoints=(ARTICLE, folder))
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "out", checkpoints=(ARTICLE,) * 3)
    assert stop.value.code == 2
    assert "got 3 of them, allowed are one or two" in capsys.readouterr().err
