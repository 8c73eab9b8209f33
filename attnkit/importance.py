"""What is lost without a head: the whole set with its output replaced, held against the same set without.

Every difference is taken within one sequence, so that what makes sequences easy or hard drops out, and becomes
moments, so that memory does not grow with the data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from itertools import combinations
from operator import add
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnkit.ablation import Donors, Head, MeanOutputs, ablate, head_outputs, intervene, mean_outputs, replaced
from attnkit.data import Batch
from attnkit.model import TinyTransformer, TransformerEncoderLayer, mean_pool
from attnkit.moments import Moments
from attnkit.observe import observe
from attnkit.workers import side_by_side

Batches = Callable[[], Iterable[Batch]]  # each call goes through the same sequences in the same order
Heads = frozenset[Head]

# What a replacement does to one sequence: what is right (1 or 0) and the loss (nats), before and after.
EFFECTS = ("accuracy_drop", "loss_increase", "lost", "gained")  # lost: right before, wrong after; gained: the reverse
METHODS = ("zero", "mean", "resample", "gradient")
SEARCHED = 4096  # sequences on which the order of pruning is found
DRAWS = 2  # other sequences for each in `resample`: two tell how much the draw alone matters


class Trial:
    """One batch: how the model does on it as it is, and how it would do with other outputs of some heads."""

    def __init__(self, model: TinyTransformer, batch: Batch):
        """Raises ValueError for a model in train mode, or sequences without labels or that it does not take."""
        if model.training:
            raise ValueError("model: is in train mode; call model.eval() first")
        if batch.labels is None:
            raise ValueError("labels: there are none; what a head is worth is measured by the loss, which needs them")
        model.check(batch.tokens, batch.mask)
        self.model, self.batch, self.labels = model, batch, batch.labels
        self.keys = None if batch.mask is None else batch.mask[:, None, None, :]
        self.outputs: list[Tensor] = []  # of the heads of each layer (B, H, T, d)
        with torch.no_grad(), observe(model, lambda call: self.outputs.append(call.output)):
            self.states = [model.pos(model.embed(batch.tokens), batch.mask)]  # before each layer, and after the last
            for layer in model.layers:
                self.states.append(layer(self.states[-1], self.keys)[0])
            self.right, self.loss = self.scores(self.states[-1], len(model.layers))

    def scores(self, state: Float[Tensor, "B T D"], first: int) -> tuple[Float[Tensor, "B"], Float[Tensor, "B"]]:
        """Run the model on from `state`, which goes into layer `first`.

        Returns which answers are right (1 or 0) and the losses in nats, float64.
        """
        for layer in self.model.layers[first:]:
            state, _ = layer(state, self.keys)
        logits = self.model.head(mean_pool(state, self.batch.mask)).double()
        right = (logits.argmax(dim=1) == self.labels).double()
        return right, cross_entropy(logits, self.labels, reduction="none")

    @torch.no_grad()
    def effects(self, replacements: Mapping[Head, Tensor | float]) -> Float[Tensor, "B 4"]:
        """What these replacements do to each sequence, in the order of `EFFECTS`; see `ablation.ablate`."""
        # Nothing changes before the outputs of the first layer that is touched: its attention need not run again.
        first = min((layer for layer, _ in replacements), default=0)
        here = {head: new for (layer, head), new in replacements.items() if layer == first}
        above = {(layer, head): new for (layer, head), new in replacements.items() if layer != first}
        block = self.model.layers[first]
        assert isinstance(block, TransformerEncoderLayer)
        heads = replaced(self.outputs[first], here)
        state = block.norm1(self.states[first] + block.attn.W_o(heads.transpose(1, 2).flatten(2)))
        state = block.norm2(state + block.ffn(state))
        with ablate(self.model, above):
            right, loss = self.scores(state, first + 1)
        lost, gained = self.right * (1 - right), right * (1 - self.right)
        return torch.stack([self.right - right, loss - self.loss, lost, gained], dim=1)

    @torch.enable_grad()
    def slopes(self) -> Float[Tensor, "B L H"]:
        """∂loss/∂ξ of each sequence, with a gate ξ = 1 on the output of every head (Michel et al. 2019, section 4.1).

        Each sequence has gates of its own, so that one backward pass of the summed losses keeps them apart.
        """
        config, state = self.model.config, self.states[0]
        gates = state.new_ones(config.n_layers, len(state), config.n_heads, 1, 1).requires_grad_()
        with intervene(self.model, lambda layer, output: output * gates[layer]):
            _, loss = self.scores(state, 0)
        (slopes,) = torch.autograd.grad(loss.sum(), gates)
        return slopes[..., 0, 0].transpose(0, 1)


@dataclass(frozen=True)
class Importance:
    """What is known after some sequences. L layers, H heads; the last axis is `EFFECTS`, unless said otherwise."""

    whole: Moments  # (2,): right (1 or 0) and loss of the model as it is
    of_head: dict[str, Moments]  # by method (L, H, 4); gradient: (L, H, 2) with −∂loss/∂ξ and |∂loss/∂ξ|
    draw: Moments  # (L, H, 4): the squared error that the draw of `resample` alone leaves in one sequence's effect
    pairs: Moments  # (P, 6): without both of `pairs_of`; then what accuracy and loss change beyond the sum of each
    effects: tuple[str, ...] = EFFECTS  # what the last axis is of; transformers models have other things to lose

    def __add__(self, other: "Importance") -> "Importance":
        of_head = {method: self.of_head[method] + other.of_head[method] for method in self.of_head}
        draw, pairs = self.draw + other.draw, self.pairs + other.pairs
        return Importance(self.whole + other.whole, of_head, draw, pairs, self.effects)


def heads_of(model: TinyTransformer) -> list[Head]:
    return [(layer, head) for layer in range(model.config.n_layers) for head in range(model.config.n_heads)]


def pairs_of(model: TinyTransformer) -> list[tuple[Head, Head]]:
    return list(combinations(heads_of(model), 2))


def measure_importance(
    model: TinyTransformer,
    batches: Batches,
    *,
    methods: Sequence[str] = METHODS,
    pairs: bool = False,
    seed: int = 0,
) -> Importance:
    """What each head is worth over all sequences of `batches`, by each of `methods`, and with `pairs` each two heads.

    How the sequences are cut into batches changes nothing. `seed` draws the sequences of `resample`. Raises
    ValueError for a model in train mode, sequences without labels, or none at all.
    """
    if wrong := set(methods) - set(METHODS):
        raise ValueError(f"methods: got {', '.join(sorted(wrong))}; allowed are {', '.join(METHODS)}")
    means = mean_outputs(model, batches()) if "mean" in methods else None

    def part(own: TinyTransformer, item: tuple[Batch, list[Batch], Tensor | None]) -> Importance:
        batch, donors, found = item
        return measure_batch(Trial(own, batch), methods, means, donors, found, pairs)

    parts = side_by_side(model, part, with_donors(model, batches, seed if "resample" in methods else None))
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no sequences to measure")
    return reduce(add, parts, first)


def with_donors(
    model: TinyTransformer, batches: Batches, seed: int | None
) -> Iterator[tuple[Batch, list[Batch], Tensor | None]]:
    """Each batch with its batches of donors, on the model's device, and which sequences have one."""
    device = next(model.parameters()).device
    if seed is None:
        yield from ((batch.to(device), [], None) for batch in batches())
        return
    for batch, donors, found in Donors(batches(), seed).draws(batches(), DRAWS):
        yield batch.to(device), [donor.to(device) for donor in donors], found


def measure_batch(
    trial: Trial,
    methods: Sequence[str],
    means: MeanOutputs | None,
    donors: Sequence[Batch],
    found: Tensor | None,
    pairs: bool,
) -> Importance:
    """All variants on one batch. `found` (B,): the sequences that have donors."""
    model, heads = trial.model, heads_of(trial.model)
    of_head, draw, of_pairs = {}, by_head(model, Moments.empty(len(heads), 4)), Moments.empty(0, 6)
    removed = {head: trial.effects({head: 0.0}) for head in heads} if "zero" in methods or pairs else {}
    if "zero" in methods:
        of_head["zero"] = by_head(model, moments(list(removed.values())))
    if means is not None:
        mean = means.at(trial.batch)
        values = [trial.effects({(layer, head): mean[:, layer, head]}) for layer, head in heads]
        of_head["mean"] = by_head(model, moments(values))
    if donors:
        others = [head_outputs(model, donor) for donor in donors]  # each (B, L, H, T, d)
        draws = [
            torch.stack([trial.effects({(layer, head): other[:, layer, head]}) for other in others])
            for layer, head in heads
        ]  # each (draws, B, 4)
        of_head["resample"] = by_head(model, moments([values.mean(dim=0) for values in draws], found))
        draw = by_head(model, moments([values.var(dim=0) / len(values) for values in draws], found))
    if "gradient" in methods:
        slopes = trial.slopes()
        of_head["gradient"] = Moments.of(torch.stack([-slopes, slopes.abs()], dim=-1).cpu())
    if pairs:
        of_pairs = moments([without_both(trial, removed, a, b) for a, b in pairs_of(model)])
    return Importance(moments([trial.right, trial.loss]), of_head, draw, of_pairs)


def without_both(trial: Trial, removed: dict[Head, Tensor], a: Head, b: Head) -> Float[Tensor, "B 6"]:
    both = trial.effects({a: 0.0, b: 0.0})
    beyond = both - removed[a] - removed[b]
    return torch.cat([both, beyond[:, :2]], dim=1)


def moments(values: Sequence[Tensor], defined: Tensor | None = None) -> Moments:
    """The moments over the sequences of several quantities (B, …) each; they become the first axis."""
    stacked = torch.stack(list(values), dim=1).cpu()
    if defined is not None:
        defined = defined.view(-1, *[1] * (stacked.ndim - 1)).expand_as(stacked)
    return Moments.of(stacked, defined)


def by_head(model: TinyTransformer, m: Moments) -> Moments:
    """(L·H, …) as (L, H, …)."""
    return Moments(*(getattr(m, f.name).unflatten(0, (model.config.n_layers, -1)) for f in fields(m)))


def measure_sets(model: TinyTransformer, batches: Batches, sets: Sequence[Heads]) -> Moments:
    """What it does to remove (zero ablation) each of these sets of heads, (sets, 4)."""
    device = next(model.parameters()).device

    def part(own: TinyTransformer, batch: Batch) -> Moments:
        trial = Trial(own, batch.to(device))
        return moments([trial.effects(dict.fromkeys(removed, 0.0)) for removed in sets])

    return reduce(add, side_by_side(model, part, batches()))


def prune(model: TinyTransformer, batches: Batches, *, seed: int = 0) -> list[tuple[Head, Moments]]:
    """Remove one head after the other, always the one without which the loss is lowest, until none is left.

    Returns each head with what it does to remove it and all before it (4,), over all sequences. Of more than 4,096
    the loss that decides the order is that of so many, about, drawn at random by `seed`.
    """
    n = sum(len(batch) for batch in batches())
    heads = heads_of(model)
    order: list[Head] = []
    while len(order) < len(heads):
        left = [head for head in heads if head not in order]
        measured = measure_sets(model, some(batches, SEARCHED / n, seed), [frozenset([*order, head]) for head in left])
        order.append(left[int(measured.mean[:, EFFECTS.index("loss_increase")].argmin())])
    measured = measure_sets(model, batches, [frozenset(order[: k + 1]) for k in range(len(order))])
    return [(head, at(measured, k)) for k, head in enumerate(order)]


def some(batches: Batches, share: float, seed: int) -> Batches:
    """A random share of the sequences, the same at each call, however they are cut into batches."""

    def drawn() -> Iterator[Batch]:
        chance = np.random.default_rng(seed)
        for batch in batches():
            chosen = torch.from_numpy(chance.random(len(batch)) < share)
            if chosen.any():
                yield batch[chosen]

    return batches if share >= 1 else drawn


def at(m: Moments, *index: Any) -> Moments:
    return Moments(*(getattr(m, f.name)[index] for f in fields(m)))
