"""Whose attention it is, cut into blocks of query rows: what is the same for all heads, prepared once for all."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.hf import Site
from attnkit.rows import Block

POINTS = ("self_weight", "previous_weight", "next_weight", "first_weight", "last_weight")
PAIRS = ("duplicate_weight", "induction_weight")
PLACES = {*POINTS, *PAIRS, "offset", "distance", "selectivity"}  # statistics of where a key stands, seen from the query


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
class Span:
    """A block of rows of one sequence and the stretch of S keys that they see: what is the same for all heads."""

    block: Block
    rows: slice
    keys: slice
    hidden: slice | None  # the stretch of these keys, counted from the first, in which some are hidden from some rows
    visible: Bool[Tensor, "R _"] | None  # in that stretch
    before: int  # how many of these keys stand before the block's first row
    behind: Float[Tensor, "R _"]  # 2 max(i − j, 0) for the keys from there on, as many as there are rows
    points: Int[Tensor, "5 R"]  # where in e the `POINTS` of each row stand
    found: Float[Tensor, "5 R"]  # 1 where there is such a key, else 0
    pairs: Int[Tensor, "n"]  # where in e the copies and what followed them stand
    pair_counts: Int[Tensor, "_"]  # how many of each row: first of copies (R), then of what followed them (R)

    @classmethod
    def of(cls, block: Block, rows: slice, *, cross: bool) -> "Span":
        allowed = block.allowed[0]
        seen = allowed.any(dim=0).nonzero()[:, 0]
        keys = slice(int(seen[0]), int(seen[-1]) + 1)
        allowed = allowed[:, keys]
        R, S = allowed.shape
        partly = (~allowed.all(dim=0)).nonzero()[:, 0]
        hidden = slice(int(partly[0]), int(partly[-1]) + 1) if len(partly) else None
        visible = None if hidden is None else allowed[:, hidden]
        if cross:
            none = partly.new_zeros(0)
            nowhere, nobody = partly.new_zeros(len(POINTS), R), partly.new_zeros(len(PAIRS) * R)
            behind = torch.zeros(R, 0, device=none.device)
            return cls(block, rows, keys, hidden, visible, 0, behind, nowhere, nowhere.float(), none, nobody)
        before = min(max(rows.start - keys.start, 0), S)
        i, j, ids = block.i[0], block.position[0, keys], block.tokens[0]
        behind = 2 * (i - j[None, before : before + R]).clamp(min=0).float()
        number = torch.arange(R, device=ids.device)
        own = number + rows.start - keys.start
        first = (block.position[0] == 0).nonzero()[-1] - keys.start  # padding on the left is at 0 as well
        last = (block.position[0] == block.last[0, 0]).nonzero()[0] - keys.start  # and on the right at the last
        column = torch.stack([own, own - 1, own + 1, first.expand(R), last.expand(R)])
        found = (column >= 0) & (column < S)
        points = (column + number * S).where(found, 0)
        reach = before + R  # keys behind the block's last row follow all of its queries
        earlier = allowed[:, :reach] & (j[:reach] < i)
        same = ids[rows, None] == ids[None, keys][:, :reach]
        after = (ids[rows, None] == ids.roll(1)[None, keys][:, :reach]) & (j[:reach] >= 1)
        which, row, column_of = torch.stack([earlier & same, earlier & after]).nonzero(as_tuple=True)
        pairs, counts = row * S + column_of, torch.bincount(which * R + row, minlength=len(PAIRS) * R)
        return cls(block, rows, keys, hidden, visible, before, behind, points, found.float(), pairs, counts)

    @property
    def i(self) -> Int[Tensor, "R"]:
        return self.block.i[0, :, 0]

    def defined(self) -> dict[str, Bool[Tensor, "R"]]:
        """The rows on which the linear statistics are defined."""
        real, i, last = self.block.real[0], self.i, self.block.last[0]
        where = dict.fromkeys(("offset", "distance", "self_weight"), real)
        where |= dict.fromkeys(("previous_weight", "first_weight"), real & (i >= 1))
        where |= dict.fromkeys(("next_weight", "last_weight"), real & (i < last))
        some = self.pair_counts.unflatten(0, (len(PAIRS), -1)) > 0
        where |= {name: real & rows for name, rows in zip(PAIRS, some, strict=True)}
        if self.block.special is not None and self.block.special_query is not None:
            where["special_weight"] = real & ~self.block.special_query[0] & self.block.special[0].any()
        return where
