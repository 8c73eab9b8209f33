"""Snapshots: steps at even ratios, found again with their weights, never those of another training."""

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from attnkit import TinyTransformer, cli, load_checkpoint
from attnkit.checkpoint import Checkpoint, read_checkpoint, save_checkpoint
from attnkit.snapshots import load_snapshot, log_steps, snapshots

SIZES = (2, 15, 3, 7, 2, 11)  # vocab, d_model, heads, d_ff, layers, longest


def state(seed):
    torch.manual_seed(seed)
    return TinyTransformer(*SIZES).state_dict()


def save(folder, steps, seed=0):
    """A checkpoint whose snapshot of step s has the weights of seed `seed` + s."""
    model = TinyTransformer(*SIZES)
    kept = {step: state(seed + step) for step in steps}
    return save_checkpoint(folder, model, Checkpoint(model.config, snapshots=sorted(kept)), [], "# a card\n", kept)


# ---------------------------------------------------------------- which steps


def test_steps_rise_by_one_factor_from_a_hundredth_on():
    assert log_steps(400, 3) == [0, 4, 400]
    assert log_steps(400, 4) == [0, 4, 40, 400]
    assert log_steps(6400, 8) == [0, 64, 138, 297, 640, 1379, 2971, 6400]  # 64 · 10^(k/3), rounded each time


@pytest.mark.parametrize(("last", "n", "steps"), [(1, 2, [0, 1]), (3, 9, [0, 1, 2, 3]), (3, 4, [0, 1, 2, 3])])
def test_a_short_training_has_each_of_its_steps(last, n, steps):
    assert log_steps(last, n) == steps


@given(last=st.integers(1, 10**6), n=st.integers(2, 40))
def test_steps_rise_from_0_to_the_last_and_are_as_many_as_asked_for(last, n):
    steps = log_steps(last, n)

    assert steps[0] == 0
    assert steps[-1] == last
    assert steps == sorted(set(steps))
    assert len(steps) == min(n, last + 1)


@pytest.mark.parametrize(("last", "n"), [(5, 1), (0, 2)])
def test_too_few_are_refused(last, n):
    with pytest.raises(ValueError, match=f"got {n} snapshots of {last} steps, allowed are at least 2 of at least 1"):
        log_steps(last, n)


# ---------------------------------------------------------------- the folder


def test_snapshots_come_back_in_order_with_their_weights(tmp_path):
    folder = save(tmp_path / "new", [100, 0, 7])

    found = snapshots(folder)
    assert [step for step, _ in found] == [0, 7, 100]
    assert [path.name for _, path in found] == [f"step_000{step}.safetensors" for step in ("000", "007", "100")]
    model = load_snapshot(folder, 7)
    assert not model.training
    assert all(torch.equal(tensor, state(7)[name]) for name, tensor in model.state_dict().items())


def test_only_the_steps_that_the_configuration_names_count(tmp_path):
    folder = save(tmp_path, [0, 5])
    (folder / "snapshots" / "step_000003.safetensors").write_bytes(b"of nobody knows what")

    assert [step for step, _ in snapshots(folder)] == [0, 5]


def test_another_training_leaves_no_snapshots_of_the_one_before(tmp_path):
    save(tmp_path, [0, 5, 9], seed=1)
    (tmp_path / "snapshots" / "notes.txt").write_text("mine")

    save(tmp_path, [0, 9], seed=2)
    assert {p.name for p in (tmp_path / "snapshots").iterdir()} == {
        "step_000000.safetensors",
        "step_000009.safetensors",
        "notes.txt",
    }
    assert torch.equal(load_snapshot(tmp_path, 9).head.weight, state(11)["head.weight"])

    save(tmp_path, [])
    assert snapshots(tmp_path) == []
    assert [p.name for p in (tmp_path / "snapshots").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("fail_at", ["step_000005.safetensors", "model.safetensors", "config.json"])
def test_a_save_that_fails_half_way_leaves_the_old_snapshots(tmp_path, monkeypatch, fail_at):
    folder = save(tmp_path, [0, 5], seed=1)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    replace = os.replace

    def fails(source, target):
        if "new" in Path(source).parts and Path(target).name == fail_at:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path, [0, 3, 5], seed=2)

    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_file_without_a_folder_and_a_training_without_snapshots_have_none(checkpoint):
    assert snapshots(checkpoint) == []
    assert snapshots(Path(__file__).parent / "data" / "weights.safetensors") == []


def test_what_is_missing_or_wrong_is_one_clear_line(tmp_path, checkpoint):
    folder = save(tmp_path / "a", [0, 5])
    with pytest.raises(ValueError, match=r"^step: got 4; .* has snapshots after 0, 5 steps$"):
        load_snapshot(folder, 4)
    with pytest.raises(ValueError, match=r"has no snapshots; `python -m attnkit.train --snapshots 16` keeps some$"):
        load_snapshot(checkpoint, 0)
    with pytest.raises(FileNotFoundError, match=r"config.json is missing"):
        snapshots(tmp_path / "nowhere")

    file = folder / "snapshots" / "step_000005.safetensors"
    weights = load_file(file)
    save_file({**weights, "head.bias": torch.zeros(3)}, file)
    with pytest.raises(ValueError, match=r"step_000005.safetensors: tensor head.bias has shape \(3,\)"):
        load_snapshot(folder, 5)
    file.write_bytes(b"no weights")
    with pytest.raises(ValueError, match=r"step_000005.safetensors: is damaged or no file of weights"):
        load_snapshot(folder, 5)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"is missing; config.json names a snapshot after 5 steps"):
        snapshots(folder)


def test_steps_that_are_not_those_of_the_record_are_refused(tmp_path):
    model = TinyTransformer(*SIZES)
    info = Checkpoint(model.config, snapshots=[0, 5])
    with pytest.raises(ValueError, match=r"^snapshots: got those of steps \[0\], info names \[0, 5\]$"):
        save_checkpoint(tmp_path / "new", model, info, [], "", {0: state(0)})
    assert not (tmp_path / "new").exists()


def test_somebody_elses_snapshots_are_not_overwritten(tmp_path):
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "snapshots" / "step_000000.safetensors").write_bytes(b"mine")

    with pytest.raises(ValueError, match=r"has a snapshots/step_000000.safetensors that is no checkpoint's"):
        save(tmp_path, [0])
    assert (tmp_path / "snapshots" / "step_000000.safetensors").read_bytes() == b"mine"


def test_a_record_whose_steps_are_no_numbers_is_refused(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"snapshots": [0, "../../elsewhere"]}))

    with pytest.raises(ValueError, match=r"snapshots: got '../../elsewhere', allowed is int$"):
        snapshots(checkpoint)


# ---------------------------------------------------------------- what is shipped


def test_the_shipped_snapshots_lead_from_a_fresh_model_to_the_shipped_one():
    steps = read_checkpoint(cli.CHECKPOINT).snapshots
    shipped, last = load_checkpoint(cli.CHECKPOINT), load_snapshot(cli.CHECKPOINT, steps[-1])

    assert steps == log_steps(384, 16)  # 12 epochs of 32 steps
    assert all(torch.equal(tensor, last.state_dict()[name]) for name, tensor in shipped.state_dict().items())
    from attnkit.train import new_model

    fresh = new_model(read_checkpoint(cli.CHECKPOINT).model, seed=0).state_dict()
    first = load_snapshot(cli.CHECKPOINT, 0).state_dict()
    assert all(torch.equal(tensor, first[name]) for name, tensor in fresh.items())
