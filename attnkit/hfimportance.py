"""What is lost without a head of a transformers model, over texts.

What a model can lose is what it is for:

- a classifier its answers. With labels: `accuracy_drop`, `loss_increase` and what answers are `lost` and `gained`.
  Without, it is held against what it says as it is: `answers_changed` is the share of answers that are others,
  `divergence` the Kullback–Leibler divergence of what it then says from what it says as it is;
- a language model the next token: `accuracy_drop` is of the share of tokens that it foretells, `loss_increase` of the
  loss per token, both within one text; of a model of two parts in the text that its decoder writes;
- any other model the embedding of a text, as sentence transformers read it: the mean of the last hidden states over
  real tokens, with length 1; of a model of two parts those of its decoder. `embedding_change` is 1 − its cosine with
  the embedding of the model as it is, `similarity_change` how far the cosine of two texts moves, up or down. Pairs are
  the first and the second text, the third and the fourth, and so on: no text stands in two.

Losses are in nats. Every text counts once, whatever its length.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import PreTrainedModel

from attnkit.hfreading import next_tokens
from attnkit.hfstats import alike
from attnkit.importance import EFFECTS, Importance
from attnkit.moments import Moments, merge
from attnkit.pretrained import classes_of, task_of
from attnkit.replay import Layers, Replay, copies, run
from attnkit.text import TextBatch
from attnkit.workers import cut, side_by_side

METHODS = ("zero", "mean", "gradient")  # mean: the head's mean output over all real tokens of the texts
WITHOUT_LABELS = ("answers_changed", "divergence")
OF_TOKENS = ("accuracy_drop", "loss_increase")
OF_EMBEDDINGS = ("embedding_change", "similarity_change")
TOKENS = 2048  # that run side by side, of some texts and of some heads replaced
WASTE = 0.05  # share of these that may be padding
RANKED = 1 << 14  # pairs of texts whose similarities are kept, to rank them: the first ones

TextBatches = Callable[[], Iterable[TextBatch]]  # each call goes through the same texts in the same order


@dataclass(frozen=True)
class Similarities:
    """The cosines of pairs of texts, P of them, by the model as it is and without each head."""

    plain: Float[Tensor, "P"]
    changed: dict[str, Float[Tensor, "P L H"]]  # by method


def measure_importance(
    model: PreTrainedModel,
    batches: TextBatches,
    *,
    methods: Sequence[str] = METHODS,
    size: int = 32,
    tick: Callable[[int], object] = lambda texts: None,
) -> tuple[Importance, Similarities | None]:
    """What each head is worth over all texts of `batches`, by each of `methods`; of embeddings the similarities, too.

    The texts of one batch run side by side as `hfstats.alike` puts them together; how the texts are cut into batches
    changes nothing. `whole` of the result is of the model as it is: right (1 or 0, or the share of tokens) and
    loss, or the cosine of the pairs. The gradient is that of the loss: it needs labels or a language model, and is
    left out without. `tick` is told of so many texts each time they have run with one head replaced.

    Of a model of two parts the L layers are its attentions in the order in which they run: `of_kind` tells them apart.

    Raises ValueError as `Layers.of` does; for a classifier whose answer is a number, unknown methods,
    labels that the model has not, and no texts.
    """
    if wrong := set(methods) - set(METHODS):
        raise ValueError(f"methods: got {', '.join(sorted(wrong))}; allowed are {', '.join(METHODS)}")
    first = next(iter(batches()), None)
    if first is None:
        raise ValueError("batches: there are no texts to measure")
    layers = Layers.of(model, first)
    new: dict[str, Callable[[int, int], Tensor | float]] = {}
    if "zero" in methods:
        new["zero"] = lambda layer, head: 0.0
    if "mean" in methods:
        means = mean_outputs(layers, batches, size)
        new["mean"] = lambda layer, head: means[layer, head]
    task, labelled = task_of(model), first.labels is not None
    if task == "classification" and classes_of(model) is None:
        raise ValueError("model: its answer is not one of several classes; what a head is worth to it is not measured")
    of_answers = EFFECTS if labelled else WITHOUT_LABELS
    sums = Sums({"classification": of_answers, "language": OF_TOKENS, "embedding": OF_EMBEDDINGS}[task])
    with_loss = "loss_increase" in sums.effects

    def work(own: PreTrainedModel, item: tuple[int, list[int], TextBatch]) -> tuple[int, list[int], dict[str, Tensor]]:
        number, rows, some = item
        trial = Trial(replace(layers, model=own), some.each(lambda t: t.to(own.device)))
        found = {"": trial.plain} | {method: trial.without_each(of_head) for method, of_head in new.items()}
        if "gradient" in methods and with_loss:
            found["gradient"] = trial.slopes()
        return number, rows, found

    items = ((k, *some) for k, batch in enumerate(batches()) for some in alike(batch, size, TOKENS, WASTE))
    for _, parts in groupby(side_by_side(model, work, items), key=itemgetter(0)):
        order: list[int] = []
        of_parts: list[dict[str, Tensor]] = []
        for _, rows, found in parts:
            order += rows
            of_parts.append(found)
            tick(len(rows) * layers.layers * layers.heads * len(new))
        back = torch.tensor(order).argsort()
        in_order = {method: torch.cat([found[method] for found in of_parts])[back] for method in of_parts[0]}
        sums.add(in_order.pop(""), in_order)
    return sums.importance(layers), sums.similarities()


def of_kind(
    layers: Layers, kind: str, importance: Importance, similarities: Similarities | None
) -> tuple[Importance, Similarities | None]:
    """The same of one kind of attention alone, layer by layer."""
    at = [number for number, (of, _) in enumerate(layers.sites) if of == kind]

    def some(m: Moments) -> Moments:
        return Moments(*(getattr(m, f.name)[at] for f in fields(Moments)))

    of_head = {method: some(m) for method, m in importance.of_head.items()}
    kept = replace(importance, of_head=of_head, draw=some(importance.draw))
    if similarities is None:
        return kept, None
    return kept, replace(similarities, changed={name: t[:, at] for name, t in similarities.changed.items()})


# ---------------------------------------------------------------- a batch


class Trial:
    """Some texts, and how answers are read off what the model says of them: (right, loss), or the embedding."""

    def __init__(self, layers: Layers, batch: TextBatch):
        self.replay = Replay(layers, batch)
        self.reading = reading(task_of(layers.model), batch, self.replay.said)
        self.plain = self.reading(self.replay.said)

    def without_each(self, new: Callable[[int, int], Tensor | float]) -> Float[Tensor, "B L H A"]:
        """The answers with each head's output replaced in turn."""
        L, H, texts = self.replay.layers.layers, self.replay.layers.heads, self.replay.batch
        tokens = texts.tokens.numel() + (0 if texts.decoder is None else texts.decoder.tokens.numel())
        together = max(TOKENS // tokens, 1)
        answers = []
        for layer in range(L):
            for some in cut([{(layer, head): new(layer, head)} for head in range(H)], together):
                answers.append(self.reading(self.replay.without(some)))
        return torch.cat(answers).unflatten(0, (L, H, len(texts))).movedim(2, 0)

    @torch.enable_grad()
    def slopes(self) -> Float[Tensor, "B L H"]:
        """∂loss/∂ξ of each text, with a gate ξ = 1 on the output of every head (Michel et al. 2019, section 4.1).

        NaN for a text that has no loss.
        """
        layers, batch = self.replay.layers, self.replay.batch
        gates = torch.ones(len(batch), layers.layers, layers.heads, 1, 1, device=batch.tokens.device).requires_grad_()
        loss = self.reading(run(layers.model, batch, lambda number, output: output * gates[:, number].to(output)))
        (slopes,) = torch.autograd.grad(loss[:, 1].nansum(), gates)
        slopes = slopes[..., 0, 0].double().cpu()
        return slopes.masked_fill(loss[:, 1].detach().isnan()[:, None, None], torch.nan)


Reading = Callable[[Any], Float[Tensor, "N A"]]  # what the model says -> the answers, in float64 on the CPU


def reading(task: str, batch: TextBatch, said: Any) -> Reading:
    """How answers are read off what the model says of these texts, or of them several times side by side.

    `said`: what it says of them as it is.
    """
    if task == "embedding":
        return partial(embeddings, batch)
    if task == "language":
        return lambda said: next_tokens(repeated(batch, said.logits), said.logits)
    logits = said.logits.cpu().double()
    if batch.labels is None:
        return partial(classes, logits.argmax(dim=1), logits.softmax(dim=1))
    labels = batch.labels.cpu()
    for wrong in labels[(labels < 0) | (labels >= logits.shape[1])].tolist():
        raise ValueError(f"labels: got {wrong}, allowed are whole numbers from 0 to {logits.shape[1] - 1}")
    return partial(classes, labels, labels)


def repeated(batch: TextBatch, said: Float[Tensor, "N *_"]) -> TextBatch:
    """The texts as often as the model has read them."""
    n = len(said) // len(batch)
    return batch if n == 1 else batch.each(partial(copies, texts=len(batch), n=n))


def classes(right: Tensor, target: Tensor, said: Any) -> Float[Tensor, "N 2"]:
    """`target`: classes (B,), or how probable each is (B, C)."""
    logits = said.logits.cpu().double()
    right, target = (copies(t, len(t), len(logits) // len(t)) for t in (right, target))
    loss = cross_entropy(logits, target, reduction="none")
    return torch.stack([(logits.argmax(dim=1) == right).double(), loss], dim=1)


def embeddings(batch: TextBatch, said: Any) -> Float[Tensor, "N D"]:
    states = said[0].float()
    mask = repeated(batch, states).looking("decoder").mask  # of one part it is the texts' own
    if mask is not None:
        states = states.masked_fill(~mask[..., None], 0.0)
    return normalize(states.sum(dim=1).cpu().double(), dim=1)


# ---------------------------------------------------------------- the texts


@torch.no_grad()
def mean_outputs(layers: Layers, batches: TextBatches, size: int) -> Float[Tensor, "L H e"]:
    """The mean output of every head over all real tokens, float64 on the CPU."""
    totals: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def keep(part: TextBatch, number: int, output: Tensor) -> Tensor:
        tokens, mask = output.transpose(1, 2), part.looking(layers.sites[number][0]).mask  # (B, T, H, e), (B, T)
        real = tokens.flatten(0, 1) if mask is None else tokens[mask]
        totals[number] = totals.get(number, 0.0) + real.cpu().double().sum(dim=0)
        counts[number] = counts.get(number, 0) + len(real)
        return output

    for batch in batches():
        for _, part in alike(batch, size, TOKENS, WASTE):
            part = part.each(lambda t: t.to(layers.model.device))
            run(layers.model, part, partial(keep, part))
    return torch.stack([totals[number] / counts[number] for number in range(layers.layers)])


# ---------------------------------------------------------------- the sums


@dataclass
class Sums:
    """What is known after some texts."""

    effects: tuple[str, ...]
    whole: dict[str, Moments] = field(default_factory=dict)
    of_head: dict[str, Moments] = field(default_factory=dict)
    waiting: dict[str, Tensor] = field(default_factory=dict)  # the embedding of a text that has no partner yet
    kept: dict[str, list[Tensor]] = field(default_factory=dict)  # the cosines of pairs
    pairs: int = 0

    def add(self, plain: Float[Tensor, "B A"], changed: dict[str, Tensor]) -> None:
        """The answers as the model is, and by method (B, L, H, A); of `gradient` the slopes (B, L, H)."""
        if self.effects == OF_EMBEDDINGS:
            self.add_embeddings(plain, changed)
            return
        effects = {method: self.differences(method, plain[:, None, None], found) for method, found in changed.items()}
        self.whole = merge(self.whole, {"": of_defined(plain)})
        self.of_head = merge(self.of_head, {method: of_defined(values) for method, values in effects.items()})

    def differences(self, method: str, plain: Tensor, changed: Tensor) -> Tensor:
        if method == "gradient":
            return torch.stack([-changed, changed.abs()], dim=-1)
        (was, before), (right, loss) = plain.unbind(-1), changed.unbind(-1)
        differences = [was - right, loss - before, was * (1 - right), right * (1 - was)]
        return torch.stack(differences[: len(self.effects)], dim=-1)

    def add_embeddings(self, plain: Tensor, changed: dict[str, Tensor]) -> None:
        before = self.cosines("", plain)
        self.whole = merge(self.whole, {"": Moments.of(before[:, None])})
        for method, embedding in changed.items():
            moved = (embedding - plain[:, None, None]).square().sum(dim=-1) / 2  # 1 − cos of vectors of length 1
            after = self.cosines(method, embedding)
            of_texts, of_pairs = Moments.of(moved), Moments.of((after - before[:, None, None]).abs())
            self.of_head = merge(self.of_head, {method: beside(of_texts, of_pairs)})
        self.pairs += len(before)

    def cosines(self, method: str, embedding: Float[Tensor, "B *heads D"]) -> Float[Tensor, "P *heads"]:
        """Of the pairs that are complete by now; a text without a partner waits for the next batch."""
        if method in self.waiting:
            embedding = torch.cat([self.waiting.pop(method), embedding])
        if len(embedding) % 2:
            self.waiting[method], embedding = embedding[-1:], embedding[:-1]
        cosines = (embedding[::2] * embedding[1::2]).sum(dim=-1)
        self.kept.setdefault(method, []).append(cosines[: max(RANKED - self.pairs, 0)].float())
        return cosines

    def importance(self, layers: Layers) -> Importance:
        draw, pairs = Moments.empty(layers.layers, layers.heads, 4), Moments.empty(0, 6)
        of_head = {method: self.of_head[method] for method in METHODS if method in self.of_head}
        return Importance(self.whole[""], of_head, draw, pairs, self.effects)

    def similarities(self) -> Similarities | None:
        kept = {method: torch.cat(parts) for method, parts in self.kept.items()}
        return Similarities(kept.pop(""), kept) if kept else None


def of_defined(values: Tensor) -> Moments:
    return Moments.of(values, ~values.isnan())


def beside(a: Moments, b: Moments) -> Moments:
    """Two quantities on a new last axis."""
    return Moments(*(torch.stack([getattr(m, f.name) for m in (a, b)], dim=-1) for f in fields(Moments)))
