"""Statistics of every head over a whole data set: an immutable value per batch, and `+`.

The way through: a batch runs through the model, each attention call is read into numbers (`reading.Reader`), the
numbers become moments, histograms and sums of maps (`HeadStats`), and `+` merges them, so that memory does not
grow with the data. `attnkit.tables` turns the end result into pandas frames.

One sequence is one observation: queries of one sequence depend on each other and are never counted as such.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnkit.data import Batch, Dataset
from attnkit.measures import Measure, Rows, applicable
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.observe import AttentionCall, observe
from attnkit.reading import Reader

BINS = 256  # bins of every histogram
LONGEST_MAP = 512  # mean maps are kept up to this length; beyond, T × T sums would fill the memory
NO_LABEL = -1


@dataclass(frozen=True)
class Cell:
    """The readings of the sequences of one label and one prediction. L layers, H heads, K statistics."""

    values: Moments  # (L, H, K)
    uniform: Moments  # (K,): the same under uniform attention
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
class MapSums:
    """Sums over the sequences of one length T, in float64; p is a weight, u the same under uniform attention."""

    count: int  # sequences
    weights: Tensor  # (L, H, T, T): Σ p
    squares: Tensor  # (L, H): Σ p²
    uniform: Tensor  # (T, T): u

    def __add__(self, other: "MapSums") -> "MapSums":
        weights, squares = self.weights + other.weights, self.squares + other.squares
        return MapSums(self.count + other.count, weights, squares, self.uniform)

    @property
    def mean(self) -> Float[Tensor, "L H T T"]:
        """The attention map, averaged over the sequences."""
        return self.weights / self.count

    @property
    def departure(self) -> Float[Tensor, "L H"]:
        """Σ_ij (p − u)², averaged over the sequences: how far a head is from uniform."""
        squares = self.squares - 2 * (self.weights * self.uniform).sum(dim=(-2, -1))
        return squares / self.count + self.uniform.square().sum()

    @property
    def departure_of_mean(self) -> Float[Tensor, "L H"]:
        """Σ_ij (mean p − u)²: what of it the position alone explains."""
        return (self.mean - self.uniform).square().sum(dim=(-2, -1))


@dataclass(frozen=True)
class HeadStats:
    """What is known of every head after some sequences. Cells are keyed by (label or −1, predicted class)."""

    names: tuple[str, ...]  # the K statistics, in order
    longest: int  # the longest sequence that the model takes: fixes the histograms' edges
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    maps: dict[int, MapSums] = field(default_factory=dict)  # by sequence length

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
    dataset: Dataset,
    vocab: list[str],
    *,
    batch_size: int = 512,
    progress: Callable[[Iterable[Batch]], Iterable[Batch]] = iter,
) -> HeadStats:
    """Run `model` over `dataset` and return the statistics of all its heads.

    The result does not depend on `batch_size`. Raises ValueError for a model in train mode and for attention that
    is none: rows that do not sum to 1, weight on padding.
    """
    if model.training:
        raise ValueError("model: is in train mode; call model.eval() first")
    measures = applicable(vocab)
    stats = HeadStats(tuple(measures), model.config.max_len)
    for batch in progress(dataset.batches(batch_size)):
        stats = stats + measure_batch(model, batch, measures)
    return stats


@torch.no_grad()
def measure_batch(model: TinyTransformer, batch: Batch, measures: dict[str, Measure]) -> HeadStats:
    """The statistics of one batch."""
    device = next(model.parameters()).device
    batch = batch.to(device)
    reader = Reader(measures, batch.tokens, batch.mask)
    readings, maps = [], []

    def on_call(call: AttentionCall) -> None:
        rows = reader.rows(call)
        readings.append(reader.read(rows))
        maps.append(map_sums(rows, batch.mask))

    with observe(model, on_call):
        logits, _ = model(batch.tokens, batch.mask)
    values, defined = (torch.stack(t, dim=1).cpu() for t in zip(*readings, strict=True))  # (B, L, H, K)
    uniform, said = (t[:, 0].cpu() for t in reader.uniform())  # (B, K)
    bins = Histogram(measures, model.config.max_len)
    predicted = logits.argmax(dim=1).cpu()
    labels = torch.full_like(predicted, NO_LABEL) if batch.labels is None else batch.labels.cpu()
    loss = (
        torch.zeros(0) if batch.labels is None else cross_entropy(logits.double(), batch.labels, reduction="none").cpu()
    )
    cells = {}
    for label, prediction in sorted(set(zip(labels.tolist(), predicted.tolist(), strict=True))):
        chosen = ((labels == label) & (predicted == prediction)).nonzero()[:, 0]
        cells[label, prediction] = Cell(
            Moments.of(values[chosen], defined[chosen]),
            Moments.of(uniform[chosen], said[chosen]),
            bins.count(values[chosen], defined[chosen]),
            Moments.of(loss[chosen] if len(loss) else loss),
        )
    return HeadStats(tuple(measures), model.config.max_len, cells, layered(maps))


def map_sums(blocks: list[Rows], mask: Tensor | None) -> dict[int, MapSums]:
    """The maps of one layer, apart for each length; a sequence's own tokens are cut out, whichever side is padded."""
    sums: dict[int, MapSums] = {}
    for chosen, start, length in spans(blocks[0].weights, mask):
        if length > LONGEST_MAP:
            continue
        span = slice(start, start + length)
        parts = [rows.weights64[chosen, :, :, span] for rows in blocks]
        weights = (torch.cat(parts, dim=2) if len(parts) > 1 else parts[0])[:, :, span]  # (n, H, T, T)
        squares = torch.linalg.vector_norm(weights, dim=(2, 3)).square().sum(dim=0)
        uniform = torch.full((length, length), 1 / length, dtype=torch.float64)
        part = MapSums(len(weights), weights.sum(dim=0)[None].cpu(), squares[None].cpu(), uniform)
        sums[length] = sums[length] + part if length in sums else part
    return sums


def layered(maps: list[dict[int, MapSums]]) -> dict[int, MapSums]:
    """The sums of the layers, one on another."""
    stacked = {}
    for T, first in maps[0].items():
        weights, squares = (torch.cat([getattr(m[T], name) for m in maps]) for name in ("weights", "squares"))
        stacked[T] = MapSums(first.count, weights, squares, first.uniform)
    return stacked


def spans(weights: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor | slice, int, int]]:
    """The sequences that stand in the same columns: which ones, the first column, and how many."""
    if mask is None:
        yield slice(None), 0, weights.shape[-1]
        return
    places = torch.stack([mask.int().argmax(dim=1), mask.sum(dim=1)], dim=1)
    for place in places.unique(dim=0):
        yield (places == place).all(dim=1).nonzero()[:, 0], int(place[0]), int(place[1])


class Histogram:
    """Fixed edges for every statistic, so that counts of different batches add up.

    The first and the last bin also take what lies beyond; `output_norm`'s edges are spaced in the logarithm.
    """

    def __init__(self, measures: dict[str, Measure], longest: int):
        low, high = torch.tensor([m.domain(longest) for m in measures.values()], dtype=torch.float64).unbind(dim=1)
        self.log = torch.tensor([m.log for m in measures.values()])
        self.low, self.high = (torch.where(self.log, t.abs().log(), t) for t in (low, high))

    def count(self, values: Tensor, defined: Tensor) -> Tensor:
        """Counts (…, K, BINS) over the first axis of `values` (N, …, K), where `defined`."""
        shape = values.shape[1:]
        if self.log.any():
            values = torch.where(self.log, values.clamp(min=1e-300).log(), values)
        bins = ((values - self.low) * (BINS / (self.high - self.low))).long().clamp(0, BINS - 1)
        places = torch.arange(shape.numel()).reshape(shape) * BINS + bins
        nowhere = shape.numel() * BINS  # one place more, for what is undefined
        counts = torch.bincount(torch.where(defined, places, nowhere).flatten(), minlength=nowhere + 1)
        return counts[:nowhere].reshape(*shape, BINS)

    def edges(self) -> Tensor:
        """(K, BINS + 1)"""
        steps = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)
        edges = self.low[:, None] + (self.high - self.low)[:, None] * steps
        return torch.where(self.log[:, None], edges.exp(), edges)
