"""Texts of one's own: from a file to what a transformers model reads.

One text a line (.txt), or a column `text` (.csv, .jsonl, .parquet); read a piece at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool
from torch import Tensor

from attnkit import sequences
from attnkit.data import Batch, pad

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMN = "text"
ENDINGS = (".txt", *sequences.READERS)


@dataclass(frozen=True)
class TextBatch(Batch):
    """Some texts side by side, as a tokenizer cut them."""

    special: Bool[Tensor, "B T"] | None = None  # True on tokens that the tokenizer put there, such as [SEP]

    def each(self, change: Callable[[Tensor], Tensor]) -> TextBatch:
        mask, labels, special = (None if t is None else change(t) for t in (self.mask, self.labels, self.special))
        return TextBatch(change(self.tokens), mask, labels, special)


@dataclass
class Texts:
    """The texts of a file. After its batches have been read, it is known how many there were and how many were cut."""

    path: Path
    tokenizer: PreTrainedTokenizerBase
    longest: int  # tokens of a text, special ones included; what goes beyond is cut off
    count: int = 0
    truncated: int = 0

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.path.suffix not in ENDINGS:
            raise ValueError(f"text: got {self.path.name!r}, allowed are files that end in {', '.join(ENDINGS)}")
        if not self.path.is_file():
            raise FileNotFoundError(f"text: there is no file {self.path.resolve()}")
        fewest = self.tokenizer.num_special_tokens_to_add() + 1
        if self.longest < fewest:
            raise ValueError(f"longest: got {self.longest}, allowed is a whole number of at least {fewest}")

    def batches(self, size: int) -> Iterator[TextBatch]:
        """The texts in order, `size` at a time. Raises ValueError naming the file, the row and what is wrong there."""
        self.count = self.truncated = 0
        texts = read_texts(self.path)
        while chunk := list(islice(texts, size)):
            batch, truncated = encode_texts(self.tokenizer, chunk, self.longest)
            if batch.mask is not None and not batch.mask.any(dim=1).all():
                row = self.count + int(batch.mask.any(dim=1).int().argmin()) + 1
                raise ValueError(f"{self.path}: row {row}: text: the tokenizer makes no token of it")
            self.count += len(chunk)
            self.truncated += truncated
            yield batch
        if not self.count:
            raise ValueError(f"{self.path}: has no texts")


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a file; blank lines of a .txt are none."""
    if path.suffix == ".txt":
        with open(path, encoding="utf-8-sig") as file:
            try:
                yield from (line.strip() for line in file if line.strip())
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
        return
    for number, row in enumerate(sequences.read(path, COLUMN), start=1):
        text = row.get(COLUMN)
        if not isinstance(text, str):
            got = "nothing" if text is None else f"{type(text).__name__} {text!r}"
            raise ValueError(f"{path}: row {number}: {COLUMN}: got {got}, allowed is text")
        yield text


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int) -> tuple[TextBatch, int]:
    """Some texts as one batch, and how many of them were cut to `longest` tokens.

    Padded on the right whatever the tokenizer's own side: positions that count from the first column stay right.
    """
    whole = tokenizer(list(texts), return_special_tokens_mask=True, verbose=False)
    truncated = sum(len(ids) > longest for ids in whole["input_ids"])
    if truncated:
        whole = tokenizer(list(texts), return_special_tokens_mask=True, truncation=True, max_length=longest)
    batch = pad([torch.tensor(ids, dtype=torch.int64) for ids in whole["input_ids"]])
    assert batch.mask is not None
    special = torch.zeros_like(batch.mask)
    special[batch.mask] = torch.tensor([s for row in whole["special_tokens_mask"] for s in row], dtype=torch.bool)
    tokens = batch.tokens.masked_fill(~batch.mask, tokenizer.pad_token_id or 0)
    return TextBatch(tokens, None if batch.mask.all() else batch.mask, special=special), truncated
