"""Statistics of every head over a whole data set: an immutable value per batch, and `+`.

The way through: a batch runs through the model, each attention call is read into numbers (`reading.Reader`), the
numbers become moments, histograms and sums of maps (`HeadStats`), and `+` merges them, so that memory does not
grow with the data. `attnkit.tables` turns the end result into pandas frames.

One sequence is one observation: queries of one sequence depend on each other and are never counted as such.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.data import Batch
from attnkit.fused import run
from attnkit.histogram import Histogram
from attnkit.meanmaps import MapSums
from attnkit.measures import Measure, applicable
from attnkit.model import TinyTransformer
from attnkit.moments import Moments, merge
from attnkit.reading import NO_LABEL, Readings, joined, read_batch
from attnkit.workers import cut, side_by_side

TOGETHER = 4  # batches whose readings are summed at a time


@dataclass(frozen=True)
class Cell:
    """The readings of the sequences of one label and one prediction. L layers, H heads, K statistics."""

    values: Moments  # (L, H, K)
    uniform: Moments  # (L, K): the same under uniform attention
    histogram: Tensor  # (L, H, K, BINS) int64
    loss: Moments  # (): cross-entropy in nats; without labels, of nothing

    def __add__(self, other: "Cell") -> "Cell":
        return Cell(
            self.values + other.values,
            self.uniform + other.uniform,
            self.histogram + other.histogram,
            self.loss + other.loss,
        )


@dataclass(frozen=True)
class HeadStats:
    """What is known of every head after some sequences. Cells are keyed by (label or −1, predicted class)."""

    names: tuple[str, ...]  # the K statistics, in order
    longest: int  # the longest sequence that the model takes: fixes the histograms' edges
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    maps: dict[int, MapSums] = field(default_factory=dict)  # by sequence length

    @classmethod
    def of(cls, readings: Readings, measures: dict[str, Measure], longest: int) -> "HeadStats":
        """The statistics of one batch."""
        classes = int(readings.predicted.amax()) + 2  # NO_LABEL is one of them
        code = (readings.labels - NO_LABEL) * classes + readings.predicted - NO_LABEL
        codes, cell = code.unique(return_inverse=True)
        kinds = [(c // classes + NO_LABEL, c % classes + NO_LABEL) for c in codes.tolist()]
        values = moments_by(cell, len(kinds), readings.values, readings.defined)
        uniform = moments_by(cell, len(kinds), readings.uniform[:, None], readings.said[:, None])
        losses = moments_by(
            cell, len(kinds), readings.loss[:, None, None, None], ~readings.loss.isnan()[:, None, None, None]
        )
        counts = Histogram(measures, longest).count(readings.values, readings.defined, cell, len(kinds))
        cells = {
            (label, predicted): Cell(values[c], uniform[c].at(0), counts[c], losses[c].at(0, 0, 0))
            for c, (label, predicted) in enumerate(kinds)
        }
        return cls(tuple(measures), longest, cells, readings.maps)

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return sum(int(cell.values.count.amax()) for cell in self.cells.values())

    def __add__(self, other: "HeadStats") -> "HeadStats":
        """The statistics of both sets of sequences together; neither operand changes."""
        if (self.names, self.longest) != (other.names, other.longest):
            raise ValueError("statistics of different models cannot be added")
        return HeadStats(self.names, self.longest, merge(self.cells, other.cells), merge(self.maps, other.maps))


def moments_by(
    cell: Int[Tensor, "N"], cells: int, values: Float[Tensor, "N L H K"], defined: Bool[Tensor, "N L H K"]
) -> list[Moments]:
    """`Moments.of` the values (L, H, K) of every cell: `cell` says to which of `cells` a sequence belongs."""
    shape = cells, *values.shape[1:]
    count, mean, m2 = (torch.zeros(shape, dtype=torch.float64) for _ in range(3))
    low, high = torch.full_like(mean, torch.inf), torch.full_like(mean, -torch.inf)
    fields = count, mean, m2, low, high
    given = [t.contiguous().flatten(1, 2) for t in (values, defined)]
    run("moments", given[0].shape[1], values.numel(), *given, cell, *(t.flatten(1, 2) for t in fields))
    return [Moments(*of_cell) for of_cell in zip(*fields, strict=True)]


def collect(
    model: TinyTransformer,
    batches: Iterable[Batch],
    vocab: Sequence[str],
    *,
    on_readings: Callable[[Readings], None] | None = None,
) -> HeadStats:
    """Run `model` over `batches` and return the statistics of all its heads.

    How the sequences are cut into batches changes nothing. `on_readings` is handed every batch's numbers, in order.
    Raises ValueError as `reading.read_batch` does.
    """
    measures, longest = applicable(vocab), model.config.max_len

    def part(own: TinyTransformer, some: list[Batch]) -> tuple[list[Readings], HeadStats]:
        read = [read_batch(own, batch, measures) for batch in some]
        return read if on_readings else [], HeadStats.of(joined(read), measures, longest)

    stats = HeadStats(tuple(measures), longest)
    for read, of_part in side_by_side(model, part, cut(batches, TOGETHER)):
        stats = stats + of_part
        if on_readings:
            for readings in read:
                on_readings(readings)
    return stats
