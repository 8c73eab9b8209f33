"""What is usual for a checkpoint: a small file that says how every head behaves over a whole set.

Beside it one sequence can be placed: is this reading ordinary for this head? The file is read without running code.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Integer

from attnkit.ablation import mean_outputs
from attnkit.checkpoint import load_checkpoint, read_checkpoint
from attnkit.data import Batch, Dataset
from attnkit.differences import difference_frame
from attnkit.files import sha256
from attnkit.headstats import collect
from attnkit.importance import EFFECTS, Importance, measure_importance
from attnkit.measures import applicable
from attnkit.model import TinyTransformer
from attnkit.reading import Readings
from attnkit.snapshots import load_snapshot, snapshots
from attnkit.tables import Z95, long_frame, wide_frame

FILE = "reference.npz"
EXTREMES = 5  # sequences that are kept of each kind
SHARPNESS = "entropy_normalized"  # a head is sharpest where this is least
LEVELS = np.array([0, 0.001, 0.005, *np.arange(1, 100) / 100, 0.995, 0.999, 1])  # of the quantiles that are kept
BINS = 48  # of a head's histogram
WORTH = ("accuracy_drop", "loss_increase")  # what the set loses when a head puts out nothing
METHODS = ("zero", "mean")  # of ablation, that WORTH is measured by


@dataclass(frozen=True)
class Reference:
    """L layers, H heads, K statistics, Q quantiles, C classes, b bins, M columns of the table, S snapshots.

    Where a statistic is undefined on all sequences its numbers are NaN.
    """

    data: np.ndarray  # (): the name of the set
    count: np.ndarray  # (): how many sequences it has
    length: np.ndarray  # (): of each of them
    weights_sha256: np.ndarray  # (): of the checkpoint's model.safetensors
    classes: np.ndarray  # (C,): their names
    statistics: np.ndarray  # (K,): their names
    quantiles: Float[np.ndarray, "L H K Q"]  # over the sequences, at LEVELS
    histogram: Integer[np.ndarray, "L H K C b"]  # of each label's sequences, in BINS between the least and most of all
    columns: np.ndarray  # (M,): WORTH, then the columns of `analysis.head_stats`' table of heads
    means: Float[np.ndarray, "L H M"]  # over the sequences, of each of the columns
    uniform: Float[np.ndarray, "M"]  # the same under uniform attention; NaN where that says nothing
    worth: Float[np.ndarray, "L H m E 3"]  # by METHODS, of WORTH: mean and 95 % interval, which no population has (NaN)
    differences: np.ndarray  # a record for each row of `differences.difference_frame`
    steps: Integer[np.ndarray, "S"]  # of training, before each snapshot of the checkpoint; it may have none
    training: Float[np.ndarray, "S L H M"]  # `means` of each snapshot
    mean_attention: Float[np.ndarray, "L H T T"]
    mean_output: Float[np.ndarray, "L H T d"]  # what each head puts out at each position, before W_o
    sharpest: Integer[np.ndarray, "L H n T"]  # token ids: where SHARPNESS is least, the least first
    flattest: Integer[np.ndarray, "L H n T"]  # where it is greatest, the greatest first
    nearest_wrong: Integer[np.ndarray, "n T"]  # where the loss is largest, the largest first

    def percentiles(self, values: Float[np.ndarray, "L H K"]) -> Float[np.ndarray, "L H K"]:
        """The share of the set's sequences below each value, in percent; ties count half. NaN where undefined."""
        places = np.full(values.shape, np.nan)
        for place in zip(*np.nonzero(np.isfinite(values) & np.isfinite(self.quantiles[..., 0])), strict=True):
            around = 1e-6 * max(abs(values[place]), 1e-3)  # the file's numbers are float32
            edges = [values[place] - around, values[place] + around]
            places[place] = 100 * np.interp(edges, self.quantiles[place].astype(float), LEVELS).mean()
        return places

    def save(self, folder: Path) -> Path:
        np.savez_compressed(folder / FILE, **{f.name: getattr(self, f.name) for f in fields(self)})
        return folder / FILE

    @classmethod
    def load(cls, folder: Path) -> "Reference":
        """Raises ValueError for a file that is damaged or of other weights than the folder's, OSError for none."""
        file = folder / FILE
        try:
            with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                missing = {f.name for f in fields(cls)} - set(arrays)
                found = None if missing else cls(**{f.name: arrays[f.name] for f in fields(cls)})
        except OSError:
            raise
        except Exception as error:  # a damaged file raises whatever its reader trips over
            raise ValueError(f"{file}: is damaged, or no reference ({error})") from None
        if found is None:
            missed = ", ".join(sorted(missing))
            raise ValueError(f"{file}: has no {missed}; make it anew with python -m analysis.reference")
        if str(found.weights_sha256) != sha256(folder / "model.safetensors"):
            raise ValueError(f"{file}: is of other weights; make it anew with python -m analysis.reference")
        return found


def make_reference(
    folder: Path,
    dataset: Dataset,
    *,
    device: str | torch.device = "cpu",
    batch_size: int = 512,
    tick: Callable[[], object] = lambda: None,
) -> Reference:
    """Read all of `dataset` by a checkpoint, and keep every sequence's values while it runs.

    The same, but for single sequences, by each of its snapshots; `tick` is called after each.
    Raises ValueError for sequences of several lengths, whose statistics are not comparable, and without labels.
    """
    info, model = read_checkpoint(folder), load_checkpoint(folder, device)
    vocab, classes = info.task.vocab, info.task.classes
    tokens: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    loss: list[np.ndarray] = []

    def batches() -> Iterator[Batch]:
        for batch in checked(dataset.batches(batch_size)):
            tokens.append(batch.tokens.numpy().astype(np.uint16))
            yield batch

    def keep(readings: Readings) -> None:
        parts.append(readings.values.masked_fill(~readings.defined, torch.nan).float().numpy())
        labels.append(readings.labels.numpy())
        loss.append(readings.loss.numpy())

    def importance_of(some: TinyTransformer, *methods: str) -> Importance:
        return measure_importance(some, lambda: dataset.batches(batch_size), methods=methods)

    measures = applicable(vocab)
    stats = collect(model, batches(), vocab, on_readings=keep)
    ids, values, losses = (np.concatenate(each) for each in (tokens, parts, loss))  # values (N, L, H, K)
    (length,) = stats.maps
    order = values[..., list(measures).index(SHARPNESS)].argsort(axis=0, kind="stable")  # (N, L, H)
    sharpest, flattest = (np.moveaxis(ids[rows], 0, 2) for rows in (order[:EXTREMES], order[::-1][:EXTREMES]))
    quantiles, histogram = distributions(values, np.concatenate(labels), len(classes))
    long = long_frame(stats, measures, classes, population=dataset.population)
    importance = importance_of(model, *METHODS)
    table = table_of(long, importance)

    steps, training = [], []
    for step, _ in snapshots(folder):
        earlier = load_snapshot(folder, step, device)
        then = long_frame(collect(earlier, dataset.batches(batch_size), vocab), measures, classes, population=True)
        steps.append(step)
        training.append(table_of(then, importance_of(earlier, "zero")).reindex(columns=table.columns))
        tick()

    def by_head(frame: pd.DataFrame) -> np.ndarray:
        return frame.to_numpy().reshape(model.config.n_layers, model.config.n_heads, -1)

    outputs = mean_outputs(model, dataset.batches(batch_size))
    where = Batch(torch.zeros(1, length, dtype=torch.int64, device=next(model.parameters()).device))
    return Reference(
        data=np.array(dataset.name),
        count=np.array(len(values)),
        length=np.array(length),
        weights_sha256=np.array(sha256(folder / "model.safetensors")),
        classes=np.array(classes),
        statistics=np.array(list(measures)),
        quantiles=quantiles,
        histogram=histogram,
        columns=np.array(table.columns, dtype=str),
        means=by_head(table),
        uniform=long[long["group"] == "all"].groupby("statistic")["uniform"].mean().reindex(table.columns).to_numpy(),
        worth=np.stack([worth_of(importance, method, dataset.population) for method in METHODS], axis=2),
        differences=records(difference_frame(long, population=dataset.population)),
        steps=np.array(steps, dtype=np.int64),
        training=np.array([by_head(frame) for frame in training], dtype=np.float32).reshape(-1, *by_head(table).shape),
        mean_attention=stats.maps[length].mean.float().numpy(),
        mean_output=outputs.at(where)[0].float().cpu().numpy(),
        sharpest=sharpest,
        flattest=flattest,
        nearest_wrong=ids[losses.argsort(kind="stable")[::-1][:EXTREMES]],
    )


def table_of(long: pd.DataFrame, importance: Importance) -> pd.DataFrame:
    """The columns of `Reference`, a row a head."""
    table = wide_frame(long).set_index(["layer", "head"])
    zero = importance.of_head["zero"].mean
    for place, name in enumerate(WORTH):
        table.insert(place, name, zero[..., EFFECTS.index(name)].ravel().numpy())
    return table


def worth_of(importance: Importance, method: str, population: bool) -> Float[np.ndarray, "L H E 3"]:
    m, places = importance.of_head[method], [EFFECTS.index(name) for name in WORTH]
    half = m.mean * torch.nan if population else Z95 * m.sem
    return torch.stack([m.mean, m.mean - half, m.mean + half], dim=-1)[..., places, :].numpy()


def records(frame: pd.DataFrame) -> np.ndarray:
    """The rows as one array, which is saved without pickling: text has a width."""
    kinds: dict[str, str] = {}
    for name, column in frame.items():
        if pd.api.types.is_numeric_dtype(column):
            kinds[str(name)] = "<i4" if pd.api.types.is_integer_dtype(column) else "<f8"
        else:
            kinds[str(name)] = f"<U{max(column.str.len(), default=1)}"
    return np.array(frame.to_records(index=False, column_dtypes=kinds))


def checked(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches. Raises ValueError at the first that has another length, or no labels."""
    lengths: set[int] = set()
    for batch in batches:
        lengths |= {batch.tokens.shape[1]} if batch.mask is None else set(batch.mask.sum(dim=1).tolist())
        if len(lengths) > 1:
            raise ValueError(
                f"data: has sequences of {min(lengths)} and of {max(lengths)} tokens; allowed is one length"
            )
        if batch.labels is None:
            raise ValueError("data: has no labels; without them nobody knows where the model is nearest to wrong")
        yield batch


def distributions(
    values: Float[np.ndarray, "N L H K"], labels: Integer[np.ndarray, "N"], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles (L, H, K, Q) of what is not NaN, float32, and each label's histogram (L, H, K, C, BINS)."""
    quantiles = np.full((*values.shape[1:], len(LEVELS)), np.nan, dtype=np.float32)
    histogram = np.zeros((*values.shape[1:], classes, BINS), dtype=np.uint32)
    for place in zip(*np.nonzero(np.isfinite(values).any(axis=0)), strict=True):
        column = values[(slice(None), *place)]
        there = np.isfinite(column)
        quantiles[place] = np.quantile(column[there], LEVELS)
        histogram[place] = counts(column[there].astype(float), labels[there], classes)
    return quantiles, histogram


def counts(values: Float[np.ndarray, "N"], labels: Integer[np.ndarray, "N"], classes: int) -> np.ndarray:
    """(C, BINS): how many values of each label lie in each of BINS parts between the least and the greatest of all.

    One value alone: in the first.
    """
    low, high = values.min(), values.max()
    scaled = (values - low) / max(high - low, np.finfo(float).tiny) * BINS
    bins = scaled.astype(int).clip(max=BINS - 1)
    return np.bincount(labels * BINS + bins, minlength=classes * BINS).reshape(classes, BINS)
