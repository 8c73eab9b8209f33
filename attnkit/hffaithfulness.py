"""Does the weight on a token say how much a classifier's answer hangs on it? Of a transformers model, over texts.

As in `faithfulness`, but a flip puts the embedding of one other token in a token's place: that of the tokenizer's mask,
else of what it calls unknown. The token itself stays, and so do positions and padding, whatever a model reads off its
tokens. Special tokens are never flipped, and are left out of what is held against each other.
"""

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from attnkit.attribution import Embedded, answers, attention_received, margins
from attnkit.data import Batch
from attnkit.faithfulness import EVERYTHING, Faithfulness, Grouping, held
from attnkit.hf import LONGEST_WHOLE, observe
from attnkit.hfstats import alike
from attnkit.observe import AttentionCall
from attnkit.pretrained import classes_of, has_two_parts, inputs_of, task_of
from attnkit.text import TextBatch
from attnkit.workers import cut, side_by_side

KINDS = ("mask_token", "unk_token", "pad_token")  # of tokens that can stand for any other, the best first
TOKENS = 1024  # that run side by side, unless one text alone is longer
WASTE = 0.05  # share of these that may be padding

TextBatches = Callable[[], Iterable[TextBatch]]  # each call goes through the same texts in the same order


class Replacement(NamedTuple):
    """The token whose embedding is put in the place of others."""

    kind: str  # of `KINDS`
    token: str
    number: int


def replacement_of(tokenizer: PreTrainedTokenizerBase) -> Replacement:
    """Raises ValueError for a tokenizer that has none."""
    for kind in KINDS:
        token = getattr(tokenizer, kind)
        if token is not None:
            return Replacement(kind, str(token), getattr(tokenizer, f"{kind}_id"))
    raise ValueError("tokenizer: has no mask, unknown or padding token to put in the place of others")


def measure_faithfulness(
    model: PreTrainedModel,
    batches: TextBatches,
    replacement: Replacement,
    groupings: dict[str, Grouping] | None = None,
    *,
    size: int = 32,
) -> Faithfulness:
    """`faithfulness.measure_faithfulness` of a classifier.

    How the texts are cut into batches changes nothing; a model of half precision is measured in float32. Raises
    ValueError for a model in train mode, that is no classifier, whose answer is not one of several classes, that has
    an encoder and a decoder or never calls transformers' attention interface; for texts of more than 512 tokens, whose
    maps are never made as a whole; and for no texts.
    """
    check(model)
    exact = model if model.dtype in (torch.float32, torch.float64) else deepcopy(model).float()
    groupings = {"all": EVERYTHING, **(groupings or {})}
    work = partial(measure_texts, replacement=replacement, groupings=groupings)
    parts = side_by_side(exact, work, pieces(batches(), size))
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no texts to measure")
    return reduce(add, parts, first)


def check(model: PreTrainedModel) -> None:
    name = type(model).__name__
    if task_of(model) != "classification":
        raise ValueError(f"model: {name} has no classification head, so there is no answer that weights could explain")
    if classes_of(model) is None:
        raise ValueError("model: its answer is not one of several classes; only such an answer has a margin")
    if has_two_parts(model):
        raise ValueError(f"model: {name} has an encoder and a decoder; what weights explain is measured in one part")


def pieces(batches: Iterable[TextBatch], size: int) -> Iterator[TextBatch]:
    """Texts of like length, as many as run side by side."""
    for batch in batches:
        T = batch.tokens.shape[1]
        if T > LONGEST_WHOLE:
            raise ValueError(
                f"text: has one of {T} tokens; rollout takes whole maps, of at most {LONGEST_WHOLE}: cut it with "
                f"--max-tokens {LONGEST_WHOLE}"
            )
        yield from (some for _, some in alike(batch, size, TOKENS, WASTE))


def margins_of(model: PreTrainedModel, batch: Batch, *, size: int = 32) -> Float[Tensor, "B"]:
    """The margin of each answer, on the CPU; not in the order of the texts. Raises ValueError as
    `measure_faithfulness` does."""
    check(model)
    assert isinstance(batch, TextBatch)
    found = []
    with torch.no_grad():
        for texts in pieces([batch], size):
            logits = model(**inputs_of(model, texts.each(lambda t: t.to(model.device)))).logits.float()
            found.append(margins(logits, answers(logits)).cpu())
    return torch.cat(found)


def measure_texts(
    model: PreTrainedModel, texts: TextBatch, replacement: Replacement, groupings: dict[str, Grouping]
) -> Faithfulness:
    texts = texts.each(lambda t: t.to(model.device))
    maps: list[Tensor] = []

    def mean_over_heads(call: AttentionCall) -> None:
        maps.append(call.weights.mean(dim=1, keepdim=True))

    with torch.no_grad(), observe(model, mean_over_heads):
        logits = model(**inputs_of(model, texts)).logits
    pair, counted = answers(logits), words_of(texts)
    at = embedded(model, texts, pair, counted, replacement)
    fall = falls(at, margins(logits, pair), counted)
    received = attention_received(maps, texts.mask)
    return held(at, received, (fall, fall.abs()), texts, margins(logits, pair), counted, groupings)


def words_of(texts: TextBatch) -> Bool[Tensor, "B T"]:
    """The tokens that are neither padding nor special."""
    real = torch.ones_like(texts.tokens, dtype=torch.bool) if texts.mask is None else texts.mask
    return real if texts.special is None else real & ~texts.special


def embedded(
    model: PreTrainedModel,
    texts: TextBatch,
    pair: Int[Tensor, "B 2"],
    counted: Bool[Tensor, "B T"],
    replacement: Replacement,
) -> Embedded:
    """What stands for no token is the replacement; tokens that are not `counted` stay."""
    table = model.get_input_embeddings()
    with torch.no_grad():
        vectors, other = table(texts.tokens), table(texts.tokens.new_full((1, 1), replacement.number))
    baseline = torch.where(counted[..., None], other, vectors)
    told = pair, texts.tokens, texts.mask, texts.segments
    return Embedded(partial(margins_of_vectors, model), vectors, baseline, told)


def margins_of_vectors(
    model: PreTrainedModel,
    vectors: Float[Tensor, "N T D"],
    pair: Int[Tensor, "N 2"],
    tokens: Int[Tensor, "N T"],
    mask: Bool[Tensor, "N T"] | None,
    segments: Int[Tensor, "N T"] | None,
) -> Float[Tensor, "N"]:
    """The model is told of the tokens as ever: it may read positions, or where a text ends, off them."""
    hook = model.get_input_embeddings().register_forward_hook(lambda *_: vectors)
    try:
        return margins(model(**inputs_of(model, TextBatch(tokens, mask, segments=segments))).logits, pair)
    finally:
        hook.remove()


@torch.no_grad()
def falls(at: Embedded, margin: Float[Tensor, "B"], counted: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """By how much the margin falls if a token's vector is that of the baseline; 0 where a token is not counted."""
    found = torch.zeros(counted.shape, dtype=margin.dtype, device=margin.device)
    for some in cut(counted.nonzero().tolist(), max(TOKENS // counted.shape[1], 1)):
        rows, places = torch.tensor(some, device=counted.device).T
        vectors = at.vectors[rows].clone()
        vectors[torch.arange(len(rows)), places] = at.baseline[rows, places]
        told = (None if part is None else part[rows] for part in at.more)
        found[rows, places] = margin[rows] - at.margins(vectors, *told)
    return found
