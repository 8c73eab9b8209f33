"""Batches side by side: a thread and modules of its own for each, the weights shared by all."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch

from attnkit.observe import Model, private

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(model: Model, work: Callable[[Model, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """work(model, item) of every item, in order; on a CPU of as many side by side as torch has threads.

    Meanwhile torch's operations take one thread each: a small model's are too short to be shared among threads.
    """
    at_once = torch.get_num_threads()
    if at_once == 1 or next(model.parameters()).device.type != "cpu":
        yield from (work(model, item) for item in items)
        return
    models = [private(model) for _ in range(at_once)]  # a thread takes one, and puts it back

    def run(item: Item) -> Result:
        own = models.pop()
        try:
            return work(own, item)
        finally:
            models.append(own)

    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="attnkit-batches")
    torch.set_num_threads(1)
    try:
        for item in items:
            waiting.append(pool.submit(run, item))
            if len(waiting) > at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(at_once)


def cut(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """So many in a row at a time."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
