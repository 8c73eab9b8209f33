"""Synthetic tasks: sequences over a small vocabulary and the rule that labels them.

The majority task is the article's. Its rule, written down here once and shown everywhere from here:
a sequence is a majority (class 1) if MORE than half of its tokens are ones; a tie (8 of 16) is not.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

MAX_EXHAUSTIVE = 1 << 20  # sequences that are ever enumerated; 2^20 of them are 168 MB of int64


@dataclass(frozen=True)
class Task:
    """A labelled family of sequences, as the registry keeps it and a checkpoint names it."""

    name: str
    vocab: tuple[str, ...]  # token id -> what is typed and drawn
    classes: tuple[str, ...]  # class -> its name
    rule: str  # one sentence for people
    label: Callable[[Tensor], Tensor]  # tokens (B, T) -> classes (B,)

    def sample(self, n: int, L: int, seed: int) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n"]]:
        """Draw `n` sequences of `L` independent, equally likely tokens; the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(0, len(self.vocab), (n, L), generator=generator)
        return x, self.label(x)

    def enumerate(self, L: int, start: int = 0, stop: int | None = None) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n"]]:
        """Return the sequences `start` to `stop` of all V^L, in counting order.

        Sequence r is r written in base V, the most significant digit first: at L = 2 and V = 2 the order is
        00, 01, 10, 11. Raises ValueError for an `L` with more than 2^20 sequences.
        """
        total = self.count(L)
        r = torch.arange(start, total if stop is None else min(stop, total))
        powers = len(self.vocab) ** torch.arange(L - 1, -1, -1)
        x = r.unsqueeze(1) // powers % len(self.vocab)
        return x, self.label(x)

    def count(self, L: int) -> int:
        """How many sequences of length L there are, V^L."""
        if L < 1 or len(self.vocab) ** L > MAX_EXHAUSTIVE:
            raise ValueError(
                f"L: got {L}; {len(self.vocab)} tokens can be enumerated from length 1 to {MAX_EXHAUSTIVE:,} sequences"
            )
        return len(self.vocab) ** L


def is_majority(x: Int[Tensor, "B T"]) -> Int[Tensor, "B"]:
    """1 where more than half of the tokens are ones, else 0 (a tie is 0)."""
    return (2 * x.sum(dim=1) > x.shape[1]).long()


MAJORITY = Task(
    name="majority",
    vocab=("0", "1"),
    classes=("not majority", "majority"),
    rule="A sequence is a majority if more than half of its tokens are ones; a tie, such as 8 of 16, is not.",
    label=is_majority,
)

TASKS = {task.name: task for task in (MAJORITY,)}


def get_task(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"task: got {name!r}, allowed is one of {', '.join(TASKS)}")
    return TASKS[name]


def make_data(n: int, L: int, seed: int) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n"]]:
    """The article's data, to the bit: `n` random bit sequences of length `L` and their majority labels, int64."""
    return MAJORITY.sample(n, L, seed)


def exhaustive(L: int) -> tuple[Int[Tensor, "n L"], Int[Tensor, "n"]]:
    """All 2^L bit sequences in counting order (0…00, 0…01, 0…10, …) and their majority labels, int64."""
    return MAJORITY.enumerate(L)


def share_seen(test: Int[Tensor, "n T"], train: Int[Tensor, "m T"]) -> float:
    """The share of the test sequences that also stand in the training set, 0 to 1."""
    seen = {tuple(row) for row in train.tolist()}
    return sum(tuple(row) in seen for row in test.tolist()) / len(test)
