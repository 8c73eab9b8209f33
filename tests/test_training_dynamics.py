"""When heads learn: trainings whose turning points are known, matched seeds, and figures that show their tables."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from analysis import training_dynamics, training_report
from analysis.page import Folder
from analysis.report import write_report
from analysis.training_report import along, largest, needed, when_they_learnt
from analysis.training_tables import maps_frame
from attnkit import TinyTransformer, training_plots
from attnkit.checkpoint import Checkpoint, TaskInfo, save_checkpoint
from attnkit.data import DataConfig, pad, task_dataset
from attnkit.headstats import collect
from attnkit.model import ModelConfig
from attnkit.snapshots import load_snapshot
from attnkit.tasks import MAJORITY
from attnkit.train import evaluate

L, H, T = 2, 3, 5
SIZES = ModelConfig(vocab_size=2, d_model=15, n_heads=H, d_ff=7, n_layers=L, max_len=T)
DATA = DataConfig(length=T, n_train=40, n_test=23)
STEPS = [0, 1, 3, 7, 31]  # 1 + step doubles, doubles, doubles, and then twice more


def fresh(seed):
    torch.manual_seed(seed)
    model = TinyTransformer.from_config(SIZES).requires_grad_(False)
    for layer in model.layers:
        layer.attn.W_q.weight *= 6  # heads that are far from uniform
    return model


def turned(model, layer, head, seed):
    """Another query projection for one head."""
    torch.manual_seed(seed)
    rows = slice(5 * head, 5 * head + 5)
    model.layers[layer].attn.W_q.weight[rows] = 3 * torch.randn(5, 15)


def state_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def trained(seed=0):
    """The weights along a training that turns head 2 of the last layer from 1 to 3, and head 0 of it from 7 to 31."""
    model = fresh(seed)
    kept = {0: state_of(model), 1: state_of(model)}
    turned(model, 1, 2, seed=11)
    kept |= {3: state_of(model), 7: state_of(model)}
    turned(model, 1, 0, seed=12)
    return {**kept, 31: state_of(model)}


def shuffled(kept, order):
    """The same training with the heads of each layer in another order: `order[layer][place]` is who stands there."""
    found = {}
    for step, weights in kept.items():
        weights = dict(weights)
        for layer, heads in enumerate(order):
            rows = torch.cat([torch.arange(5) + 5 * head for head in heads])
            for name in ("W_q", "W_k", "W_v"):
                for part in ("weight", "bias"):
                    key = f"layers.{layer}.attn.{name}.{part}"
                    weights[key] = weights[key][rows]
            key = f"layers.{layer}.attn.W_o.weight"
            weights[key] = weights[key][:, rows]
        found[step] = weights
    return found


def write(folder, kept, sizes=SIZES, task=None):
    model = TinyTransformer.from_config(sizes)
    if kept:
        model.load_state_dict(kept[max(kept)])
    info = Checkpoint(sizes, task or TaskInfo(), DATA, {"batch_size": 8}, snapshots=sorted(kept))
    return save_checkpoint(folder, model, info, [], "# a card\n", kept)


def run(out, *folders, arguments=()):
    given = [part for folder in folders for part in ("--checkpoint", folder)]
    training_dynamics.main([str(a) for a in (*given, "--out", out, "--device", "cpu", *arguments)])
    names = ("dynamics", "curve", "changes", "average", "changes_average")
    return {n: pd.read_csv(out / f"training_{n}.csv") for n in names if (out / f"training_{n}.csv").exists()}


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return write(tmp_path_factory.mktemp("checkpoints") / "one", trained())


@pytest.fixture(scope="module")
def done(training):
    """The study of that training, with its figures: where it lies, and its tables."""
    out = training.parent / "out"
    return out, run(out, training)


# ---------------------------------------------------------------- the numbers


def test_a_head_changes_where_its_weights_do_and_nowhere_else(done):
    _, tables = done
    changes = tables["changes"].set_index(["layer", "head", "step_from", "step_to"])["js_distance"]

    turning = {(1, 2, 1, 3), (1, 0, 7, 31)}
    assert len(changes) == L * H * (len(STEPS) - 1)
    assert {place for place, size in changes.items() if size > 0.05} == turning
    assert changes.drop(list(turning)).max() == 0
    assert largest(tables["changes"])[1, 2][:2] == (1, 3)
    assert largest(tables["changes"])[1, 0][:2] == (7, 31)


def test_a_change_is_held_against_the_doublings_it_took(done):
    """From 1 to 3 the step, counted from 1, doubles once; from 7 to 31 twice."""
    changes = done[1]["changes"].set_index(["layer", "head", "step_from"])

    for place, doublings in (((1, 2, 1), 1), ((1, 0, 7), 2)):
        row = changes.loc[place]
        assert row["per_doubling"] == pytest.approx(row["js_distance"] / doublings)
        assert row["js_distance"] == pytest.approx(row["js_divergence"] ** 0.5)
        assert row["js_divergence_ci_low"] < row["js_divergence"] < row["js_divergence_ci_high"]


def test_loss_and_accuracy_are_those_of_the_snapshots(training, done):
    dataset = task_dataset(MAJORITY, DATA, "test")
    for step, n, accuracy, loss in done[1]["curve"][["step", "n", "accuracy", "loss"]].to_numpy().tolist():
        expected = evaluate(load_snapshot(training, int(step)), dataset.batches(7))
        assert n == 23
        assert (loss, accuracy) == pytest.approx(expected, rel=1e-5)
    assert done[1]["curve"]["step"].tolist() == STEPS


def test_statistics_and_worth_are_those_of_the_last_model(undrawn, training, done, tmp_path):
    """By the other studies, which read the checkpoint and know nothing of snapshots."""
    from analysis import head_importance, head_stats

    for module in (head_importance, head_stats):
        module.main(["--checkpoint", str(training), "--out", str(tmp_path), "--device", "cpu"])
    dynamics = done[1]["dynamics"]
    last = dynamics[dynamics["step"] == 31].pivot(index=["layer", "head"], columns="statistic", values="mean")

    stats = pd.read_csv(tmp_path / "head_stats.csv").set_index(["layer", "head"])
    assert len(stats.columns) > 10
    pd.testing.assert_frame_equal(last[stats.columns], stats, check_names=False, rtol=1e-9)
    worth = pd.read_csv(tmp_path / "head_importance.csv").set_index(["layer", "head"])
    for method, columns in (("zero", ["accuracy_drop", "loss_increase"]), ("gradient", ["gradient_importance"])):
        expected = worth.loc[worth["method"] == method, columns]
        pd.testing.assert_frame_equal(last[columns], expected, check_names=False, rtol=1e-9)


def test_maps_are_mean_maps_of_each_step(training, done):
    frame = pd.read_parquet(done[0] / "training_maps.parquet")
    for step in (0, 31):
        stats = collect(load_snapshot(training, step), task_dataset(MAJORITY, DATA, "test").batches(23), ["0", "1"])
        for (layer, head), weights in training_plots.arrays(frame)[step].items():
            np.testing.assert_allclose(weights, stats.maps[T].mean[layer, head].numpy(), rtol=1e-9)
    assert frame["uniform"].unique().tolist() == [1 / T]


def test_of_several_lengths_the_most_frequent_is_drawn_and_long_ones_are_not():
    model = TinyTransformer(2, 15, 3, 7, 1, 97).eval()
    few = pad([torch.zeros(n, dtype=torch.int64) for n in (3, 7, 7, 3, 7, 2)])
    long = pad([torch.zeros(97, dtype=torch.int64)] * 9)

    assert maps_frame(collect(model, [few, long], ["0", "1"]))["query"].max() == 6
    assert maps_frame(collect(model, [long], ["0", "1"])).empty


def test_batch_size_changes_no_number_and_the_same_run_gives_the_same_bytes(undrawn, training, done, tmp_path):
    run(tmp_path / "again", training)
    small = run(tmp_path / "small", training, arguments=("--batch-size", 5))

    for name, table in done[1].items():
        file = f"training_{name}.csv"
        assert (tmp_path / "again" / file).read_bytes() == (done[0] / file).read_bytes()
        pd.testing.assert_frame_equal(small[name], table, rtol=1e-5, atol=1e-6)


def test_over_all_sequences_there_is_no_sampling_error(undrawn, training, tmp_path):
    tables = run(tmp_path, training, arguments=("--split", "exhaustive"))

    assert tables["curve"]["n"].unique().tolist() == [32]
    assert [c for table in tables.values() for c in table if "ci_" in c or c == "sem"] == []


# ---------------------------------------------------------------- several trainings


def test_heads_of_another_seed_are_matched_before_they_are_averaged(undrawn, training, done, tmp_path):
    """The same training with its heads in another order: averaged over both, nothing changes."""
    order = [[2, 0, 1], [1, 2, 0]]
    other = write(tmp_path / "other", shuffled(trained(), order))
    tables = run(tmp_path / "out", training, other)

    rows = tables["dynamics"].drop_duplicates(["checkpoint", "layer", "head"])
    rows = rows[rows["checkpoint"] == str(other)]
    assert [order[layer][head] for layer, head in zip(rows["layer"], rows["head"], strict=True)] == rows[
        "matched"
    ].tolist()
    average, alone = tables["average"], done[1]["dynamics"]
    both = average.merge(alone, on=["step", "layer", "head", "statistic"], suffixes=("", "_alone"))
    assert len(both) == len(alone)
    assert both["checkpoints"].eq(2).all()
    for column in ("mean", "low", "high"):
        np.testing.assert_allclose(both[column], both["mean_alone"], rtol=1e-4, atol=1e-5)
    assert largest(tables["changes_average"])[1, 2][:2] == (1, 3)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Over 2 trainings, heads matched" in page

    run(tmp_path / "out", training)  # alone: the earlier comparison is no longer told of
    assert "heads matched" not in (tmp_path / "out" / "report.html").read_text()


def test_an_average_is_that_of_the_matched_heads(undrawn, training, tmp_path):
    other = write(tmp_path / "other", trained(seed=5))
    tables = run(tmp_path / "out", training, other)

    dynamics, average = tables["dynamics"], tables["average"]
    for layer in range(L):
        for head in range(H):
            here = (dynamics["layer"] == layer) & (dynamics["matched"] == head) & (dynamics["step"] == 7)
            values = dynamics[here & (dynamics["statistic"] == "entropy")]["mean"]
            row = average.set_index(["layer", "head", "step", "statistic"]).loc[(layer, head, 7, "entropy")]
            assert len(values) == 2
            assert row[["mean", "low", "high"]].tolist() == pytest.approx([values.mean(), values.min(), values.max()])


def test_what_cannot_be_followed_or_compared_is_one_clear_line(undrawn, training, tmp_path, capsys):
    def refused(message, *folders):
        with pytest.raises(ValueError, match=message):
            run(tmp_path / "out", *folders)

    none = write(tmp_path / "none", {})
    refused(r"none has no snapshots; `python -m attnkit.train --snapshots 16` keeps some$", none)
    refused(r"weights.safetensors has no snapshots; `python -m attnkit.train", "tests/data/weights.safetensors")
    fewer = write(tmp_path / "fewer", {step: weights for step, weights in trained().items() if step != 7})
    refused(
        r"has snapshots after 0, 1, 3, 31 steps, .*one snapshots after 0, 1, 3, 7, 31 steps; only the", training, fewer
    )
    wide = ModelConfig(vocab_size=2, d_model=15, n_heads=5, d_ff=7, n_layers=L, max_len=T)
    other = write(tmp_path / "wide", dict.fromkeys(STEPS, TinyTransformer.from_config(wide).state_dict()), wide)
    refused(r"wide has other layers and heads than .*one$", training, other)
    letters = write(tmp_path / "letters", trained(), task=TaskInfo(vocab=["a", "b"]))
    refused(r"reads the tokens \['a', 'b'\].*only heads that read the same", training, letters)
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit) as stop:
        run(tmp_path / "out", training, training)
    assert stop.value.code == 2
    assert "argument --checkpoint: got the same one twice" in capsys.readouterr().err


def test_sequences_without_labels_are_refused(undrawn, training, tmp_path):
    (tmp_path / "own.csv").write_text("sequence\n00110\n01110\n")
    with pytest.raises(ValueError, match="labels: there are none; what a head is worth is measured by the loss"):
        run(tmp_path / "out", training, arguments=("--data", tmp_path / "own.csv"))


# ---------------------------------------------------------------- figures and page


def test_every_promised_file_is_there_and_nothing_else(done):
    out, _ = done
    figures = ("curve", "importance", "maps", "statistics")
    files = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    assert files == {
        *(f"training_{name}.csv" for name in ("dynamics", "curve", "changes")),
        *(f"figures/training_{name}.{kind}" for name in figures for kind in ("png", "svg")),
        "figures/training_motion.gif",
        "training_maps.parquet",
        "training_dynamics.json",
        "run.json",
        "report.html",
    }
    record = json.loads((out / "training_dynamics.json").read_text())
    assert record["sequences"] == 23
    assert record["steps_of_epoch"] == 5  # 40 sequences, 8 a step


def test_the_curve_shows_the_tables_and_frames_where_heads_change_most(done):
    tables = done[1]
    loss, accuracy, cells, *_ = training_plots.curve(tables["curve"], tables["changes"]).axes

    assert loss.lines[0].get_xdata().tolist() == STEPS
    assert loss.lines[0].get_ydata().tolist() == tables["curve"]["loss"].tolist()
    assert accuracy.lines[0].get_ydata().tolist() == tables["curve"]["accuracy"].tolist()
    shown = cells.collections[0].get_array().reshape(L * H, len(STEPS) - 1)
    rows = tables["changes"].pivot(index=["layer", "head"], columns="step_from", values="per_doubling")
    assert np.array_equal(shown, rows.to_numpy())
    framed = {(p.get_y(), p.get_x(), p.get_x() + p.get_width()) for p in cells.patches}
    assert {(5, 1, 3), (3, 7, 31)} <= framed  # layer 1, heads 2 and 0


def test_each_statistic_has_a_panel_and_each_head_a_line_of_the_tables_numbers(done):
    dynamics = done[1]["dynamics"]
    names = ["entropy", "accuracy_drop", "offset"]
    figure = training_plots.statistics(dynamics, names, columns=2)

    assert len(figure.axes) == 4  # two lines of two; the last stays empty
    for ax, name in zip(figure.axes, names, strict=False):
        rows = dynamics[dynamics["statistic"] == name]
        for line, (_, own) in zip(ax.lines, rows.groupby(["layer", "head"]), strict=False):
            assert line.get_xdata().tolist() == STEPS
            assert line.get_ydata().tolist() == own.sort_values("step")["mean"].tolist()
        assert len(ax.lines) == L * H + (name != "accuracy_drop")  # and uniform attention, where that is said
        assert len(ax.collections) == L * H  # the bands
    styles = {(line.get_color(), line.get_linestyle()) for line in figure.axes[1].lines}
    assert len(styles) == L * H


def test_bands_of_several_trainings_reach_from_the_smallest_to_the_largest():
    rows = [(0, 0, step, "entropy", 2.0, 1.0, 4.0, np.nan) for step in (0, 1, 2)]
    frame = pd.DataFrame(rows, columns=["layer", "head", "step", "statistic", "mean", "low", "high", "uniform"])
    (band,) = training_plots.statistics(frame, ["entropy"]).axes[0].collections

    assert sorted({y for _, y in band.get_paths()[0].vertices}) == [1.0, 4.0]


def test_the_mosaic_has_a_tile_for_each_head_and_step(done):
    frame = pd.read_parquet(done[0] / "training_maps.parquet")
    ax = training_plots.maps(frame).axes[0]
    tiles = ax.images[0].get_array().reshape(L * H, T + 2, len(STEPS), T + 2)

    stack = training_plots.arrays(frame)
    for line, head in enumerate((layer, head) for layer in range(L) for head in range(H)):
        for place, step in enumerate(STEPS):
            tile = tiles[line, :, place]
            assert np.array_equal(tile[1:-1, 1:-1], stack[step][head])
            assert tile.mask[0].all()  # the frame is no weight
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(step) for step in STEPS]


def test_of_many_snapshots_the_first_the_last_and_some_between_are_drawn():
    assert training_plots.few(range(101), 3) == [0, 50, 100]
    assert training_plots.few([0, 7], 16) == [0, 7]


def test_a_step_of_the_animation_shows_that_steps_maps_and_score(done):
    frame, curve = pd.read_parquet(done[0] / "training_maps.parquet"), done[1]["curve"]
    figure, show, steps = training_plots.moving_maps(frame, curve)
    assert steps == STEPS
    above, below = figure.subfigs
    for step in (31, 3):
        show(step)
        images = [ax.images[0].get_array() for ax in above.axes[: L * H]]
        assert all(map(np.array_equal, images, training_plots.arrays(frame)[step].values()))
        (row,) = curve[curve["step"] == step].itertuples()
        assert f"step {step}: {round(row.accuracy * 23)} of 23 right" in above.get_suptitle()
        assert below.axes[0].lines[1].get_xydata().tolist() == [[step, row.loss]]


def test_the_animation_has_a_frame_a_step_and_stays_on_the_last(done):
    with Image.open(done[0] / "figures" / "training_motion.gif") as gif:
        seconds = []
        for number in range(gif.n_frames):
            gif.seek(number)
            seconds.append(gif.info["duration"] / 1000)
        assert gif.info["loop"] == 0  # without end

    # Steps 0 and 1 have the same maps, but not the same place on the curve.
    assert seconds == [0.5, 0.5, 0.5, 0.5, 2.5]


def test_the_page_names_the_steps_where_heads_change_most(done):
    page = (done[0] / "report.html").read_text()

    assert re.search(r"From step 1 to 3: layer 1, head 2\..*From step 7 to 31: layer 1, head 0\.", page)
    assert "Measured on the 23 test sequences" in page
    assert page.count("data:image/gif;base64,") == 1
    assert "<details><summary>Play</summary><img" in page  # nothing moves unasked
    titles = [title for title, _ in training_report.FIGURES.values()]
    assert all(page.count(f"<h3>{title}</h3>") == 1 for title in titles)  # and none is shown again among all figures


def test_a_folder_without_the_tables_has_no_section(done, tmp_path):
    (tmp_path / "run.json").write_text((done[0] / "run.json").read_text())

    assert when_they_learnt(Folder.open(tmp_path)) is None
    assert "When each head learnt" not in write_report(tmp_path).read_text()


def test_a_head_is_needed_since_the_step_from_which_it_always_cost_accuracy():
    drops = {(0, 0): [0.0, 0.2, 0.0, 0.05, 0.1], (0, 1): [0.0, 0.3, 0.0, 0.0, 0.0], (1, 0): [0.0] * 5}
    text = needed({head: dict(zip(STEPS, values, strict=True)) for head, values in drops.items()}).text

    assert "layer 0, head 0 since step 7 (10.0\N{NO-BREAK SPACE}% at the end)." in text
    assert text.endswith("On the way and not at the end, most at step 1: layer 0, head 1.")
    nobody = needed({(0, 0): dict.fromkeys(STEPS, 0.0)}).text
    assert nobody == "Without it at least 1\N{NO-BREAK SPACE}% of the answers are lost: at the end, no head by itself."


def test_values_are_read_in_the_order_of_the_steps():
    rows = [(7, 0, 1, "entropy", 3.0), (0, 0, 1, "entropy", 1.0), (7, 0, 1, "offset", 9.0)]
    frame = pd.DataFrame(rows, columns=["step", "layer", "head", "statistic", "mean"])

    assert list(along(frame, "entropy")[0, 1].items()) == [(0, 1.0), (7, 3.0)]
