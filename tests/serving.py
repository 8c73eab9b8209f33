"""The demo as its visitors meet it: a folder with the app and its own checkpoints, served as a process."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import torch

from attnkit.checkpoint import Checkpoint, TaskInfo, save_checkpoint
from attnkit.data import DataConfig, task_dataset
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.reference import Reference, make_reference
from attnkit.tasks import get_task

ROOT = Path(__file__).parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMIUM_ARGS = [
    "--no-sandbox",  # as root in a container
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-smooth-scrolling",  # else what is pointed at may be on its way to another place
]
ON_THEIR_WAY = shutil.ignore_patterns("*.pyc*", "*.tmp.*")  # files that others may be about to rename
PATIENCE = 180  # seconds for a server to start, to answer or to end, however busy the machine


ARTICLE = ModelConfig(vocab_size=2, d_model=32, n_heads=4, d_ff=64, n_layers=2, max_len=16)
ODD = ModelConfig(vocab_size=3, d_model=15, n_heads=3, d_ff=7, n_layers=2, max_len=7)
ODD_TASK = TaskInfo(name="colours", vocab=["a", "<", "&"], classes=["<b>red</b>", "${1+1}"], rule="<i>None</i>.")


COLOURS, TORN = "<i>colours", "<b>torn"  # names, too, may be full of markup


def fill(checkpoints: Path) -> Path:
    """Two checkpoints that open, with random weights, and one that does not."""
    write(checkpoints / "majority", ARTICLE, TaskInfo(), DataConfig(), seed=0)
    write(checkpoints / COLOURS, ODD, ODD_TASK, DataConfig(length=5), seed=1)
    (checkpoints / TORN).mkdir()
    (checkpoints / TORN / "config.json").write_text("{")
    return checkpoints


def write(folder: Path, config: ModelConfig, task: TaskInfo, data: DataConfig, *, seed: int) -> None:
    torch.manual_seed(seed)
    save_checkpoint(folder, TinyTransformer.from_config(config), Checkpoint(config, task, data), [], "A test's own.")


def write_spaced(folder: Path) -> None:
    """A checkpoint whose tokens are longer than a character and, as "red" is of "redder", parts of each other."""
    write(folder, ODD, replace(ODD_TASK, vocab=["red", "redder", "blue"]), DataConfig(length=5), seed=2)


def write_grown(folder: Path) -> dict[int, TinyTransformer]:
    """A checkpoint with snapshots, each with random weights of its own; they are returned by their steps."""
    models = {}
    for step in (0, 5, 20):
        torch.manual_seed(100 + step)
        models[step] = TinyTransformer.from_config(ARTICLE).eval()
    info = Checkpoint(ARTICLE, TaskInfo(), DataConfig(), snapshots=list(models))
    snapshots = {step: model.state_dict() for step, model in models.items()}
    save_checkpoint(folder, models[20], info, [], "A test's own.", snapshots)
    return models


def add_reference(folder: Path) -> Reference:
    """What is usual for the majority checkpoint of this folder: over the 500 sequences of its test set."""
    dataset = task_dataset(get_task("majority"), DataConfig(), "test")
    reference = make_reference(folder, dataset)
    reference.save(folder)
    return reference


def build_site(folder: Path) -> Path:
    """Copy what the app needs, so that it runs on a test's checkpoints and none of its files is the repository's.

    What numba has kept of its loops comes along: to compile them anew takes each server many seconds.
    """
    for package in ("attnkit", "demo"):
        shutil.copytree(ROOT / package, folder / package, ignore=ON_THEIR_WAY)
    (folder / "checkpoints").mkdir()
    return folder


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def serve(root: Path, log: Path, *arguments: str, **environment: str) -> Iterator[str]:
    """Yield the address of root/demo/app.py, which is run from another folder until the block ends."""
    port = free_port()
    env = os.environ | {"GRADIO_SERVER_PORT": str(port), **environment}
    command = [sys.executable, "-W", "error::UserWarning", str(root / "demo" / "app.py"), *arguments]
    with open(log, "w") as out, subprocess.Popen(command, cwd="/", env=env, stdout=out, stderr=out) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(f"{address}/gradio_api/startup-events", process, log)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the app ended at once:\n{log.read_text()}")
        try:
            httpx.get(address, timeout=5)
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise TimeoutError(f"no answer from {address} in {PATIENCE} s:\n{log.read_text()}")
