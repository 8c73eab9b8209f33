"""What every command shares: devices, checked numbers, exit codes, progress.

Exit codes: 0 done · 1 failed, one line on stderr · 2 wrong arguments · 130 / 143 interrupted. Results go to stdout,
progress and everything else to stderr.
"""

import argparse
import codecs
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from tqdm import tqdm

_ROOT = Path(__file__).resolve().parents[1]
# Where the defaults live, so that commands work from any folder: the repository, or else the current folder.
PROJECT = _ROOT if (_ROOT / "pyproject.toml").is_file() else Path()
CHECKPOINT = PROJECT / "checkpoints" / "majority"


class UsageError(argparse.ArgumentTypeError, ValueError):
    """Wrong arguments: argparse and `run` both say so and end with 2."""


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM arrived. `message` is the one line that the user sees."""

    def __init__(self, signum: int = signal.SIGINT, message: str = "interrupted"):
        super().__init__(message)
        self.signum = signum

    @classmethod
    def again(cls, stop: KeyboardInterrupt, message: str) -> "Interrupted":
        """The same, after some last work, with a line that says what was done."""
        return cls(getattr(stop, "signum", signal.SIGINT), message)


def run(main: Callable[[], None]) -> int:
    """Run a command to its end and return its exit code: `sys.exit(run(main))`.

    ValueError, OSError and a lack of memory become one line on stderr, and so does the first SIGINT or SIGTERM,
    which reaches `main` as `Interrupted`; a second one ends the process at once.
    """
    codecs.register_error("attnkit.ascii", _to_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="attnkit.ascii")
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of stdout has gone, as `| head` does
        return 1
    except KeyboardInterrupt as stop:
        say(str(stop) or "interrupted")
        return 128 + getattr(stop, "signum", signal.SIGINT)
    except UsageError as error:
        say(f"error: {error}")
        return 2
    except OSError as error:
        say(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}")
        return 1
    except ValueError as error:
        say(f"error: {error}")
        return 1
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise  # a fault of ours: the traceback is what helps
        say("error: out of memory")
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        try:
            sys.stdout.flush()
        except OSError:  # has been said, or is not worth saying; else the interpreter would say it once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _interrupt(signum: int, _: Any) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda second, _: os._exit(128 + second))
    raise Interrupted(signum)


PLAIN = {"×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "·": "|", "±": "+-", "²": "^2", "≥": ">=", "≤": "<="}


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    """A codec error handler: what the terminal's encoding cannot show is written plainly, or as a code."""
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(c, c.encode("ascii", "backslashreplace").decode()) for c in text), error.end


def say(message: str) -> None:
    """Print one line on stderr."""
    print(" ".join(message.splitlines()), file=sys.stderr, flush=True)


def progress(iterable: Any = None, **options: Any) -> tqdm:
    """A tqdm bar on stderr where stderr is a terminal, and nothing at all where it is a file or a pipe.

    `options` are tqdm's own: total, desc, unit.
    """
    return tqdm(iterable, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False, **options)


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of that name, `cpu`, `cuda`, `cuda:N` or `mps`; `auto` takes CUDA, then MPS, then the CPU.

    The choice of `auto` is said on stderr. Raises UsageError, with the reason and the usable choices, for a
    device that is not there.
    """
    usable, reason = available()
    if name == "auto":
        best = usable[0]
        what = f" ({torch.cuda.get_device_name()})" if best == "cuda" else ""
        why = f" ({reason['cuda']})" if best != "cuda" and "driver" in reason["cuda"] else ""
        say(f"using {best}{what}{why}")
        return torch.device(best)
    if name in usable:
        return torch.device(name)
    kind = name.split(":")[0]
    if kind == "cuda" and "cuda" in usable:
        raise UsageError(f"device: got {name!r}: there is no such one; usable are auto, {', '.join(usable)}")
    why = reason.get(kind, "no device of that name")
    raise UsageError(f"device: got {name!r}: {why}; usable are auto, {', '.join(usable)}")


def add_device(to: argparse.ArgumentParser) -> None:
    to.add_argument("--device", default="auto", metavar="NAME", help="auto, cpu, cuda, cuda:N or mps")


def available() -> tuple[list[str], dict[str, str]]:
    """The names of the usable devices, the fastest first, and for each kind that is not usable the reason."""
    usable, reason = [], {}
    with warnings.catch_warnings(record=True) as caught:  # torch warns of, for one, a driver that is too old
        warnings.simplefilter("always")
        has_cuda = torch.cuda.is_available()
    if has_cuda:
        usable += ["cuda", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    elif not torch.backends.cuda.is_built():
        reason["cuda"] = "this torch was built without CUDA"
    else:
        reason["cuda"] = "; ".join(str(w.message) for w in caught) or "no CUDA device was found"
    if torch.backends.mps.is_available():
        usable += ["mps"]
    elif not torch.backends.mps.is_built():
        reason["mps"] = "this torch was built without MPS"
    else:
        reason["mps"] = "MPS needs macOS 12.3 and an Apple GPU"
    return [*usable, "cpu"], reason


def whole_number(low: int, high: int | None = None) -> Callable[[str], int]:
    """An argparse type: a whole number from `low` to `high`, both included."""

    def parse(text: str) -> int:
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low or (high is not None and number > high):
            raise UsageError(f"got {text!r}, allowed is a whole number {allowed}")
        return number

    return parse


positive_int = whole_number(1)
seed = whole_number(0, 2**63 - 1)  # what torch.Generator takes


def positive_float(text: str) -> float:
    """An argparse type: a finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise UsageError(f"got {text!r}, allowed is a finite number above 0")
    return number


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """The parser of `python -m module`. It takes no abbreviations, so that a new flag breaks no old call."""
    return argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )


T = TypeVar("T")


def add_flags(to: argparse._ActionsContainer, cls: type, defaults: Mapping[str, Any] | None = None) -> None:
    """Give the parser one flag for each field of a dataclass that has a default, there or in `defaults`.

    The field's trailing comment is the flag's help, so that both have one text.
    """
    for field in fields(cls):
        default = (defaults or {}).get(field.name, field.default if defaults is None else MISSING)
        if default is MISSING:
            continue
        if isinstance(default, float):
            kind: Callable[[str], Any] = positive_float
        else:
            kind = seed if field.name.endswith("seed") else positive_int
        to.add_argument(
            "--" + field.name.replace("_", "-"),
            type=kind,
            default=default,
            metavar="X" if kind is positive_float else "N",
            help=comment(cls, field.name),
        )


def from_flags(args: argparse.Namespace, cls: type[T], **more: Any) -> T:
    """Build the dataclass from its flags and from `more`. Raises UsageError for values that do not go together."""
    given = {f.name: getattr(args, f.name) for f in fields(cls) if hasattr(args, f.name)}  # type: ignore[arg-type]
    try:
        return cls(**{**given, **more})
    except ValueError as error:
        raise UsageError(str(error)) from None


def comment(cls: type, name: str) -> str:
    """The comment behind a field of a dataclass."""
    found = re.search(rf"^\s*{name}:.*?#\s*(.*)$", inspect.getsource(cls), re.MULTILINE)
    return found[1].replace("%", "%%") if found else name.replace("_", " ")
