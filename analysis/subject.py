"""What every analysis is of: a checkpoint and the sequences that it runs over, as the command line names them."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnkit import cli
from attnkit.checkpoint import Checkpoint, known_task, load_checkpoint, read_checkpoint, versions
from attnkit.data import Batch, Dataset, task_dataset
from attnkit.files import sha256
from attnkit.model import TinyTransformer
from attnkit.sequences import file_dataset

BATCH = 512  # sequences per pass


@dataclass(frozen=True)
class Subject:
    checkpoint: Path
    info: Checkpoint
    model: TinyTransformer  # in eval mode, on the device
    dataset: Dataset
    split: str  # test, exhaustive or data
    batch_size: int
    out: Path

    def batches(self) -> Iterator[Batch]:
        """The sequences, behind a progress bar where someone looks."""
        size = self.dataset.size
        total = None if size is None else -(-size // self.batch_size)
        return iter(cli.progress(self.dataset.batches(self.batch_size), total=total, unit="batch"))

    def identity(self) -> dict[str, Any]:
        """What would have to be the same for two runs to be of the same thing."""
        weights = self.checkpoint / "model.safetensors" if self.checkpoint.is_dir() else self.checkpoint
        data = Path(self.dataset.name)
        return {
            "checkpoint_sha256": sha256(weights),
            "data": self.dataset.name,
            "data_sha256": sha256(data) if self.split == "data" else None,
            "batch_size": self.batch_size,
            "versions": versions(),
        }

    def record(self) -> dict[str, Any]:
        """What ran on what, for run.json."""
        return {
            "checkpoint": shown(self.checkpoint),
            "split": self.split,
            "population": self.dataset.population,
            "device": str(next(self.model.parameters()).device),
            **self.identity(),
            "model": asdict(self.info.model),
            "task": asdict(self.info.task),
            "results": self.info.results,
        }


def parser(module: str, description: str, *, several: bool = False) -> argparse.ArgumentParser:
    """A parser with the arguments that all analyses share. With `several`, --checkpoint may be given more than once."""
    p = cli.parser(module, description)
    more = "; twice to compare" if several else ""
    p.add_argument(
        "--checkpoint",
        type=Path,
        action="append" if several else "store",
        default=argparse.SUPPRESS,
        help=f"a checkpoint folder, or a bare state dict{more} (default: {cli.CHECKPOINT})",
    )
    p.add_argument(
        "--out", type=Path, default=argparse.SUPPRESS, help="output folder (default: reports/<checkpoint name>)"
    )
    data = p.add_mutually_exclusive_group()
    data.add_argument(
        "--split",
        choices=["test", "exhaustive"],
        default=argparse.SUPPRESS,
        help="the test sequences (default), or all there are",
    )
    data.add_argument(
        "--data", metavar="FILE", default=argparse.SUPPRESS, help="your own sequences: .csv, .jsonl or .parquet"
    )
    p.add_argument(
        "--batch-size",
        type=cli.positive_int,
        metavar="N",
        default=argparse.SUPPRESS,
        help=f"sequences per pass; changes no result (default: {BATCH})",
    )
    cli.add_device(p)
    return p


def open_subject(args: argparse.Namespace) -> Subject:
    """Load what the arguments name."""
    checkpoint: Path = getattr(args, "checkpoint", cli.CHECKPOINT)
    info = read_checkpoint(checkpoint)
    if "data" in args:
        split, dataset = "data", file_dataset(args.data, info.task.vocab, info.task.classes, info.model.max_len)
    else:
        split = getattr(args, "split", "test")
        dataset = task_dataset(known_task(info), info.data, split)
    out = args.out if "out" in args else cli.PROJECT / "reports" / checkpoint.resolve().stem
    model = load_checkpoint(checkpoint, cli.pick_device(args.device))
    return Subject(checkpoint, info, model, dataset, split, getattr(args, "batch_size", BATCH), out)


def shown(path: Path) -> str:
    """The path as a reader elsewhere can use it: within the project if it is there."""
    inside = cli.PROJECT in path.resolve().parents
    return str(path.resolve().relative_to(cli.PROJECT)) if inside else str(path)


def write_json(file: Path, record: dict[str, Any]) -> None:
    """Strict JSON: a number that JSON has no word for is a fault of ours."""
    file.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
