"""A checkpoint is a folder of plain files: config.json, model.safetensors, history.csv and README.md.

Nothing in it is ever unpickled. A bare state dict, as the article's script saves it (.pt), opens too, by
torch's weights-only reader.
"""

import csv
import json
import os
import pickle
import platform
from dataclasses import MISSING, asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnkit.data import DataConfig
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.tasks import MAJORITY, TASKS, Task

ARTICLE_HEADS = 4  # the shapes of a bare state dict do not tell the number of heads; the article has 4


@dataclass(frozen=True)
class TaskInfo:
    """What a checkpoint says of its task: enough to read and draw sequences, even for an unknown task."""

    name: str = MAJORITY.name
    vocab: list[str] = field(default_factory=lambda: list(MAJORITY.vocab))
    classes: list[str] = field(default_factory=lambda: list(MAJORITY.classes))
    rule: str = MAJORITY.rule

    @classmethod
    def of(cls, task: Task) -> "TaskInfo":
        return cls(task.name, list(task.vocab), list(task.classes), task.rule)


@dataclass(frozen=True)
class Checkpoint:
    """What stands in config.json."""

    model: ModelConfig
    task: TaskInfo = field(default_factory=TaskInfo)
    data: DataConfig = field(default_factory=DataConfig)
    training: dict[str, Any] = field(default_factory=dict)  # epochs, lr, batch_size, seed, device: a record
    results: dict[str, Any] = field(default_factory=dict)  # accuracies from 0 to 1: a record
    versions: dict[str, str] = field(default_factory=dict)


def save_checkpoint(
    folder: str | Path, model: TinyTransformer, info: Checkpoint, history: list[dict[str, float]], card: str
) -> Path:
    """Write the folder. Each file is complete or not there; files of other names are left alone.

    `history` has one dict per epoch, `card` is the text of the model card (README.md).
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    staged = {name: folder / f".{name}.{os.getpid()}.tmp" for name in FILES}
    try:
        save_file(weights, staged["model.safetensors"])
        with open(staged["history.csv"], "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, history[0].keys() if history else ["epoch"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(history)
        staged["README.md"].write_text(card, encoding="utf-8")
        staged["config.json"].write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
        for name in FILES:  # the configuration last: a folder without one is no checkpoint
            os.replace(staged[name], folder / name)
    finally:
        for path in staged.values():
            path.unlink(missing_ok=True)
    return folder


FILES = ("model.safetensors", "history.csv", "README.md", "config.json")


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> TinyTransformer:
    """Return the model of a checkpoint folder, or of a bare state dict (.pt or .safetensors), in eval mode.

    A bare state dict is taken to have the article's 4 heads. Raises FileNotFoundError where there is nothing,
    ValueError for a file that is damaged, carries code, or does not fit its configuration.
    """
    path = Path(path)
    info = read_checkpoint(path)
    weights = read_weights(path / "model.safetensors" if path.is_dir() else path)
    model = TinyTransformer.from_config(info.model)
    check_weights(path, model, weights)
    model.load_state_dict(weights)
    return model.to(device).eval()


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return what a checkpoint says of itself; the weights of a folder are not read."""
    path = Path(path)
    if path.is_dir():
        return parse_config(path / "config.json")
    return Checkpoint(config_from_shapes(path, read_weights(path)))


def parse_config(file: Path) -> Checkpoint:
    if not file.is_file():
        raise FileNotFoundError(
            f"no checkpoint at {file.parent.resolve()}: config.json is missing; `make train` makes one"
        )
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: is not JSON ({error})") from None
    section = from_dict(Checkpoint, raw, str(file))
    return Checkpoint(
        model=from_dict(ModelConfig, section.model, f"{file}: model"),
        task=from_dict(
            TaskInfo, section.task if isinstance(section.task, dict) else asdict(section.task), f"{file}: task"
        ),
        data=from_dict(
            DataConfig, section.data if isinstance(section.data, dict) else asdict(section.data), f"{file}: data"
        ),
        training=section.training,
        results=section.results,
        versions=section.versions,
    )


T = TypeVar("T")


def from_dict(cls: type[T], raw: Any, where: str) -> T:
    """Build a dataclass from JSON: an unknown key is refused with the nearest known one, a missing one defaults."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where}: got {type(raw).__name__}, allowed is an object")
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]  # every cls here is a dataclass
    for key in raw:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{where}: unknown key {key!r}; {hint}")
    for name, f in known.items():
        if name not in raw and f.default is MISSING and f.default_factory is MISSING:
            raise ValueError(f"{where}: key {name!r} is missing")
    try:
        return cls(**raw)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_weights(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise FileNotFoundError(f"no weights at {file.resolve()}; `make train` makes a checkpoint")
    try:
        if file.suffix == ".safetensors":
            weights = load_file(file)
        else:
            weights = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{file}: refused, it is damaged or holds more than weights (such a file can run code)"
        ) from None
    except (SafetensorError, RuntimeError, EOFError) as error:
        raise ValueError(f"{file}: is damaged or no file of weights ({error})") from None
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise ValueError(f"{file}: holds no state dict; allowed is a dict of names and tensors")
    return {name: tensor for name, tensor in weights.items() if name != "pos.pe"}  # that table is rebuilt


def config_from_shapes(file: Path, weights: dict[str, Tensor]) -> ModelConfig:
    try:
        vocab_size, d_model = weights["embed.weight"].shape
        n_layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
        return ModelConfig(
            vocab_size=vocab_size,
            d_model=d_model,
            n_heads=ARTICLE_HEADS,
            d_ff=weights["layers.0.ffn.0.weight"].shape[0],
            n_layers=n_layers,
            max_len=DataConfig.length,
            n_classes=weights["head.weight"].shape[0],
        )
    except (KeyError, ValueError) as error:
        raise ValueError(f"{file}: is not a state dict of the article's model ({error})") from None


def check_weights(path: Path, model: TinyTransformer, weights: dict[str, Tensor]) -> None:
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name, shape in expected.items():
        if name not in weights:
            raise ValueError(f"{path}: tensor {name} is missing")
        if tuple(weights[name].shape) != shape:
            raise ValueError(
                f"{path}: tensor {name} has shape {tuple(weights[name].shape)}, the configuration says {shape}"
            )
        if not weights[name].isfinite().all():
            raise ValueError(f"{path}: tensor {name} has values that are not finite")
    for name in weights:
        if name not in expected:
            raise ValueError(f"{path}: tensor {name} is unknown to the model")


def known_task(info: Checkpoint) -> Task:
    """The registered task of a checkpoint, which can draw and label sequences. Raises ValueError if there is none."""
    if info.task.name not in TASKS:
        raise ValueError(
            f"task: {info.task.name!r} is not one of {', '.join(TASKS)}; its sequences cannot be made here"
        )
    return TASKS[info.task.name]


def versions() -> dict[str, str]:
    from attnkit import __version__

    return {"attnkit": __version__, "torch": torch.__version__, "python": platform.python_version()}
