"""Loops compiled to machine code at their first use, and kept on disk.

Where torch's operations each go through a whole batch, in memory, a loop reads every number once, while it is in the
cache. Only `fused` imports this and what is built on it, when something is first measured: numba takes a while to load.
"""

import inspect
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit


def compiled(
    loops: Callable[..., Any], *, inline: bool = False, no_nan: bool = False, as_written: bool = False
) -> Callable[..., Any]:
    # Sums may be taken in another order, which vector instructions need; NaN and infinity stay what they are.
    flags = {"contract", "nsz"} | ({"nnan"} if no_nan else set()) | (set() if as_written else {"reassoc"})
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags, "forceinline": inline}
    loops = inspect.unwrap(loops)  # the tests wrap every function, to check shapes
    loops.__qualname__ += f"_{sources()}"
    try:
        return njit(cache=True, **options)(loops)
    except RuntimeError:  # there is no folder to keep it in
        return njit(**options)(loops)


@cache
def sources() -> str:
    """What is written in all files of loops, in eight letters: a part of the name that machine code is kept under.

    Numba itself looks whether the file of a function has changed, but not that of what it calls.
    """
    texts = (file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return sha256(b"".join(text for text in texts if b"machine import compiled" in text)).hexdigest()[:8]
