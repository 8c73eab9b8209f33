"""One text, read by a transformers model, as plain values: where its heads look, what it answers, what each is worth.

Such a model stands in the place of the checkpoints. It has no rule, no set and no snapshots, so that all that hangs on
these is left out. One of two parts, an encoder and a decoder, has attention of three kinds, of which one is shown at a
time; its decoder reads a text of its own. No gradio here, and no transformers until a model is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from attnkit.labels import readable
from attnkit.observe import AttentionCall
from attnkit.text import TextBatch
from demo.served import Subject, gates_of, known_heads_of, known_kind, run, tokenized
from demo.usual import listed
from demo.views import margins

if TYPE_CHECKING:
    from attnkit.hf import Site

TOGETHER = 1024  # tokens that run side by side where heads are tried one by one: an edit waits for one such run at most
MOST_LIKELY = 5  # answers that are told


@dataclass(frozen=True)
class Sentence:
    """One text, read by the model, perhaps with some heads switched off: as `views.Reading` of a checkpoint.

    R tokens look at T; these are the same but in cross attention.
    """

    subject: Subject
    sequence: str
    second: str  # what the decoder reads; "" where there is none
    kind: str  # of the attention that is shown
    batch: TextBatch
    off: tuple[tuple[Any, ...], ...]  # (layer, head); in models of two parts (kind, layer, head)
    said: Tensor  # (C,) logits of classes or of the next token, or (D,) the embedding; float64
    plain: Tensor  # the same with every head on
    weights: np.ndarray  # (L, H, R, T) float32
    value_norms: np.ndarray | None  # (L, H, T); None where the model's output projection is not found

    replacement = "zero"
    steps: tuple[int, ...] = ()
    mean_maps = None

    @property
    def checkpoint(self) -> str:
        return self.subject.name

    @property
    def two_parts(self) -> dict[str, str]:
        """What else it is of, where the model is of two parts."""
        if self.subject.start is None:
            return {}
        return {"kind": self.kind} | ({"second": self.second} if self.subject.two_texts else {})

    @property
    def off_here(self) -> set[tuple[int, int]]:
        """(layer, head) of the kind that is shown."""
        return {(layer, head) for *kind, layer, head in self.off if kind in ([], [self.kind])}

    @cached_property
    def pieces(self) -> list[str]:
        return spelled(self.subject, self.batch.looking(self.kind))

    @cached_property
    def key_pieces(self) -> list[str]:
        return spelled(self.subject, self.batch) if self.kind == "cross" else self.pieces

    @cached_property
    def labels(self) -> list[str]:
        return legible(self.subject, self.pieces)

    @cached_property
    def key_labels(self) -> list[str]:
        return legible(self.subject, self.key_pieces)

    @property
    def answer(self) -> int:
        return int(self.said.argmax())

    @property
    def prediction(self) -> str:
        """The class or the next token; "" of an embedding."""
        return "" if self.subject.task == "embedding" else named(self.subject, self.answer)

    @property
    def margin(self) -> float:
        """Of a class or the next token as everywhere; of an embedding the cosine with that of all heads on."""
        return float(self.scores(self.said))

    @property
    def digits(self) -> int:
        return 4 if self.subject.task == "embedding" else 2

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """What the model says, by its name in a file."""
        return {"embedding" if self.subject.task == "embedding" else "logits": self.said.numpy()}

    def scores(self, said: Tensor) -> Tensor:
        """What counts of (…, C) or (…, D): (…)."""
        return said @ self.plain if self.subject.task == "embedding" else margins(said, self.answer)


class TextMaps(TypedDict):
    """The attention of every head on one text; what `/attention_of_text` returns."""

    checkpoint: str
    kind: str  # self; of a model of two parts encoder, decoder or cross
    tokens: list[str]  # that look
    keys: list[str]  # that are looked at
    weights: list[list[list[list[float]]]]  # [layer][head][query][key]; the weights of a query sum to 1


def maps(reading: Sentence) -> TextMaps:
    return TextMaps(
        checkpoint=reading.checkpoint,
        kind=reading.kind,
        tokens=reading.pieces,
        keys=reading.key_pieces,
        weights=reading.weights.tolist(),
    )


def spelled(subject: Subject, batch: TextBatch) -> list[str]:
    found: list[str] = subject.tokenizer.convert_ids_to_tokens(batch.tokens[0].tolist())
    return found


def legible(subject: Subject, tokens: list[str]) -> list[str]:
    """As people read them. What its tokenizer makes of a space says whether signs are bytes; a lone byte does not."""
    space = subject.tokenizer.tokenize(" a")
    return readable([*space, *tokens])[len(space) :]


def named(subject: Subject, answer: int) -> str:
    if subject.task == "language":
        token = subject.tokenizer.convert_ids_to_tokens(answer)  # None: T5's last logits, and others', are of no token
        return f"#{answer}" if token is None else legible(subject, [token])[0]
    return str(subject.model.config.id2label.get(answer, answer))


# ---------------------------------------------------------------- one text


def read(subject: Subject, text: str, off: Iterable[Any] = (), *, second: str = "", kind: str = "") -> Sentence:
    """Run the model; `kind` of its attention is shown, by default the first.

    Raises Refusal for a text that is empty or too long, or a head or kind of attention that is not there.
    """
    batch = tokenized(subject, text, second)
    kind = known_kind(subject, kind or subject.kinds[0])
    heads = known_heads_of(subject, off)
    calls: list[AttentionCall] = []

    def see(site: Site, call: AttentionCall) -> None:
        if site.kind == kind:
            calls.append(call)

    gates = gates_of(subject, heads)
    said = run(subject, batch, gates, see)[0]
    plain = run(subject, batch, torch.zeros_like(gates))[0] if heads else said
    weights = torch.cat([call.weights for call in calls]).float().numpy()
    norms = None
    if all(call.w_o is not None for call in calls):
        written = torch.cat([call.value @ call.w_o for call in calls if call.w_o is not None])
        norms = torch.linalg.vector_norm(written.float(), dim=-1).numpy()
    return Sentence(subject, text, second, kind, batch, heads, said, plain, weights, norms)


# ---------------------------------------------------------------- what it says


def lengths(batch: TextBatch) -> list[int]:
    """How many tokens the model reads; of two parts the encoder, then the decoder."""
    return [part.tokens.shape[1] for part in (batch, batch.decoder) if part is not None]


def verdict(reading: Sentence) -> dict[str, Any]:
    """What the model answers, for the page."""
    subject = reading.subject
    likely: dict[str, float] = {}
    if subject.task != "embedding":
        p = reading.said.softmax(dim=0)
        for i in p.argsort(descending=True)[:MOST_LIKELY]:
            likely.setdefault(named(subject, int(i)), float(p[i]))  # two tokens may be written alike
    return {
        "sequence": reading.sequence,
        "second": reading.second,
        "task": subject.task,
        "prediction": reading.prediction,
        "likely": likely,
        "margin": reading.margin,
        "size": len(reading.said),
        "counts": lengths(reading.batch),
        "longest": subject.longest,
    }


def effects(reading: Sentence) -> tuple[list[list[float]], list[list[bool]]]:
    """What it does to the margin to switch each head that is shown (L × H), off or on again; and where the answer is
    another then."""
    subject, (L, H) = reading.subject, reading.weights.shape[:2]
    gates = gates_of(subject, reading.off).repeat(L * H, 1, 1)
    for k in range(L * H):
        gates[k, subject.sites.index((reading.kind, k // H)), k % H] ^= True
    together = max(1, TOGETHER // sum(lengths(reading.batch)))
    said = torch.cat([run(subject, reading.batch, part) for part in gates.split(together)])
    change = (reading.scores(said) - reading.margin).unflatten(0, (L, H))
    turns = said.argmax(dim=-1).unflatten(0, (L, H)) != reading.answer
    return change.tolist(), (turns & (subject.task != "embedding")).tolist()


@torch.inference_mode()
def statistics(reading: Sentence) -> dict[str, Any]:
    """Every head's statistics, as `usual.statistics` tells a checkpoint's; what is usual nobody has measured."""
    from attnkit.hfreading import scene_of, whole_reader

    measures, scene = reading.subject.measures[reading.kind], scene_of(reading.batch, reading.kind)
    seen: list[tuple[Site, AttentionCall]] = []  # to be read when others may run the model again
    run(reading.subject, reading.batch, gates_of(reading.subject, reading.off), lambda *call: seen.append(call))
    here = [(whole_reader(measures, scene, site), call) for site, call in seen if site.kind == reading.kind]
    read = [reader.read(reader.rows(call), call.layer) for reader, call in here]
    values, defined = (torch.cat(t).cpu() for t in zip(*read, strict=True))
    table = values.masked_fill(~defined, torch.nan).numpy()  # (L, H, K)
    unknown = listed(np.full(table.shape[:2], np.nan))
    return {
        "statistics": [
            {"name": name, "values": listed(table[..., k]), "percentiles": unknown} for k, name in enumerate(measures)
        ],
        "unusual": [[[] for _ in layer] for layer in unknown],
        "among": None,
        "why": None,
    }
