"""A checkpoint is a folder of plain files: config.json, model.safetensors, history.csv and README.md.

Where training kept snapshots they stand in snapshots/ (see `attnkit.snapshots`). Nothing in it is ever
unpickled. A bare state dict, as the article's script saves it (.pt), opens too, by torch's weights-only reader.
"""

import csv
import json
import os
import pickle
import platform
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from attnkit.data import DataConfig
from attnkit.files import staged
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.tasks import MAJORITY, TASKS, Task

ARTICLE_HEADS = 4  # the shapes of a bare state dict do not tell the number of heads; the article has 4
POSITIONS = "pos.pe"  # the article stores this table; here it is rebuilt


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
    """What stands in config.json. A key that is missing there takes the default given here: the article's."""

    model: ModelConfig
    task: TaskInfo = field(default_factory=TaskInfo)
    data: DataConfig = field(default_factory=DataConfig)
    training: dict[str, Any] = field(default_factory=dict)  # epochs, lr, batch_size, seed, device: a record
    results: dict[str, Any] = field(default_factory=dict)  # accuracies from 0 to 1: a record
    versions: dict[str, str] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)  # after how many steps the weights were kept

    def __post_init__(self) -> None:
        for what, names, number in (
            ("vocab", self.task.vocab, self.model.vocab_size),
            ("classes", self.task.classes, self.model.n_classes),
        ):
            if len(names) != number or len(set(names)) != number:
                raise ValueError(f"task: {what} are {names}, the model has {number} of them, all different")


def save_checkpoint(
    folder: str | Path,
    model: TinyTransformer,
    info: Checkpoint,
    history: Sequence[Mapping[str, int | float]],
    card: str,
    snapshots: Mapping[int, Mapping[str, Tensor]] | None = None,
) -> Path:
    """Write the folder, whole or not at all; files of other names in it are left alone.

    `history` has one mapping per epoch, `card` is the text of the model card (README.md), `snapshots` the state dict
    after each of the steps that `info` names; snapshots of an earlier training are removed. Raises ValueError where
    the folder cannot be written, has a file of these names that is no checkpoint's, or the steps are others.
    """
    folder = check_folder(folder)
    files = {snapshot_file(step): weights for step, weights in (snapshots or {}).items()}
    if sorted(files) != sorted(map(snapshot_file, info.snapshots)):
        raise ValueError(f"snapshots: got those of steps {sorted(snapshots or {})}, info names {info.snapshots}")
    with staged(folder, last="config.json") as stage:
        for name, weights in {"model.safetensors": model.state_dict(), **files}.items():
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_bytes(save(copied(weights)))
        with open(stage / "history.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, history[0].keys() if history else ["epoch"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(history)
        (stage / "README.md").write_text(card, encoding="utf-8")
        (stage / "config.json").write_text(json.dumps(asdict(info), indent=2) + "\n", encoding="utf-8")
    for old in folder.glob(SNAPSHOT_FILES):
        if old.relative_to(folder).as_posix() not in files:
            old.unlink()
    return folder


FILES = ("model.safetensors", "history.csv", "README.md", "config.json")
SNAPSHOT_FILES = "snapshots/step_*.safetensors"


def snapshot_file(step: int) -> str:
    """Where in the folder the weights after so many steps stand."""
    return SNAPSHOT_FILES.replace("*", f"{step:06d}")


def copied(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none sharing memory with another, as tied weights do: safetensors refuses those."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in weights.items()}


def check_folder(folder: str | Path) -> Path:
    """Return the folder. Raises ValueError where it cannot be written, or holds files that would be lost."""
    folder = Path(folder)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{folder}: {there} is not a folder that can be written to")
    taken = [name for name in FILES if (folder / name).exists()]
    taken += [path.relative_to(folder).as_posix() for path in sorted(folder.glob(SNAPSHOT_FILES))]
    if taken:
        try:
            read_config(folder / "config.json")
        except (ValueError, FileNotFoundError):
            raise ValueError(f"{folder}: has a {taken[0]} that is no checkpoint's and would be lost") from None
    return folder


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> TinyTransformer:
    """Return the model of a checkpoint folder, or of a bare state dict (.pt or .safetensors), in eval mode.

    A bare state dict is taken to have the article's 4 heads, and its 16 positions where it does not store its own.
    Raises FileNotFoundError where there is nothing, ValueError for a file that is damaged, carries code, or does
    not fit its configuration.
    """
    path = Path(path)
    info = read_checkpoint(path)
    return load_model(path / "model.safetensors" if path.is_dir() else path, info.model, device, where=path)


def load_model(
    file: Path, config: ModelConfig, device: str | torch.device, *, where: Path | None = None
) -> TinyTransformer:
    """Return the model of these sizes with the weights of the file, in eval mode; `where` is what messages name."""
    weights = read_weights(file)
    weights.pop(POSITIONS, None)
    with torch.random.fork_rng(devices=[]):  # the first, random weights are the model's own affair
        model = TinyTransformer.from_config(config)
    check_weights(where or file, model, weights)
    model.load_state_dict(weights)
    return model.to(device).eval()


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Return what a checkpoint says of itself; the weights of a folder are not read."""
    path = Path(path)
    return read_config(path / "config.json") if path.is_dir() or not path.exists() else config_from_shapes(path)


def read_config(file: Path) -> Checkpoint:
    if not file.is_file():
        raise FileNotFoundError(
            f"no checkpoint at {file.parent.resolve()}: config.json is missing; `make train` makes one"
        )
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: is not JSON ({error})") from None
    return from_dict(Checkpoint, raw, str(file))


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
    types = get_type_hints(cls)
    values = {key: typed(types[key], value, f"{where}: {key}") for key, value in raw.items()}
    try:
        return cls(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def typed(kind: Any, value: Any, where: str) -> Any:
    """Return the JSON value as this type: a dataclass, int, str, list[str] or dict. Raises ValueError otherwise."""
    if is_dataclass(kind):
        return from_dict(kind, value, where)  # type: ignore[arg-type]  # a class, no instance
    wanted = get_origin(kind) or kind
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ValueError(f"{where}: got {value!r}, allowed is {wanted.__name__}")
    if wanted is list:
        return [typed(get_args(kind)[0], item, where) for item in value]
    return value


def read_weights(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise FileNotFoundError(f"no weights at {file.resolve()}; `make train` makes a checkpoint")
    try:
        if file.suffix == ".safetensors":
            weights = load_file(file)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what torch finds odd about a file is refused below
                weights = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ValueError(
            f"{file}: refused, it is damaged or holds more than weights (such a file can run code)"
        ) from None
    except OSError:
        raise
    except Exception as error:  # a damaged file raises whatever its reader trips over
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{file}: is damaged or no file of weights ({reason})") from None
    if not isinstance(weights, dict) or not all(isinstance(t, Tensor) for t in weights.values()):
        raise ValueError(f"{file}: holds no state dict; allowed is a dict of names and tensors")
    return weights


def config_from_shapes(file: Path) -> Checkpoint:
    """What the shapes of a bare state dict tell."""
    weights = read_weights(file)
    try:
        V, d_model = weights["embed.weight"].shape
        C = weights["head.weight"].shape[0]
        model = ModelConfig(
            vocab_size=V,
            d_model=d_model,
            n_heads=ARTICLE_HEADS,
            d_ff=weights["layers.0.ffn.0.weight"].shape[0],
            n_layers=1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers.")),
            max_len=weights[POSITIONS].shape[-2] if POSITIONS in weights else DataConfig.length,
            n_classes=C,
        )
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"{file}: is not a state dict of the article's model ({error})") from None
    fits = len(MAJORITY.vocab) == V and len(MAJORITY.classes) == C
    vocab, classes = ([str(i) for i in range(n)] for n in (V, C))
    task = TaskInfo() if fits else TaskInfo("unknown", vocab, classes, "The file does not tell its task.")
    return Checkpoint(model, task, DataConfig(length=min(model.max_len, DataConfig.length)))


def check_weights(path: Path, model: TinyTransformer, weights: dict[str, Tensor]) -> None:
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    for name, shape in expected.items():
        if name not in weights:
            raise ValueError(f"{path}: tensor {name} is missing")
        if tuple(weights[name].shape) != shape:
            raise ValueError(
                f"{path}: tensor {name} has shape {tuple(weights[name].shape)}, the configuration says {shape}"
            )
        if not weights[name].is_floating_point():
            raise ValueError(f"{path}: tensor {name} is {weights[name].dtype}, allowed is a floating-point dtype")
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
