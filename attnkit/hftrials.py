"""A few texts, run by a transformers model with other outputs of some heads, and how its answers are read off.

What a model answers with is told by what it is for: the classes of a text, its next tokens, or its embedding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize
from transformers import PreTrainedModel

from attnkit.ablation import Head
from attnkit.hfreading import next_tokens
from attnkit.hfstats import alike
from attnkit.pretrained import task_of
from attnkit.replay import Layers, Replay, copies, run
from attnkit.text import TextBatch
from attnkit.workers import cut, side_by_side

TOKENS = 2048  # that run side by side, of some texts and of some heads replaced
WASTE = 0.05  # share of these that may be padding

Trials = Sequence[Mapping[Head, Tensor | float]]  # in each, the outputs of some heads: (attention, head) -> another
Ask = Callable[["Trial"], dict[str, Tensor]]


class Trial:
    """Some texts, and how answers are read off what the model says of them: (right, loss), or the embedding."""

    def __init__(self, layers: Layers, batch: TextBatch):
        self.replay = Replay(layers, batch)
        self.reading = reading(task_of(layers.model), batch, self.replay.said)
        self.plain = self.reading(self.replay.said)

    def without(self, trials: Trials) -> Float[Tensor, "B n A"]:
        """The answers with the heads of each trial replaced."""
        texts = self.replay.batch
        tokens = texts.tokens.numel() + (0 if texts.decoder is None else texts.decoder.tokens.numel())
        answers = [self.reading(self.replay.without(some)) for some in cut(trials, max(TOKENS // tokens, 1))]
        return torch.cat(answers).unflatten(0, (len(trials), len(texts))).movedim(1, 0)

    def without_each(self, new: Callable[[int, int], Tensor | float]) -> Float[Tensor, "B L H A"]:
        """The answers with each head's output replaced in turn."""
        L, H = self.replay.layers.layers, self.replay.layers.heads
        of_layers = [self.without([{(layer, head): new(layer, head)} for head in range(H)]) for layer in range(L)]
        return torch.stack(of_layers, dim=1)

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


def answers(
    layers: Layers, batches: Iterable[TextBatch], size: int, ask: Ask, tick: Callable[[int], object]
) -> Iterator[dict[str, Tensor]]:
    """What each batch answers to `ask`, in its texts' order, and under "" what it answers as the model is.

    The texts of one batch run side by side as `hfstats.alike` puts them together. `tick` is told of so many texts each
    time they have run.
    """

    def work(own: PreTrainedModel, item: tuple[int, list[int], TextBatch]) -> tuple[int, list[int], dict[str, Tensor]]:
        number, rows, some = item
        trial = Trial(replace(layers, model=own), some.each(lambda t: t.to(own.device)))
        return number, rows, {"": trial.plain} | ask(trial)

    items = ((k, *some) for k, batch in enumerate(batches) for some in alike(batch, size, TOKENS, WASTE))
    for _, parts in groupby(side_by_side(layers.model, work, items), key=itemgetter(0)):
        order: list[int] = []
        of_parts: list[dict[str, Tensor]] = []
        for _, rows, found in parts:
            order += rows
            of_parts.append(found)
            tick(len(rows))
        back = torch.tensor(order).argsort()
        yield {name: torch.cat([found[name] for found in of_parts])[back] for name in of_parts[0]}
