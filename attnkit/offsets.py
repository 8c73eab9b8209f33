"""How much weight goes so far ahead or back: sums over the diagonals of maps, of texts of any lengths."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class OffsetSums:
    """Sums over all pairs of a query and a key that it may see, for each offset from −(N − 1) to N − 1, in float64."""

    weights: Float[Tensor, "L H _"]  # Σ p
    pairs: Float[Tensor, "L _"]  # how many there are

    def __add__(self, other: "OffsetSums") -> "OffsetSums":
        """Of both sets of texts, however long each one's longest is."""
        ours, theirs = self.widened(other.weights.shape[-1]), other.widened(self.weights.shape[-1])
        return OffsetSums(ours.weights + theirs.weights, ours.pairs + theirs.pairs)

    def widened(self, width: int) -> "OffsetSums":
        more = max(width - self.weights.shape[-1], 0) // 2
        return OffsetSums(*(pad(t, (more, more)) for t in (self.weights, self.pairs)))


def add_diagonals(
    sums: Float[Tensor, "*n _"],
    rows: Float[Tensor, "*n R S"],
    query: int = 0,
    key: int = 0,
    *,
    scale: Float[Tensor, "R"] | None = None,
) -> None:
    """Add the diagonals of a piece of a map to the `sums` of the whole one, whose middle is offset 0.

    The piece's first row is that of the query at column `query`, its first column that of the key at `key`. `scale`
    is what each row is multiplied with.
    """
    R, S = rows.shape[-2:]
    room = pad(rows, (R - 1, R - 1))
    # In rows that each begin a place later, diagonals are columns.
    *outer, step, _ = room.stride()
    diagonals = room.as_strided((*rows.shape[:-2], R, R + S - 1), (*outer, step + 1, 1))
    first = sums.shape[-1] // 2 + key - query - (R - 1)
    scale = rows.new_ones(R) if scale is None else scale
    sums[..., first : first + R + S - 1] += scale @ diagonals
