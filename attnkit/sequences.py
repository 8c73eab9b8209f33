"""Sequences of one's own: CSV, JSON Lines or Parquet, with a column `sequence` and, if there are any, `label`.

Everything is read as text, so that `0011` keeps its zeros and a token named NA stays one; files are read a piece at
a time, so that memory does not grow with them.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from attnkit.data import Batch, Dataset, encode, pad

Row = dict[str, Any]


def file_dataset(path: str | Path, vocab: Sequence[str], classes: Sequence[str], max_len: int) -> Dataset:
    """The sequences of a file, by its ending: .csv, .jsonl or .parquet.

    `vocab` are the tokens, `classes` the names that a label may have (a class's number will do). Raises ValueError,
    here or when the batch is read, naming the file, the row (counted from 1) and what is wrong with it.
    """
    path = Path(path)
    if path.suffix not in READERS:
        raise ValueError(f"data: got {path.name!r}, allowed are files that end in {', '.join(READERS)}")
    if not path.is_file():
        raise FileNotFoundError(f"data: there is no file {path.resolve()}")

    def batches(batch_size: int) -> Iterator[Batch]:
        rows = parsed(path, vocab, classes, max_len)
        while chunk := list(islice(rows, batch_size)):
            yield stack([ids for ids, _ in chunk], [label for _, label in chunk if label is not None])

    return Dataset(str(path), None, False, batches)


def parsed(
    path: Path, vocab: Sequence[str], classes: Sequence[str], max_len: int
) -> Iterator[tuple[Tensor, int | None]]:
    """The token ids and the class of each row: either every row has a label or none."""
    labelled = None
    for number, row in enumerate(read(path, "sequence", "label"), start=1):
        ids, label = parse(path, number, row, vocab, classes, max_len)
        labelled = (label is not None) if labelled is None else labelled
        if (label is not None) != labelled:
            has = "no label, where the rows before have one" if labelled else "a label, where none before has one"
            raise ValueError(f"{path}: row {number}: {has}")
        yield ids, label
    if labelled is None:
        raise ValueError(f"{path}: has no rows")


def stack(sequences: list[Tensor], labels: list[int]) -> Batch:
    batch = pad(sequences)
    mask = None if len({len(s) for s in sequences}) == 1 else batch.mask
    return Batch(batch.tokens, mask, torch.tensor(labels) if labels else None)


def read(path: Path, column: str, *more: str) -> Iterator[Row]:
    """The rows of a file that has this column, and with it `more` where there are any."""
    try:
        yield from READERS[path.suffix](path, column, *more)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None


def parse(
    path: Path, number: int, row: Row, vocab: Sequence[str], classes: Sequence[str], max_len: int
) -> tuple[Tensor, int | None]:
    """The token ids and the class of a row."""
    try:
        text, label = row.get("sequence"), row.get("label")
        if not isinstance(text, str):
            got = "nothing" if text is None else f"{type(text).__name__} {text!r}"
            raise ValueError(f"sequence: got {got}, allowed is text (as a number, 0011 would lose its zeros)")
        return encode(text, vocab, max_len), None if label is None else class_of(str(label), classes)
    except ValueError as error:
        raise ValueError(f"{path}: row {number}: {error}") from None


def class_of(label: str, classes: Sequence[str]) -> int:
    if label in classes:
        return list(classes).index(label)
    if label in map(str, range(len(classes))):
        return int(label)
    raise ValueError(
        f"label: got {label!r}, allowed is one of {', '.join(map(repr, classes))} or 0 to {len(classes) - 1}"
    )


def csv_rows(path: Path, column: str, *more: str) -> Iterator[Row]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, strict=True)
        need_column(path, column, reader.fieldnames or [])
        try:
            yield from reader
        except csv.Error as error:
            raise ValueError(f"{path}: line {reader.line_num}: {error}") from None


def jsonl_rows(path: Path, column: str, *more: str) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(filter(str.strip, file), start=1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}: row {number}: is not JSON ({error.msg})") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}: row {number}: got {type(row).__name__}, allowed is an object")
            yield row


def parquet_rows(path: Path, column: str, *more: str) -> Iterator[Row]:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path}: is not Parquet ({error})") from None
    need_column(path, column, file.schema_arrow.names)
    for piece in file.iter_batches(columns=[name for name in (column, *more) if name in file.schema_arrow.names]):
        yield from piece.to_pylist()


def need_column(path: Path, column: str, columns: Sequence[str]) -> None:
    if column not in columns:
        raise ValueError(f"{path}: has no column {column!r}; its columns are {', '.join(map(repr, columns)) or 'none'}")


READERS: dict[str, Callable[..., Iterator[Row]]] = {
    ".csv": csv_rows,
    ".jsonl": jsonl_rows,
    ".parquet": parquet_rows,
}
