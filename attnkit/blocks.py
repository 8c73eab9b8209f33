"""Rows of long sequences, a block at a time: the heads' outputs and every row statistic, and no T × T map ever.

Of one head and a block of R query rows there are only the R × T numbers e_ij = exp(s_ij − max_j s_ij), which stay in
the cache while everything is read off them:

    z_i = Σ_j e_ij, so that p = e / z, Σ p v, Σ p j and Σ p special    one matrix product with these columns
    −Σ p ln p = ln z − Σ e ln e / z                                     ln e = s − max s is at hand
    p at one known key; Σ p over the few copies of a token              picked out by their places
    Σ p |i − j|: Σ p (j − i) behind the block − the same before it; within the block one by one
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnkit.hf import Site
from attnkit.measures import Measure, row_values
from attnkit.offsets import add_diagonals
from attnkit.rows import Block, Rows
from attnkit.spans import PAIRS, PLACES, POINTS, Scene, Side, Span

ROWS = 128  # with 4,096 keys 2 MB of float32
TOGETHER = 1 << 25  # places of the blocks that are prepared at a time, then read head by head: keys stay in the cache
ONES, PLACE, SPECIAL = range(3)  # the columns beside the values
LINEAR = {*POINTS, *PAIRS, "offset", "distance", "special_weight"}
OWN = {"entropy", "entropy_normalized", "max_weight", "effective_keys", "output_norm"}


@dataclass(frozen=True)
class Sums:
    """What is read off the e of every head; filled a head at a time."""

    left: Float[Tensor, "H R 3"]  # Σ e · column over the keys before the block
    right: Float[Tensor, "H R 3"]  # and over the others
    behind: Float[Tensor, "H R"]  # what makes the distance right within the block
    points: Float[Tensor, "H 5 R"]
    pairs: Float[Tensor, "H 2 R"]
    square: Float[Tensor, "H R"]  # √Σ e²
    log: Float[Tensor, "H R"]  # Σ e ln e

    @classmethod
    def empty(cls, H: int, R: int, device: torch.device) -> "Sums":
        shapes = [(H, R, 3), (H, R, 3), (H, R), (H, len(POINTS), R), (H, len(PAIRS), R), (H, R), (H, R)]
        return cls(*(torch.zeros(shape, device=device) for shape in shapes))

    def add(self, h: int, e: Float[Tensor, "R S"], columns: Float[Tensor, "S n"], span: Span) -> Float[Tensor, "R n"]:
        """Read the linear statistics off e, and return the sums over all columns, of which the last are ours."""
        left, right = e[:, : span.before] @ columns[: span.before], e[:, span.before :] @ columns[span.before :]
        self.left[h], self.right[h] = left[:, -3:], right[:, -3:]
        within = e[:, span.before : span.before + span.behind.shape[1]]
        torch.linalg.vecdot(within, span.behind, out=self.behind[h])
        torch.mul(e.take(span.points), span.found, out=self.points[h])
        pairs = torch.segment_reduce(e.take(span.pairs), "sum", lengths=span.pair_counts, unsafe=True)
        self.pairs[h] = pairs.view(self.pairs.shape[1:])
        return left + right

    @property
    def z(self) -> Float[Tensor, "H R"]:
        return self.left[..., ONES] + self.right[..., ONES]

    def linear(self, span: Span) -> dict[str, Float[Tensor, "H R"]]:
        """The linear statistics, in float64."""
        z, left, right = self.z.double(), self.left.double(), self.right.double()
        before, after = (side[..., PLACE] - span.i * side[..., ONES] for side in (left, right))
        values = {"offset": (before + after) / z, "distance": (after - before + self.behind) / z}
        values |= {name: self.points[:, k] / z for k, name in enumerate(POINTS)}
        values |= {name: self.pairs[:, k] / z for k, name in enumerate(PAIRS)}
        return values | {"special_weight": (left + right)[..., SPECIAL] / z}

    def others(self, span: Span) -> dict[str, Float[Tensor, "H R"]]:
        z = self.z.double()
        entropy = (z.log() - self.log / z).clamp(min=0)
        return {
            "entropy": entropy,
            "entropy_normalized": entropy / span.block.n[0].clamp(min=2).log(),
            "max_weight": 1 / z,
            "effective_keys": (self.square / z) ** -2,
        }


class BlockReader:
    """Computes a long attention and reads it; the numbers are those of `reading.Reader` on the whole map.

    Across sequences no statistic of where a key stands has a meaning: `measures` must then have none.
    """

    def __init__(self, measures: dict[str, Measure], scene: Scene, *, rows: int = ROWS):
        assert not (scene.cross and measures.keys() & PLACES)
        self.measures, self.scene, self.step = measures, scene, rows
        self.plain = {name: m for name, m in measures.items() if name not in LINEAR | OWN}
        self.prepared: dict[int, list[Span]] = {}  # of sequences that need no more than one lot of blocks

    def read(
        self, site: Site, offsets: Float[Tensor, "H _"] | None = None
    ) -> tuple[Float[Tensor, "B H R e"], Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """The heads' outputs, the values of the statistics in float64, and where they are defined.

        The weights are added to `offsets`, if given, as in `offsets.OffsetSums`.
        """
        B, H, R, _ = site.query.shape
        output = torch.zeros(B, H, R, site.value.shape[-1], device=site.query.device)
        totals = torch.zeros(B, H, len(self.measures), dtype=torch.float64, device=site.query.device)
        counts = torch.zeros_like(totals)
        triangle = triangles(site.w_o)
        for b in range(B):
            heads = Heads.of(site, b, self.scene.keys[b : b + 1])
            for spans in self.spans(site, b):
                for values, defined in self.lot(site, b, heads, spans, output[b], triangle, offsets):
                    totals[b] += torch.where(defined, values, 0).sum(dim=1)
                    counts[b] += defined.sum(dim=1)
        return output.to(site.value.dtype), totals / counts.clamp(min=1), counts > 0

    def spans(self, site: Site, b: int) -> Iterator[list[Span]]:
        """The blocks of one sequence, so many at a time. All layers of a reader see the same keys."""
        rows = self.scene.real_rows(b, self.step)
        together = max(TOGETHER // (self.step * site.key.shape[2]), 1)
        if b not in self.prepared:
            for start in range(0, len(rows), together):
                here = [(self.scene.block(site, r, slice(b, b + 1)), r) for r in rows[start : start + together]]
                spans = [Span.of(block, r, cross=self.scene.cross) for block, r in here]
                if len(rows) <= together:
                    self.prepared[b] = spans
                yield spans
        else:
            yield self.prepared[b]

    def lot(
        self,
        site: Site,
        b: int,
        heads: "Heads",
        spans: list[Span],
        output: Tensor,
        triangle: Tensor | None,
        offsets: Tensor | None,
    ) -> Iterator[tuple[Float[Tensor, "H R K"], Bool[Tensor, "H R K"]]]:
        """Some blocks of one sequence: the heads' outputs are written in their place, the statistics returned."""
        H, device = len(output), output.device
        sums = [Sums.empty(H, len(span.i), device) for span in spans]
        plain: list[list[dict[str, tuple[Tensor, Tensor]]]] = [[] for _ in spans]
        size = max(len(span.i) * (span.keys.stop - span.keys.start) for span in spans)
        room = torch.empty(2, size, device=device)
        for h in range(H):
            for number, span in enumerate(spans):
                shape = len(span.i), span.keys.stop - span.keys.start
                log, e = (part[: shape[0] * shape[1]].view(shape) for part in room)
                heads.scores(site, b, h, span, log)
                torch.sub(log, log.amax(dim=-1, keepdim=True), out=log)
                torch.exp(log, out=e)
                read = sums[number].add(h, e, heads.columns[h, span.keys], span)
                torch.div(read[:, :-3], read[:, -3:-2], out=output[h, span.rows])
                torch.linalg.vector_norm(e, dim=-1, out=sums[number].square[h])
                if offsets is not None:
                    add_diagonals(offsets[h], e, span.rows.start, span.keys.start, scale=1 / read[:, -3])
                if self.plain:
                    rows = Rows(span.block, in_place(e / read[:, -3:-2], span))
                    plain[number].append({name: row_values(m, rows) for name, m in self.plain.items()})
                # 0 · −∞ where a key is hidden would be no number, but the lowest number is finite.
                torch.linalg.vecdot(log, e, out=sums[number].log[h])
        for span, of_heads, found in zip(spans, sums, plain, strict=True):
            values, defined = of_heads.linear(span) | of_heads.others(span), span.defined()
            if triangle is not None:
                values["output_norm"] = (output[:, span.rows] @ triangle.transpose(-2, -1)).norm(dim=-1)
            for name in self.plain:
                both = (
                    torch.stack([t.expand(1, 1, len(span.i))[0, 0] for t in part])
                    for part in zip(*(of_head[name] for of_head in found), strict=True)
                )
                values[name], defined[name] = both
            yield self.table(values, defined, span, H)

    def table(
        self, values: dict[str, Tensor], defined: dict[str, Tensor], span: Span, H: int
    ) -> tuple[Float[Tensor, "H R K"], Bool[Tensor, "H R K"]]:
        """In the order of the measures. What there is no value of is nowhere defined."""
        real, n = span.block.real[0], span.block.n[0]
        defined = dict.fromkeys(OWN, real) | {"entropy_normalized": real & (n >= 2)} | defined
        shape = H, len(real)
        columns = [(values.get(name, n), defined[name] if name in values else ~real & real) for name in self.measures]
        return (
            torch.stack([value.double().expand(shape) for value, _ in columns], dim=-1),
            torch.stack([where.expand(shape) for _, where in columns], dim=-1),
        )

    def uniform(
        self, site: Site, offsets: Float[Tensor, "_"] | None = None
    ) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """What any head would read if it attended uniformly to what it may see, and where that is said.

        The pairs of queries and keys that see each other are counted in `offsets`, if given.
        """
        shape = len(site.query), len(self.measures)
        totals = torch.zeros(shape, dtype=torch.float64, device=site.query.device)
        counts = torch.zeros_like(totals)
        for b in range(len(site.query)):
            columns = side_columns(self.scene.keys[b : b + 1])
            for span in (span for spans in self.spans(site, b) for span in spans):
                sums = Sums.empty(1, len(span.i), totals.device)
                seen = span.block.allowed[0, :, span.keys].float()
                sums.add(0, seen, columns[span.keys], span)
                if offsets is not None:
                    add_diagonals(offsets, seen, span.rows.start, span.keys.start)
                values, defined = sums.linear(span), span.defined()
                for name, m in self.measures.items():
                    if name in self.plain and m.linear:
                        c, where = m.function(span.block)
                        values[name] = ((c * span.block.allowed).sum(dim=-1) / span.block.n)[0]
                        defined[name] = where[0]
                    elif m.uniform is not None:
                        values[name], defined[name] = m.uniform(span.block)[0], span.block.real[0]
                stacked, known = self.table(values, defined, span, 1)
                totals[b] += torch.where(known, stacked, 0).sum(dim=(0, 1))
                counts[b] += known.sum(dim=(0, 1))
        return totals / counts.clamp(min=1), counts > 0


@dataclass(frozen=True)
class Heads:
    """The queries, keys and columns of one sequence, in float32."""

    query: Float[Tensor, "H R d"]  # scaled
    key: Float[Tensor, "H T d"]
    columns: Float[Tensor, "H T n"]  # values, then the three of `side_columns`

    @classmethod
    def of(cls, site: Site, b: int, keys: Side) -> "Heads":
        query, key, value = (t[b].float() for t in (site.query, site.key, site.value))
        side = side_columns(keys).expand(len(key), -1, -1)
        return cls((query * site.scale).contiguous(), key.contiguous(), torch.cat([value, side], dim=-1))

    def scores(self, site: Site, b: int, h: int, span: Span, out: Float[Tensor, "R S"]) -> None:
        torch.mm(self.query[h, span.rows], self.key[h, span.keys].T, out=out)
        if site.softcap is not None:
            out.div_(site.softcap).tanh_().mul_(site.softcap)
        if site.bias is not None:
            out.add_(site.bias.expand(len(site.query), len(self.key), -1, -1)[b, h, span.rows, span.keys])
        if span.hidden is not None:
            assert span.visible is not None
            out[:, span.hidden].masked_fill_(~span.visible, torch.finfo(out.dtype).min)


def side_columns(keys: Side) -> Float[Tensor, "T 3"]:
    """Ones, the place of each key, and whether it is special, of one sequence."""
    block = Block.of(keys.tokens, keys.mask, rows=slice(0, 1))
    place = block.position[0].float()
    special = torch.zeros_like(place) if keys.special is None else keys.special[0].float()
    return torch.stack([torch.ones_like(place), place, special], dim=-1)


def in_place(weights: Float[Tensor, "R S"], span: Span) -> Float[Tensor, "1 1 R T"]:
    """The weights of a stretch of keys among those of all keys."""
    every = weights.new_zeros(1, 1, len(weights), span.block.tokens.shape[1])
    every[0, 0, :, span.keys] = weights
    return every


def triangles(w_o: Tensor | None) -> Float[Tensor, "H e e"] | None:
    """‖o W‖ = ‖o Lᵀ‖ with Wᵀ = Q L: e columns instead of D."""
    return None if w_o is None else torch.linalg.qr(w_o.transpose(-2, -1).double()).R.float()
