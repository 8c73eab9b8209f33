"""A checkpoint comes back as it was, is whole or not there, runs no code, and says what is wrong with it."""

import json
import os
import pickle
import re
import stat
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from attnkit import ModelConfig, TinyTransformer, load_checkpoint
from attnkit.checkpoint import Checkpoint, TaskInfo, known_task, read_checkpoint, save_checkpoint
from attnkit.data import DataConfig
from tests.conftest import DATA

X = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]])
FILES = {"config.json", "model.safetensors", "history.csv", "README.md"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def edit_config(folder, change):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def test_a_model_comes_back_with_its_logits_in_eval_mode(tmp_path):
    config = ModelConfig(vocab_size=3, d_model=15, n_heads=5, d_ff=7, n_layers=3, max_len=11, n_classes=4)
    model = TinyTransformer.from_config(config)
    task = TaskInfo("letters", ["a", "b", "<c>"], ["w", "x", "y", "z"], "Ünïcode, “quoted”.")
    info = Checkpoint(config, task, DataConfig(length=5), {"lr": 0.1}, {"test_accuracy": 0.5}, {"torch": "2"})
    history = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]

    folder = save_checkpoint(tmp_path / "new" / "a b", model, info, history, "# Ünïcode\n")

    loaded = load_checkpoint(folder)
    assert torch.equal(loaded(X)[0], model.eval()(X)[0])
    assert not loaded.training
    assert read_checkpoint(folder) == info
    assert set(contents(folder)) == FILES
    assert (folder / "history.csv").read_text() == "epoch,loss\n1,0.5\n2,0.25\n"
    assert (folder / "README.md").read_text(encoding="utf-8") == "# Ünïcode\n"


def test_every_file_may_be_read_by_others(checkpoint):
    umask = os.umask(0)
    os.umask(umask)

    assert {stat.S_IMODE(path.stat().st_mode) for path in checkpoint.iterdir()} == {0o666 & ~umask}


def test_loading_leaves_the_callers_random_numbers_alone(checkpoint):
    before = torch.get_rng_state()

    load_checkpoint(checkpoint)

    assert torch.equal(torch.get_rng_state(), before)


def test_weights_that_share_memory_are_saved(tmp_path):
    """Two tokens and two classes: embedding and head have one shape and may be one tensor."""
    model = TinyTransformer(2, 8, 2, 4, 1, 5)
    model.head.weight = model.embed.weight

    folder = save_checkpoint(tmp_path, model, Checkpoint(model.config), [], "")

    assert torch.equal(load_checkpoint(folder)(X)[0], model.eval()(X)[0])


def test_another_longest_length_keeps_the_logits(checkpoint):
    """The table of positions is rebuilt, so that it may grow."""
    before = load_checkpoint(checkpoint)(X)[0]

    edit_config(checkpoint, lambda config: config["model"].update(max_len=64))

    longer = load_checkpoint(checkpoint)
    assert torch.equal(longer(X)[0], before)
    assert longer(torch.zeros(1, 64, dtype=torch.int64))[0].isfinite().all()


@pytest.mark.parametrize("fail_at", ["config.json", "README.md", "history.csv", "model.safetensors"])
def test_a_save_that_fails_half_way_leaves_the_old_checkpoint_whole(checkpoint, monkeypatch, fail_at):
    before = contents(checkpoint)
    model = TinyTransformer(2, 8, 2, 4, 1, 5)
    replace = os.replace

    def fails(source, target):
        if Path(source).parent.name == "new" and Path(target).name == fail_at:
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(checkpoint, model, Checkpoint(model.config), [], "new")

    assert contents(checkpoint) == before


def test_a_first_save_that_fails_leaves_no_checkpoint(tmp_path, monkeypatch):
    model = TinyTransformer(2, 8, 2, 4, 1, 5)
    replace = os.replace

    def interrupted(source, target):
        if Path(target).name == "config.json":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "new", model, Checkpoint(model.config), [], "")

    assert contents(tmp_path / "new") == {}


def test_files_of_other_names_stay(checkpoint):
    (checkpoint / "notes.txt").write_text("mine")
    model = TinyTransformer(2, 8, 2, 4, 1, 5)

    save_checkpoint(checkpoint, model, Checkpoint(model.config), [], "")

    assert (checkpoint / "notes.txt").read_text() == "mine"
    assert read_checkpoint(checkpoint).model == model.config


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors"])
def test_a_folder_with_somebody_elses_files_is_not_written_to(tmp_path, name):
    (tmp_path / name).write_text('{"model_type": "gpt2"}')
    model = TinyTransformer(2, 8, 2, 4, 1, 5)

    with pytest.raises(ValueError, match=rf"has a {name} that is no checkpoint's and would be lost$"):
        save_checkpoint(tmp_path, model, Checkpoint(model.config), [], "")

    assert contents(tmp_path) == {name: b'{"model_type": "gpt2"}'}


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_file_where_the_folder_should_be_is_named(tmp_path, inside):
    (tmp_path / "file").touch()
    model = TinyTransformer(2, 8, 2, 4, 1, 5)

    with pytest.raises(ValueError, match=r"file is not a folder that can be written to$"):
        save_checkpoint(tmp_path / "file" / inside, model, Checkpoint(model.config), [], "")


# The article's own file: a bare state dict.


def test_a_bare_state_dict_tells_its_sizes_by_its_shapes():
    info = read_checkpoint(DATA / "article_state_dict.pt")

    assert info.model == ModelConfig(vocab_size=2, d_model=32, n_heads=4, d_ff=64, n_layers=2, max_len=16)
    assert (info.task, info.data) == (TaskInfo(), DataConfig())


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_bare_state_dict_of_other_sizes_opens(tmp_path, suffix):
    model = TinyTransformer(vocab_size=5, d_model=12, n_heads=4, d_ff=7, n_layers=3, max_len=9, n_classes=3).eval()
    weights = {**model.state_dict(), "pos.pe": model.pos.pe[None].clone()}
    file = tmp_path / f"weights{suffix}"
    torch.save(weights, file) if suffix == ".pt" else save_file(weights, file)

    assert torch.equal(load_checkpoint(file)(X)[0], model(X)[0])
    info = read_checkpoint(file)
    assert info.model == model.config
    assert info.task.vocab == ["0", "1", "2", "3", "4"]
    assert info.data.length == 9
    with pytest.raises(ValueError, match=r"^task: 'unknown' is not one of majority"):
        known_task(info)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.ones(2)}, "is not a state dict of the article's model ('embed.weight')"),
        ([torch.ones(2)], "holds no state dict; allowed is a dict of names and tensors"),
        ({"a": 1.0}, "holds no state dict; allowed is a dict of names and tensors"),
        ({"embed.weight": torch.ones(3)}, "is not a state dict of the article's model"),
    ],
)
def test_a_file_of_other_things_is_no_state_dict(tmp_path, content, message):
    torch.save(content, tmp_path / "x.pt")

    with pytest.raises(ValueError, match=re.escape(f"x.pt: {message}")):
        load_checkpoint(tmp_path / "x.pt")


# What may be wrong with a file.


class Malicious:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_code_in_a_pickle_does_not_run(tmp_path):
    marker, file = tmp_path / "marker", tmp_path / "model.pt"
    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        write({"embed.weight": Malicious(marker)}, file)

        with pytest.raises(ValueError, match=r"model\.pt: refused, it is damaged or holds more than weights"):
            load_checkpoint(file)

        assert not marker.exists()
    pickle.loads(file.read_bytes())
    assert marker.exists()  # so it would have run


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt", "model.bin"])
@pytest.mark.parametrize("garbage", [b"", b"\0" * 100, b"not weights at all", b"PK\x03\x04 cut", b"\x80\x02}q"])
def test_a_damaged_file_is_one_clear_line(tmp_path, name, garbage):
    (tmp_path / name).write_bytes(garbage)

    with pytest.raises(ValueError, match=rf"{re.escape(name)}: (is|refused, it is) damaged or .+") as refused:
        load_checkpoint(tmp_path / name)

    assert "\n" not in str(refused.value)


def test_a_file_that_was_cut_off_is_refused(checkpoint):
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])

    with pytest.raises(ValueError, match=r"model\.safetensors: is damaged or no file of weights"):
        load_checkpoint(checkpoint)


def test_where_nothing_is_the_full_path_and_the_remedy_are_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(FileNotFoundError, match=rf"^no checkpoint at {tmp_path}/nowhere: .*`make train` makes one$"):
        load_checkpoint("nowhere")


def test_missing_weights_are_said_with_their_full_path(checkpoint):
    (checkpoint / "model.safetensors").unlink()

    with pytest.raises(FileNotFoundError, match=rf"^no weights at {checkpoint}/model\.safetensors; `make train`"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(d_modle=4), r"model: unknown key 'd_modle'; did you mean 'd_model'\?"),
        (lambda c: c["model"].update(dropuot=0.5), "model: unknown key 'dropuot'; known are vocab_size, d_model, "),
        (lambda c: c.update(modell={}), r"unknown key 'modell'; did you mean 'model'\?"),
        (lambda c: c.pop("model"), "key 'model' is missing"),
        (lambda c: c["model"].pop("n_heads"), "model: key 'n_heads' is missing"),
        (lambda c: c["model"].update(n_heads=4), "model: n_heads: d_model 15 is not divisible by 4 heads"),
        (lambda c: c["model"].update(d_model="15"), "model: d_model: got '15', allowed is int"),
        (lambda c: c["model"].update(d_model=True), "model: d_model: got True, allowed is int"),
        (lambda c: c.update(model=[]), "model: got list, allowed is an object"),
        (lambda c: c["task"].update(vocab="01"), "task: vocab: got '01', allowed is list"),
        (lambda c: c["task"].update(vocab=["0", 1]), "task: vocab: got 1, allowed is str"),
        (lambda c: c["task"].update(vocab=["0", "0"]), r"vocab are \['0', '0'\], the model has 2 of them"),
        (lambda c: c["task"].update(classes=["a"]), r"classes are \['a'\], the model has 2 of them"),
        (lambda c: c["data"].update(length=0), "data: length: got 0, allowed is a whole number of at least 1"),
        (lambda c: c["model"].update(d_ff=8), r"tensor layers\.0\.ffn\.0\.weight has shape \(7, 15\), the config"),
        (lambda c: c["model"].update(n_layers=3), r"tensor layers\.2\.attn\.W_q\.weight is missing"),
        (lambda c: c["model"].update(n_layers=1), r"tensor layers\.1\.attn\.W_k\.bias is unknown to the model"),
    ],
)
def test_a_configuration_that_does_not_fit_says_where_and_what(checkpoint, change, message):
    edit_config(checkpoint, change)

    with pytest.raises(ValueError, match=message) as refused:
        load_checkpoint(checkpoint)

    assert str(checkpoint) in str(refused.value)


def test_keys_that_an_older_file_lacks_take_their_defaults(checkpoint):
    edit_config(checkpoint, lambda config: [config.pop(key) for key in ("task", "data", "training", "results")])
    edit_config(checkpoint, lambda config: config["model"].pop("n_classes"))

    info = read_checkpoint(checkpoint)

    assert load_checkpoint(checkpoint).config.n_classes == 2
    assert (info.task, info.data, info.training) == (TaskInfo(), DataConfig(), {})


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_configuration_that_is_no_json_object_is_refused(checkpoint, text):
    (checkpoint / "config.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(ValueError, match=r"config\.json: (is not JSON|got list, allowed is an object)"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.update({"head.bias": torch.tensor([0, torch.nan])}), "head.bias has values that are not finite"),
        (lambda w: w.update({"head.bias": torch.tensor([0, 1])}), r"head.bias is torch.int64, allowed is a floating"),
        (lambda w: w.update(extra=torch.ones(1)), "tensor extra is unknown to the model"),
        (lambda w: w.pop("head.bias"), "tensor head.bias is missing"),
    ],
)
def test_weights_that_do_not_fit_are_named(checkpoint, change, message):
    file = checkpoint / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file)

    with pytest.raises(ValueError, match=message):
        load_checkpoint(checkpoint)
