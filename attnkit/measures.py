"""The row statistics: what one query's row of weights looks like, as small pure functions in one table.

Notation, for query i and the keys K_i that it may see, n_i = |K_i| of them:

    p_ij   weight of query i on key j; sums to 1 over K_i and is 0 elsewhere
    x_j    token at position j; positions count real tokens from 0, whichever side is padded

There are two kinds of functions. A **linear** statistic is Σ_j p_ij c_ij: its function returns the numbers c,
which know nothing of the weights, so that one matrix product reads all of them at once and the value under
uniform attention, Σ_j c_ij / n_i, comes for free. Any other statistic is a function of the rows.
Both say on which rows they are defined. To add one: write the function, add a line to `MEASURES`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from attnkit.rows import Block, Rows

LATER = ("next_weight", "last_weight")  # statistics of keys that a causal query never sees
SMALL_VOCABULARY = 16  # statistics per token stay readable up to here


# --- linear statistics: what a key counts for (b or B, R, T), and the rows on which that is defined (b or B, R) ---

Linear = tuple[Tensor, Tensor]


def distance(block: Block) -> Linear:
    """Σ p |i − j|"""
    return (block.i - block.j).abs(), block.real


def offset(block: Block) -> Linear:
    """Σ p (j − i)"""
    return block.j - block.i, block.real


def self_weight(block: Block) -> Linear:
    """p_ii"""
    return block.j == block.i, block.real


def previous_weight(block: Block) -> Linear:
    """p_{i,i−1}"""
    return block.j == block.i - 1, block.real & (block.i[..., 0] >= 1)


def next_weight(block: Block) -> Linear:
    """p_{i,i+1}"""
    return block.j == block.i + 1, block.real & (block.i[..., 0] < block.last)


def first_weight(block: Block) -> Linear:
    """p_i0, the sink"""
    return (block.j == 0).expand_as(block.allowed), block.real & (block.i[..., 0] >= 1)


def last_weight(block: Block) -> Linear:
    """p_{i,T−1}"""
    at_last = block.j == block.last[..., None]
    return at_last.expand_as(block.allowed), block.real & (block.i[..., 0] < block.last)


def special_weight(block: Block) -> Linear:
    """Σ p over the keys that the tokenizer calls special, such as [CLS] and [SEP]"""
    assert block.special is not None
    assert block.special_query is not None
    known = block.special.any(dim=-1, keepdim=True)  # a tokenizer that adds none says nothing of the head
    return block.special[:, None, :] & block.allowed, block.real & ~block.special_query & known


def token_weight(block: Block, token: int) -> Linear:
    """Σ p over the keys that are this token"""
    keys = (block.tokens == token)[:, None, :] & block.allowed
    return keys, keys.any(dim=-1) & block.real


def duplicate_weight(block: Block) -> Linear:
    """Σ p over earlier copies of the query's token, j < i with x_j = x_i"""
    keys = block.same & ((block.j < block.i) & block.allowed)
    return keys, keys.any(dim=-1) & block.real


def induction_weight(block: Block) -> Linear:
    """Σ p over what followed an earlier copy of the query's token, 1 ≤ j < i with x_{j−1} = x_i"""
    after_copy = block.same.roll(1, dims=-1)  # column j now tells of x_{j−1}
    keys = after_copy & ((block.j >= 1) & (block.j < block.i) & block.allowed)
    return keys, keys.any(dim=-1) & block.real


# --- other statistics: a number for each head's row (B, H, R), and the rows on which that is defined ---

Nonlinear = tuple[Tensor, Tensor]


def entropy(rows: Rows) -> Nonlinear:
    """−Σ p ln p, with 0 ln 0 = 0"""
    return rows.entropy, rows.block.real


def entropy_normalized(rows: Rows) -> Nonlinear:
    """entropy / ln n_i"""
    n = rows.block.n
    return rows.entropy / n.clamp(min=2).log().to(rows.entropy.dtype)[:, None], rows.block.real & (n >= 2)


def max_weight(rows: Rows) -> Nonlinear:
    """max_j p_ij"""
    return rows.weights.amax(dim=-1), rows.block.real


def effective_keys(rows: Rows) -> Nonlinear:
    """1 / Σ p²"""
    return torch.linalg.vector_norm(rows.weights, dim=-1).pow(-2), rows.block.real


def selectivity(rows: Rows) -> Nonlinear:
    """ln mean(p_ij over j ≠ i with x_j = x_i) − ln mean(p_ij over x_j ≠ x_i)"""
    block = rows.block
    alike, unlike = ((rows.weights * keys[:, None]).sum(dim=-1) for keys in (block.alike, block.unlike))
    n_alike, n_unlike = (keys.sum(dim=-1).to(alike.dtype).log()[:, None] for keys in (block.alike, block.unlike))
    # In logarithms: the quotient of a weight of 1 and one of 1e-40 is no float32.
    value = (alike.log() - n_alike) - (unlike.log() - n_unlike)
    return value, (alike > 0) & (unlike > 0)  # both 0 where there are no such keys, and for padded queries


def output_norm(rows: Rows) -> Nonlinear:
    """‖Σ_j p_ij v_j W_O^h‖₂, the length of what the head adds to the residual stream (without the bias)"""
    assert rows.output is not None
    assert rows.w_o is not None
    return torch.linalg.vector_norm(rows.output @ triangle(rows.w_o).to(rows.output.dtype), dim=-1), rows.block.real


def triangle(w_o: Float[Tensor, "H d D"]) -> Float[Tensor, "H d d"]:
    """Lᵀ, in float64, with W_Oᵀ = Q L: ‖o W_O‖ = ‖o Lᵀ‖, with d columns instead of D."""
    return torch.linalg.qr(w_o.transpose(-2, -1).double()).R.transpose(-2, -1)


# --- the table ---


@dataclass(frozen=True)
class Measure:
    """One statistic: its function, and everything a table, a figure or a reader needs to know of it."""

    function: Callable[..., tuple[Tensor, Tensor]]
    unit: str  # nats, keys, tokens, weight or none
    defined_on: str  # the rows that count
    domain: Callable[[int], tuple[float, float]]  # longest sequence -> least and greatest value, for histograms
    uniform: Callable[[Block], Tensor] | None = None  # under uniform attention (b, R); linear ones need no formula
    uniform_text: str = "none"  # the same for people
    linear: bool = False
    log: bool = False  # the histogram's edges are spaced evenly in the logarithm

    @property
    def definition(self) -> str:
        function = self.function.func if isinstance(self.function, partial) else self.function
        return (function.__doc__ or "").strip()


def unit_interval(longest: int) -> tuple[float, float]:
    return 0.0, 1.0


def weight(function: Callable[[Block], Linear], defined_on: str, uniform_text: str = "1 / n_i") -> Measure:
    return Measure(function, "weight", defined_on, unit_interval, uniform_text=uniform_text, linear=True)


MEASURES: dict[str, Measure] = {
    "entropy": Measure(
        entropy, "nats", "all rows", lambda T: (0.0, math.log(max(T, 2))), lambda b: b.n.log(), "ln n_i"
    ),
    "entropy_normalized": Measure(
        entropy_normalized, "none", "rows with n_i ≥ 2", unit_interval, lambda b: torch.ones_like(b.n), "1"
    ),
    "max_weight": Measure(max_weight, "weight", "all rows", unit_interval, lambda b: 1 / b.n, "1 / n_i"),
    "effective_keys": Measure(
        effective_keys, "keys", "all rows", lambda T: (1.0, float(max(T, 2))), lambda b: b.n, "n_i"
    ),
    "distance": Measure(
        distance, "tokens", "all rows", lambda T: (0.0, float(max(T - 1, 1))), None, "mean of |i − j| over K_i", True
    ),
    "offset": Measure(
        offset,
        "tokens",
        "all rows",
        lambda T: (-float(max(T - 1, 1)), float(max(T - 1, 1))),
        None,
        "mean of j − i over K_i",
        True,
    ),
    "self_weight": weight(self_weight, "all rows"),
    "previous_weight": weight(previous_weight, "rows i ≥ 1"),
    "next_weight": weight(next_weight, "rows i ≤ T − 2; not for causal models"),
    "first_weight": weight(first_weight, "rows i ≥ 1"),
    "last_weight": weight(last_weight, "rows i ≤ T − 2; not for causal models"),
    "special_weight": weight(
        special_weight, "rows of tokens that are not special, where a tokenizer adds special ones", "their share of K_i"
    ),
    "duplicate_weight": weight(duplicate_weight, "rows that have such a key", "their share of K_i"),
    "induction_weight": weight(induction_weight, "rows that have such a key", "their share of K_i"),
    "selectivity": Measure(
        selectivity,
        "nats",
        "rows with keys of both kinds and both means > 0",
        lambda T: (-8.0, 8.0),
        lambda b: torch.zeros_like(b.n),
        "0",
    ),
    "output_norm": Measure(output_norm, "none", "all rows", lambda T: (1e-3, 1e3), log=True),
}


def applicable(vocab: Sequence[str], *, causal: bool = False, special: bool = False) -> dict[str, Measure]:
    """The statistics that a model with these tokens defines: a name -> measure table in its final order.

    Causal models have no later keys; the statistics of single tokens need a vocabulary of at most 16, and that of
    special tokens a tokenizer that adds some.
    """
    names = [name for name in MEASURES if special or name != "special_weight"]
    if causal:
        names = [name for name in names if name not in LATER]
    if len(vocab) > SMALL_VOCABULARY:
        names.remove("selectivity")
        return {name: MEASURES[name] for name in names}
    table = {name: MEASURES[name] for name in names}
    for token, text in enumerate(vocab):
        one = partial(token_weight, token=token)
        table[f"token_weight[{text}]"] = weight(one, "rows where the token is in K_i", "its share of K_i")
    return table


def row_values(measure: Measure, rows: Rows) -> tuple[Tensor, Tensor]:
    """The plain formula: one number per head and row (B, H, R), and where it is defined (broadcasts to the same)."""
    if measure.linear:
        c, defined = measure.function(rows.block)
        values = (rows.weights * c[:, None]).sum(dim=-1)
    else:
        values, defined = measure.function(rows)
    return values, defined if defined.ndim == 3 else defined[:, None]


def uniform_values(measure: Measure, block: Block) -> tuple[Tensor, Tensor] | None:
    """What any head would read if it attended uniformly (b or B, R), and on which rows; None where nothing is said."""
    if measure.linear:
        c, defined = measure.function(block)
        return (c * block.allowed).sum(dim=-1) / block.n, defined
    return None if measure.uniform is None else (measure.uniform(block), block.real)
