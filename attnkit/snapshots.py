"""Snapshots: the weights of a model on the way through its training, kept in the checkpoint's folder.

`python -m attnkit.train --snapshots N` writes snapshots/step_000032.safetensors and its like: the weights after 32
steps, with the parameter names and sizes of model.safetensors. config.json names the steps; other files do not count.
"""

from pathlib import Path

import torch

from attnkit.checkpoint import load_model, read_checkpoint, snapshot_file
from attnkit.model import TinyTransformer


def log_steps(last: int, n: int) -> list[int]:
    """Return `n` numbers of steps: 0, then from a hundredth of `last` to `last`, each by the same factor after another.

    Whole numbers cannot be that close to each other near 0: there they follow one another. With no more than `n`
    steps it is each of them. Raises ValueError for an `n` below 2 or a `last` below 1.
    """
    if n < 2 or last < 1:
        raise ValueError(f"n, last: got {n} snapshots of {last} steps, allowed are at least 2 of at least 1")
    steps = [0]
    for left in range(n - 2, -1, -1):  # how many follow this one
        if steps[-1] < last:
            first = max(round(last / 100), 1)
            even = (
                last if not left else first if len(steps) == 1 else steps[-1] * (last / steps[-1]) ** (1 / (left + 1))
            )
            steps.append(max(steps[-1] + 1, round(even)))
    return steps


def snapshots(folder: str | Path) -> list[tuple[int, Path]]:
    """Return how many steps had been taken and the file, for each snapshot of a checkpoint, the earliest first.

    The list is empty where training kept none, as for a bare state dict. Raises FileNotFoundError where there is no
    checkpoint, or where a file is missing that config.json names.
    """
    folder = Path(folder)
    found = [(step, folder / snapshot_file(step)) for step in sorted(read_checkpoint(folder).snapshots)]
    for step, file in found:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: is missing; config.json names a snapshot after {step} steps")
    return found


def load_snapshot(folder: str | Path, step: int, device: str | torch.device = "cpu") -> TinyTransformer:
    """Return the model of a checkpoint as it was after `step` steps, in eval mode.

    Raises ValueError for a step of which there is no snapshot, or a file that is damaged or does not fit the model;
    FileNotFoundError as `snapshots` does.
    """
    files = dict(snapshots(folder))
    if step not in files:
        raise ValueError(f"step: got {step}; {folder} has {steps_in_words(list(files))}")
    return load_model(files[step], read_checkpoint(folder).model, device)


def steps_in_words(steps: list[int]) -> str:
    """What snapshots there are, or how to have some, for messages."""
    if not steps:
        return "no snapshots; `python -m attnkit.train --snapshots 16` keeps some"
    return f"snapshots after {', '.join(map(str, steps))} steps"
