"""From what people type to what the model reads, and a data set as a stream of batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnkit.tasks import Task


@dataclass(frozen=True)
class Batch:
    """Some sequences side by side. `mask` is True on real tokens; None where there is no padding."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None = None
    labels: Int[Tensor, "B"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Some of the sequences: a slice of them, or those at these indices."""
        return self.each(lambda t: t[rows])

    def split(self, size: int) -> Iterator["Batch"]:
        """The sequences in order, `size` at a time."""
        return (self[i : i + size] for i in range(0, len(self), size))

    def to(self, device: torch.device | str) -> "Batch":
        return self.each(lambda t: t.to(device))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        def changed(t: Tensor | None) -> Tensor | None:
            return None if t is None else change(t)

        return Batch(change(self.tokens), changed(self.mask), changed(self.labels))


@dataclass(frozen=True)
class DataConfig:
    """Which sequences of its task a checkpoint was trained and tested on. The defaults are the article's."""

    length: int = 16  # L, tokens of a sequence
    n_train: int = 2000  # training sequences
    n_test: int = 500  # test sequences
    train_seed: int = 1  # draws the training sequences
    test_seed: int = 2  # draws the test sequences

    def __post_init__(self) -> None:
        for name in ("length", "n_train", "n_test"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, allowed is a whole number of at least 1")


def task_sets(task: Task, config: DataConfig) -> tuple[Batch, Batch]:
    """The training and the test sequences, with their labels."""
    train_x, train_y = task.sample(config.n_train, config.length, config.train_seed)
    test_x, test_y = task.sample(config.n_test, config.length, config.test_seed)
    return Batch(train_x, labels=train_y), Batch(test_x, labels=test_y)


@dataclass(frozen=True)
class Dataset:
    """Sequences that are read a batch at a time, so that memory does not grow with their number."""

    name: str  # what run.json calls it
    size: int | None  # sequences in all; None where only reading them tells
    population: bool  # True if these are all sequences there are: then there is no sampling error
    batches: Callable[[int], Iterator[Batch]]  # batch size -> the batches, in a fixed order


def task_dataset(task: Task, config: DataConfig, split: str) -> Dataset:
    """The `test` sequences that a checkpoint was held to, or the `exhaustive` set of its length."""
    if split == "exhaustive":
        size = task.count(config.length)

        def enumerated(batch_size: int) -> Iterator[Batch]:
            for start in range(0, size, batch_size):
                x, y = task.enumerate(config.length, start, start + batch_size)
                yield Batch(x, labels=y)

        return Dataset(f"all {size:,} sequences of length {config.length}", size, True, enumerated)
    if split == "test":
        _, drawn = task_sets(task, config)
        name = f"the {config.n_test:,} test sequences (seed {config.test_seed})"
        return Dataset(name, config.n_test, False, drawn.split)
    raise ValueError(f"split: got {split!r}, allowed is test or exhaustive")


def encode(text: str, vocab: Sequence[str], max_len: int) -> Int[Tensor, "T"]:
    """Turn a typed sequence into token ids.

    One character is one token; where the vocabulary has longer tokens they are set apart by spaces. Raises
    ValueError, in words for the person who typed it, for an empty sequence, one longer than `max_len`, or a token
    that is not in the vocabulary; positions are counted from 1.
    """
    word, tokens = ("token", text.split()) if separator(vocab) else ("character", list(text))
    if not tokens:
        raise ValueError(f"the sequence is empty; type 1 to {max_len} of the {word}s {show(vocab)}")
    ids = {token: i for i, token in enumerate(vocab)}
    for position, token in enumerate(tokens, start=1):
        if token not in ids:
            raise ValueError(f"{word} {token!r} at position {position} is not in the vocabulary {show(vocab)}")
    if len(tokens) > max_len:
        raise ValueError(f"{len(tokens)} tokens; this checkpoint takes at most {max_len}")
    return torch.tensor([ids[token] for token in tokens])


def separator(vocab: Sequence[str]) -> str:
    """What stands between the tokens of a typed sequence."""
    return "" if all(len(token) == 1 for token in vocab) else " "


def show(vocab: Sequence[str]) -> str:
    return "{" + ",".join(vocab) + "}"


def pad(sequences: Sequence[Tensor], side: str = "right") -> Batch:
    """Stack token ids of different lengths; `mask` is True on the real ones. Padding has id 0, which is never read."""
    T = max(len(s) for s in sequences)
    tokens = torch.zeros(len(sequences), T, dtype=torch.int64)
    mask = torch.zeros(len(sequences), T, dtype=torch.bool)
    for row, s in enumerate(sequences):
        where = slice(T - len(s), T) if side == "left" else slice(0, len(s))
        tokens[row, where] = s
        mask[row, where] = True
    return Batch(tokens, mask)
