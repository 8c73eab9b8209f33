"""All row statistics in one pass over the weights: the plain formulas' numbers, on a CPU, many times as fast.

The plain formulas go through the weights of a batch once for every statistic, and these do not stay in the cache.
Here every map is read while it is there, for all statistics that the project comes with; any other is left to its
plain formula. All sums are float64 and of one sequence, so that nothing depends on what else is in the batch.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnkit.measures import MEASURES, Measure, token_weight, triangle
from attnkit.rows import Block, Rows

# In the order of `kernel`; after them come the weights on each token.
KNOWN = (
    *("entropy", "entropy_normalized", "max_weight", "effective_keys", "distance", "offset"),
    *("self_weight", "previous_weight", "next_weight", "first_weight", "last_weight"),
    *("duplicate_weight", "induction_weight", "selectivity", "output_norm"),
)
TOGETHER = 1 << 17  # weights whose logarithms are taken at a time
FEW = 1 << 15  # weights for which a second thread is not worth waking


class OnePass:
    """Reads blocks of rows, all statistics that it knows at once."""

    def __init__(self, measures: dict[str, Measure]):
        tokens = [name for name, m in measures.items() if getattr(m.function, "func", None) is token_weight]
        self.known = {n: m for n, m in measures.items() if n in tokens or (n in KNOWN and m is MEASURES[n])}
        number = {name: k for k, name in enumerate(measures)}
        self.places = torch.tensor([number[n] if n in self.known else -1 for n in (*KNOWN, *tokens)])
        self.K = len(measures)

    def read(self, rows: Rows) -> tuple[Float[Tensor, "B H K"], Int[Tensor, "B H K"], float]:
        """Sums over the rows on which each statistic is defined, and how many rows these are; 0 for the unknown.

        And how far from 1 a row sums at most; NaN if one is no number.
        """
        block, weights = rows.block, as_float(rows.weights).contiguous()
        B, H, R, _ = weights.shape
        output, w_o = weights.new_zeros(B, H, R, 0), torch.zeros(H, 0, 0, dtype=torch.float64)
        if rows.output is not None and rows.w_o is not None:
            output, w_o = as_float(rows.output).contiguous(), triangle(rows.w_o).contiguous()
        sums = torch.zeros(B, H, self.K, dtype=torch.float64)
        counts = torch.zeros(B, H, self.K, dtype=torch.int64)
        rest = arrays(output, w_o, *self.scene(block), sums, counts)

        read_some, tiny = loops("kernel").read, torch.finfo(weights.dtype).tiny
        off: list[float] = []

        def read(start: int, stop: int) -> None:
            step = max(TOGETHER // weights[0].numel(), 1)
            logs = torch.empty_like(weights[:step])
            for first in range(start, stop, step):  # so few that their logarithms are still in the cache
                last = min(first + step, stop)
                some, ln = weights[first:last], logs[: last - first]
                torch.clamp(some, min=tiny, out=ln).log_()  # ln 0 takes many times as long
                off.append(read_some(first, last, *arrays(some, ln), *rest))

        in_parallel(read, B, weights.numel())
        return sums, counts, float(torch.tensor(off).amax())

    def uniform(self, block: Block) -> tuple[Float[Tensor, "B 1 K"], Int[Tensor, "B 1 K"]]:
        """The same for a head that attends uniformly to the keys that it may see, of the linear statistics."""
        B = len(block.tokens)
        sums = torch.zeros(B, 1, self.K, dtype=torch.float64)
        counts = torch.zeros(B, 1, self.K, dtype=torch.int64)
        uniform, rest = loops("kernel").uniform, arrays(*self.scene(block), sums, counts)
        in_parallel(lambda start, stop: uniform(start, stop, *rest), B, B * block.allowed[0].numel())
        return sums, counts

    def scene(self, block: Block) -> tuple[Tensor | int, ...]:
        return block.tokens, block.position, block.allowed, block.real, block.rows.start or 0, self.places


def as_float(weights: Tensor) -> Tensor:
    """In float32, or float64 where they are: what machine code is made for."""
    return weights if weights.dtype == torch.float64 else weights.float()


def run(name: str, n: int, size: int, *given: Tensor | int) -> None:
    """Call a function of `sums` on all n, in parallel."""
    function, rest = getattr(loops("sums"), name), arrays(*given)
    in_parallel(lambda start, stop: function(start, stop, *rest), n, size)


def in_parallel(work: Callable[[int, int], None], n: int, size: int) -> None:
    """Call work(start, stop) on as many parts of n as torch has threads; a `size` of few numbers is not cut."""
    parts = min(torch.get_num_threads(), n) if size > FEW else 1
    edges = [n * k // parts for k in range(parts + 1)]
    waiting = [threads().submit(work, *part) for part in pairwise(edges[1:])]
    work(edges[0], edges[1])
    for part in waiting:
        part.result()


def arrays(*given: Tensor | int) -> list[Any]:
    return [t.numpy() if isinstance(t, Tensor) else t for t in given]


def loops(name: str) -> ModuleType:
    """`kernel` or `sums`. Numba is loaded where something is measured, not before."""
    return import_module(f"attnkit.{name}")


@cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="attnkit")
