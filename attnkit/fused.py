"""All row statistics in one pass over the scores: the plain formulas' numbers, on a CPU, many times as fast.

The plain formulas go through the weights of a batch once for every statistic, and these do not stay in the cache.
Here the softmax of every map is taken and read while it is there, for all statistics that the project comes with; any
other is left to its plain formula. Where there are weights and no scores, these are read in the same way. All sums
are float64 and of one sequence, so that nothing depends on what else is in the batch.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnkit.measures import MEASURES, Measure, special_weight, token_weight, triangle
from attnkit.rows import Block, Rows

# In the order of `kernel`; after them come the weights on each token.
KNOWN = (
    *("entropy", "entropy_normalized", "max_weight", "effective_keys", "distance", "offset"),
    *("self_weight", "previous_weight", "next_weight", "first_weight", "last_weight"),
    *("duplicate_weight", "induction_weight", "selectivity", "special_weight", "output_norm"),
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
        self.commons: dict[int, Common] = {}  # of each block, by its identity

    def read(self, rows: Rows) -> tuple[Float[Tensor, "B H K"], Int[Tensor, "B H K"], float]:
        """Sums over the rows on which each statistic is defined, and how many rows these are; 0 for the unknown.

        And how far from 1 a row sums at most; NaN if one is no number.
        """
        found = self._read(rows.block, as_float(rows.weights).contiguous(), scores=False)
        if rows.output is not None:
            self.read_output(rows, *found[:2])
        return found

    def read_scores(
        self, scores: Float[Tensor, "B H R T"], block: Block
    ) -> tuple[Float[Tensor, "B H K"], Int[Tensor, "B H K"], float]:
        """The same of what is not softmax(scores) yet, but for the outputs; weights are written in the place of scores.

        These are contiguous and float32, and the lowest finite number where a key is hidden.
        """
        return self._read(block, scores, scores=True)

    def _read(self, block: Block, weights: Tensor, *, scores: bool) -> tuple[Tensor, Tensor, float]:
        B, H, _, _ = weights.shape
        sums = torch.zeros(B, H, self.K, dtype=torch.float64)
        counts = torch.zeros(B, H, self.K, dtype=torch.int64)
        common = self.common(block)
        rest = *common.given, *arrays(sums, counts), not common.read, *arrays(common.sums, common.counts)
        read_some, tiny = loops("kernel").read, torch.finfo(weights.dtype).tiny
        off: list[float] = []

        def read(start: int, stop: int) -> None:
            step = stop - start if scores else max(TOGETHER // weights[0].numel(), 1)
            logs = weights[:0] if scores else torch.empty_like(weights[:step])
            for first in range(start, stop, step):  # so few that their logarithms are still in the cache
                last = min(first + step, stop)
                some, ln = weights[first:last], logs[: last - first]
                if not scores:
                    torch.clamp(some, min=tiny, out=ln).log_()  # ln 0 takes many times as long
                off.append(read_some(first, last, *arrays(some, ln), scores, *rest))

        in_parallel(read, B, weights.numel())
        common.read = True
        return sums, counts, float(np.max(off))

    def read_output(
        self, rows: Rows, sums: Float[Tensor, "B H K"], counts: Int[Tensor, "B H K"]
    ) -> Float[Tensor, "B H R d"]:
        """Write to `sums` and `counts` what there is to say of the outputs, and return these.

        What the heads write on one token then lies side by side, as the output projection takes it.
        """
        assert rows.output is not None
        k = int(self.places[KNOWN.index("output_norm")])
        if k < 0 or rows.w_o is None:
            return rows.output
        output = as_float(rows.output).contiguous()
        by_token = torch.empty_like(output.transpose(1, 2), memory_format=torch.contiguous_format)
        given = arrays(output, triangle(rows.w_o).contiguous(), rows.block.real, k, sums, counts, by_token)
        norms = loops("norms").norms
        in_parallel(lambda start, stop: norms(start, stop, *given), len(output), output.numel())
        return by_token.transpose(1, 2).to(rows.output.dtype)

    def uniform(self, block: Block) -> tuple[Float[Tensor, "B 1 K"], Int[Tensor, "B 1 K"]]:
        """The same for a head that attends uniformly to the keys that it may see; known once a block was read."""
        common = self.common(block)
        if not common.read:
            B, R, T = len(block.tokens), *block.allowed.shape[1:]
            self._read(block, torch.empty(B, 0, R, T), scores=True)
        return common.sums, common.counts

    def common(self, block: Block) -> "Common":
        if id(block) not in self.commons:
            self.commons[id(block)] = Common.of(block, self.places, self.K)
        return self.commons[id(block)]


@dataclass
class Common:
    """What is the same for all heads of a block, and all layers."""

    block: Block
    given: list[Any]  # to `kernel.read`
    sums: Float[Tensor, "B 1 K"]  # of uniform attention
    counts: Int[Tensor, "B 1 K"]
    read: bool = False  # whether these are known yet

    @classmethod
    def of(cls, block: Block, places: Int[Tensor, "_"], K: int) -> "Common":
        B, T = block.tokens.shape
        special, asked = (torch.zeros(1, n, dtype=torch.bool) for n in (T, block.real.shape[1]))
        if block.special is not None:
            special, (_, asked) = block.special.contiguous(), special_weight(block)
        where = block.position, block.allowed, block.real, special, asked
        given = arrays(block.tokens, *where, block.rows.start or 0, places)
        sums = torch.zeros(B, 1, K, dtype=torch.float64)
        return cls(block, given, sums, torch.zeros_like(sums, dtype=torch.int64))


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
    """`kernel`, `norms` or `sums`. Numba is loaded where something is measured, not before."""
    return import_module(f"attnkit.{name}")


@cache
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="attnkit")
