"""The attention event in any transformers model that calls its attention by name, as nearly all of version 5 do.

A function registered with `AttentionInterface` is handed every attention: its module, queries, keys, values, mask and
scale. It stands in for the model's own while a context lasts, computes the same output, and tells what it saw.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnkit.observe import AttentionCall

try:
    from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask
except ImportError as missing:
    raise ImportError("this needs transformers 5 or later: pip install 'attnkit[hf]'") from missing

NAME = "attnkit"  # of our function among transformers' attention implementations
LONGEST_WHOLE = 512  # up to so many tokens a map is made as a whole; beyond, rows are made a block at a time
ROWS = 256  # of such a block
CROSS = re.compile(r"cross|encoder_attn|encdec", re.IGNORECASE)  # how models call the attention on another sequence
PART = re.compile("encoder|decoder")  # the outermost tells: a BERT that decodes has its layers in an encoder, too
PROJECTIONS = ("o_proj", "out_proj", "out_lin", "c_proj", "Wo", "wo", "o", "dense")  # how they call W_O


@dataclass(frozen=True)
class LazyMask:
    """A mask that is made a block of rows at a time, in the place of one of T × T."""

    make: Callable[..., Tensor]
    offset: int  # of the first query among the keys
    length: int  # of all queries

    def rows(self, rows: slice) -> Bool[Tensor, "b 1 R T"]:
        start, stop, _ = rows.indices(self.length)
        return self.make(q_length=stop - start, q_offset=self.offset + start)


@dataclass(frozen=True)
class Site:
    """One attention of one forward pass, all its heads side by side, before anything is computed."""

    kind: str  # self, or in models of two parts: encoder, decoder or cross
    layer: int  # as the model numbers it, or in the order of calls
    query: Float[Tensor, "B H R d"]
    key: Float[Tensor, "B H T d"]  # repeated where several heads share one
    value: Float[Tensor, "B H T e"]
    mask: Any  # Bool (b, 1, R, T), LazyMask, or None: every key may be seen, or if causal, no later one
    causal: bool  # queries see no later key; told by the mask where there is one
    scale: float
    bias: Float[Tensor, "b h R T"] | None = None  # added to the scores
    softcap: float | None = None  # scores are squeezed into ± this
    w_o: Float[Tensor, "H e D"] | None = None  # each head's own slice of the output projection

    @property
    def whole(self) -> bool:
        """Are the maps small enough to be made as a whole?"""
        return self.query.shape[2] * self.key.shape[2] <= LONGEST_WHOLE**2

    def allowed(self, rows: slice = slice(None)) -> Bool[Tensor, "b R T"] | None:
        """True where a query may see a key; None: everywhere."""
        if isinstance(self.mask, LazyMask):
            return self.mask.rows(rows)[:, 0]
        if self.mask is not None:
            return self.mask[:, 0, rows]
        if not self.causal:
            return None
        i, j = (torch.arange(n, device=self.query.device) for n in (self.query.shape[2], self.key.shape[2]))
        return (j <= i[rows, None])[None]

    def scores(self, rows: slice = slice(None)) -> Float[Tensor, "B H R T"]:
        """What the weights are the softmax of, in float32 or wider whatever the model's own type.

        The lowest finite number where a query may not see a key.
        """
        wide = torch.promote_types(self.query.dtype, torch.float32)
        scores = (self.query[:, :, rows].to(wide) * self.scale) @ self.key.to(wide).transpose(-2, -1)
        if self.softcap is not None:
            scores = (scores / self.softcap).tanh() * self.softcap
        if self.bias is not None:
            scores = scores + self.bias[:, :, rows]
        allowed = self.allowed(rows)
        if allowed is not None:
            scores.masked_fill_(~allowed[:, None], torch.finfo(wide).min)
        return scores

    def weights(self, rows: slice = slice(None)) -> Float[Tensor, "B H R T"]:
        """The attention weights, in the type of `scores`."""
        return self.scores(rows).softmax(dim=-1)

    def call(self, weights: Tensor, output: Tensor) -> AttentionCall:
        """The event that it became."""
        allowed = self.allowed()
        mask = None if allowed is None else allowed[:, None]
        query, key, value, weights, output = (t.detach() for t in (self.query, self.key, self.value, weights, output))
        return AttentionCall(self.layer, query, key, value, mask, self.scale, weights, output, self.w_o, self.kind)


Attend = Callable[[Site], Float[Tensor, "B H R e"]]  # an attention in, the heads' outputs out


@dataclass
class Watch:
    """A model whose attention is attended to, and what was seen of it in this forward pass."""

    attend: Attend
    two_parts: bool  # an encoder and a decoder
    names: dict[nn.Module, str]
    seen: dict[str, int] = field(default_factory=dict)  # calls of each kind since the model last began
    called: bool = False

    def kind(self, module: nn.Module, same_length: bool) -> str:
        name = self.names[module]
        if CROSS.search(name.rsplit(".layer", 1)[-1]) or not same_length:
            return "cross"
        if not self.two_parts:
            return "self"
        part = PART.search(name)
        return "decoder" if part is None else part[0]

    def number(self, kind: str, module: nn.Module) -> int:
        order = self.seen.get(kind, 0)
        self.seen[kind] = order + 1
        own = getattr(module, "layer_idx", None)
        return own if isinstance(own, int) else order

    def w_o(self, module: nn.Module, heads: int, width: int) -> Tensor | None:
        """The output projection, of the attention itself or, as in BERT, of what stands around it."""
        around = self.names[module].rpartition(".")[0]
        output = next((m for m, name in self.names.items() if name == f"{around}.output"), None)
        for owner in (module, output):
            for name in PROJECTIONS if owner is not None else ():
                projection: Any = getattr(owner, name, None)
                if isinstance(getattr(projection, "weight", None), Tensor) and projection.weight.ndim == 2:
                    weight = projection.weight.detach()
                    weight = weight.T if isinstance(projection, nn.Linear) else weight  # GPT-2's Conv1D is (in, out)
                    return weight.unflatten(0, (heads, width)) if len(weight) == heads * width else None
        return None


_WATCHES: ContextVar[tuple[Watch, ...]] = ContextVar("attnkit_watches", default=())


@contextmanager
def attending(model: PreTrainedModel, attend: Attend) -> Iterator[None]:
    """Let `attend` compute every attention of `model` while the context lasts; the model is as before after it.

    Raises ValueError for a model in train mode, and at the end if not one attention came by: some models compute
    it in a way of their own.
    """
    if model.training:
        raise ValueError("model: is in train mode; call model.eval() first")
    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
    names = {module: name for name, module in model.named_modules()}
    two_parts = all(hasattr(model.base_model, part) for part in ("encoder", "decoder"))  # one alone says it has both
    watch = Watch(attend, two_parts, names)
    found: list[Any] = [getattr(module, "config", None) for module in names]
    configs = {id(config): config for config in found if hasattr(config, "_attn_implementation")}
    before = [(config, config._attn_implementation) for config in configs.values()]
    again = model.register_forward_pre_hook(lambda *_: watch.seen.clear())
    token = _WATCHES.set((*_WATCHES.get(), watch))
    try:
        for config, _ in before:
            config._attn_implementation = NAME
        yield
    finally:
        _WATCHES.reset(token)
        again.remove()
        for config, own in before:
            config._attn_implementation = own
    if not watch.called:
        raise ValueError(
            f"model: {type(model).__name__} never called transformers' attention interface, so its attention cannot be "
            "seen"
        )


@contextmanager
def observe(model: PreTrainedModel, on_call: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Hand every attention call of `model`, with its whole maps, to `on_call` while the context lasts."""

    def attend(site: Site) -> Tensor:
        weights, output = whole(site)
        on_call(site.call(weights, output))
        return output

    with attending(model, attend):
        yield


@contextmanager
def intervene(model: PreTrainedModel, change: Callable[[Site, Tensor], Tensor]) -> Iterator[None]:
    """Let `change` have its way with the heads' outputs (B, H, R, e) of every attention while the context lasts."""
    with attending(model, lambda site: change(site, fused(site))):
        yield


def whole(site: Site, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
    """The maps (B, H, R, T), or some rows of them, and the heads' outputs (B, H, R, e) there."""
    weights = site.weights(rows)
    return weights, (weights @ site.value.to(weights.dtype)).to(site.value.dtype)


def fused(site: Site) -> Float[Tensor, "B H R e"]:
    """The heads' outputs alone, as fast as they come; where a map is too large to be made, some rows at a time."""
    if site.whole:
        return _fused(site, slice(None))
    output = torch.empty(*site.query.shape[:3], site.value.shape[-1], dtype=site.value.dtype, device=site.value.device)
    for start in range(0, output.shape[2], ROWS):
        rows = slice(start, start + ROWS)
        output[:, :, rows] = _fused(site, rows)
    return output


def _fused(site: Site, rows: slice) -> Float[Tensor, "B H r e"]:
    if site.softcap is not None:
        return whole(site, rows)[1]
    allowed = site.allowed(rows)
    mask: Tensor | None = None if allowed is None else allowed[:, None]
    if site.bias is not None:
        bias = site.bias[:, :, rows].to(site.query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, torch.finfo(bias.dtype).min)
    return nn.functional.scaled_dot_product_attention(
        site.query[:, :, rows], site.key, site.value, attn_mask=mask, scale=site.scale
    )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in the place of a model's own attention."""
    watch = next((w for w in reversed(_WATCHES.get()) if module in w.names), None)
    if watch is None:  # the same model in another thread
        mask = attention_mask.rows(slice(None)) if isinstance(attention_mask, LazyMask) else attention_mask
        own: dict[str, Any] = {"scaling": scaling, "is_causal": is_causal} | kwargs
        own |= {} if position_bias is None else {"position_bias": position_bias}
        own |= {} if softcap is None else {"softcap": softcap}
        return sdpa_attention_forward(module, query, key, value, mask, **own)
    if s_aux is not None:
        raise ValueError(f"model: {watch.names[module]} gives weight to a sink that is no key; that cannot be read")
    if key.shape[1] < query.shape[1]:  # heads in groups that share their keys
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in (key, value))
    if len(query) == 1 < len(key):  # learned queries, the same for all sequences
        query = query.expand(len(key), -1, -1, -1)
    R, T = query.shape[2], key.shape[2]
    kind = watch.kind(module, R == T)
    mask, bias = _separate(attention_mask, R, T)
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal) and kind != "cross"
    if mask is not None:
        causal = _is_causal(mask) and kind != "cross"
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    w_o = watch.w_o(module, query.shape[1], value.shape[-1])
    watch.called = True
    site = Site(kind, watch.number(kind, module), query, key, value, mask, causal and R > 1, scale, bias, softcap, w_o)
    return watch.attend(site).transpose(1, 2).contiguous(), None


def _separate(mask: Any, R: int, T: int) -> tuple[Any, Tensor | None]:
    """A mask that models hand over, as who may see whom and what is added to the scores."""
    if mask is None or isinstance(mask, LazyMask):
        return mask, None
    mask = mask.expand(*mask.shape[:2], R, -1)[..., :T]
    if mask.dtype == torch.bool:
        return mask[:, :1], None
    allowed = mask > torch.finfo(mask.dtype).min / 2
    bias = mask.masked_fill(~allowed, 0)
    return allowed.any(dim=1, keepdim=True), bias if bias.any() else None


def _is_causal(mask: Any) -> bool:
    """Does no query see a later key? Of a mask that is made in blocks, a few rows tell."""
    if isinstance(mask, LazyMask):
        rows = [slice(r, r + 1) for r in range(0, mask.length - 1, max(mask.length // 4, 1))]
    else:
        rows = [slice(0, mask.shape[2])]
    for some in rows:
        part = mask.rows(some) if isinstance(mask, LazyMask) else mask[:, :, some]
        i, j = (torch.arange(n, device=part.device) for n in (some.stop, part.shape[-1]))
        if (part & (j > i[some, None])).any():
            return False
    return True


def _mask(batch_size: int, q_length: int, kv_length: int, q_offset: int = 0, **given: Any) -> Any:
    """What transformers calls for a mask: one tensor for short sequences, one that is made in blocks for long ones."""
    given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    make: Callable[..., Any] = partial(sdpa_mask, batch_size=batch_size, kv_length=kv_length, **given)
    if q_length * kv_length <= LONGEST_WHOLE**2:
        return make(q_length=q_length, q_offset=q_offset)
    return LazyMask(make, q_offset, q_length)
