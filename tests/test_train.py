"""Training: it learns, the same way each time, tells what it did, and leaves nothing half done."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from attnkit import cli, load_checkpoint, train
from attnkit.checkpoint import read_checkpoint, snapshot_file
from attnkit.data import Batch, DataConfig, pad, task_sets
from attnkit.model import ModelConfig
from attnkit.tasks import MAJORITY
from attnkit.train import TrainConfig, evaluate, main, measure, new_model

SIZES = ModelConfig(vocab_size=2, d_model=12, n_heads=3, d_ff=7, n_layers=2, max_len=5)
SHORT = ["--length", "5", "--n-train", "40", "--n-test", "20", "--d-model", "8", "--d-ff", "8", "--n-heads", "2"]
EPOCH = r"epoch +\d+  loss \d+\.\d{4}  train acc \d\.\d{3}  test acc \d\.\d{3}"


def sets(n_train=40, length=5):
    return task_sets(MAJORITY, DataConfig(length=length, n_train=n_train, n_test=20))


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_one_step_changes_every_parameter():
    """A parameter that no gradient reaches is a part of the model that is not wired in.

    The keys' bias may stay: it moves all scores of a query alike, which a softmax does not see.
    """
    model = new_model(SIZES, 0)
    before = weights_of(model)

    train.train(model, *sets(n_train=8), TrainConfig(epochs=1, batch_size=8))

    unchanged = {name for name, tensor in weights_of(model).items() if torch.equal(tensor, before[name])}
    assert unchanged <= {"layers.0.attn.W_k.bias", "layers.1.attn.W_k.bias"}


def test_the_articles_settings_learn_the_rule():
    """A third of the article's twelve epochs is enough to see that."""
    data, config = DataConfig(), TrainConfig(epochs=4)
    sizes = ModelConfig(vocab_size=2, max_len=16, **train.ARTICLE_SIZES)
    model = new_model(sizes, config.seed)

    history = train.train(model, *task_sets(MAJORITY, data), config)

    assert [epoch.epoch for epoch in history] == [1, 2, 3, 4]
    assert history[-1].train_loss < history[0].train_loss
    assert history[-1].test_accuracy == 1
    assert not model.training


def test_the_shipped_checkpoint_answers_every_sequence_as_its_card_says():
    info = read_checkpoint(cli.CHECKPOINT)

    results = measure(load_checkpoint(cli.CHECKPOINT), MAJORITY, DataConfig())

    assert results["exhaustive_accuracy"] == 1
    assert results == pytest.approx({name: info.results[name] for name in results}, rel=1e-3)
    assert info.training == {**asdict(TrainConfig()), "device": "cpu"}
    assert MAJORITY.rule in (cli.CHECKPOINT / "README.md").read_text(encoding="utf-8")


def test_the_same_seed_gives_the_same_weights_to_the_bit_and_another_does_not():
    results = []
    for seed in (3, 3, 4):
        model = new_model(SIZES, seed)
        history = train.train(model, *sets(), TrainConfig(epochs=2, seed=seed, batch_size=7))
        results.append((weights_of(model), history))

    (a, history_a), (b, history_b), (c, _) = results
    assert history_a == history_b
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["embed.weight"], c["embed.weight"])


def test_the_seed_shuffles_too():
    """The same first weights in another order of the sequences become other weights."""
    models = [new_model(SIZES, 0) for _ in range(2)]
    for seed, model in enumerate(models):
        train.train(model, *sets(), TrainConfig(epochs=1, seed=seed, batch_size=7))

    assert not torch.equal(models[0].head.weight, models[1].head.weight)


def test_training_leaves_the_callers_random_numbers_and_threads_alone():
    random, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(3)
    during = []
    try:
        train.train(
            new_model(SIZES, 1), *sets(), TrainConfig(epochs=1), lambda _: during.append(torch.get_num_threads())
        )
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)

    assert during == [1]
    assert torch.equal(torch.get_rng_state(), random)


def test_padded_sequences_train_as_well():
    model = new_model(SIZES, 0)
    batch = pad([torch.tensor(s) for s in ([1], [0, 1], [1, 1, 1], [0, 0, 0, 1])])
    batch = Batch(batch.tokens, batch.mask, torch.tensor([1, 0, 1, 0]))

    history = train.train(model, batch, batch, TrainConfig(epochs=60, lr=1e-2))

    assert history[-1].test_accuracy == 1
    alone = torch.cat([model(row[mask][None])[0] for row, mask in zip(batch.tokens, batch.mask, strict=True)])
    torch.testing.assert_close(alone, model(batch.tokens, batch.mask)[0], atol=1e-5, rtol=0)


def test_a_model_that_cannot_decide_has_a_loss_of_ln_2_and_the_accuracy_of_its_guess():
    """All logits 0: each class has probability 1/2, argmax takes class 0, and a ragged batch weighs by its size."""
    model = new_model(SIZES, 0).train()
    model.head.weight.data.zero_()
    model.head.bias.data.zero_()
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1])

    loss, accuracy = evaluate(model, Batch(torch.zeros(7, 5, dtype=torch.int64), labels=labels).split(3))

    assert loss == pytest.approx(torch.tensor(2.0).log().item())
    assert accuracy == 3 / 7
    assert model.training


def test_evaluation_is_the_same_for_any_batch_size():
    model, (data, _) = new_model(SIZES, 0), sets()

    scores = [evaluate(model, data.split(size)) for size in (1, 7, 100)]

    for loss, accuracy in scores:
        assert loss == pytest.approx(scores[0][0], rel=1e-5)
        assert accuracy == scores[0][1]


def test_a_sequence_that_the_model_does_not_take_is_found_before_the_first_step():
    model, (good, test) = new_model(SIZES, 0), sets()
    before = weights_of(model)
    x, y = good.tokens, good.labels

    for bad, message in (
        (Batch(x.where(x == 0, 7), labels=y), "^x: token id 7 is not in the vocabulary"),
        (Batch(x.repeat(1, 2), labels=y), "^x: 10 tokens; this checkpoint takes 1 to 5$"),
        (Batch(x, torch.zeros_like(x, dtype=torch.bool), y), "^mask: a sequence without any real token"),
        (Batch(x, labels=y + 1), "_set: labels run from 1 to 2, allowed is 0 to 1$"),
        (Batch(x), "^labels: got None"),
        (good[:0], "_set: there are no sequences$"),
    ):
        for pair in ((bad, test), (good, bad)):
            with pytest.raises(ValueError, match=message):
                train.train(model, *pair)

    assert all(torch.equal(tensor, before[name]) for name, tensor in weights_of(model).items())


def test_nothing_to_evaluate_is_said():
    with pytest.raises(ValueError, match=r"^batches: there are no sequences to evaluate$"):
        evaluate(new_model(SIZES, 0), [])


# The command.


def run(*args):
    """The command in this process; returns its exit code."""
    return cli.run(lambda: main([*SHORT, *map(str, args)]))


def test_the_command_prints_its_epochs_and_results_and_keeps_them(tmp_path, capsys):
    out = tmp_path / "a b"

    assert run("--out", out, "--epochs", 3, "--seed", 5, "--device", "cpu") == 0

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert all(re.fullmatch(EPOCH, line) for line in lines[:3])
    assert lines[-1] == f"saved {out}"
    assert printed.err == ""
    info = read_checkpoint(out)
    assert info.training == {**asdict(TrainConfig(epochs=3, seed=5)), "device": "cpu"}
    assert info.data == DataConfig(length=5, n_train=40, n_test=20)
    assert info.model == ModelConfig(vocab_size=2, d_model=8, n_heads=2, d_ff=8, n_layers=2, max_len=5)
    results = measure(load_checkpoint(out), MAJORITY, info.data)
    assert info.results == {**results, "share_seen": info.results["share_seen"]}
    assert info.results["exhaustive_sequences"] == 32
    right = round(32 * info.results["exhaustive_accuracy"])
    assert f"{right} of the 32 sequences there are answered correctly ({right / 32:.3%})" in lines
    with open(out / "history.csv", newline="") as file:
        history = list(csv.DictReader(file))
    assert [f"epoch {int(h['epoch']):2d}  loss {float(h['train_loss']):.4f}" for h in history] == [
        line[:21] for line in lines[:3]
    ]


def test_snapshots_change_no_bit_of_what_is_learnt(tmp_path):
    """And they are the weights on the way: of a training that ends there, where an epoch does."""
    common = ("--epochs", 3, "--batch-size", 7, "--device", "cpu")  # 40 sequences: 6 steps an epoch, the last of 5
    assert run("--out", tmp_path / "with", "--snapshots", 19, *common) == 0
    assert run("--out", tmp_path / "without", *common) == 0
    assert run("--out", tmp_path / "shorter", *common, "--epochs", 2) == 0

    bytes_of = {p: (tmp_path / p).read_bytes() for p in ("with/model.safetensors", "without/model.safetensors")}
    assert len(set(bytes_of.values())) == 1
    assert (tmp_path / "with/history.csv").read_bytes() == (tmp_path / "without/history.csv").read_bytes()
    assert read_checkpoint(tmp_path / "with").snapshots == list(range(19))
    assert read_checkpoint(tmp_path / "without").snapshots == []
    kept = [(tmp_path / "with" / snapshot_file(step)).read_bytes() for step in (18, 12, 11)]
    assert kept[0] == bytes_of["with/model.safetensors"]
    assert kept[1] == (tmp_path / "shorter/model.safetensors").read_bytes() != kept[2]
    assert "after 0, 1, 2, 3" in (tmp_path / "with/README.md").read_text()
    assert "snapshots" not in (tmp_path / "without/README.md").read_text()


def test_every_step_is_told_once_and_in_order():
    steps = []
    model = new_model(SIZES, 0)
    fresh = weights_of(model)

    def on_step(step):
        same = all(torch.equal(tensor, fresh[name]) for name, tensor in weights_of(model).items())
        assert same == (step == 0)
        steps.append(step)

    train.train(model, *sets(n_train=9), TrainConfig(epochs=2, batch_size=4), on_step=on_step)

    assert steps == [0, 1, 2, 3, 4, 5, 6]


def test_the_share_of_test_sequences_seen_in_training_is_measured(tmp_path, capsys):
    """2,000 of only 32 sequences: all are seen. The same seed for both sets: all are seen."""
    assert run("--out", tmp_path, "--epochs", 1, "--n-train", 2000) == 0

    assert "100.0% of the test sequences also stand in the training set" in capsys.readouterr().out
    assert read_checkpoint(tmp_path).results["share_seen"] == 1


def test_the_card_tells_the_rule_the_settings_and_the_results(tmp_path, capsys):
    assert run("--out", tmp_path, "--epochs", 1, "--lr", 0.25) == 0

    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for expected in (
        MAJORITY.rule,
        "lr 0.25",
        "d_model 8",
        "40 training and 20 test",
        *capsys.readouterr().out.splitlines()[1:4],
    ):
        assert expected in card


def test_too_many_sequences_to_try_are_not_tried_and_that_is_said(tmp_path, capsys):
    assert run("--out", tmp_path, "--epochs", 1, "--length", 21) == 0

    assert "not tried on all sequences there are: of this length they are too many" in capsys.readouterr().out
    assert "exhaustive_accuracy" not in read_checkpoint(tmp_path).results


def test_a_loss_that_is_not_finite_stops_with_one_line_and_overwrites_nothing(tmp_path, capsys):
    assert run("--out", tmp_path, "--epochs", 1) == 0
    before = (tmp_path / "model.safetensors").read_bytes()
    capsys.readouterr()

    assert run("--out", tmp_path, "--lr", "1e30", "--device", "cpu") == 1

    assert capsys.readouterr().err == "error: epoch 1: the loss is no longer finite; try a lr below 1e+30\n"
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_where_nothing_may_be_written_no_epoch_is_run(tmp_path, capsys):
    (tmp_path / "README.md").write_text("mine")

    assert run("--out", tmp_path, "--epochs", 1) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"error: {tmp_path}: has a README.md that is no checkpoint's and would be lost\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--epochs", "-1"], "argument --epochs: got '-1', allowed is a whole number of at least 1"),
        (["--batch-size", "0"], "argument --batch-size: got '0', allowed is a whole number of at least 1"),
        (["--n-heads", "0"], "argument --n-heads: got '0', allowed is a whole number of at least 1"),
        (["--n-heads", "3"], "n_heads: d_model 8 is not divisible by 3 heads"),
        (["--lr", "0"], "argument --lr: got '0', allowed is a finite number above 0"),
        (["--lr", "nan"], "argument --lr: got 'nan', allowed is a finite number above 0"),
        (["--snapshots", "1"], "argument --snapshots: got '1', allowed is a whole number of at least 2"),
        (["--seed", "1.5"], "argument --seed: got '1.5', allowed is a whole number from 0 to 9223372036854775807"),
        (["--epoch", "3"], "unrecognized arguments: --epoch 3"),
        (["--task", "parity"], "argument --task: invalid choice: 'parity'"),
        (["--device", "gpu0"], "device: got 'gpu0': no device of that name; usable are auto, "),
        (["--device", "cuda:97"], "device: "),
    ],
)
def test_wrong_arguments_are_refused_before_anything_happens(tmp_path, capsys, args, message):
    try:
        code = run("--out", tmp_path / "new", *args)
    except SystemExit as stop:  # how argparse ends
        code = stop.code

    printed = capsys.readouterr()
    assert code == 2
    assert message in printed.err
    assert printed.out == ""
    assert not (tmp_path / "new").exists()


@pytest.fixture
def started(tmp_path):
    """Start the command in a process of its own, in another folder, and wait for some epochs."""
    processes = []

    def start(out, epochs_seen, *args):
        command = [sys.executable, "-m", "attnkit.train", *SHORT, "--out", str(out), "--epochs", "100000", *args]
        env = {**os.environ, "PYTHONWARNINGS": "error"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env
        )
        processes.append(process)
        lines = [process.stdout.readline() for _ in range(epochs_seen)]
        assert all(re.fullmatch(EPOCH, line.rstrip()) for line in lines)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_keeps_the_finished_epochs_beside_the_old_checkpoint(tmp_path, started, number, code):
    out = tmp_path / "out"
    assert run("--out", out, "--epochs", 1) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    process = started(out, 2, "--device", "auto", "--snapshots", "400")

    process.send_signal(number)
    printed, errors = process.communicate(timeout=120)

    kept = tmp_path / "out-interrupted"
    assert process.returncode == code
    choice, line = errors.splitlines()
    assert choice.startswith("using ")
    epochs = int(re.fullmatch(rf"interrupted; the model of epoch (\d+) is in {re.escape(str(kept))}", line)[1])
    assert epochs - (2 + len(printed.splitlines())) in {0, 1}  # the last epoch may have ended without its line
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    with open(kept / "history.csv", newline="") as file:
        history = list(csv.DictReader(file))
    assert len(history) == epochs
    test_loss, _ = evaluate(load_checkpoint(kept), [sets()[1]])
    assert test_loss == pytest.approx(float(history[-1]["test_loss"]))  # not of some later step
    assert f"Training was interrupted: this is the model of epoch {epochs}." in (kept / "README.md").read_text()
    record = json.loads((kept / "config.json").read_text())
    assert record["results"] == {}
    assert max(record["snapshots"]) <= epochs  # an epoch of 40 sequences is one step of at most 64
    assert sorted(p.name for p in (kept / "snapshots").iterdir()) == [
        Path(snapshot_file(step)).name for step in record["snapshots"]
    ]


def test_a_second_interrupt_stops_at_once(tmp_path, started):
    process = started(tmp_path / "out", 1)

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def test_a_log_file_has_no_carriage_returns_and_a_line_per_epoch(tmp_path):
    command = [sys.executable, "-m", "attnkit.train", *SHORT, "--out", str(tmp_path / "x"), "--epochs", "3"]
    with open(tmp_path / "log", "wb") as log:
        subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=True, cwd="/")

    logged = (tmp_path / "log").read_bytes()
    assert b"\r" not in logged
    assert logged.count(b"\n") == 3 + 3 + 2  # epochs, results, device and folder
