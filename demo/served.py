"""The transformers model that is served in the place of the checkpoints: what it takes, and how it runs.

No gradio here, and no transformers until a model is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnkit.observe import AttentionCall
from attnkit.text import Text, TextBatch, encode, stack
from demo.views import known_heads
from demo.words import Refusal

if TYPE_CHECKING:
    from attnkit.hf import Site

LONGEST = 128  # tokens of a text, those that the tokenizer adds included
CHARACTERS = 4000  # of a text, before it is cut into tokens


@dataclass(frozen=True)
class Subject:
    """A model that is served. Visitors share it; one at a time runs it, for its attention is that of one caller."""

    name: str
    model: Any
    tokenizer: Any
    task: str  # classification, language or embedding
    sites: Sequence[tuple[str, int]]  # every attention, in the order in which they run: its kind and its layer
    heads: int  # of each
    start: int | None  # of models of two parts: the token that a decoder begins with
    longest: int  # tokens that a text may have
    measures: dict[str, dict[str, Any]]  # by kind
    lock: Any

    @property
    def kinds(self) -> list[str]:
        """Of attention: self, or in models of two parts encoder, decoder and cross."""
        return list(dict(self.sites))

    @property
    def two_texts(self) -> bool:
        """Is there a text for the decoder? That of a classifier reads what its encoder does."""
        return self.start is not None and self.task != "classification"

    def layers(self, kind: str) -> int:
        return sum(of == kind for of, _ in self.sites)


subject: Subject | None = None  # None: the checkpoints are served


def serve(path: str) -> Subject:
    """Open the model of a folder or a hub name, and read texts with it from now on.

    Raises ValueError where transformers is missing, or there is no such model, or its heads cannot be read.
    """
    global subject
    try:
        from attnkit.hf import NAME  # noqa: F401  (says what to install)
        from attnkit.hfstats import applicable_to
        from attnkit.pretrained import load, longest_text, start_of, task_of, vocabulary
        from attnkit.replay import Layers
    except ImportError as missing:
        raise ValueError(f"--hf: {missing}") from None
    model, tokenizer = load(path)
    start = start_of(model)
    (windows, *_), _ = encode(tokenizer, [Text("a")], LONGEST, start=start)
    batch = stack(windows, 0)
    layers = Layers.of(model, batch)
    subject = Subject(
        name="/".join(Path(path).resolve().parts[-2:]) if Path(path).is_dir() else path,  # as names on the hub are
        model=model.requires_grad_(False),
        tokenizer=tokenizer,
        task=task_of(model),
        sites=layers.sites,
        heads=layers.heads,
        start=start,
        longest=min(LONGEST, longest_text(model, tokenizer)),
        measures=applicable_to(model, batch, vocabulary(tokenizer)),
        lock=Lock(),
    )
    return subject


# ---------------------------------------------------------------- what it takes


def tokenized(subject: Subject, text: Any, second: Any = "") -> TextBatch:
    """The text as the model's own tokenizer cuts it; nothing of it is left out.

    The decoder of a model of two parts reads what it would to foretell the second: its start, which stands alone if
    there is no more to read, then every token but the last, the mark that ends a text.
    """
    for one in (text, second):
        if not isinstance(one, str):
            raise Refusal("not_text", kind=type(one).__name__)
        if len(one) > CHARACTERS:
            raise Refusal("too_many_characters", length=len(one), longest=CHARACTERS)
    if second and not subject.two_texts:
        raise Refusal("no_second")
    longest = subject.longest
    empty = (
        Refusal("empty_first_text", longest=longest) if subject.two_texts else Refusal("empty_text", longest=longest)
    )
    if not text.strip():
        raise empty
    given = Text(text, second if subject.two_texts else None)
    ((read,), *_), _ = encode(subject.tokenizer, [given], CHARACTERS * 8, start=subject.start)
    if not read.tokens:
        raise empty
    if len(read.tokens) > longest:
        raise Refusal("too_long_text", length=len(read.tokens), longest=longest)
    if read.decoder and len(read.decoder.tokens) > longest:
        raise Refusal("too_long_second", length=len(read.decoder.tokens), longest=longest)
    return stack([read], 0)


def known_kind(subject: Subject, kind: Any) -> str:
    if kind not in subject.kinds:
        raise Refusal("unknown_kind", kind=repr(kind), known=", ".join(subject.kinds))
    return str(kind)


def known_heads_of(subject: Subject, off: Iterable[Any]) -> tuple[tuple[Any, ...], ...]:
    """The heads, each once, in order: (layer, head), in models of two parts (kind, layer, head).

    Raises Refusal for one that the model has not.
    """
    if subject.start is None:
        return known_heads(subject.layers(subject.kinds[0]), subject.heads, off)
    found: dict[str, list[Any]] = {kind: [] for kind in subject.kinds}
    for head in off:
        match head:
            case [str(kind), layer, number]:
                found[known_kind(subject, kind)].append([layer, number])
            case _:
                raise Refusal("unknown_head_of_kind", head=repr(head), known=", ".join(subject.kinds))
    of_kind = {kind: known_heads(subject.layers(kind), subject.heads, heads) for kind, heads in found.items()}
    return tuple((kind, *head) for kind, heads in of_kind.items() for head in heads)


def gates_of(subject: Subject, off: Iterable[tuple[Any, ...]]) -> Tensor:
    """(1, S, H) of the S attentions, True where a head is off."""
    gates = torch.zeros(1, len(subject.sites), subject.heads, dtype=torch.bool)
    for *kind, layer, head in off:
        gates[0, subject.sites.index(((kind or subject.kinds)[0], layer)), head] = True
    return gates


@torch.inference_mode()
def run(
    subject: Subject, batch: TextBatch, gates: Tensor, see: Callable[[Site, AttentionCall], object] | None = None
) -> Tensor:
    """What the model says of one text, once for each of `gates` (N, S, H), True where a head puts out nothing.

    (N, C) or (N, D), float64. `see` is handed every attention call, with the outputs as they went on.
    """
    from attnkit.hf import attending, fused, whole
    from attnkit.hftrials import embeddings
    from attnkit.pretrained import inputs_of

    def attend(site: Site) -> Tensor:
        weights, output = whole(site) if see else (None, fused(site))
        number = subject.sites.index((site.kind, site.layer))
        output = output.masked_fill(gates[:, number, :, None, None], 0)
        if see and weights is not None:
            see(site, site.call(weights, output))
        return output

    several = batch.each(lambda t: t.expand(len(gates), -1))
    with subject.lock, attending(subject.model, attend):
        said = subject.model(**inputs_of(subject.model, several))
    if subject.task == "embedding":
        return embeddings(several, said)
    logits: Tensor = said.logits if subject.task == "classification" else said.logits[:, -1]
    return logits.double()
