"""Statistics of every head over a whole data set: an immutable value per batch, and `+`.

The way through: a batch runs through the model, each attention call is read into numbers (`reading.Reader`), the
numbers become moments, histograms and sums of maps (`HeadStats`), and `+` merges them, so that memory does not
grow with the data. `attnkit.tables` turns the end result into pandas frames.

One sequence is one observation: queries of one sequence depend on each other and are never counted as such.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from attnkit.data import Batch
from attnkit.histogram import Histogram
from attnkit.meanmaps import MapSums
from attnkit.measures import Measure, applicable
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.reading import Readings, read_batch


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
        bins = Histogram(measures, longest)
        kinds = torch.stack([readings.labels, readings.predicted], dim=1)
        cells = {}
        for label, predicted in sorted(set(map(tuple, kinds.tolist()))):
            chosen = (kinds == torch.tensor([label, predicted])).all(dim=1).nonzero()[:, 0]
            values, defined, loss = readings.values[chosen], readings.defined[chosen], readings.loss[chosen]
            cells[label, predicted] = Cell(
                Moments.of(values, defined),
                Moments.of(readings.uniform[chosen], readings.said[chosen]),
                bins.count(values, defined),
                Moments.of(loss, ~loss.isnan()),
            )
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


Value = TypeVar("Value", Cell, MapSums)


def merge(a: dict[Any, Value], b: dict[Any, Value]) -> dict[Any, Value]:
    return {key: a[key] + b[key] if key in a and key in b else (a if key in a else b)[key] for key in sorted({*a, *b})}


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
    measures = applicable(vocab)
    stats = HeadStats(tuple(measures), model.config.max_len)
    for batch in batches:
        readings = read_batch(model, batch, measures)
        if on_readings:
            on_readings(readings)
        stats = stats + HeadStats.of(readings, measures, model.config.max_len)
    return stats
