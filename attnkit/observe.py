"""The attention event: queries, keys, values, a mask and a scale met, and rows of weights came out.

Everything the toolkit measures is a reading of `AttentionCall`s, whatever model they come from.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnkit.model import MultiHeadAttention, TinyTransformer

Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class AttentionCall:
    """One attention site of one forward pass, all its heads side by side. Tensors are detached, never copied."""

    layer: int  # counted from 0
    query: Float[Tensor, "B H R d"]  # R = T, unless it looks at another sequence
    key: Float[Tensor, "B H T d"]
    value: Float[Tensor, "B H T e"]
    mask: Bool[Tensor, "b 1 r T"] | None  # True where a key may be seen; None: everywhere
    scale: float  # what the scores q·k are multiplied with
    weights: Float[Tensor, "B H R T"]  # after the softmax, before any dropout
    output: Float[Tensor, "B H R e"]  # weights @ value
    w_o: Float[Tensor, "H e D"] | None  # each head's own slice of the output projection
    kind: str = "self"  # or, in models of two parts: encoder, decoder, cross


@contextmanager
def observe(model: TinyTransformer, on_call: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Hand every attention call of `model` to `on_call` while the context lasts; the model is as before after it."""
    sites = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    hooks = [m.attention.register_forward_hook(partial(_report, on_call, layer, m)) for layer, m in enumerate(sites)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def private(model: Model) -> Model:
    """The same weights in modules of one's own: hooks on these are nobody else's."""
    tensors = chain(model.parameters(), model.buffers())
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})


def _report(
    on_call: Callable[[AttentionCall], None],
    layer: int,
    site: MultiHeadAttention,
    _: nn.Module,
    inputs: tuple[Any, ...],
    outputs: tuple[Tensor, Tensor],
) -> None:
    q, k, v, mask = inputs
    output, weights = outputs
    w_o = site.W_o.weight.T.unflatten(0, (site.n_heads, -1))  # (D, D) -> (H, d, D)
    q, k, v, weights, output, w_o = (t.detach() for t in (q, k, v, weights, output, w_o))
    on_call(AttentionCall(layer, q, k, v, mask, q.shape[-1] ** -0.5, weights, output, w_o))
