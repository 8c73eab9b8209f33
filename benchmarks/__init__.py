"""Side-by-side measurements. Each module has a function that gives rows; `python -m benchmarks` prints them all."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, and what came out, in words."""

    what: str
    result: str


def side_by_side(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each candidate: see `in_turns`."""
    return {name: median(seconds) for name, seconds in in_turns(candidates, rounds).items()}


def in_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each candidate, round by round. They take turns: a busy machine slows all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()  # the first time also pays for what is only done once
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def peak_memory() -> float:
    """The most memory that this process has held so far, in MiB; on Linux.

    `ru_maxrss` would not do: a process that another starts begins with the peak of that other.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(peak) / 1024
