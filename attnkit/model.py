"""The article's transformer classifier: tokens in, class logits and every head's attention out.

One alphabet of shapes, here and in the whole project:

    B  sequences in a batch      H  heads of a layer       C  classes
    T  tokens of a sequence      d  width of one head      R  query rows: a block of the T rows of a map
    D  width of the model, d_model = H * d                 V  tokens in the vocabulary
"""

import math
from dataclasses import asdict, dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


@dataclass(frozen=True)
class ModelConfig:
    vocab_size: int  # V, how many tokens there are
    d_model: int  # D, width of the residual stream
    n_heads: int  # H, heads per layer; divides d_model
    d_ff: int  # width of the hidden layer of the feed-forward network
    n_layers: int  # encoder layers, one after the other
    max_len: int  # the longest sequence, in tokens
    n_classes: int = 2  # C

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field.name}: got {value!r}, allowed is a whole number of at least 1")
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads: d_model {self.d_model} is not divisible by {self.n_heads} heads")


class ScaledDotProductAttention(nn.Module):
    """softmax(Q Kᵀ / √d) V: Vaswani et al. 2017, equation 1."""

    def forward(
        self,
        q: Float[Tensor, "B H T d"],
        k: Float[Tensor, "B H T d"],
        v: Float[Tensor, "B H T d"],
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
    ) -> tuple[Float[Tensor, "B H T d"], Float[Tensor, "B H T T"]]:
        """Return the heads' outputs and their weights (row = query, column = key, rows sum to 1).

        `mask` is True where a key may be seen; every query must see at least one.
        """
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if mask is not None:
            # The lowest number of the dtype, not -1e9, which float16 cannot hold: its exp is exactly 0.
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        return weights @ v, weights


class MultiHeadAttention(nn.Module):
    """H attentions side by side, each on its own d = D / H columns, then mixed by W_o."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        self.attention = ScaledDotProductAttention()

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B 1 1 T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T T"]]:
        q, k, v = (self.split(W(x)) for W in (self.W_q, self.W_k, self.W_v))  # each (B, H, T, d)
        heads, weights = self.attention(q, k, v, mask)
        return self.W_o(heads.transpose(1, 2).flatten(2)), weights  # (B, H, T, d) -> (B, T, D)

    def split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)


class PositionalEncoding(nn.Module):
    """Adds sin(t / 10000^(2i/D)) to column 2i and cos of the same to column 2i+1: Vaswani et al. 2017, 3.5."""

    pe: Tensor

    def __init__(self, d_model: int, max_len: int):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * rate)
        pe[:, 1::2] = torch.cos(position * rate)[:, : d_model // 2]  # an odd width has one cosine fewer
        self.register_buffer("pe", pe, persistent=False)  # rebuilt, never stored: max_len may change

    def forward(self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        if mask is None:
            return x + self.pe[: x.shape[1]]
        # The first real token stands at position 0, whichever side is padded.
        return x + self.pe[(mask.cumsum(dim=1) - 1).clamp(min=0)]


class TransformerEncoderLayer(nn.Module):
    """Attention, then a feed-forward network; each added to its input and normalised (post-norm)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int):
        super().__init__()
        self.attn = MultiHeadAttention(d_model, n_heads)
        self.ffn = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(
        self, x: Float[Tensor, "B T D"], mask: Bool[Tensor, "B 1 1 T"] | None = None
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B H T T"]]:
        attended, weights = self.attn(x, mask)
        x = self.norm1(x + attended)
        x = self.norm2(x + self.ffn(x))
        return x, weights


class TinyTransformer(nn.Module):
    """Embedding, positions, encoder layers, the mean over the tokens, one linear layer to the classes."""

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        n_heads: int,
        d_ff: int,
        n_layers: int,
        max_len: int,
        n_classes: int = 2,
    ):
        super().__init__()
        self.config = ModelConfig(vocab_size, d_model, n_heads, d_ff, n_layers, max_len, n_classes)
        self.embed = nn.Embedding(vocab_size, d_model)
        self.pos = PositionalEncoding(d_model, max_len)
        self.layers = nn.ModuleList(TransformerEncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.head = nn.Linear(d_model, n_classes)

    @classmethod
    def from_config(cls, config: ModelConfig) -> "TinyTransformer":
        return cls(**asdict(config))

    def forward(
        self, x: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B C"], list[Float[Tensor, "B H T T"]]]:
        """Return the class logits and the attention of every layer.

        `mask` is True where a token is real and False where it is padding; without one all are real.
        Raises ValueError for a sequence that is empty or too long, or a token outside the vocabulary.
        """
        self.check(x, mask)
        keys = None if mask is None else mask[:, None, None, :]
        h = self.pos(self.embed(x), mask)
        attentions = []
        for layer in self.layers:
            h, weights = layer(h, keys)
            attentions.append(weights)
        return self.head(mean_pool(h, mask)), attentions

    def check(self, x: Tensor, mask: Tensor | None) -> None:
        longest = self.config.max_len
        if not 1 <= x.shape[1] <= longest:
            raise ValueError(f"x: {x.shape[1]} tokens; this checkpoint takes 1 to {longest}")
        if self.training or not x.numel():
            return  # looking at the values makes a GPU wait; training looks at its whole data once, beforehand
        low, high = x.aminmax()
        if low < 0 or high >= self.config.vocab_size:
            wrong = int(low) if low < 0 else int(high)
            raise ValueError(
                f"x: token id {wrong} is not in the vocabulary; allowed is 0 to {self.config.vocab_size - 1}"
            )
        if mask is not None and not mask.any(dim=1).all():
            raise ValueError("mask: a sequence without any real token; every sequence needs at least one")


def mean_pool(h: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
    """The mean over the real tokens of each sequence."""
    if mask is None:
        return h.mean(dim=1)
    real = mask.unsqueeze(-1).to(h.dtype)
    return (h * real).sum(dim=1) / real.sum(dim=1)
