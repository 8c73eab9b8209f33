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

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedModel

from attnkit.ablation import Head
from attnkit.hfstats import alike
from attnkit.hftrials import TOKENS, WASTE, Trial, answers
from attnkit.importance import EFFECTS, Importance, at
from attnkit.moments import Moments, merge
from attnkit.pretrained import classes_of, task_of
from attnkit.replay import Layers, run
from attnkit.text import TextBatch

METHODS = ("zero", "mean", "gradient")  # mean: the head's mean output over all real tokens of the texts
WITHOUT_LABELS = ("answers_changed", "divergence")
OF_TOKENS = ("accuracy_drop", "loss_increase")
OF_EMBEDDINGS = ("embedding_change", "similarity_change")
LOSSES = ("loss_increase", "divergence", "embedding_change")  # by which heads are put in order, whichever there is
STEPS = 16  # times that is measured while head after head is removed
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

    How the texts are cut into batches changes nothing. `whole` of the result is of the model as it is: right (1 or 0,
    or the share of tokens) and loss, or the cosine of the pairs. The gradient is that of the loss: it needs labels or a
    language model, and is left out without. `tick` is told of so many texts each time they have run with one head
    replaced.

    Of a model of two parts the L layers are its attentions in the order in which they run: `of_kind` tells them apart.

    Raises ValueError as `Layers.of` does; for a classifier whose answer is a number, unknown methods,
    labels that the model has not, and no texts.
    """
    if wrong := set(methods) - set(METHODS):
        raise ValueError(f"methods: got {', '.join(sorted(wrong))}; allowed are {', '.join(METHODS)}")
    layers, sums = begun(model, batches)
    new: dict[str, Callable[[int, int], Tensor | float]] = {}
    if "zero" in methods:
        new["zero"] = lambda layer, head: 0.0
    if "mean" in methods:
        means = mean_outputs(layers, batches, size)
        new["mean"] = lambda layer, head: means[layer, head]
    by_slope = "gradient" in methods and "loss_increase" in sums.effects
    replaced = layers.layers * layers.heads * len(new)

    def ask(trial: Trial) -> dict[str, Tensor]:
        found = {method: trial.without_each(of_head) for method, of_head in new.items()}
        return found | ({"gradient": trial.slopes()} if by_slope else {})

    for found in answers(layers, batches(), size, ask, lambda texts: tick(texts * replaced)):
        sums.add(found.pop(""), found)
    draw, pairs = Moments.empty(layers.layers, layers.heads, 4), Moments.empty(0, 6)
    of_head = {method: sums.of_method[method] for method in METHODS if method in sums.of_method}
    return Importance(sums.whole[""], of_head, draw, pairs, sums.effects), sums.similarities()


def prune(
    model: PreTrainedModel,
    batches: TextBatches,
    order: Sequence[Head],
    *,
    kind: str = "self",
    size: int = 32,
    tick: Callable[[int], object] = lambda texts: None,
) -> list[tuple[Head, Moments | None]]:
    """Remove heads of a kind of attention one after the other, (layer, head) in the given `order`.

    Returns each with what it does to remove it and all before it (E,), over all texts; measured, to save time, no
    oftener than at `STEPS` points evenly apart, the last of which is all of them; None between these. With
    `cheapest_first` this is the pruning of Michel et al. (2019, section 4). `tick` is told of so many texts each time
    they have run with some heads removed. Raises ValueError as `measure_importance` does.
    """
    layers, sums = begun(model, batches)
    places = [(layers.sites.index((kind, layer)), head) for layer, head in order]
    points = points_of(len(order))
    sets = [dict.fromkeys(places[:n], 0.0) for n in points]
    for found in answers(
        layers, batches(), size, lambda trial: {"sets": trial.without(sets)}, lambda texts: tick(texts * len(sets))
    ):
        sums.add(found.pop(""), found)
    measured = {n: at(sums.of_method["sets"], k) for k, n in enumerate(points)}
    return [(head, measured.get(n)) for n, head in enumerate(order, start=1)]


def points_of(heads: int) -> list[int]:
    """How many heads are removed where it is measured."""
    return sorted({math.ceil(heads * k / STEPS) for k in range(1, STEPS + 1)})


def cheapest_first(importance: Importance) -> list[Head]:
    """The heads, first those without which least is lost: by the loss, or what stands for it."""
    effect = next(k for k, name in enumerate(importance.effects) if name in LOSSES)
    lost = importance.of_head["zero"].mean[..., effect]
    return [divmod(k, lost.shape[1]) for k in lost.flatten().argsort(stable=True).tolist()]


def begun(model: PreTrainedModel, batches: TextBatches) -> tuple[Layers, "Sums"]:
    """How the model is built, and the sums of what it can lose."""
    first = next(iter(batches()), None)
    if first is None:
        raise ValueError("batches: there are no texts to measure")
    layers, task = Layers.of(model, first), task_of(model)
    if task == "classification" and classes_of(model) is None:
        raise ValueError("model: its answer is not one of several classes; what a head is worth to it is not measured")
    of_answers = EFFECTS if first.labels is not None else WITHOUT_LABELS
    return layers, Sums({"classification": of_answers, "language": OF_TOKENS, "embedding": OF_EMBEDDINGS}[task])


def of_kind(
    layers: Layers, kind: str, importance: Importance, similarities: Similarities | None
) -> tuple[Importance, Similarities | None]:
    """The same of one kind of attention alone, layer by layer."""
    here = [number for number, (of, _) in enumerate(layers.sites) if of == kind]
    of_head = {method: at(m, here) for method, m in importance.of_head.items()}
    kept = replace(importance, of_head=of_head, draw=at(importance.draw, here))
    if similarities is None:
        return kept, None
    return kept, replace(similarities, changed={name: t[:, here] for name, t in similarities.changed.items()})


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
    of_method: dict[str, Moments] = field(default_factory=dict)
    waiting: dict[str, Tensor] = field(default_factory=dict)  # the embedding of a text that has no partner yet
    kept: dict[str, list[Tensor]] = field(default_factory=dict)  # the cosines of pairs
    pairs: int = 0

    def add(self, plain: Float[Tensor, "B A"], changed: dict[str, Tensor]) -> None:
        """The answers as the model is, and by method (B, L, H, A), or (B, n, A) of n trials; of `gradient` the slopes
        (B, L, H)."""
        if self.effects == OF_EMBEDDINGS:
            self.add_embeddings(plain, changed)
            return
        effects = {method: self.differences(method, beneath(plain, found), found) for method, found in changed.items()}
        self.whole = merge(self.whole, {"": of_defined(plain)})
        self.of_method = merge(self.of_method, {method: of_defined(values) for method, values in effects.items()})

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
            moved = (embedding - beneath(plain, embedding)).square().sum(dim=-1) / 2  # 1 − cos of vectors of length 1
            after = self.cosines(method, embedding)
            of_texts, of_pairs = Moments.of(moved), Moments.of((after - beneath(before, after)).abs())
            self.of_method = merge(self.of_method, {method: beside(of_texts, of_pairs)})
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

    def similarities(self) -> Similarities | None:
        kept = {method: torch.cat(parts) for method, parts in self.kept.items()}
        return Similarities(kept.pop(""), kept) if kept else None


def beneath(plain: Float[Tensor, "B *_"], changed: Float[Tensor, "B *_"]) -> Tensor:
    """The answers of the model as it is, as they broadcast to those of many trials."""
    return plain.reshape(len(plain), *[1] * (changed.ndim - plain.ndim), *plain.shape[1:])


def of_defined(values: Tensor) -> Moments:
    return Moments.of(values, ~values.isnan())


def beside(a: Moments, b: Moments) -> Moments:
    """Two quantities on a new last axis."""
    return Moments(*(torch.stack([getattr(m, f.name) for m in (a, b)], dim=-1) for f in fields(Moments)))
