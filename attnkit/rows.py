"""Rows of attention weights, and who stands where: what every row statistic is a function of.

The notation is that of `attnkit.measures`: query i, its keys K_i, n_i of them.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """A block of query rows of a batch: who stands where, and who may see whom. The same for all heads of a call.

    The first axis of what does not depend on the tokens is b: 1 where there is no padding, else B.
    """

    tokens: Int[Tensor, "B T"]
    rows: slice  # which of the T queries are these R rows
    position: Int[Tensor, "b T"]  # of every token, from 0 at the first real one
    allowed: Bool[Tensor, "b R T"]  # K_i: True where query i may see key j
    real: Bool[Tensor, "b R"]  # False for a padded query
    last: Int[Tensor, "b 1"]  # position of the last real token
    special: Bool[Tensor, "B T"] | None = None  # the keys that a tokenizer put there, such as [SEP]
    special_query: Bool[Tensor, "B R"] | None = None  # the same of the queries

    @classmethod
    def of(
        cls,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        rows: slice | None = None,
        causal: bool = False,
        allowed: Tensor | None = None,
        special: Tensor | None = None,
    ) -> "Block":
        """The block of `rows` (default: all) of a batch; `mask` (B, T) is True on real tokens.

        What a model's own mask hides, such as a window's outside, is False in `allowed` (b, R, T).
        """
        T = tokens.shape[1]
        rows = rows or slice(0, T)
        real = torch.ones(1, T, dtype=torch.bool, device=tokens.device) if mask is None else mask
        position = (real.cumsum(dim=1) - 1).clamp(min=0)
        both = real[:, None, :] & real[:, rows, None]
        if causal:
            both = both & (position[:, None, :] <= position[:, rows, None])
        if allowed is not None:
            both = both & allowed
        if len(both) > 1 and len(real) == 1:  # a mask of each sequence's own, without padding
            real, position = real.expand(len(both), -1), position.expand(len(both), -1)
        last = position.amax(dim=1, keepdim=True)
        of_rows = None if special is None else special[:, rows]
        return cls(tokens, rows, position, both, real[:, rows], last, special, of_rows)

    @property
    def i(self) -> Int[Tensor, "b R 1"]:
        """The position of each query, against `j`."""
        return self.position[:, self.rows, None]

    @property
    def j(self) -> Int[Tensor, "b 1 T"]:
        """The position of each key, against `i`."""
        return self.position[:, None, :]

    @cached_property
    def n(self) -> Float[Tensor, "b R"]:
        """n_i, the number of keys that each query may see (1 for a padded query, which is never counted)."""
        return self.allowed.sum(dim=-1, dtype=torch.int32).clamp(min=1).double()

    @cached_property
    def same(self) -> Bool[Tensor, "B R T"]:
        """True where query and key are copies of one token, x_i = x_j."""
        return self.tokens[:, self.rows, None] == self.tokens[:, None, :]

    @cached_property
    def alike(self) -> Bool[Tensor, "B R T"]:
        """True where a query may see another copy of its token."""
        return self.same & self.allowed & (self.i != self.j)

    @cached_property
    def unlike(self) -> Bool[Tensor, "B R T"]:
        """True where a query may see another token than its own."""
        return self.allowed & ~self.same


@dataclass(frozen=True)
class Rows:
    """The weights of a block of query rows, and what the heads made of them."""

    block: Block
    weights: Float[Tensor, "B H R T"]
    output: Float[Tensor, "B H R d"] | None = None  # Σ_j p_ij v_j
    w_o: Float[Tensor, "H d D"] | None = None  # each head's own slice of the output projection

    @cached_property
    def entropy(self) -> Float[Tensor, "B H R"]:
        # The smallest normal number in the place of 0 makes 0 ln 0 = 0, three times faster than torch.special.entr.
        tiny = torch.finfo(self.weights.dtype).tiny
        return self.weights.clamp_min(tiny).log_().mul_(self.weights).sum(dim=-1).neg_()
