"""Does the weight on a token say how much the answer hangs on it?

In each sequence, every attribution of `attribution.py` puts the tokens in an order, and so does what flipping each
token does to the margin. Kendall's τ says how far the two orders agree; its moments over the sequences are kept.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.attribution import (
    Embedded,
    answers,
    attention_received,
    flip_effects,
    gradient_x_input,
    integrated_gradients,
    margins,
)
from attnkit.data import Batch
from attnkit.importance import Batches, some
from attnkit.model import TinyTransformer
from attnkit.moments import Moments

ATTENTION = ("last_layer", "mean_layers", "rollout")
GRADIENTS = ("gradient_x_input", "integrated_gradients")
# What is held against what: sizes, and where an attribution has a sign also signed.
COMPARISONS = tuple((name, "absolute") for name in (*ATTENTION, *GRADIENTS)) + tuple((n, "signed") for n in GRADIENTS)
TIE = 1e-6  # of the largest of its sequence: a smaller difference between two tokens is rounding, and a tie
SEARCHED = 4096  # sequences, about, from which the quarters of the margins are found


@dataclass(frozen=True)
class Grouping:
    """A way to part the sequences: what each group is called, and in which of them (by index) each sequence is."""

    groups: tuple[float, ...]
    of: Callable[[Batch, Float[Tensor, "B"]], Int[Tensor, "B"]]


@dataclass(frozen=True)
class Agreement:
    """What is known of the sequences of G groups. K: `COMPARISONS`."""

    tau: Moments  # (G, K)
    undefined: Tensor  # (G, K): sequences in which one order has nothing but ties
    margin: Moments  # (G,)

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(self.tau + other.tau, self.undefined + other.undefined, self.margin + other.margin)


@dataclass(frozen=True)
class Faithfulness:
    by: dict[str, Agreement]  # by the name of the grouping
    missed: Moments  # (): what integrated gradients misses of the margin, see `attribution.integrated_gradients`

    def __add__(self, other: "Faithfulness") -> "Faithfulness":
        return Faithfulness({name: self.by[name] + other.by[name] for name in self.by}, self.missed + other.missed)


def measure_faithfulness(
    model: TinyTransformer, batches: Batches, groupings: dict[str, Grouping] | None = None
) -> Faithfulness:
    """Hold every attribution against the flips over all sequences, and over the groups of each grouping.

    How the sequences are cut into batches changes nothing. Raises ValueError for a model in train mode, or of one
    class or token, and where there are no sequences.
    """
    if model.training:
        raise ValueError("model: is in train mode; call model.eval() first")
    device = next(model.parameters()).device
    # A flip may change a margin of 7 by 1e-6, which float32 cannot tell from rounding. MPS has no float64.
    exact = copy.deepcopy(model).to(torch.float32 if device.type == "mps" else torch.float64)
    groupings = {"all": EVERYTHING, **(groupings or {})}
    parts = (measure_batch(model, exact, batch.to(device), groupings) for batch in batches())
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no sequences to measure")
    return reduce(add, parts, first)


def measure_batch(
    model: TinyTransformer, exact: TinyTransformer, batch: Batch, groupings: dict[str, Grouping]
) -> Faithfulness:
    with torch.no_grad():
        logits, weights = model(batch.tokens, batch.mask)
    pair = answers(logits)
    received, flips = attention_received(weights, batch.mask), flip_effects(exact, batch, pair)
    at, margin = Embedded.of(model, batch, pair), margins(logits, pair)
    return held(at, received, flips, batch, margin, batch.mask, groupings)


def held(
    at: Embedded,
    received: dict[str, Tensor],
    flips: tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]],
    batch: Batch,
    margin: Float[Tensor, "B"],
    counted: Bool[Tensor, "B T"] | None,
    groupings: dict[str, Grouping],
) -> Faithfulness:
    """Hold the attention that each token received, and its gradients, against how much a flip of it lowers the margin
    and changes it; over the tokens that are `counted`."""
    integrated, missed = integrated_gradients(at)
    of_tokens = received | {"gradient_x_input": gradient_x_input(at), "integrated_gradients": integrated}
    effects = dict(zip(("signed", "absolute"), flips, strict=True))
    taus = []
    for name, kind in COMPARISONS:
        attribution = of_tokens[name] if kind == "signed" else of_tokens[name].abs()
        taus.append(tau_b(levelled(attribution, counted), levelled(effects[kind], counted), counted))
    tau, margin = torch.stack(taus, dim=1).cpu(), margin.cpu()
    by = {
        name: agreement(tau, margin, grouping.of(batch, margin), grouping.groups)
        for name, grouping in groupings.items()
    }
    return Faithfulness(by, Moments.of(missed.cpu()))


def agreement(
    tau: Float[Tensor, "B K"], margin: Float[Tensor, "B"], index: Int[Tensor, "B"], groups: Sequence[float]
) -> Agreement:
    member = index.cpu()[:, None] == torch.arange(len(groups))  # (B, G)
    spread = tau[:, None].expand(-1, len(groups), -1)  # (B, G, K)
    defined = spread.isfinite()
    return Agreement(
        Moments.of(spread, defined & member[..., None]),
        (~defined & member[..., None]).sum(dim=0),
        Moments.of(margin[:, None].expand_as(member), member),
    )


def levelled(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T"]:
    """The values in steps of `TIE` of the largest of their sequence, so that what rounding parts is tied."""
    values = values.double() if mask is None else values.double().masked_fill(~mask, 0)
    step = TIE * values.abs().amax(dim=1, keepdim=True)
    return torch.where(step > 0, values / step, 0).round()


def tau_b(
    x: Float[Tensor, "B T"], y: Float[Tensor, "B T"], real: Bool[Tensor, "B T"] | None = None
) -> Float[Tensor, "B"]:
    """Kendall's τ-b of each row over the tokens that are `real`: Kendall 1945, "The treatment of ties".

    Pairs in the same order minus pairs in the opposite one, over √(pairs not tied in x · pairs not tied in y); −1 to
    1. NaN where one of the two has nothing but ties, or there is no pair.
    """
    i, j = torch.triu_indices(x.shape[1], x.shape[1], offset=1, device=x.device)
    in_x, in_y = ((values[:, i] - values[:, j]).sign() for values in (x, y))
    if real is not None:
        in_x, in_y = (signs * (real[:, i] & real[:, j]) for signs in (in_x, in_y))
    return (in_x * in_y).sum(dim=1) / (in_x.abs().sum(dim=1) * in_y.abs().sum(dim=1)).sqrt()


# ---------------------------------------------------------------- groups


EVERYTHING = Grouping((torch.nan,), lambda batch, margin: torch.zeros(len(batch), dtype=torch.int64))


@torch.no_grad()
def margins_of(model: TinyTransformer, batch: Batch) -> Float[Tensor, "B"]:
    """The margin of each answer, on the CPU."""
    batch = batch.to(next(model.parameters()).device)
    logits, _ = model(batch.tokens, batch.mask)
    return margins(logits, answers(logits)).cpu()


def quarters(margin: Callable[[Batch], Float[Tensor, "B"]], batches: Batches, *, seed: int = 0) -> Grouping:
    """By the margin, from the smallest to the largest: 1, 2, 3, 4. Of more than 4,096 sequences the edges are those
    of so many, about, drawn at random by `seed`."""
    n = sum(len(batch) for batch in batches())
    if not n:
        raise ValueError("batches: there are no sequences to measure")
    drawn = [margin(batch) for batch in some(batches, SEARCHED / n, seed)()]
    at = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    edges = torch.cat(drawn).double().quantile(at)
    return Grouping((1.0, 2.0, 3.0, 4.0), lambda batch, margin: torch.bucketize(margin.double(), edges))


def distance_from_tie(longest: int) -> Grouping:
    """By the number of ones minus half the length: 0 is a tie. `longest`: tokens of the longest sequence."""

    def of(batch: Batch, margin: Tensor) -> Tensor:
        real = torch.ones_like(batch.tokens) if batch.mask is None else batch.mask.long()
        return (2 * batch.tokens * real - real).sum(dim=1) + longest

    return Grouping(tuple(k / 2 for k in range(-longest, longest + 1)), of)
