"""The checkpoints that the page offers: the folders in checkpoints/, and nothing outside it. No gradio here."""

from functools import lru_cache
from pathlib import Path

from attnkit.checkpoint import Checkpoint, load_checkpoint, read_checkpoint
from attnkit.model import TinyTransformer
from attnkit.reference import FILE, Reference
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
    """Only by the name of a folder in checkpoints/. Raises ValueError if there is none or it does not open.

    The model is shared by all visitors: whoever hooks it takes a `views.private` one.
    """
    known = folders()
    if not isinstance(name, str) or name not in known:
        raise (
            Refusal("unknown_checkpoint", name=repr(name), known=", ".join(known))
            if known
            else Refusal("no_checkpoint_there", name=repr(name))
        )
    try:
        return opened(known[name])
    except (ValueError, OSError) as error:  # where the files lie is no business of a visitor's
        raise ValueError(str(error).replace(str(CHECKPOINTS), CHECKPOINTS.name)) from None


def times(folder: Path, *names: str) -> tuple[int, ...]:
    return tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in (folder / name for name in names))


def opened(folder: Path) -> tuple[Checkpoint, TinyTransformer]:
    return read_files(folder, times(folder, "config.json", "model.safetensors"))


@lru_cache(maxsize=16)
def read_files(folder: Path, changed: tuple[int, ...]) -> tuple[Checkpoint, TinyTransformer]:
    """`changed`, the times of the files, makes a checkpoint that was trained again be read again."""
    return read_checkpoint(folder), load_checkpoint(folder)


def open_reference(name: str) -> Reference | None:
    """What is usual for a checkpoint that is open; None where nobody has measured it. Raises ValueError if damaged."""
    folder = folders()[name]
    if not (folder / FILE).is_file():
        return None
    try:
        return read_reference(folder, times(folder, FILE, "model.safetensors"))
    except (ValueError, OSError) as error:
        raise ValueError(str(error).replace(str(CHECKPOINTS), CHECKPOINTS.name)) from None


@lru_cache(maxsize=16)
def read_reference(folder: Path, changed: tuple[int, ...]) -> Reference:
    return Reference.load(folder)
