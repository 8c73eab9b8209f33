"""Every measurement, in one table: `make bench`."""

import platform
import sys
from collections.abc import Callable, Iterable

import torch

from attnkit.cli import progress, run
from benchmarks import Row, demo, demo_texts, long, seeds, statistics, training, transformers

MEASUREMENTS: list[Callable[[], Iterable[Row]]] = [
    statistics.rows,
    training.rows,
    long.rows,
    transformers.rows,
    seeds.rows,
    demo.rows,
    demo_texts.rows,
]


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    for measurement in progress(MEASUREMENTS, unit="measurement"):
        for row in measurement():
            print(row.what, row.result, sep="\n  ", flush=True)


if __name__ == "__main__":
    sys.exit(run(main))
