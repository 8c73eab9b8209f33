"""Texts of one's own: from a file to what a transformers model reads.

One text a line (.txt), or a column `text` (.csv, .jsonl, .parquet), there with `pair` and `label` columns if there are
any; read a piece at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnkit import sequences
from attnkit.data import Batch, pad

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COLUMN, PAIR, LABEL = "text", "pair", "label"
ENDINGS = (".txt", *sequences.READERS)
MOST_LABELS = 16  # different ones in a file, so that groups stay readable
NOTHING = -1  # in the place of a token that would be foretold
CHUNK = 256  # texts that a tokenizer is given at a time


@dataclass(frozen=True)
class TextBatch(Batch):
    """Some texts side by side, as a tokenizer cut them."""

    special: Bool[Tensor, "B T"] | None = None  # True on tokens that the tokenizer put there, such as [SEP]
    segments: Int[Tensor, "B T"] | None = None  # of pairs: 0 in the first text, 1 in the second
    decoder: TextBatch | None = None  # of models of two parts: what their decoder reads
    places: Int[Tensor, "B 2"] | None = None  # the text's number in its file and the window's in the text, from 0
    targets: Int[Tensor, "B T"] | None = None  # of a decoder: the token that each of its own foretells, or NOTHING

    def looking(self, kind: str) -> TextBatch:
        """The texts whose tokens are the queries of this kind of attention."""
        return self.decoder if kind in ("decoder", "cross") and self.decoder is not None else self

    def each(self, change: Callable[[Tensor], Tensor]) -> TextBatch:
        def changed(t: Tensor | None) -> Tensor | None:
            return None if t is None else change(t)

        decoder = None if self.decoder is None else self.decoder.each(change)
        of_tokens = changed(self.mask), changed(self.labels), changed(self.special), changed(self.segments)
        return TextBatch(change(self.tokens), *of_tokens, decoder, changed(self.places), changed(self.targets))


class Text(NamedTuple):
    """A row of a file."""

    text: str
    pair: str | None = None  # the second of two texts
    label: str | None = None


class Encoded(NamedTuple):
    """What a tokenizer made of a text, or of one of its windows."""

    tokens: list[int]
    special: list[int]
    segments: list[int] | None  # of pairs
    decoder: Encoded | None
    label: str | None
    place: tuple[int, int] = (0, 0)  # the text's number in its file, the window's in the text
    targets: list[int] | None = None  # of a decoder: the token that each of its own foretells


@dataclass
class Counts:
    """What is known of the texts of a file once they have been read."""

    count: int = 0  # texts
    sequences: int = 0
    truncated: int = 0  # texts that were cut
    length: int = 0  # tokens of the longest sequence
    labelled: bool = False
    paired: bool = False


@dataclass
class Texts:
    """The texts of a file.

    With an `overlap`, a text of more than `longest` tokens gives several windows, each a sequence; else it is cut.
    """

    path: Path
    tokenizer: PreTrainedTokenizerBase
    longest: int  # tokens of a sequence, special ones included
    overlap: int | None = None  # tokens that a window shares with the one before
    classes: Sequence[str] | None = None  # the labels that there may be; None: those that the file has
    start: int | None = None  # of models of two parts: the token that a decoder begins with

    seen: Counts = field(default_factory=Counts)  # in the last pass that went to the end
    labels: list[str] = field(default_factory=list)  # the names of the batches' labels

    def __post_init__(self) -> None:
        self.path, self.labels = Path(self.path), list(self.classes or [])
        if self.path.suffix not in ENDINGS:
            raise ValueError(f"text: got {self.path.name!r}, allowed are files that end in {', '.join(ENDINGS)}")
        if not self.path.is_file():
            raise FileNotFoundError(f"text: there is no file {self.path.resolve()}")
        fewest = self.tokenizer.num_special_tokens_to_add() + 1
        if self.longest < fewest:
            raise ValueError(f"longest: got {self.longest}, allowed is a whole number of at least {fewest}")
        if self.overlap is not None and not 0 <= self.overlap <= self.longest - fewest:
            most = self.longest - fewest
            raise ValueError(f"overlap: got {self.overlap}, allowed is a whole number from 0 to {most}")
        if self.overlap is not None and not self.tokenizer.is_fast:
            raise ValueError(f"overlap: {type(self.tokenizer).__name__} makes no windows, only fast tokenizers do")

    def batches(self, size: int) -> Iterator[TextBatch]:
        """The sequences in order, `size` at a time. Raises ValueError naming the file, the row and what is wrong."""
        seen = Counts()
        encoded = self.encoded(seen)
        while some := list(islice(encoded, size)):
            numbers = [sequences.class_of(e.label, self.labels) for e in some if e.label is not None]
            batch = stack(some, self.tokenizer.pad_token_id or 0, torch.tensor(numbers) if numbers else None)
            seen.sequences += len(some)
            seen.length = max(seen.length, *(len(part.tokens) for e in some for part in (e, e.decoder or e)))
            seen.labelled = bool(numbers)
            yield replace(batch, places=torch.tensor([e.place for e in some]))
        if not seen.count:
            raise ValueError(f"{self.path}: has no texts")
        self.seen = seen

    def survey(self) -> None:
        """Read them all once, so that `seen` is known."""
        for _ in self.batches(CHUNK):
            pass

    def encoded(self, seen: Counts) -> Iterator[Encoded]:
        texts = read_texts(self.path)
        first: Text | None = None
        while chunk := list(islice(texts, CHUNK)):
            first = first or chunk[0]
            for number, text in enumerate(chunk, start=seen.count + 1):
                try:
                    self.check(text, first)
                except ValueError as error:
                    raise ValueError(f"{self.path}: row {number}: {error}") from None
            found, truncated = encode(self.tokenizer, chunk, self.longest, overlap=self.overlap, start=self.start)
            for number, windows in enumerate(found, start=seen.count + 1):
                if not windows[0].tokens:
                    raise ValueError(f"{self.path}: row {number}: text: the tokenizer makes no token of it")
            first_number = seen.count
            seen.count += len(chunk)
            seen.paired = first.pair is not None
            seen.truncated += truncated
            for number, windows in enumerate(found, start=first_number):
                yield from (window._replace(place=(number, k)) for k, window in enumerate(windows))

    def check(self, text: Text, first: Text) -> None:
        """Raise ValueError for what cannot be read beside the first text, and take note of a label that is new."""
        for name, value, of_first in (("pair", text.pair, first.pair), ("label", text.label, first.label)):
            if (value is None) != (of_first is None):
                raise ValueError(f"{name}: has {'none' if value is None else 'one'}, unlike the first row")
        if self.overlap is not None and text.pair is not None and self.start is None:
            raise ValueError("pair: two texts that are read as one cannot be cut into windows")
        if text.label is None or text.label in self.labels:
            return
        if self.classes is not None:
            sequences.class_of(text.label, self.classes)
        elif len(self.labels) == MOST_LABELS:
            raise ValueError(f"label: {text.label!r} is one too many, allowed are {MOST_LABELS} different ones")
        else:
            self.labels.append(text.label)


def read_texts(path: Path) -> Iterator[Text]:
    """The texts of a file; blank lines of a .txt are none."""
    if path.suffix == ".txt":
        with open(path, encoding="utf-8-sig") as file:
            try:
                yield from (Text(line.strip()) for line in file if line.strip())
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})") from None
        return
    for number, row in enumerate(sequences.read(path, COLUMN, PAIR, LABEL), start=1):
        text, pair, label = row.get(COLUMN), row.get(PAIR), row.get(LABEL)
        for name, value in ((COLUMN, text), (PAIR, "" if pair is None else pair)):
            if not isinstance(value, str):
                got = "nothing" if value is None else f"{type(value).__name__} {value!r}"
                raise ValueError(f"{path}: row {number}: {name}: got {got}, allowed is text")
        yield Text(str(text), pair, None if label is None else str(label))


def encode(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[Text],
    longest: int,
    *,
    overlap: int | None = None,
    start: int | None = None,
) -> tuple[list[list[Encoded]], int]:
    """The windows of each text, one where there is no `overlap`; and how many texts were cut to `longest` tokens.

    With `start` the pair, or without one the text itself, is for the decoder, which reads each token's predecessor. A
    pair is cut as what is to be written: some tokenizers of models that translate cut the two languages differently.
    """
    first, second = [text.text for text in texts], [text.pair or "" for text in texts]
    paired = texts[0].pair is not None
    if start is None and paired:
        found, truncated = tokenized(tokenizer, longest, overlap, text=first, text_pair=second)
    else:
        found, truncated = tokenized(tokenizer, longest, overlap, text=first)
    decoders: list[list[Encoded]] | None = None
    if start is not None:
        written = {"text_target": second} if paired else {"text": first}
        decoders, cut = tokenized(tokenizer, longest, None, **written)
        truncated = truncated | cut
    windows = []
    for row, text in enumerate(texts):
        decoder = None if decoders is None else shifted(decoders[row][0], start)
        windows.append([window._replace(decoder=decoder, label=text.label) for window in found[row]])
    return windows, len(truncated)


def tokenized(
    tokenizer: PreTrainedTokenizerBase, longest: int, overlap: int | None, **texts: list[str]
) -> tuple[list[list[Encoded]], set[int]]:
    """The windows of each text, and which texts were cut. `texts` by the tokenizer's own names."""
    how: dict[str, Any] = {
        **texts,
        "return_special_tokens_mask": True,
        "return_token_type_ids": "text_pair" in texts,
        "verbose": False,
    }
    count = len(next(iter(texts.values())))
    if overlap is not None:
        how |= {"truncation": True, "max_length": longest, "stride": overlap, "return_overflowing_tokens": True}
        whole = tokenizer(**how)
        rows, truncated = whole["overflow_to_sample_mapping"], set()
    else:
        whole = tokenizer(**how)
        rows, truncated = range(count), {r for r, ids in enumerate(whole["input_ids"]) if len(ids) > longest}
        if truncated:
            whole = tokenizer(truncation=True, max_length=longest, **how)
    found: list[list[Encoded]] = [[] for _ in range(count)]
    segments = whole.get("token_type_ids") or [None] * len(whole["input_ids"])
    columns = whole["input_ids"], whole["special_tokens_mask"], segments
    for row, ids, special, segment in zip(rows, *columns, strict=True):
        found[row].append(Encoded(ids, special, segment, None, None))
    return found, truncated


def shifted(text: Encoded, start: int | None) -> Encoded:
    """What a decoder reads to foretell a text, token by token: its start, then all tokens but the last."""
    assert start is not None
    read, targets = [start, *text.tokens[:-1]], text.tokens or [NOTHING]
    return text._replace(tokens=read, special=[1, *text.special[:-1]], targets=targets)


def stack(texts: Sequence[Encoded], padding: int, labels: Int[Tensor, _] | None = None) -> TextBatch:
    """Texts side by side, padded on the right whatever the tokenizer's own side: positions that count from the first
    column stay right."""
    batch = pad([torch.tensor(text.tokens, dtype=torch.int64) for text in texts])
    mask = batch.mask
    assert mask is not None

    def beside(of_tokens: Iterable[Iterable[int]], padding: int) -> Int[Tensor, "B T"]:
        whole = torch.full_like(batch.tokens, padding)
        whole[mask] = torch.tensor([value for of_text in of_tokens for value in of_text], dtype=torch.int64)
        return whole

    segments = None if texts[0].segments is None else beside((text.segments or () for text in texts), 0)
    targets = None if texts[0].targets is None else beside((text.targets or () for text in texts), NOTHING)
    decoders = [text.decoder for text in texts if text.decoder is not None]
    return TextBatch(
        batch.tokens.masked_fill(~mask, padding),
        None if mask.all() else mask,
        labels,
        special=beside((text.special for text in texts), 0).bool(),
        segments=segments,
        decoder=stack(decoders, padding) if decoders else None,
        targets=targets,
    )


def encode_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int) -> tuple[TextBatch, int]:
    """Some texts as one batch, and how many of them were cut to `longest` tokens."""
    found, truncated = encode(tokenizer, [Text(text) for text in texts], longest)
    return stack([windows[0] for windows in found], tokenizer.pad_token_id or 0), truncated
