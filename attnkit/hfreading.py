"""One batch of texts through a transformers model, its attention calls read as they happen, and no map kept.

Every layer is read under its own mask, so that windows and causal layers have references of their own. Short texts
are read off whole maps, one layer at a time; long ones in blocks of rows, without a map.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from attnkit.blocks import BlockReader
from attnkit.hf import LazyMask, Site, attending
from attnkit.measures import Measure
from attnkit.offsets import OffsetSums, add_diagonals
from attnkit.pretrained import classes_of, inputs_of, task_of
from attnkit.reading import NO_LABEL, Reader, Readings, blocks_of
from attnkit.spans import Scene, Side
from attnkit.text import NOTHING, TextBatch

WHOLE, BLOCKS = "whole maps", "blocks of rows"  # how attention was computed and read


@dataclass(frozen=True)
class Layer:
    """What was read of one layer's attention. K statistics."""

    values: Float[Tensor, "B H K"]  # float64
    defined: Bool[Tensor, "B H K"]
    uniform: Float[Tensor, "B K"]  # the same under uniform attention, float64
    said: Bool[Tensor, "B K"]
    offsets: OffsetSums | None  # of this one layer; None across two texts
    method: str  # WHOLE or BLOCKS


def whole_reader(measures: dict[str, Measure], scene: Scene, site: Site) -> Reader:
    """What reads such a call off its whole maps."""
    if scene.cross:
        # The pass of machine code takes queries and keys to be the same tokens.
        return Reader(measures, [scene.block(site, slice(0, site.query.shape[2]))], fused=False)
    side = scene.keys
    return Reader(measures, blocks_of(side.tokens, side.mask, allowed=site.allowed(), special=side.special))


class WholeReader:
    """Reads calls off their whole maps."""

    def __init__(self, measures: dict[str, Measure], scene: Scene, site: Site):
        self.reader = whole_reader(measures, scene, site)
        self.uniform, self.said = (t[:, 0] for t in self.reader.uniform())
        self.pairs = None if scene.cross else self.counted(len(site.query))

    def counted(self, texts: int) -> Tensor:
        """How many pairs of a query and a key there are at each offset."""
        blocks = self.reader.blocks
        T = blocks[0].tokens.shape[1]
        pairs = torch.zeros(2 * T - 1, dtype=torch.float64, device=blocks[0].tokens.device)
        for block in blocks:
            seen = block.allowed.sum(dim=0) * (texts // len(block.allowed))
            add_diagonals(pairs, seen.double(), block.rows.start)
        return pairs

    def read(self, site: Site) -> tuple[Tensor, Layer]:
        output, rows, values, defined = self.reader.attend(site.scores, site.value, site.w_o, site.layer)
        offsets = None
        if self.pairs is not None:
            sums = torch.zeros(site.query.shape[1], len(self.pairs), dtype=torch.float64, device=self.pairs.device)
            for part in rows:
                add_diagonals(sums, part.weights.sum(dim=0), part.block.rows.start)
            offsets = OffsetSums(sums[None].cpu(), self.pairs[None].cpu())
        return output, Layer(values, defined, self.uniform, self.said, offsets, WHOLE)


class LongReader:
    """Reads calls in blocks of rows."""

    def __init__(self, measures: dict[str, Measure], scene: Scene, site: Site):
        self.reader = BlockReader(measures, scene)
        self.pairs = None
        if not scene.cross:
            self.pairs = torch.zeros(2 * site.key.shape[2] - 1, dtype=torch.float64, device=site.key.device)
        self.uniform, self.said = self.reader.uniform(site, self.pairs)

    def read(self, site: Site) -> tuple[Tensor, Layer]:
        sums = offsets = None
        if self.pairs is not None:
            sums = torch.zeros(site.query.shape[1], len(self.pairs), dtype=torch.float64, device=site.query.device)
        output, values, defined = self.reader.read(site, sums)
        if sums is not None and self.pairs is not None:
            offsets = OffsetSums(sums[None].cpu(), self.pairs[None].cpu())
        return output, Layer(values, defined, self.uniform, self.said, offsets, BLOCKS)


@dataclass
class Readers:
    """The readers of one batch, one for each kind of attention and mask."""

    batch: TextBatch
    measures: dict[str, dict[str, Measure]]  # by kind
    known: list[tuple[str, Any, WholeReader | LongReader]] = field(default_factory=list)

    def of(self, site: Site) -> WholeReader | LongReader:
        for kind, mask, reader in self.known:
            if kind == site.kind and same_mask(mask, site.mask):
                return reader
        make = WholeReader if site.whole else LongReader
        self.known.append((site.kind, site.mask, make(self.measures[site.kind], scene_of(self.batch, site.kind), site)))
        return self.known[-1][2]


def same_mask(a: Any, b: Any) -> bool:
    """Masks that are made in blocks are never compared: layers that share one are handed the same."""
    if a is b or a is None or b is None or isinstance(a, LazyMask) or isinstance(b, LazyMask):
        return a is b
    return torch.equal(a, b)


def scene_of(batch: TextBatch, kind: str) -> Scene:
    """Whose attention it is: of a decoder's texts where there are two parts, or from these to the encoder's."""
    keys = Side(batch.tokens, batch.mask, batch.special)
    if kind not in ("decoder", "cross"):
        return Scene(keys, keys)
    assert batch.decoder is not None
    queries = Side(batch.decoder.tokens, batch.decoder.mask, batch.decoder.special)
    return Scene(queries, keys, cross=True) if kind == "cross" else Scene(queries, queries)


@dataclass(frozen=True)
class KindReadings:
    """What was read of one kind of attention in one batch."""

    readings: Readings
    offsets: OffsetSums | None
    methods: frozenset[str]


@torch.no_grad()
def read_batch(
    model: PreTrainedModel, batch: TextBatch, measures: dict[str, dict[str, Measure]]
) -> dict[str, KindReadings]:
    """Run `model` on `batch`, which is on its device, and read every attention: by kind, as `measures` are."""
    readers = Readers(batch, measures)
    found: dict[str, list[Layer]] = {kind: [] for kind in measures}

    def attend(site: Site) -> Tensor:
        output, layer = readers.of(site).read(site)
        if site.layer != len(found[site.kind]):
            raise ValueError(f"model: {type(model).__name__} does not have one attention in every layer")
        found[site.kind].append(layer)
        return output

    with attending(model, attend):
        said = model(**inputs_of(model, batch))
    answers = answers_of(model, batch, said)
    return {kind: joined(model, layers, answers) for kind, layers in found.items()}


def joined(model: PreTrainedModel, layers: list[Layer], answers: tuple[Tensor, Tensor, Tensor]) -> KindReadings:
    """The layers of one kind, one on another."""
    if len({layer.values.shape for layer in layers}) > 1:
        raise ValueError(f"model: {type(model).__name__} does not have as many heads of attention in every layer")
    names = ("values", "defined", "uniform", "said")
    read = {name: torch.stack([getattr(layer, name) for layer in layers], dim=1).cpu() for name in names}
    predicted, labels, loss = answers
    offsets = None
    if layers[0].offsets is not None:
        each = [layer.offsets for layer in layers if layer.offsets is not None]
        offsets = OffsetSums(torch.cat([o.weights for o in each]), torch.cat([o.pairs for o in each]))
    readings = Readings(**read, predicted=predicted, labels=labels, loss=loss, maps={})
    return KindReadings(readings, offsets, frozenset(layer.method for layer in layers))


def answers_of(model: PreTrainedModel, batch: TextBatch, said: Any) -> tuple[Tensor, Tensor, Tensor]:
    """What the model predicts of each text, its label, and its loss in nats: of a language model that per token."""
    nothing = torch.full((len(batch),), NO_LABEL)
    labels = nothing if batch.labels is None else batch.labels.cpu()
    no_loss = torch.full((len(batch),), torch.nan, dtype=torch.float64)
    if classes_of(model) is not None:
        logits = said.logits.double().cpu()
        loss = cross_entropy(logits, labels, ignore_index=NO_LABEL, reduction="none")
        return logits.argmax(dim=-1), labels, loss.masked_fill(labels == NO_LABEL, torch.nan)
    if task_of(model) == "language":
        return nothing, labels, next_tokens(batch, said.logits)[:, 1]
    return nothing, labels, no_loss


def next_tokens(batch: TextBatch, logits: Float[Tensor, "B T V"]) -> Float[Tensor, "B 2"]:
    """The share of each text's tokens that is foretold, and the loss per token in nats, in float64 on the CPU.

    These are the tokens after the first; in a model of two parts those that its decoder writes, all of them. NaN for a
    text without any.
    """
    found = []
    for targets, of_text in foretold(batch, logits):
        loss = cross_entropy(of_text.float(), targets, reduction="none")
        right = of_text.argmax(dim=-1) == targets
        found.append(torch.stack([right.double().mean(), loss.double().mean()]))
    return torch.stack(found).cpu()


def foretold(batch: TextBatch, logits: Float[Tensor, "B T V"]) -> Iterator[tuple[Tensor, Tensor]]:
    """The tokens of each text that the model foretells (t,), and the logits that do (t, V)."""
    read = batch.looking("decoder")
    real = torch.ones_like(read.tokens, dtype=torch.bool) if read.mask is None else read.mask
    for row, of_text in enumerate(logits):
        if read.targets is None:
            yield read.tokens[row, real[row]][1:], of_text[real[row]][:-1]
        else:
            there = real[row] & (read.targets[row] != NOTHING)
            yield read.targets[row, there], of_text[there]
