"""Long sequences: every row statistic in blocks, next to bare attention and to whole maps. `python -m benchmarks.long`

Processor time of one thread, which a busy machine blurs less than the clock.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from torch.nn.functional import scaled_dot_product_attention

from attnkit.blocks import BlockReader
from attnkit.hf import Site, whole
from attnkit.measures import applicable, row_values
from attnkit.rows import Rows
from attnkit.spans import Scene, Side
from benchmarks import Row

HEADS, WIDTH, LENGTH, LONGEST = 12, 64, 4096, 32768
WORDS = [f"word{i}" for i in range(30000)]
MEASURES = applicable(WORDS, special=True)
ROUNDS = 3


def scene_and_site(T: int) -> tuple[Scene, Site]:
    """One sequence whose tokens are as unevenly used as those of texts (Zipf), between two special ones."""
    g = torch.Generator().manual_seed(0)
    often = 1 / torch.arange(1, len(WORDS) + 1, dtype=torch.float64)
    tokens = torch.multinomial(often, T, replacement=True, generator=g)[None]
    special = torch.zeros(1, T, dtype=torch.bool)
    special[0, [0, -1]] = True
    side = Side(tokens, special=special)
    query, key, value = (torch.randn(1, HEADS, T, WIDTH, generator=g) for _ in range(3))
    w_o = torch.randn(HEADS, WIDTH, HEADS * WIDTH, generator=g)
    return Scene(side, side), Site("self", 0, query, key, value, None, False, WIDTH**-0.5, w_o=w_o)


def in_blocks(T: int = LENGTH) -> None:
    scene, site = scene_and_site(T)
    BlockReader(MEASURES, scene).read(site)


def processor_seconds(candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each, taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, run in candidates.items():
            start = time.process_time()
            run()
            seconds[name].append(time.process_time() - start)
    return {name: median(values) for name, values in seconds.items()}


def rows() -> list[Row]:
    scene, site = scene_and_site(LENGTH)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = processor_seconds(
            {
                "bare": lambda: scaled_dot_product_attention(site.query, site.key, site.value),
                "blocks": lambda: BlockReader(MEASURES, scene).read(site),
                "whole": lambda: plain_formulas(scene, site),
            }
        )
    finally:
        torch.set_num_threads(before)
    bare, blocks, maps = (seconds[name] for name in ("bare", "blocks", "whole"))
    peak = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout.split()
    return [
        Row(
            f"all row statistics of {HEADS} heads of {WIDTH} at {LENGTH:,} tokens, processor seconds of one thread",
            f"bare attention {bare:.2f}, in blocks {blocks:.2f} ({blocks / bare:.1f} times that), plain formulas on "
            f"whole maps {maps:.2f} ({maps / blocks:.1f} times the blocks)",
        ),
        Row(
            f"the same at {LONGEST:,} tokens, where whole maps would be {HEADS * LONGEST**2 * 4 / 1e9:.0f} GB",
            f"{float(peak[0]):.0f} s, peak memory of the process {float(peak[1]):.2f} GB",
        ),
    ]


def plain_formulas(scene: Scene, site: Site) -> None:
    """Every statistic as its definition says, on the whole maps."""
    weights, output = whole(site)
    rows = Rows(scene.block(site, slice(0, weights.shape[2])), weights, output, site.w_o)
    for measure in MEASURES.values():
        values, defined = row_values(measure, rows)
        torch.where(defined, values, 0).sum(dim=-1)


PEAK = """
import time
from benchmarks import peak_memory
from benchmarks.long import LONGEST, in_blocks
start = time.perf_counter()
in_blocks(LONGEST)
print(time.perf_counter() - start, peak_memory() / 1024)
"""


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.result, sep="\n  ")
