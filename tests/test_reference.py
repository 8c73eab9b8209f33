"""What is usual for a checkpoint: percentiles are shares of the set, and a file of other weights is refused."""

import numpy as np
import pandas as pd
import pytest
import torch

from analysis import head_stats, training_dynamics
from analysis.importance_tables import importance_frame
from analysis.subject import open_subject
from attnkit import load_checkpoint
from attnkit.data import DataConfig, task_dataset
from attnkit.files import sha256
from attnkit.importance import measure_importance
from attnkit.measures import applicable
from attnkit.reading import read_batch
from attnkit.reference import BINS, FILE, LEVELS, METHODS, WORTH, Reference, counts
from attnkit.tasks import get_task
from tests.serving import COLOURS, ROOT, add_reference, fill, write_grown


@pytest.fixture
def checkpoints(tmp_path):
    return fill(tmp_path / "checkpoints")


def over(values):
    """A reference of one head and one statistic, which has these values on the set."""
    text = {name: np.array("") for name in ("data", "weights_sha256")}
    quantiles = np.quantile(np.array(values, dtype=float), LEVELS).astype(np.float32)[None, None, None]
    maps = {name: np.zeros((1, 1, 5, 5)) for name in ("mean_attention", "mean_output")}
    ids = {name: np.zeros((1, 1, 2, 5), dtype=int) for name in ("sharpest", "flattest")}
    return Reference(
        **text,
        count=np.array(len(values)),
        length=np.array(5),
        classes=np.array(["c"]),
        statistics=np.array(["x"]),
        quantiles=quantiles,
        histogram=np.zeros((1, 1, 1, 1, BINS), dtype=int),
        columns=np.array(["x"]),
        means=np.mean(values).reshape(1, 1, 1),
        uniform=np.zeros(1),
        worth=np.zeros((1, 1, 2, 2, 3)),
        differences=np.zeros(0, dtype=[("layer", int)]),
        steps=np.zeros(0, dtype=int),
        training=np.zeros((0, 1, 1, 1)),
        **maps,
        **ids,
        nearest_wrong=np.zeros((2, 5), dtype=int),
    )


@pytest.mark.parametrize(
    ("value", "percentile"), [(-1, 0), (0, 0), (25, 25), (50.5, 50.5), (99.7, 99.7), (100, 100), (1000, 100)]
)
def test_a_percentile_is_the_share_of_the_set_that_has_less(value, percentile):
    """Over 0, 1, …, 100 the share below a value is the value."""
    assert over(range(101)).percentiles(np.array([[[value]]], dtype=float)).item() == pytest.approx(
        percentile, abs=0.01
    )


def test_ties_count_half():
    """A statistic that is the same on every sequence is in the middle, not at an end."""
    assert over([0.3] * 7).percentiles(np.array([[[0.3]]])).item() == pytest.approx(50)


def test_what_is_undefined_has_no_percentile():
    assert np.isnan(over(range(9)).percentiles(np.array([[[np.nan]]]))).all()


def test_every_sequence_of_the_set_stands_where_it_ranks(checkpoints):
    """Against ranks, worked out apart, of every statistic of every head."""
    reference = add_reference(checkpoints / "majority")
    model = load_checkpoint(checkpoints / "majority")
    measures = applicable(["0", "1"])
    (batch,) = task_dataset(get_task("majority"), DataConfig(), "test").batches(500)
    readings = read_batch(model, batch, measures)
    values = readings.values.masked_fill(~readings.defined, torch.nan).numpy()
    near = 1e-5 * np.abs(values[7]).clip(1e-3)  # float32 in the file
    below, upto = (np.nanmean(values < values[7] + side * near, axis=0) * 100 for side in (-1, 1))
    places = reference.percentiles(values[7])

    assert list(reference.statistics) == list(measures)
    assert np.isfinite(places).all()
    assert (places > below - 1).all()
    assert (places < upto + 1).all()


def test_a_reference_comes_back_as_it_was_saved(checkpoints):
    saved = add_reference(checkpoints / "majority")
    found = Reference.load(checkpoints / "majority")

    assert (str(found.data), int(found.count), int(found.length)) == (str(saved.data), 500, 16)
    assert np.array_equal(found.quantiles, saved.quantiles, equal_nan=True)


def test_the_extremes_and_the_mean_map_are_those_of_the_set(checkpoints):
    """Against the whole set at once, worked out apart."""
    reference = add_reference(checkpoints / "majority")
    model = load_checkpoint(checkpoints / "majority")
    (batch,) = task_dataset(get_task("majority"), DataConfig(), "test").batches(500)
    with torch.no_grad():
        logits, attentions = model(batch.tokens)
    maps = torch.stack(attentions, dim=1).double()  # (B, L, H, T, T)
    flatness = -(maps * maps.log()).sum(-1).mean(-1).numpy()
    losses = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none").numpy()

    assert np.allclose(reference.mean_attention, maps.mean(0), atol=1e-6)
    for ids, sign in ((reference.sharpest, 1), (reference.flattest, -1)):
        for layer, head in ((0, 0), (1, 3)):
            best = np.sort(sign * flatness[:, layer, head])[:5]
            rows = [(batch.tokens.numpy() == one).all(1).argmax() for one in ids[layer, head]]
            assert sign * flatness[rows, layer, head] == pytest.approx(best, abs=1e-5)
    rows = [(batch.tokens.numpy() == one).all(1).argmax() for one in reference.nearest_wrong]
    assert losses[rows] == pytest.approx(np.sort(losses)[::-1][:5], abs=1e-5)


def test_the_means_are_those_of_the_analysis_table(undrawn, checkpoints, tmp_path):
    reference = add_reference(checkpoints / "majority")
    given = ["--checkpoint", str(checkpoints / "majority"), "--split", "test", "--device", "cpu"]
    head_stats.main([*given, "--out", str(tmp_path / "out")])
    table = pd.read_csv(tmp_path / "out" / "head_stats.csv")

    assert list(reference.columns) == [*WORTH, *table.columns[2:]]
    assert reference.means[..., 2:].reshape(8, -1) == pytest.approx(table.iloc[:, 2:].to_numpy(), rel=1e-12)


def test_what_a_head_is_worth_is_what_the_set_loses_when_its_columns_of_w_o_are_zero(checkpoints):
    reference = add_reference(checkpoints / "majority")
    (batch,) = task_dataset(get_task("majority"), DataConfig(), "test").batches(500)

    def right_and_loss(model):
        logits = model(batch.tokens)[0].double()
        right = (logits.argmax(dim=1) == batch.labels).double().mean()
        return torch.stack([right, torch.nn.functional.cross_entropy(logits, batch.labels)])

    whole, without = (load_checkpoint(checkpoints / "majority").requires_grad_(False) for _ in range(2))
    without.layers[0].attn.W_o.weight[:, 8:16] = 0
    change = right_and_loss(whole) - right_and_loss(without)

    assert reference.means[0, 1, :2] == pytest.approx((change * torch.tensor([1, -1])).numpy(), abs=1e-6)


def test_a_histogram_counts_every_sequence_between_the_least_and_the_most(checkpoints):
    reference = add_reference(checkpoints / "majority")

    assert (reference.histogram.sum(axis=(-2, -1)) == 500).all()
    assert (reference.histogram.sum(axis=-2)[..., [0, -1]] > 0).all()
    assert counts(np.arange(2.0 * BINS), np.arange(2 * BINS) % 2, 3).tolist() == [[1] * BINS, [1] * BINS, [0] * BINS]
    assert counts(np.full(7, 0.3), np.ones(7, dtype=int), 2).tolist() == [[0] * BINS, [7] + [0] * (BINS - 1)]


def test_each_label_has_a_histogram_of_its_own_sequences(checkpoints):
    reference = add_reference(checkpoints / "majority")
    (batch,) = task_dataset(get_task("majority"), DataConfig(), "test").batches(500)
    labels = batch.labels.numpy()
    readings = read_batch(load_checkpoint(checkpoints / "majority"), batch, applicable(["0", "1"]))
    k = list(reference.statistics).index("selectivity")
    values = readings.values[:, 1, 2, k].float().numpy()
    edges = np.linspace(values.min(), values.max(), BINS + 1)

    assert list(reference.classes) == ["not majority", "majority"]
    for c in (0, 1):
        expected, _ = np.histogram(values[labels == c], edges)
        assert np.abs(np.cumsum(expected) - np.cumsum(reference.histogram[1, 2, k, c])).max() <= 1  # on an edge


def test_the_differences_are_those_of_the_analysis(undrawn, checkpoints, tmp_path):
    reference = add_reference(checkpoints / "majority")
    given = ["--checkpoint", str(checkpoints / "majority"), "--split", "test", "--device", "cpu"]
    head_stats.main([*given, "--out", str(tmp_path / "out")])
    table = pd.read_csv(tmp_path / "out" / "differences.csv")

    assert list(reference.differences.dtype.names) == list(table.columns)
    assert len(table) > 8 * 17
    for name in table:
        expected = table[name].to_numpy()
        if expected.dtype.kind == "f":
            assert reference.differences[name] == pytest.approx(expected, rel=1e-9)
        else:
            assert (reference.differences[name] == expected).all()


def test_what_heads_are_worth_is_what_the_analysis_says_by_either_method(checkpoints):
    reference = add_reference(checkpoints / "majority")
    dataset = task_dataset(get_task("majority"), DataConfig(), "test")
    importance = measure_importance(load_checkpoint(checkpoints / "majority"), lambda: dataset.batches(500))
    table = importance_frame(importance, population=False).set_index(["method", "layer", "head"])

    for m, method in enumerate(METHODS):
        for e, effect in enumerate(WORTH):
            ends = table.loc[method, [effect, f"{effect}_ci_low", f"{effect}_ci_high"]].to_numpy()
            assert reference.worth[:, :, m, e].reshape(8, 3) == pytest.approx(ends, rel=1e-6, abs=1e-9)


def test_the_way_through_training_is_that_of_the_analysis(checkpoints):
    write_grown(checkpoints / "grown")
    reference = add_reference(checkpoints / "grown")
    args = training_dynamics.parse(["--checkpoint", str(checkpoints / "grown"), "--split", "test", "--device", "cpu"])
    subject = open_subject(training_dynamics.args_of(args, checkpoints / "grown"))
    (training,) = training_dynamics.check([subject])
    table = training_dynamics.follow(training, subject, training_dynamics.cli.progress(total=3))["dynamics"]

    assert reference.steps.tolist() == [0, 5, 20]
    for k, name in enumerate(reference.columns):
        rows = table[table["statistic"] == name].sort_values(["step", "layer", "head"])
        assert reference.training[..., k].flatten() == pytest.approx(rows["mean"].to_numpy(), rel=1e-5, abs=1e-7)
        assert reference.uniform[k] == pytest.approx(rows["uniform"].mean(), nan_ok=True)
    assert reference.training[-1] == pytest.approx(reference.means, rel=1e-5, abs=1e-7)  # the last is the trained model


def test_a_reference_of_an_earlier_version_is_told_from_a_damaged_one(checkpoints):
    folder = checkpoints / "majority"
    add_reference(folder)
    with np.load(folder / FILE) as arrays:
        np.savez(folder / FILE, **{name: arrays[name] for name in arrays if name not in {"means", "columns"}})
    with pytest.raises(ValueError, match=r"has no columns, means; make it anew with python -m analysis\.reference$"):
        Reference.load(folder)


def test_a_reference_of_other_weights_or_a_damaged_one_is_refused(checkpoints):
    folder = checkpoints / "majority"
    add_reference(folder)
    (checkpoints / COLOURS / FILE).write_bytes((folder / FILE).read_bytes())
    with pytest.raises(ValueError, match=r"reference\.npz: is of other weights; .* python -m analysis\.reference$"):
        Reference.load(checkpoints / COLOURS)
    (folder / FILE).write_bytes((folder / FILE).read_bytes()[:500])
    with pytest.raises(ValueError, match=r"reference\.npz: is damaged, or no reference"):
        Reference.load(folder)


def test_the_shipped_reference_is_of_the_shipped_weights_and_of_all_sequences():
    folder = ROOT / "checkpoints" / "majority"
    reference = Reference.load(folder)

    assert str(reference.weights_sha256) == sha256(folder / "model.safetensors")
    assert int(reference.count) == 2**16
    assert "p_adjusted" not in reference.differences.dtype.names  # nothing is estimated
    assert len(reference.steps) == 16
    assert (folder / FILE).stat().st_size <= 150_000
