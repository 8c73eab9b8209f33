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

from attnkit.model import MultiHeadAttention, TinyTransformer, TransformerEncoderLayer

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
    sites = enumerate(sites_of(model))
    hooks = [m.attention.register_forward_hook(partial(_report, on_call, layer, m)) for layer, m in sites]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def attending(model: TinyTransformer, attend: Callable[..., tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Let `attend` compute every attention of `model` while the context lasts; the model is as before after it.

    It is called as attend(layer, site, q, k, v, mask), and returns what `ScaledDotProductAttention` does.
    """
    sites = sites_of(model)
    for layer, site in enumerate(sites):
        site.attention.forward = partial(attend, layer, site)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for site in sites:
            del site.attention.forward


def sites_of(model: TinyTransformer) -> list[MultiHeadAttention]:
    """One in each layer, in order."""
    return [layer.attn for layer in model.layers if isinstance(layer, TransformerEncoderLayer)]


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
    q, k, v, weights, output = (t.detach() for t in (q, k, v, weights, output))
    on_call(AttentionCall(layer, q, k, v, mask, q.shape[-1] ** -0.5, weights, output, w_o_of(site)))


def w_o_of(site: MultiHeadAttention) -> Float[Tensor, "H d D"]:
    """Each head's own slice of the output projection."""
    return site.W_o.weight.detach().T.unflatten(0, (site.n_heads, -1))
