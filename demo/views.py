"""One sequence, read by one checkpoint, as plain values: what is answered, where the heads look, what would change it.

Every view is a pure function of what is on the page and of the files in checkpoints/: nothing is kept of a visitor.
A ValueError is a sentence for the person who asked. No gradio here.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from attnkit.ablation import Head, intervene
from attnkit.checkpoint import Checkpoint
from attnkit.data import encode, separator, show
from attnkit.labels import readable
from attnkit.model import TinyTransformer
from attnkit.observe import AttentionCall, observe, private
from attnkit.tasks import TASKS
from demo.shelf import open_checkpoint, open_reference
from demo.words import Refusal

HEAD = re.compile(r"(?:([a-z]+)\.)?(\d+)\.(\d+)")
REPLACEMENTS = ("zero", "mean")  # what stands in the place of the output of a head that is off


class Verdict(TypedDict):
    """The answer to one sequence; what `/classify` returns."""

    checkpoint: str
    sequence: str
    prediction: str  # the class with the largest probability
    probabilities: dict[str, float]  # class -> softmax of the logits
    margin: float  # the logit of the prediction minus the largest other
    counts: dict[str, int]  # token -> how often it stands in the sequence
    rule: str  # the task in one sentence
    expected: str | None  # the class by the rule; None where the rule is not known here


class Maps(TypedDict):
    """The attention of every head on one sequence; what `/attention` returns."""

    checkpoint: str
    tokens: list[str]
    weights: list[list[list[list[float]]]]  # [layer][head][query][key]; the weights of a query sum to 1


class Worth(TypedDict):
    layer: int
    head: int
    margin_change: float  # of the answer's margin, if this head alone were switched as well
    prediction: str  # the answer then


class Ablation(TypedDict):
    """One sequence with some heads switched off; what `/ablate` returns."""

    heads: list[list[int]]  # the [layer, head] that are off
    replacement: str  # what stands in the place of their outputs
    before: Verdict  # with every head on
    after: Verdict
    each: list[Worth]  # every head: what it would do to `after` to switch it, too; off if it is on, on if it is off


@dataclass(frozen=True)
class Reading:
    """One sequence, read by one checkpoint, perhaps with some heads switched off."""

    checkpoint: str
    info: Checkpoint
    model: TinyTransformer
    sequence: str
    off: tuple[Head, ...]
    replacement: str
    means: Tensor | None  # (L, H, T, d): what heads that are off put out; None: nothing
    logits: Tensor  # (C,)
    weights: np.ndarray  # (L, H, T, T) float32
    value_norms: np.ndarray  # (L, H, T): the length of each key's value as W_o writes it to the residual stream

    @property
    def ids(self) -> Tensor:
        return token_ids(self.info, self.sequence)

    @property
    def pieces(self) -> list[str]:
        return [self.info.task.vocab[i] for i in self.ids.tolist()]

    @property
    def labels(self) -> list[str]:
        """The same as people read them."""
        return readable(self.pieces)

    key_pieces, key_labels = pieces, labels  # the tokens that are looked at are those that look

    @property
    def off_here(self) -> set[Head]:
        return set(self.off)

    @property
    def gates(self) -> Tensor:
        """(L, 1, H), True where a head is off."""
        return gates_of(self.info, self.off)

    @property
    def answer(self) -> int:
        return int(self.logits.argmax())

    @property
    def prediction(self) -> str:
        return self.info.task.classes[self.answer]

    @property
    def margin(self) -> float:
        return float(margins(self.logits, self.answer))

    digits = 2  # of what a margin changes by

    @property
    def steps(self) -> Sequence[int]:
        return self.info.snapshots

    @property
    def mean_maps(self) -> np.ndarray | None:
        """(L, H, t, t) over the set that somebody has measured."""
        known = open_reference(self.checkpoint)
        return None if known is None else known.mean_attention

    @property
    def numbers(self) -> dict[str, np.ndarray]:
        """What the model says, by its name in a file."""
        return {"logits": self.logits.numpy()}


# ---------------------------------------------------------------- one sequence


def read(checkpoint: str, sequence: str, off: Iterable[Any] = (), replacement: str = "zero") -> Reading:
    """Run the model. Raises ValueError for a checkpoint, sequence or head that is not there."""
    info, shared = open_checkpoint(checkpoint)
    ids = token_ids(info, sequence)
    heads = known_heads(info.model.n_layers, info.model.n_heads, off)
    if replacement not in REPLACEMENTS:
        raise Refusal("unknown_replacement", replacement=repr(replacement), known=", ".join(REPLACEMENTS))
    means = mean_outputs(checkpoint, len(ids)) if replacement == "mean" else None
    calls: list[AttentionCall] = []
    logits = run(private(shared), ids[None], gates_of(info, heads), means, calls)[0]
    weights = torch.cat([call.weights for call in calls]).numpy()
    written = torch.cat([call.value @ call.w_o for call in calls if call.w_o is not None])  # (L, H, T, D)
    norms = torch.linalg.vector_norm(written, dim=-1).numpy()
    return Reading(checkpoint, info, shared, sequence, heads, replacement, means, logits, weights, norms)


def mean_outputs(checkpoint: str, length: int) -> Tensor:
    """What each head puts out on average at each position, (L, H, T, d)."""
    known = open_reference(checkpoint)
    longest = 0 if known is None else int(known.length)
    if known is None or length > longest:
        raise Refusal("no_mean", length=length, longest=longest)
    return torch.from_numpy(known.mean_output[:, :, :length])


def gates_of(info: Checkpoint, off: Iterable[Head]) -> Tensor:
    """(L, 1, H), True where a head is off."""
    gates = torch.zeros(info.model.n_layers, 1, info.model.n_heads, dtype=torch.bool)
    for layer, head in off:
        gates[layer, 0, head] = True
    return gates


def switching(model: TinyTransformer, gates: Tensor, means: Tensor | None) -> AbstractContextManager[None]:
    """A private model with some heads off while the context lasts: `gates` (L, B, H) or (L, 1, H), True where off.

    `means` (L, H, T, d) stand in the place of their outputs; None: nothing does.
    """

    def change(layer: int, output: Tensor) -> Tensor:
        new = torch.zeros(()) if means is None else means[layer]
        return torch.where(gates[layer][:, :, None, None], new, output)

    return intervene(model, change)


@torch.inference_mode()
def run(
    model: TinyTransformer, tokens: Tensor, gates: Tensor, means: Tensor | None, calls: list[AttentionCall]
) -> Tensor:
    """The logits (B, C) of a private model with some heads off: see `switching`. Its calls are added to `calls`."""
    with switching(model, gates, means), observe(model, calls.append):
        logits: Tensor = model(tokens)[0]
    return logits


def token_ids(info: Checkpoint, sequence: str) -> Tensor:
    """The sequence as token ids (T,); Refusal says what is wrong with it, in any language."""
    vocab, longest = info.task.vocab, info.model.max_len
    if not isinstance(sequence, str):  # the API hands on whatever JSON it is sent
        raise Refusal("not_text", kind=type(sequence).__name__)
    if not sequence:
        raise Refusal("empty", longest=longest, vocab=show(vocab))
    if not separator(vocab):
        for position, token in enumerate(sequence, start=1):
            if token not in vocab:
                raise Refusal("unknown_token", token=repr(token), position=position, vocab=show(vocab))
        if len(sequence) > longest:
            raise Refusal("too_long", length=len(sequence), longest=longest)
    return encode(sequence, vocab, longest)


def known_heads(L: int, H: int, heads: Iterable[Any]) -> tuple[Head, ...]:
    """The heads, each once, in order. Raises Refusal for one that the model has not."""
    known = set()
    for head in heads if isinstance(heads, list | tuple) else [heads]:
        match head:
            case [int(layer), int(number)] if layer in range(L) and number in range(H):
                known.add((int(layer), int(number)))
            case _:
                raise Refusal("unknown_head", head=repr(head), last_layer=L - 1, last_head=H - 1)
    return tuple(sorted(known))


# ---------------------------------------------------------------- what is answered


def margins(logits: Tensor, answer: int) -> Tensor:
    """The logit of the answer minus the largest other, (…); below 0 another class is the answer."""
    others = logits.index_fill(-1, torch.tensor([answer]), -torch.inf)
    return logits[..., answer] - others.amax(dim=-1)


def verdict(reading: Reading) -> Verdict:
    task, pieces = reading.info.task, reading.pieces
    known = TASKS.get(task.name)
    expected = None
    if known and list(known.vocab) == task.vocab and list(known.classes) == task.classes:
        expected = task.classes[int(known.label(reading.ids[None]))]
    return Verdict(
        checkpoint=reading.checkpoint,
        sequence=reading.sequence,
        prediction=task.classes[reading.answer],
        probabilities=dict(zip(task.classes, reading.logits.softmax(dim=0).tolist(), strict=True)),
        margin=float(margins(reading.logits, reading.answer)),
        counts={token: pieces.count(token) for token in task.vocab},
        rule=task.rule,
        expected=expected,
    )


def maps(reading: Reading) -> Maps:
    return Maps(checkpoint=reading.checkpoint, tokens=reading.pieces, weights=reading.weights.tolist())


# ---------------------------------------------------------------- what would change it


@dataclass(frozen=True)
class Changes:
    """What single changes do to the margin of the present answer."""

    tokens: list[float]  # T: the token at this position replaced by the next of the vocabulary; for bits, flipped
    heads: list[list[float]]  # L × H: this head switched off, or on again if it is off
    answers: list[list[int]]  # L × H: the class that is answered then


def changes(reading: Reading) -> Changes:
    """All of them in one batch: T flipped sequences, then the sequence itself once for each head."""
    ids, config = reading.ids, reading.info.model
    T, L, H = len(ids), config.n_layers, config.n_heads
    batch = ids.repeat(T + L * H, 1)
    batch[range(T), range(T)] = (ids + 1) % config.vocab_size
    gates = reading.gates.repeat(1, T + L * H, 1)
    for k in range(L * H):
        gates[k // H, T + k, k % H] ^= True
    logits = run(private(reading.model), batch, gates, reading.means, [])
    change = margins(logits, reading.answer) - margins(reading.logits, reading.answer)
    by_head = logits[T:].argmax(dim=-1).unflatten(0, (L, H))
    return Changes(change[:T].tolist(), change[T:].unflatten(0, (L, H)).tolist(), by_head.tolist())


def ablation(reading: Reading) -> Ablation:
    found, classes = changes(reading), reading.info.task.classes
    return Ablation(
        heads=[list(head) for head in reading.off],
        replacement=reading.replacement,
        before=verdict(read(reading.checkpoint, reading.sequence)),
        after=verdict(reading),
        each=[
            Worth(layer=layer, head=head, margin_change=change, prediction=classes[found.answers[layer][head]])
            for layer, row in enumerate(found.heads)
            for head, change in enumerate(row)
        ],
    )


def heads_of(text: str) -> Sequence[Any]:
    """From "0.1 cross.1.3", as the page and its links write heads, to [[0, 1], ["cross", 1, 3]].

    What is no head stays text.
    """
    return [head_of(part) for part in str(text or "").split()]


def head_of(part: str) -> Any:
    found = HEAD.fullmatch(part)
    if found is None:
        return part
    kind, layer, head = found.groups()
    return [int(layer), int(head)] if kind is None else [kind, int(layer), int(head)]


def written(heads: Iterable[Iterable[Any]]) -> list[str]:
    """Each head as the page and its links write it: "0.1", or where attention is of several kinds "cross.0.1"."""
    return [".".join(map(str, head)) for head in heads]
