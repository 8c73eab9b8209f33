"""Loops compiled to machine code at their first use, and kept on disk.

Where torch's operations each go through a whole batch, in memory, a loop reads every number once, while it is in the
cache. Only `fused` imports this and what is built on it, when something is first measured: numba takes a while to load.
"""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(
    loops: Callable[..., Any], *, inline: bool = False, no_nan: bool = False, as_written: bool = False
) -> Callable[..., Any]:
    # Sums may be taken in another order, which vector instructions need; NaN and infinity stay what they are.
    flags = {"contract", "nsz"} | ({"nnan"} if no_nan else set()) | (set() if as_written else {"reassoc"})
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": flags, "forceinline": inline}
    loops = inspect.unwrap(loops)  # the tests wrap every function, to check shapes
    try:
        return njit(cache=True, **options)(loops)
    except RuntimeError:  # there is no folder to keep it in
        return njit(**options)(loops)
