"""Many at once: 50 clients, each with 20 calls, on the running app, again and again. `python -m benchmarks.load`"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil

from attnkit.cli import run
from benchmarks import Row
from tests.load import load, pid_of
from tests.serving import build_site, fill, serve

CLIENTS, CALLS = 50, 20
ROUNDS = 4  # of so many calls: memory that grows shows from one to the next


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        site.mkdir()
        fill(build_site(site) / "checkpoints")
        with serve(site, Path(folder) / "app.log") as address:
            server = psutil.Process(pid_of(site))
            held = [server.memory_info().rss]
            found = []
            for _ in range(ROUNDS):
                found.append(load(address, server.pid, clients=CLIENTS, calls=CALLS))
                held.append(server.memory_info().rss)
    what = f"{CLIENTS} clients at once, {CALLS} calls each, {ROUNDS} times"
    errors, strays = (sum(len(getattr(f, kind)) for f in found) for kind in ("errors", "strays"))
    yield Row(f"{what}: what went wrong", f"{errors} errors, {strays} answers to another client")
    speed, wait = (median(times) for times in zip(*((f.calls / f.seconds, f.median_wait) for f in found), strict=True))
    yield Row(f"{what}: how fast", f"{speed:.0f} a second, median wait {wait:.2f} s")
    yield Row(f"{what}: MiB that the server holds before and after each", ", ".join(f"{h / 2**20:.0f}" for h in held))


def main() -> None:
    for row in rows():
        print(row.what, row.result, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
