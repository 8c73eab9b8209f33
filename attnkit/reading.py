"""One batch's attention calls, read into one number per sequence, head and statistic.

The sequence value of a statistic is its mean over the rows where it is defined; padded rows never count.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnkit.measures import Block, Measure, Rows, uniform_values
from attnkit.observe import AttentionCall

ROWS = 256  # query rows that are read at a time
TOLERANCE = 1e-4  # how far from 1 a row of weights may sum


class Reader:
    """Reads the calls of one batch. K statistics, in the order of `measures`.

    What does not depend on the weights is worked out once for all layers. The linear statistics, already averaged
    over the rows on which they are defined, are the columns of one matrix: a call's maps, flattened, times that
    matrix reads them all. It equals the plain formulas of `measures.row_values`, which the tests hold it to.
    """

    def __init__(
        self,
        measures: dict[str, Measure],
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        *,
        causal: bool = False,
        rows: int = ROWS,
    ):
        T = tokens.shape[1]
        slices = [slice(r, min(r + rows, T)) for r in range(0, T, rows)]
        self.measures = measures
        self.blocks = [Block.of(tokens, mask, rows=r, causal=causal) for r in slices]
        self.linear = {name: [m.function(block) for block in self.blocks] for name, m in measures.items() if m.linear}
        self.n_rows = {  # on how many rows of each sequence it is defined, (b, 1)
            name: total([defined.sum(dim=-1, keepdim=True) for _, defined in parts])
            for name, parts in self.linear.items()
        }
        # A statistic that weighs the keys of every sequence alike needs its column only once, not once a sequence.
        alike = [name for name, parts in self.linear.items() if all(len(c) == 1 for c, _ in parts)]
        own = [name for name in self.linear if name not in alike]
        self.columns = [names for names in (alike, own) if names]
        self.matrices: dict[tuple[int, int, torch.dtype], Tensor] = {}

    def read(self, call: AttentionCall) -> tuple[Float[Tensor, "B H K"], Bool[Tensor, "B H K"]]:
        """Return the values, float64, and where they are defined.

        Raises ValueError where a row does not sum to 1 within TOLERANCE or puts weight on a hidden key.
        """
        B, H = call.weights.shape[:2]
        sums: dict[str, list[Tensor]] = {name: [] for name in self.measures}  # a (B, H) for each block of rows
        n_rows: dict[str, list[Tensor]] = {name: [] for name in self.measures}
        for number, block in enumerate(self.blocks):
            weights = checked(call.weights[:, :, block.rows], block, call.layer)
            rows = Rows(block, weights, call.output[:, :, block.rows], call.w_o)
            maps = rows.weights.flatten(2)  # (B, H, R·T)
            for part, names in enumerate(self.columns):
                means = (maps @ self.matrix(number, part, maps.dtype)).double()  # (B, H, K)
                for name, mean in zip(names, means.unbind(dim=-1), strict=True):
                    sums[name].append(mean)
            for name, measure in self.measures.items():
                if not measure.linear:
                    values, defined = measure.function(rows)
                    defined = defined if defined.ndim == 3 else defined[:, None]
                    sums[name].append(torch.where(defined, values, 0).sum(dim=-1, dtype=torch.float64))
                    n_rows[name].append(defined.sum(dim=-1).expand(B, H))
        columns, counts = [], []
        for name, measure in self.measures.items():
            n = self.n_rows[name].expand(B, H) if measure.linear else total(n_rows[name])
            columns.append(total(sums[name]) if measure.linear else total(sums[name]) / n.clamp(min=1))
            counts.append(n)
        return torch.stack(columns, dim=-1), torch.stack(counts, dim=-1) > 0

    def uniform(self) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """What any head would read on these sequences if it attended uniformly, and where that is said."""
        B = len(self.blocks[0].tokens)
        values, defined = [], []
        for measure in self.measures.values():
            parts = [uniform_values(measure, block) for block in self.blocks]
            n = total([d.sum(dim=-1) for _, d in parts])
            values.append((total([torch.where(d, v, 0).sum(dim=-1) for v, d in parts]) / n.clamp(min=1)).expand(B))
            defined.append((n > 0).expand(B))
        return torch.stack(values, dim=-1), torch.stack(defined, dim=-1)

    def matrix(self, number: int, part: int, dtype: torch.dtype) -> Float[Tensor, "b RT k"]:
        """The linear statistics of one part, over one block of rows."""
        key = (number, part, dtype)
        if key not in self.matrices:
            columns = []
            for name in self.columns[part]:
                c, defined = self.linear[name][number]
                share = defined.double() / self.n_rows[name].clamp(min=1)  # of each row in the sequence's mean, (b, R)
                columns.append(c * share.to(dtype)[..., None])  # (b, R, T)
            self.matrices[key] = torch.stack(torch.broadcast_tensors(*columns), dim=-1).flatten(1, 2)
        return self.matrices[key]


def checked(weights: Float[Tensor, "B H R T"], block: Block, layer: int) -> Float[Tensor, "B H R T"]:
    """The weights with padded queries, whatever a model left there, at 0; ValueError if a real row is no attention."""
    if len(block.real) > 1 or not block.real.all():
        weights = weights.masked_fill(~block.real[:, None, :, None], 0)
        leak = weights.masked_fill(block.allowed[:, None], 0).amax()
        if leak > 0:
            raise ValueError(f"layer {layer}: weight {float(leak):.2g} on keys that the mask hides")
    off = (weights.sum(dim=-1) - block.real[:, None].to(weights.dtype)).abs().amax()
    if not off <= TOLERANCE:  # NaN is not either
        raise ValueError(f"layer {layer}: rows of attention do not sum to 1 (off by {float(off):.2g})")
    return weights


def total(parts: list[Tensor]) -> Tensor:
    """Their sum: blocks of rows add up to a sequence."""
    return torch.stack(parts).sum(dim=0) if len(parts) > 1 else parts[0]
