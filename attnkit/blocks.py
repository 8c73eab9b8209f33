"""Rows of long sequences, a block at a time: the heads' outputs and every row statistic, and no T × T map ever.

Of one head and a block of R query rows there are only R × T numbers, which stay in the cache while everything is read
off them. On a CPU that is one pass of machine code (`longrows`), for all statistics that it knows; elsewhere, and for
any other statistic, the plain formulas read the block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnkit.fused import arrays, loops
from attnkit.hf import Site
from attnkit.measures import Measure, row_values, uniform_values
from attnkit.offsets import add_diagonals
from attnkit.reading import check
from attnkit.rows import Rows
from attnkit.spans import PLACES, Places, Scene, Span

ROWS = 256  # fewer read the keys and values more often than it pays, more leave the cache
TOGETHER = 1 << 25  # places of the blocks that are prepared at a time, then read head by head: keys stay in the cache


class BlockReader:
    """Computes a long attention and reads it; the numbers are those of `reading.Reader` on the whole map.

    Across sequences no statistic of where a key stands has a meaning: `measures` must then have none.
    """

    def __init__(self, measures: dict[str, Measure], scene: Scene, *, rows: int = ROWS, fused: bool = True):
        """`fused=False`: everything by the plain formulas, on a CPU as well."""
        assert not (scene.cross and measures.keys() & PLACES)
        self.measures, self.scene, self.step = measures, scene, rows
        self.fused = fused and scene.keys.tokens.device.type == "cpu"
        self.names = loops("longrows").NAMES if self.fused else ()
        known = {*self.names, "entropy_normalized"} if self.fused else set()
        self.plain = {name: m for name, m in measures.items() if name not in known | {"output_norm"}}
        self.places: dict[int, Places] = {}
        self.prepared: dict[int, list[Span]] = {}  # of sequences that need no more than one lot of blocks

    def read(
        self, site: Site, offsets: Float[Tensor, "H _"] | None = None
    ) -> tuple[Float[Tensor, "B H R e"], Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """The heads' outputs, the values of the statistics in float64, and where they are defined.

        The weights are added to `offsets`, if given, as in `offsets.OffsetSums`. Raises ValueError for scores that are
        no numbers.
        """
        B, H, R, _ = site.query.shape
        output = torch.zeros(B, H, R, site.value.shape[-1], device=site.query.device)
        totals = torch.zeros(B, H, len(self.measures), dtype=torch.float64, device=output.device)
        counts = torch.zeros_like(totals)
        triangle = triangles(site.w_o)
        for b in range(B):
            heads = Heads.of(site, b)
            for spans in self.spans(site, b):
                found = [Found.of(span, H, self.places[b], self.names) for span in spans]
                room = torch.empty(max(R * S for R, S in (span.shape for span in spans)), device=output.device)
                for h in range(H):
                    for part in found:
                        span = part.span
                        e = heads.scores(h, span, room)
                        z = self.read_head(e, part, h, None if offsets is None else offsets[h])
                        torch.mm(e, heads.value[h, span.keys], out=output[b, h, span.rows]).div_(z)
                for part in found:
                    values, defined = self.table(part, b, output[b, :, part.span.rows], triangle)
                    totals[b] += torch.where(defined, values, 0).sum(dim=1)
                    counts[b] += defined.sum(dim=1)
        check(0 * float(totals.sum()), site.layer)  # NaN, if one of them is no number; else rows sum to 1
        return output.to(site.value.dtype), totals / counts.clamp(min=1), counts > 0

    def uniform(
        self, site: Site, offsets: Float[Tensor, "_"] | None = None
    ) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """What any head would read if it attended uniformly to what it may see, and where that is said.

        The pairs of queries and keys that see each other are counted in `offsets`, if given.
        """
        totals = torch.zeros(len(site.query), len(self.measures), dtype=torch.float64, device=site.query.device)
        counts = torch.zeros_like(totals)
        for b in range(len(site.query)):
            for span in (span for spans in self.spans(site, b) for span in spans):
                block, part = span.block, Found.of(span, 1, self.places[b], self.names)
                if offsets is not None:
                    add_diagonals(offsets, block.allowed[0, :, span.keys].to(offsets), span.rows.start, span.keys.start)
                if self.fused:
                    self.one_pass(span.hide(torch.zeros(span.shape)), part, 0)
                values, defined = self.known(part, b)
                for k, (name, measure) in enumerate(self.measures.items()):
                    if name in values and measure.linear:
                        value, where = values[name][0], defined[name]
                    elif (said := uniform_values(measure, block)) is not None:
                        value, where = (t.expand(1, len(block.real[0]))[0] for t in said)
                    else:
                        continue
                    totals[b, k] += value.double()[where].sum()
                    counts[b, k] += where.sum()
        return totals / counts.clamp(min=1), counts > 0

    def spans(self, site: Site, b: int) -> Iterator[list[Span]]:
        """The blocks of one sequence, so many at a time. All layers of a reader see the same keys."""
        if b not in self.places:
            self.places[b] = Places.of(self.scene, b)
        if b in self.prepared:
            yield self.prepared[b]
            return
        rows = self.scene.real_rows(b, self.step)
        # The plain formulas keep what they know of a block, many times its size: of one block at a time.
        together = 1 if self.plain else max(TOGETHER // (self.step * site.key.shape[2]), 1)
        for start in range(0, len(rows), together):
            here = [(self.scene.block(site, r, slice(b, b + 1)), r) for r in rows[start : start + together]]
            spans = [Span.of(block, r, cross=self.scene.cross) for block, r in here]
            if len(rows) <= together:
                self.prepared[b] = spans
            yield spans

    def read_head(
        self, e: Float[Tensor, "R S"], part: "Found", h: int, offsets: Float[Tensor, "_"] | None
    ) -> Float[Tensor, "R 1"]:
        """Read the scores `e` of one head and block, which become z times the weights; z is returned."""
        span = part.span
        if self.fused:
            self.one_pass(e, part, h, offsets)
            z = part.read[h, :, :1].float()
        else:
            torch.softmax(e, dim=-1, out=e)
            z = torch.ones_like(e[:, :1])
            if offsets is not None:
                add_diagonals(offsets, e.to(offsets), span.rows.start, span.keys.start)
        if self.plain:
            every = e.new_zeros(1, 1, len(e), span.block.tokens.shape[1])
            every[0, 0, :, span.keys] = e / z
            rows = Rows(span.block, every)
            part.plain.append({name: row_values(measure, rows) for name, measure in self.plain.items()})
        return z

    def one_pass(
        self, e: Float[Tensor, "R S"], part: "Found", h: int, offsets: Float[Tensor, "_"] | None = None
    ) -> None:
        """All that there is machine code for."""
        if offsets is None:
            offsets = torch.zeros(0, dtype=torch.float64)
        else:
            R, S = e.shape
            first = len(offsets) // 2 + part.span.keys.start - part.span.rows.start - (R - 1)
            offsets = offsets[first : first + R + S - 1]
        loops("longrows").read(*arrays(e, e.amax(dim=-1)), *part.places, *arrays(part.read[h], offsets))

    def known(self, part: "Found", b: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The values (H, R) and where they are defined (R,), of all that there is machine code for."""
        if not self.fused:
            return {}, {}
        span = part.span
        values = dict(zip(self.names, part.read.unbind(dim=-1), strict=True))
        values["entropy_normalized"] = values["entropy"] / span.block.n[0].clamp(min=2).log()
        where = span.defined(self.places[b], cross=self.scene.cross)
        return {name: value for name, value in values.items() if name in where}, where

    def table(
        self, part: "Found", b: int, output: Float[Tensor, "H R e"], triangle: Tensor | None
    ) -> tuple[Float[Tensor, "H R K"], Bool[Tensor, "H R K"]]:
        """The values of one block in the order of the measures. What there is no value of is nowhere defined."""
        real, (values, defined) = part.span.block.real[0], self.known(part, b)
        if triangle is not None:
            values["output_norm"], defined["output_norm"] = (output @ triangle.mT).norm(dim=-1), real
        shape = len(output), len(real)
        for name in self.plain:
            of_heads = zip(*(read[name] for read in part.plain), strict=True)
            values[name], defined[name] = (
                torch.stack([t.expand(1, 1, len(real))[0, 0] for t in ts]) for ts in of_heads
            )
        nothing = torch.zeros(shape, dtype=torch.float64, device=real.device), torch.zeros_like(real)
        columns = [(values[name], defined[name]) if name in values else nothing for name in self.measures]
        return (
            torch.stack([value.double().expand(shape) for value, _ in columns], dim=-1),
            torch.stack([where.expand(shape) for _, where in columns], dim=-1),
        )


@dataclass
class Found:
    """What is read of one block of rows, a head at a time."""

    span: Span
    places: list[Any]  # what `longrows.read` is told of rows and keys
    read: Float[Tensor, "H R n"]  # by machine code: `longrows.NAMES`, in float64
    plain: list[dict[str, tuple[Tensor, Tensor]]]  # by the plain formulas, for each head: the values, where defined

    @classmethod
    def of(cls, span: Span, H: int, places: Places, names: tuple[str, ...]) -> "Found":
        told: list[Any] = []
        if names:
            of_keys = places.keys[span.keys], places.special[span.keys], span.points
            copies = places.order, places.since[span.rows], places.until[span.rows], span.keys.start
            told = arrays(places.queries[span.rows], *of_keys, *copies)
        return cls(span, told, torch.zeros(H, span.shape[0], len(names), dtype=torch.float64), [])


@dataclass(frozen=True)
class Heads:
    """The queries, keys and values of one sequence, in float32, and what is done to the scores."""

    query: Float[Tensor, "H R d"]  # scaled
    key: Float[Tensor, "H d T"]  # so laid out, a product with few queries is a quarter faster
    value: Float[Tensor, "H T e"]
    bias: Float[Tensor, "h R T"] | None
    softcap: float | None

    @classmethod
    def of(cls, site: Site, b: int) -> "Heads":
        query, key, value = (t[b].float().contiguous() for t in (site.query, site.key.mT, site.value))
        bias = None if site.bias is None else site.bias.expand(len(site.query), len(key), -1, -1)[b]
        return cls(query * site.scale, key, value, bias, site.softcap)

    def scores(self, h: int, span: Span, room: Float[Tensor, "_"]) -> Float[Tensor, "R S"]:
        """Those of one head, in a part of the room."""
        R, S = span.shape
        out = torch.mm(self.query[h, span.rows], self.key[h, :, span.keys], out=room[: R * S].view(R, S))
        if self.softcap is not None:
            out.div_(self.softcap).tanh_().mul_(self.softcap)
        if self.bias is not None:
            out.add_(self.bias[h, span.rows, span.keys])
        return span.hide(out)


def triangles(w_o: Tensor | None) -> Float[Tensor, "H e e"] | None:
    """‖o W‖ = ‖o Lᵀ‖ with Wᵀ = Q L: e columns instead of D."""
    return None if w_o is None else torch.linalg.qr(w_o.transpose(-2, -1).double()).R.float()
