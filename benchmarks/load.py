"""Many at once: 50 clients, each with 20 calls, on the running app. `python -m benchmarks.load`"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from attnkit.cli import run
from benchmarks import Row
from tests.load import load, pid_of
from tests.serving import build_site, fill, serve

CLIENTS, CALLS = 50, 20


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        site.mkdir()
        fill(build_site(site) / "checkpoints")
        with serve(site, Path(folder) / "app.log") as address:
            found = load(address, pid_of(site), clients=CLIENTS, calls=CALLS)
    what = f"{CLIENTS} clients at once, {CALLS} calls each"
    wrong = f"{len(found.errors)} errors, {len(found.strays)} answers to another client"
    yield Row(f"{what}: what went wrong", wrong)
    yield Row(f"{what}: how fast", f"{found.calls / found.seconds:.0f} a second, median wait {found.median_wait:.2f} s")
    yield Row(f"{what}: what the server holds after them more than half-way", f"{found.grown:+.1f} MiB")


def main() -> None:
    for row in rows():
        print(row.what, row.result, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
