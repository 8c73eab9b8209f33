"""What is usual for a checkpoint: a small file that says how every head behaves over a whole set.

Beside it one sequence can be placed: is this reading ordinary for this head? The file is read without running code.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Integer

from attnkit.ablation import mean_outputs
from attnkit.data import Batch, Dataset
from attnkit.headstats import collect
from attnkit.importance import EFFECTS, measure_importance
from attnkit.measures import applicable
from attnkit.model import TinyTransformer
from attnkit.reading import Readings
from attnkit.tables import long_frame, wide_frame

FILE = "reference.npz"
EXTREMES = 5  # sequences that are kept of each kind
SHARPNESS = "entropy_normalized"  # a head is sharpest where this is least
LEVELS = np.array([0, 0.001, 0.005, *np.arange(1, 100) / 100, 0.995, 0.999, 1])  # of the quantiles that are kept
BINS = 48  # of a head's histogram
WORTH = ("accuracy_drop", "loss_increase")  # what the set loses when a head puts out nothing


@dataclass(frozen=True)
class Reference:
    """L layers, H heads, K statistics, Q quantiles, b bins, M columns of the table.

    Where a statistic is undefined on all sequences its numbers are NaN.
    """

    data: np.ndarray  # (): the name of the set
    count: np.ndarray  # (): how many sequences it has
    length: np.ndarray  # (): of each of them
    weights_sha256: np.ndarray  # (): of the checkpoint's model.safetensors
    statistics: np.ndarray  # (K,): their names
    quantiles: Float[np.ndarray, "L H K Q"]  # over the sequences, at LEVELS
    histogram: Integer[np.ndarray, "L H K b"]  # of the sequences, in BINS of one width between the least and the most
    columns: np.ndarray  # (M,): WORTH, then the columns of `analysis.head_stats`' table of heads
    means: Float[np.ndarray, "L H M"]  # over the sequences, of each of the columns
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
        if str(found.weights_sha256) != sha256(folder):
            raise ValueError(f"{file}: is of other weights; make it anew with python -m analysis.reference")
        return found


def sha256(folder: Path) -> str:
    """Of the weights that a checkpoint folder holds."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def make_reference(
    model: TinyTransformer, dataset: Dataset, vocab: Sequence[str], weights_sha256: str, *, batch_size: int = 512
) -> Reference:
    """Read all of `dataset`, and keep every sequence's values while it runs.

    Raises ValueError for sequences of several lengths, whose statistics are not comparable, and without labels.
    """
    tokens: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    loss: list[np.ndarray] = []

    def batches() -> Iterator[Batch]:
        for batch in checked(dataset.batches(batch_size)):
            tokens.append(batch.tokens.numpy().astype(np.uint16))
            yield batch

    def keep(readings: Readings) -> None:
        parts.append(readings.values.masked_fill(~readings.defined, torch.nan).float().numpy())
        loss.append(readings.loss.numpy())

    measures = applicable(vocab)
    stats = collect(model, batches(), vocab, on_readings=keep)
    ids, values, losses = (np.concatenate(each) for each in (tokens, parts, loss))  # values (N, L, H, K)
    (length,) = stats.maps
    order = values[..., list(measures).index(SHARPNESS)].argsort(axis=0, kind="stable")  # (N, L, H)
    sharpest, flattest = (np.moveaxis(ids[rows], 0, 2) for rows in (order[:EXTREMES], order[::-1][:EXTREMES]))
    quantiles, histogram = distributions(values)
    classes = [str(c) for c in range(model.config.n_classes)]
    table = wide_frame(long_frame(stats, measures, classes, population=True)).set_index(["layer", "head"])
    worth = measure_importance(model, lambda: dataset.batches(batch_size), methods=["zero"]).of_head["zero"].mean
    of_all = table.to_numpy().reshape(*worth.shape[:2], -1)
    outputs = mean_outputs(model, dataset.batches(batch_size))
    where = Batch(torch.zeros(1, length, dtype=torch.int64, device=next(model.parameters()).device))
    return Reference(
        data=np.array(dataset.name),
        count=np.array(len(values)),
        length=np.array(length),
        weights_sha256=np.array(weights_sha256),
        statistics=np.array(list(measures)),
        quantiles=quantiles,
        histogram=histogram,
        columns=np.array([*WORTH, *table.columns]),
        means=np.concatenate([worth[..., [EFFECTS.index(name) for name in WORTH]].numpy(), of_all], axis=-1),
        mean_attention=stats.maps[length].mean.float().numpy(),
        mean_output=outputs.at(where)[0].float().cpu().numpy(),
        sharpest=sharpest,
        flattest=flattest,
        nearest_wrong=ids[losses.argsort(kind="stable")[::-1][:EXTREMES]],
    )


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


def distributions(values: Float[np.ndarray, "N L H K"]) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles (L, H, K, Q) of what is not NaN, float32, and its histogram (L, H, K, BINS)."""
    quantiles = np.full((*values.shape[1:], len(LEVELS)), np.nan, dtype=np.float32)
    histogram = np.zeros((*values.shape[1:], BINS), dtype=np.uint32)
    for place in zip(*np.nonzero(np.isfinite(values).any(axis=0)), strict=True):
        column = values[(slice(None), *place)]
        column = column[np.isfinite(column)]
        quantiles[place] = np.quantile(column, LEVELS)
        histogram[place] = counts(column.astype(float))
    return quantiles, histogram


def counts(values: Float[np.ndarray, "N"]) -> np.ndarray:
    """How many values lie in each of BINS parts between the least and the greatest; one value alone: in the first."""
    low, high = values.min(), values.max()
    scaled = (values - low) / max(high - low, np.finfo(float).tiny) * BINS
    return np.bincount(scaled.astype(int).clip(max=BINS - 1), minlength=BINS)
