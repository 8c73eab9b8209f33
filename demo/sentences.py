"""One text, read by a transformers model, as plain values: where its heads look, what it answers, what each is worth.

Such a model stands in the place of the checkpoints. It has no rule, no set and no snapshots, so that all that hangs on
these is left out. No gradio here, and no transformers until a model is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnkit.ablation import Head
from attnkit.labels import readable
from attnkit.observe import AttentionCall
from attnkit.reading import Reader, blocks_of
from attnkit.text import TextBatch, encode_texts
from demo.usual import listed
from demo.views import known_heads, margins
from demo.words import Refusal

LONGEST = 128  # tokens of a text, those that the tokenizer adds included
CHARACTERS = 4000  # of a text, before it is cut into tokens
TOGETHER = 1024  # tokens that run side by side where heads are tried one by one: an edit waits for one such run at most
MOST_LIKELY = 5  # answers that are told


@dataclass(frozen=True)
class Subject:
    """A model that is served. Visitors share it; one at a time runs it, for its attention is that of one caller."""

    name: str
    model: Any
    tokenizer: Any
    kind: str  # classification, language or embedding
    layers: int
    heads: int
    longest: int  # tokens that a text may have
    measures: dict[str, Any]
    lock: Any


served: Subject | None = None  # None: the checkpoints are


def serve(path: str) -> Subject:
    """Open the model of a folder or a hub name, and read texts with it from now on.

    Raises ValueError where transformers is missing, or there is no such model, or its heads cannot be read.
    """
    global served
    try:
        from attnkit.hf import NAME  # noqa: F401  (says what to install)
        from attnkit.hfstats import applicable_to
        from attnkit.pretrained import has_two_parts, load, longest_text, task_of, vocabulary
        from attnkit.replay import Layers
    except ImportError as missing:
        raise ValueError(f"--hf: {missing}") from None
    model, tokenizer = load(path)
    if has_two_parts(model):
        raise ValueError(
            f"hf: got {path!r}, a {type(model).__name__} of encoder and decoder; allowed are models of one"
        )
    batch = TextBatch(torch.zeros(1, 2, dtype=torch.int64))
    layers = Layers.of(model, batch)
    served = Subject(
        name="/".join(Path(path).resolve().parts[-2:]) if Path(path).is_dir() else path,  # as names on the hub are
        model=model.requires_grad_(False),
        tokenizer=tokenizer,
        kind=task_of(model),
        layers=layers.layers,
        heads=layers.heads,
        longest=min(LONGEST, longest_text(model, tokenizer)),
        measures=applicable_to(model, batch, vocabulary(tokenizer))["self"],
        lock=Lock(),
    )
    return served


@dataclass(frozen=True)
class Sentence:
    """One text, read by the model, perhaps with some heads switched off: as `views.Reading` of a checkpoint."""

    subject: Subject
    sequence: str
    batch: TextBatch
    off: tuple[Head, ...]
    said: Tensor  # (C,) logits of classes or of the next token, or (D,) the embedding; float64
    plain: Tensor  # the same with every head on
    weights: np.ndarray  # (L, H, T, T) float32
    value_norms: np.ndarray | None  # (L, H, T); None where the model's output projection is not found

    replacement = "zero"
    steps: tuple[int, ...] = ()
    mean_maps = None

    @property
    def checkpoint(self) -> str:
        return self.subject.name

    @cached_property
    def pieces(self) -> list[str]:
        pieces: list[str] = self.subject.tokenizer.convert_ids_to_tokens(self.batch.tokens[0].tolist())
        return pieces

    @property
    def tokens(self) -> list[str]:
        return readable(self.pieces)

    @property
    def answer(self) -> int:
        return int(self.said.argmax())

    @property
    def prediction(self) -> str:
        """The class or the next token; "" of an embedding."""
        return "" if self.subject.kind == "embedding" else named(self.subject, self.answer)

    @property
    def margin(self) -> float:
        """Of a class or the next token as everywhere; of an embedding the cosine with that of all heads on."""
        return float(self.scores(self.said))

    @property
    def digits(self) -> int:
        return 4 if self.subject.kind == "embedding" else 2

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """What the model says, by its name in a file."""
        return {"embedding" if self.subject.kind == "embedding" else "logits": self.said.numpy()}

    def scores(self, said: Tensor) -> Tensor:
        """What counts of (…, C) or (…, D): (…)."""
        return said @ self.plain if self.subject.kind == "embedding" else margins(said, self.answer)


def named(subject: Subject, answer: int) -> str:
    if subject.kind == "language":
        return readable(subject.tokenizer.convert_ids_to_tokens([answer]))[0]
    return str(subject.model.config.id2label.get(answer, answer))


# ---------------------------------------------------------------- one text


def read(subject: Subject, text: str, off: Iterable[Any] = ()) -> Sentence:
    """Run the model. Raises Refusal for a text that is empty or too long, or a head that is not there."""
    batch = tokenized(subject, text)
    heads = known_heads(subject.layers, subject.heads, off)
    calls: list[AttentionCall] = []
    gates = gates_of(subject, heads)
    said = run(subject, batch, gates, calls.append)[0]
    plain = run(subject, batch, torch.zeros_like(gates))[0] if heads else said
    weights = torch.cat([call.weights for call in calls]).float().numpy()
    norms = None
    if all(call.w_o is not None for call in calls):
        written = torch.cat([call.value @ call.w_o for call in calls if call.w_o is not None])
        norms = torch.linalg.vector_norm(written.float(), dim=-1).numpy()
    return Sentence(subject, text, batch, heads, said, plain, weights, norms)


def tokenized(subject: Subject, text: Any) -> TextBatch:
    """The text as the model's own tokenizer cuts it; nothing of it is left out."""
    if not isinstance(text, str):
        raise Refusal("not_text", kind=type(text).__name__)
    if len(text) > CHARACTERS:
        raise Refusal("too_many_characters", length=len(text), longest=CHARACTERS)
    if not text.strip():
        raise Refusal("empty_text", longest=subject.longest)
    batch, _ = encode_texts(subject.tokenizer, [text], CHARACTERS * 8)
    if not batch.tokens.shape[1]:
        raise Refusal("empty_text", longest=subject.longest)
    if batch.tokens.shape[1] > subject.longest:
        raise Refusal("too_long_text", length=batch.tokens.shape[1], longest=subject.longest)
    return batch


def gates_of(subject: Subject, off: Iterable[Head]) -> Tensor:
    """(1, L, H), True where a head is off."""
    gates = torch.zeros(1, subject.layers, subject.heads, dtype=torch.bool)
    for layer, head in off:
        gates[0, layer, head] = True
    return gates


@torch.inference_mode()
def run(
    subject: Subject, batch: TextBatch, gates: Tensor, see: Callable[[AttentionCall], object] | None = None
) -> Tensor:
    """What the model says of one text, once for each of `gates` (N, L, H), True where a head puts out nothing.

    (N, C) or (N, D), float64. `see` is handed every attention call, with the outputs as they went on.
    """
    from attnkit.hf import Site, attending, fused, whole
    from attnkit.hfimportance import embeddings
    from attnkit.pretrained import inputs_of

    def attend(site: Site) -> Tensor:
        weights, output = whole(site) if see else (None, fused(site))
        output = output.masked_fill(gates[:, site.layer, :, None, None], 0)
        if see and weights is not None:
            see(site.call(weights, output))
        return output

    several = TextBatch(batch.tokens.expand(len(gates), -1))
    with subject.lock, attending(subject.model, attend):
        said = subject.model(**inputs_of(subject.model, several))
    if subject.kind == "embedding":
        return embeddings(several, said)
    logits: Tensor = said.logits if subject.kind == "classification" else said.logits[:, -1]
    return logits.double()


# ---------------------------------------------------------------- what it says


def verdict(reading: Sentence) -> dict[str, Any]:
    """What the model answers, for the page."""
    likely: dict[str, float] = {}
    if reading.subject.kind != "embedding":
        p = reading.said.softmax(dim=0)
        likely = {named(reading.subject, int(i)): float(p[i]) for i in p.argsort(descending=True)[:MOST_LIKELY]}
    return {
        "sequence": reading.sequence,
        "kind": reading.subject.kind,
        "prediction": reading.prediction,
        "likely": likely,
        "margin": reading.margin,
        "size": len(reading.said),
        "count": len(reading.pieces),
        "longest": reading.subject.longest,
    }


def effects(reading: Sentence) -> tuple[list[list[float]], list[list[bool]]]:
    """What it does to the margin to switch each head (L × H), off or on again; and where the answer is another then."""
    L, H = reading.weights.shape[:2]
    gates = gates_of(reading.subject, reading.off).repeat(L * H, 1, 1)
    gates[range(L * H), [k // H for k in range(L * H)], [k % H for k in range(L * H)]] ^= True
    parts = gates.split(max(1, TOGETHER // len(reading.pieces)))
    said = torch.cat([run(reading.subject, reading.batch, part) for part in parts])
    change = (reading.scores(said) - reading.margin).unflatten(0, (L, H))
    turns = said.argmax(dim=-1).unflatten(0, (L, H)) != reading.answer
    return change.tolist(), (turns & (reading.subject.kind != "embedding")).tolist()


def statistics(reading: Sentence) -> dict[str, Any]:
    """Every head's statistics, as `usual.statistics` tells a checkpoint's; what is usual nobody has measured."""
    batch, read = reading.batch, list[tuple[Tensor, Tensor]]()

    def see(call: AttentionCall) -> None:
        allowed = None if call.mask is None else call.mask[:, 0]
        reader = Reader(reading.subject.measures, blocks_of(batch.tokens, allowed=allowed, special=batch.special))
        read.append(reader.read(reader.rows(call), call.layer))

    run(reading.subject, reading.batch, gates_of(reading.subject, reading.off), see)
    values, defined = (torch.cat(t).cpu() for t in zip(*read, strict=True))
    table = values.masked_fill(~defined, torch.nan).numpy()  # (L, H, K)
    unknown = listed(np.full(table.shape[:2], np.nan))
    return {
        "statistics": [
            {"name": name, "values": listed(table[..., k]), "percentiles": unknown}
            for k, name in enumerate(reading.subject.measures)
        ],
        "unusual": [[[] for _ in layer] for layer in unknown],
        "among": None,
        "why": None,
    }
