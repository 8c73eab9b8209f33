"""How many may compute at once, and how many may wait for it: one limit for every way in. No gradio here.

Gradio's own queue is one way in of several, and is full in English only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from demo.words import Refusal

Answer = TypeVar("Answer")


@dataclass
class Lane:
    at_once: CapacityLimiter
    most: int  # in the lane together, those who wait and those who compute; who comes after them is refused
    inside: int = 0

    async def run(self, compute: Callable[[], Answer]) -> Answer:
        """What `compute` returns, in a thread, when it is its turn. Raises Refusal where too many came before."""
        if self.inside >= self.most:
            raise Refusal("busy", most=self.most)
        self.inside += 1
        try:
            return await to_thread.run_sync(compute, limiter=self.at_once)
        finally:
            self.inside -= 1


# Two cores. An edit takes milliseconds: it does not wait behind files and rankings.
EDITS = Lane(CapacityLimiter(2), most=64)
REST = Lane(CapacityLimiter(2), most=64)
