"""Many clients at once, each asking the app again and again, and checking that each answer is its own."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from gradio_client import Client


def pid_of(root: Path) -> int:
    """The process that serves root/demo/app.py, which this one has started."""
    (found,) = (p for p in psutil.Process().children() if str(root / "demo" / "app.py") in p.cmdline())
    return int(found.pid)


@dataclass(frozen=True)
class Load:
    calls: int
    errors: list[str]
    strays: list[str]  # answers to what another client has asked
    seconds: float
    median_wait: float  # seconds of one call
    grown: float  # MiB that the server holds after the second half of the calls more than after the first


def load(address: str, process: int, *, clients: int, calls: int) -> Load:
    """`clients` at once, each with `calls` calls in turn; no sequence is asked twice. `process`: the app's."""
    server, errors, strays, waits, held = psutil.Process(process), [], [], [], []
    halfway = threading.Barrier(clients, action=lambda: held.append(server.memory_info().rss))

    def ask(number: int) -> None:
        mine = Client(address, verbose=False)
        for call in range(calls):
            sequence = format(number * calls + call, "016b")
            start = time.perf_counter()
            try:
                if call % 2:
                    answer = mine.predict(sequence, [[1, 2]], api_name="/ablate")["after"]["sequence"]
                else:
                    answer = mine.predict(sequence, api_name="/classify")["sequence"]
                if answer != sequence:
                    strays.append(f"{sequence} was answered {answer}")
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
            waits.append(time.perf_counter() - start)
            if call == calls // 2 - 1:
                halfway.wait()
        mine.close()

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    held.append(server.memory_info().rss)
    seconds = time.perf_counter() - start
    return Load(len(waits), errors, strays, seconds, median(waits), (held[-1] - held[0]) / 2**20)
