"""Whose attention it is, cut into blocks of query rows: what is the same for all heads, prepared once for all."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.fused import arrays, loops
from attnkit.hf import Site
from attnkit.rows import Block

POINTS = ("self_weight", "previous_weight", "next_weight", "first_weight", "last_weight")
# Statistics of where a key stands, seen from the query.
PLACES = {*POINTS, "duplicate_weight", "induction_weight", "offset", "distance", "selectivity"}


@dataclass(frozen=True)
class Side:
    """The tokens of some sequences, on one side of an attention."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None = None  # True on real tokens; None where there is no padding
    special: Bool[Tensor, "B T"] | None = None  # True on tokens that a tokenizer put there, such as [SEP]

    def __getitem__(self, b: slice) -> "Side":
        mask, special = (None if t is None else t[b] for t in (self.mask, self.special))
        return Side(self.tokens[b], mask, special)


@dataclass(frozen=True)
class Scene:
    """Whose attention it is: the tokens of the queries and those of the keys, which are the same but across."""

    queries: Side
    keys: Side
    cross: bool = False

    def block(self, site: Site, rows: slice, b: slice = slice(None)) -> Block:
        """The block of some query rows of some of the sequences."""
        allowed = site.allowed(rows)
        if allowed is not None and len(allowed) > 1:
            allowed = allowed[b]
        queries, keys = self.queries[b], self.keys[b]
        if not self.cross:
            return Block.of(keys.tokens, keys.mask, rows=rows, allowed=allowed, special=keys.special)
        sees = torch.ones_like(queries.tokens[:, rows], dtype=torch.bool)
        real = sees if queries.mask is None else queries.mask[:, rows]
        there = torch.ones_like(keys.tokens, dtype=torch.bool) if keys.mask is None else keys.mask
        allowed = real[..., None] & there[:, None] & (True if allowed is None else allowed)
        position = (there.cumsum(dim=1) - 1).clamp(min=0)
        of_rows = None if queries.special is None else queries.special[:, rows]
        last = position.amax(dim=1, keepdim=True)
        return Block(keys.tokens, rows, position, allowed, real, last, keys.special, of_rows)

    def real_rows(self, b: int, step: int) -> list[slice]:
        """The query rows of one sequence without the padding around them, so many at a time."""
        start, stop = 0, self.queries.tokens.shape[1]
        if self.queries.mask is not None:
            real = self.queries.mask[b].nonzero()[:, 0]
            start, stop = int(real[0]), int(real[-1]) + 1
        return [slice(r, min(r + step, stop)) for r in range(start, stop, step)]


@dataclass(frozen=True)
class Places:
    """Where the tokens of one sequence stand. Across sequences no key has a place that is seen from a query."""

    queries: Float[Tensor, "R"]  # their positions
    keys: Float[Tensor, "T"]
    special: Float[Tensor, "T"]  # 1 where a key is special
    order: Int[Tensor, "T"]  # all keys, copies of one token in a row
    since: Int[Tensor, "R"]  # the earlier copies of a query's token are order[since : until]
    until: Int[Tensor, "R"]

    @classmethod
    def of(cls, scene: "Scene", b: int) -> "Places":
        """The places of one of the scene's sequences."""
        side = scene.keys[b : b + 1]
        tokens, special = side.tokens[0], torch.zeros(side.tokens.shape[1])
        if side.special is not None:
            special = side.special[0].float()
        if scene.cross:
            nowhere = torch.zeros(scene.queries.tokens.shape[1])
            return cls(nowhere, torch.zeros_like(special), special, tokens.argsort(), *[nowhere.long()] * 2)
        ids = tokens if side.mask is None else torch.where(side.mask[0], tokens, -1)  # padding is a copy of no token
        alike, order = ids.sort(stable=True)
        until = torch.empty_like(order)
        until[order] = torch.arange(len(ids))
        place = Block.of(side.tokens, side.mask, rows=slice(0, 1)).position[0].float()
        return cls(place, place, special, order, torch.searchsorted(alike, ids), until)


@dataclass(frozen=True)
class Span:
    """A block of rows of one sequence and the stretch of S keys that they see: what is the same for all heads."""

    block: Block
    rows: slice
    keys: slice
    hidden: slice | None  # the stretch of these keys, counted from the first, in which some are hidden from some rows
    visible: Bool[Tensor, "R _"] | None  # in that stretch
    points: Int[Tensor, "5 R"]  # which of these keys are the `POINTS` of each row; −1 where there is none

    @classmethod
    def of(cls, block: Block, rows: slice, *, cross: bool) -> "Span":
        allowed = block.allowed[0]
        seen = any_row(allowed).nonzero()[:, 0]
        keys = slice(int(seen[0]), int(seen[-1]) + 1)
        allowed = allowed[:, keys]
        R, S = allowed.shape
        partly = any_row(~allowed).nonzero()[:, 0]
        hidden = slice(int(partly[0]), int(partly[-1]) + 1) if len(partly) else None
        visible = None if hidden is None else allowed[:, hidden]
        if cross:
            return cls(block, rows, keys, hidden, visible, partly.new_full((len(POINTS), R), -1))
        own = torch.arange(rows.start - keys.start, rows.stop - keys.start, device=allowed.device)
        first = (block.position[0] == 0).nonzero()[-1] - keys.start  # padding on the left is at 0 as well
        last = (block.position[0] == block.last[0, 0]).nonzero()[0] - keys.start  # and on the right at the last
        column = torch.stack([own, own - 1, own + 1, first.expand(R), last.expand(R)])
        return cls(block, rows, keys, hidden, visible, column.where((column >= 0) & (column < S), -1))

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows, and how many keys."""
        return len(self.block.real[0]), self.keys.stop - self.keys.start

    def hide(self, scores: Float[Tensor, "R S"]) -> Float[Tensor, "R S"]:
        """Give the hidden keys the lowest finite score, in place: 0 · −∞ is no number."""
        if self.hidden is not None:
            assert self.visible is not None
            scores[:, self.hidden].masked_fill_(~self.visible, torch.finfo(scores.dtype).min)
        return scores

    def defined(self, places: Places, *, cross: bool) -> dict[str, Bool[Tensor, "R"]]:
        """The rows on which the statistics are defined that there is machine code for, on a CPU."""
        real, n = self.block.real[0], self.block.n[0]
        where = dict.fromkeys(("entropy", "max_weight", "effective_keys"), real)
        where |= {"entropy_normalized": real & (n >= 2)}
        if self.block.special is not None and self.block.special_query is not None:
            where["special_weight"] = real & ~self.block.special_query[0] & self.block.special[0].any()
        if cross:
            return where
        i, last = self.block.position[0, self.rows], self.block.last[0]
        where |= dict.fromkeys(("offset", "distance", "self_weight"), real)
        where |= dict.fromkeys(("previous_weight", "first_weight"), real & (i >= 1))
        where |= dict.fromkeys(("next_weight", "last_weight"), real & (i < last))
        copies = torch.empty(2, len(real), dtype=torch.bool)
        earlier = places.order, places.since[self.rows], places.until[self.rows]
        loops("longrows").copies_seen(*arrays(self.block.allowed[0], self.rows.start, *earlier, copies))
        return where | {"duplicate_weight": real & copies[0], "induction_weight": real & copies[1]}


def any_row(of: Bool[Tensor, "R T"]) -> Bool[Tensor, "T"]:
    """Is it True in any row? Twenty times as fast as torch.any."""
    return of.view(torch.uint8).amax(dim=0).bool()
