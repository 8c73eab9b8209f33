"""The checkpoints that the page offers: the folders in checkpoints/, and nothing outside it. No gradio here."""

from functools import lru_cache
from pathlib import Path

from attnkit.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, snapshot_file
from attnkit.model import TinyTransformer
from attnkit.reference import FILE, Reference
from attnkit.snapshots import load_snapshot
from demo.words import Refusal

CHECKPOINTS = Path(__file__).resolve().parents[1] / "checkpoints"
FIRST_CHOICE = "majority"


def folders() -> dict[str, Path]:
    return {path.name: path for path in sorted(CHECKPOINTS.glob("*/")) if not path.name.startswith(".")}


def shelf() -> tuple[list[str], dict[str, str]]:
    """The names in checkpoints/ that open, the first choice first; and of those that do not, with the reason."""
    names, broken = [], {}
    for name in folders():
        try:
            open_checkpoint(name)
            names.append(name)
        except ValueError as error:
            broken[name] = str(error)
    return sorted(names, key=lambda name: name != FIRST_CHOICE), broken


def open_checkpoint(name: str) -> tuple[Checkpoint, TinyTransformer]:
    """Only by the name of a folder in checkpoints/, or NAME@STEP for its weights after so many steps of training.

    Raises ValueError if there is none or it does not open.
    The model is shared by all visitors: whoever hooks it takes a `observe.private` one.
    """
    known = folders()
    folder, step = at_step(name)
    if folder not in known:
        raise (
            Refusal("unknown_checkpoint", name=repr(name), known=", ".join(known))
            if known
            else Refusal("no_checkpoint_there", name=repr(name))
        )
    try:
        info, model = opened(known[folder])
        if step is None:
            return info, model
        if step not in map(str, info.snapshots):
            raise Refusal("unknown_step", step=repr(step), known=", ".join(map(str, info.snapshots)) or "–")
        return info, read_snapshot(
            known[folder], int(step), times(known[folder], "config.json", snapshot_file(int(step)))
        )
    except Refusal:
        raise
    except (ValueError, OSError) as error:  # where the files lie is no business of a visitor's
        raise ValueError(str(error).replace(str(CHECKPOINTS), CHECKPOINTS.name)) from None


def at_step(name: str) -> tuple[str, str | None]:
    """The folder, and after how many steps of its training; None: after all of them."""
    if not isinstance(name, str):
        return "", None
    folder, at, step = name.rpartition("@")
    return (name, None) if name in folders() or not at else (folder, step)


def times(folder: Path, *names: str) -> tuple[int, ...]:
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in (folder / name for name in names))


def opened(folder: Path) -> tuple[Checkpoint, TinyTransformer]:
    return read_files(folder, times(folder, "config.json", "model.safetensors"))


@lru_cache(maxsize=16)
def read_files(folder: Path, changed: tuple[int, ...]) -> tuple[Checkpoint, TinyTransformer]:
    """`changed`, the times of the files, makes a checkpoint that was trained again be read again."""
    return read_checkpoint(folder), load_checkpoint(folder)


@lru_cache(maxsize=64)
def read_snapshot(folder: Path, step: int, changed: tuple[int, ...]) -> TinyTransformer:
    return load_snapshot(folder, step)


def open_reference(name: str) -> Reference | None:
    """What is usual for a checkpoint that is open; None where nobody has measured it. Raises ValueError if damaged."""
    folder = folders().get(name)
    if folder is None or not (folder / FILE).is_file():  # nobody has measured what weights on the way do
        return None
    try:
        return read_reference(folder, times(folder, FILE, "model.safetensors"))
    except (ValueError, OSError) as error:
        raise ValueError(str(error).replace(str(CHECKPOINTS), CHECKPOINTS.name)) from None


@lru_cache(maxsize=16)
def read_reference(folder: Path, changed: tuple[int, ...]) -> Reference:
    return Reference.load(folder)
