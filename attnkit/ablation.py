"""What if a head had written something else? Its output is replaced while the model runs, and nothing stays behind.

Three things to put in the place of an output (B, T, d): nothing (0.0), the head's mean output at that position
(`MeanOutputs`), or what the same head writes on another random sequence (`Donors`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnkit.data import Batch
from attnkit.model import MultiHeadAttention, TinyTransformer
from attnkit.observe import AttentionCall, observe

Head = tuple[int, int]  # layer, head, both counted from 0
Change = Callable[[int, Float[Tensor, "B H T d"]], Tensor]  # a layer's number and its heads' outputs -> other outputs
DONOR_TOKENS = 1 << 20  # of the sequences of each length, as many are kept to draw from as have so many tokens: 8 MB


@contextmanager
def intervene(model: TinyTransformer, change: Change) -> Iterator[None]:
    """Let `change` have its way with the heads' outputs of every layer while the context lasts; then all is as before.

    It must return a tensor of the same shape, and leave the one that it is given as it is.
    """
    sites = [m.attention for m in model.modules() if isinstance(m, MultiHeadAttention)]
    hooks = [site.register_forward_hook(partial(_changed, change, layer)) for layer, site in enumerate(sites)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _changed(
    change: Change, layer: int, _: nn.Module, inputs: tuple[Any, ...], outputs: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    output, weights = outputs
    return change(layer, output), weights


@contextmanager
def ablate(model: TinyTransformer, replacements: Mapping[Head, Tensor | float]) -> Iterator[None]:
    """Put `replacements` in the place of these heads' outputs while the context lasts; 0.0 removes a head.

    A replacement is a number or a tensor that broadcasts to the head's output (B, T, d). Raises ValueError for a head
    that the model has not, and, as soon as the model runs, for a replacement that does not fit the sequences.
    """
    L, H = model.config.n_layers, model.config.n_heads
    by_layer: dict[int, dict[int, Tensor | float]] = {}
    for (layer, head), new in replacements.items():
        if not (0 <= layer < L and 0 <= head < H):
            raise ValueError(f"replacements: got layer {layer}, head {head}; the model has {L} layers of {H} heads")
        by_layer.setdefault(layer, {})[head] = new
    with intervene(model, lambda layer, output: replaced(output, by_layer.get(layer, {}))):
        yield


def replaced(output: Float[Tensor, "B H T d"], heads: Mapping[int, Tensor | float]) -> Float[Tensor, "B H T d"]:
    """The outputs of one layer with those of some heads replaced; `output` itself stays as it is.

    Raises ValueError for a replacement that does not broadcast to (B, T, d).
    """
    if not heads:
        return output
    output = output.clone()
    for head, new in heads.items():
        try:
            output[:, head] = new
        except RuntimeError:
            shapes = f"{tuple(torch.as_tensor(new).shape)}, the head's output is {tuple(output[:, head].shape)}"
            raise ValueError(f"replacements: head {head} got one of shape {shapes}") from None
    return output


@torch.no_grad()
def head_outputs(model: TinyTransformer, batch: Batch) -> Float[Tensor, "B L H T d"]:
    """What every head puts out on every token, Σ_j p_ij v_j, before the projection W_o."""
    outputs: list[Tensor] = []

    def keep(call: AttentionCall) -> None:
        outputs.append(call.output)

    with observe(model, keep):
        model(batch.tokens, batch.mask)
    return torch.stack(outputs, dim=1)


@dataclass(frozen=True)
class MeanOutputs:
    """Sums of the heads' outputs at each position, in float64. Positions count real tokens, from 0."""

    total: Float[Tensor, "L H P d"]
    count: Float[Tensor, "P"]  # tokens at each position; P is the longest sequence that the model takes

    @classmethod
    def of(cls, outputs: Float[Tensor, "B L H T d"], mask: Bool[Tensor, "B T"] | None, longest: int) -> "MeanOutputs":
        B, L, H, T, d = outputs.shape
        total = outputs.new_zeros(L, H, longest, d, dtype=torch.float64)
        count = total.new_zeros(longest)
        if mask is None:
            total[:, :, :T] = outputs.double().sum(dim=0)
            count[:T] = B
            return cls(total, count)
        where = positions(mask)[mask]
        tokens = outputs.permute(0, 3, 1, 2, 4)[mask].double()  # (real tokens, L, H, d)
        total = total.permute(2, 0, 1, 3).index_add(0, where, tokens).permute(1, 2, 0, 3)
        return cls(total, count.index_add(0, where, torch.ones_like(where, dtype=torch.float64)))

    def __add__(self, other: "MeanOutputs") -> "MeanOutputs":
        return MeanOutputs(self.total + other.total, self.count + other.count)

    def at(self, batch: Batch) -> Float[Tensor, "b L H T d"]:
        """The mean of each head at the position of each token; b is 1 where there is no padding, else B.

        Raises ValueError for a sequence that is longer than all that the means are of.
        """
        T = batch.tokens.shape[1]
        where = torch.arange(T, device=self.total.device)[None] if batch.mask is None else positions(batch.mask)
        known = int((self.count > 0).sum())
        if where.max() >= known:
            raise ValueError(
                f"batch: has a sequence of {int(where.max()) + 1} tokens; the mean outputs are of at most {known}"
            )
        mean = self.total / self.count.clamp(min=1)[:, None]
        return mean[:, :, where].permute(2, 0, 1, 3, 4)


def mean_outputs(model: TinyTransformer, batches: Iterable[Batch]) -> MeanOutputs:
    """The mean of every head's output at each position, over all sequences."""
    device = next(model.parameters()).device
    here = (batch.to(device) for batch in batches)
    parts = (MeanOutputs.of(head_outputs(model, batch), batch.mask, model.config.max_len) for batch in here)
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no sequences to take the mean of")
    return reduce(add, parts, first)


def positions(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


class Donors:
    """For every sequence of a set others of its length, drawn at random from the set.

    The draws depend on the seed and the order of the sequences alone, not on how they are cut into batches. Each
    length keeps its sequences to draw from, or so many of them, chosen at random, as have 2^20 tokens.
    """

    def __init__(self, batches: Iterable[Batch], seed: int):
        self.seed = seed
        self.rows: dict[int, np.ndarray] = {}  # by length: which sequences are kept, in their order (N,)
        self.tokens: dict[int, np.ndarray] = {}  # (N, T)
        chance = np.random.default_rng([seed, 0])
        keys: dict[int, np.ndarray] = {}  # the sequences with the lowest random numbers are kept
        first = 0
        for batch in batches:
            drawn = chance.random(len(batch))
            for T, chosen in of_each_length(batch).items():
                new = [first + chosen, drawn[chosen], own_tokens(batch, chosen, T)]
                old = [self.rows.get(T), keys.get(T), self.tokens.get(T)]
                rows, key, tokens = (b if a is None else np.concatenate([a, b]) for a, b in zip(old, new, strict=True))
                kept = np.sort(key.argsort()[: max(DONOR_TOKENS // T, 2)])
                self.rows[T], keys[T], self.tokens[T] = rows[kept], key[kept], tokens[kept]
            first += len(batch)

    def draws(self, batches: Iterable[Batch], n: int) -> Iterator[tuple[Batch, list[Batch], Bool[Tensor, "B"]]]:
        """The same batches in the same order, each with `n` batches of donors, and which sequences have one.

        A sequence that is the only one of its length has none; its own tokens then stand in the donors' batches.
        """
        chance = np.random.default_rng([self.seed, 1])
        first = 0
        for batch in batches:
            drawn = chance.random((len(batch), n))
            tokens = [batch.tokens.clone() for _ in range(n)]
            found = torch.zeros(len(batch), dtype=torch.bool)
            for T, chosen in of_each_length(batch).items():
                rows = first + chosen
                place = np.searchsorted(self.rows[T], rows).clip(max=len(self.rows[T]) - 1)
                itself = self.rows[T][place] == rows  # must not be its own donor
                others = len(self.rows[T]) - itself
                found[torch.from_numpy(chosen)] = torch.from_numpy(others > 0)
                for k in range(n):
                    donor = np.minimum(drawn[chosen, k] * others, others - 1).astype(int).clip(min=0)
                    donor = np.where(itself & (donor >= place) & (others > 0), donor + 1, donor)
                    put_tokens(tokens[k], batch.mask, chosen, self.tokens[T][donor])
            yield batch, [Batch(t, batch.mask, batch.labels) for t in tokens], found
            first += len(batch)


def of_each_length(batch: Batch) -> dict[int, np.ndarray]:
    """The numbers of the sequences of each length."""
    if batch.mask is None:
        return {batch.tokens.shape[1]: np.arange(len(batch))}
    lengths = batch.mask.sum(dim=1).numpy()
    return {int(T): np.flatnonzero(lengths == T) for T in np.unique(lengths)}


def own_tokens(batch: Batch, chosen: np.ndarray, T: int) -> np.ndarray:
    """The tokens of some sequences of one length (n, T), without their padding."""
    tokens = batch.tokens[chosen]
    return (tokens if batch.mask is None else tokens[batch.mask[chosen]].view(-1, T)).numpy()


def put_tokens(tokens: Tensor, mask: Tensor | None, chosen: np.ndarray, new: np.ndarray) -> None:
    """Write the tokens of some sequences where their own stand."""
    rows = tokens[chosen]
    rows[torch.ones_like(rows, dtype=torch.bool) if mask is None else mask[chosen]] = torch.from_numpy(new).flatten()
    tokens[chosen] = rows
