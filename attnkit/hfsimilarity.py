"""Which heads of a transformers model look alike, and write alike, over texts."""

from collections.abc import Iterable
from functools import reduce
from operator import add

import torch
from transformers import PreTrainedModel

from attnkit.hf import LONGEST_WHOLE, observe
from attnkit.hfstats import alike
from attnkit.observe import AttentionCall
from attnkit.pretrained import has_two_parts, inputs_of
from attnkit.replay import Layers
from attnkit.similarity import Similarity, compare_batch
from attnkit.text import TextBatch
from attnkit.workers import side_by_side

TOKENS = 1024  # that run side by side, unless one text alone is longer
WASTE = 0.05  # share of these that may be padding
WIDEST = 1 << 14  # numbers that all heads together write: the covariances of each with each then take 2 GB


def compare(layers: Layers, batches: Iterable[TextBatch], *, size: int = 32) -> Similarity:
    """`similarity.compare` of every head of a model with every other, layer by layer.

    How the texts are cut into batches changes nothing. Raises ValueError for texts of more than 512 tokens, whose
    maps are never made as a whole, for a model whose heads together write more than 16,384 numbers, or whose output
    projections are not found, or of two parts, and for no texts.
    """
    if has_two_parts(layers.model):
        name = type(layers.model).__name__
        raise ValueError(f"model: {name} has an encoder and a decoder; heads are compared in models of one part")

    def work(model: PreTrainedModel, texts: TextBatch) -> Similarity:
        return compare_batch([calls_of(model, texts)], texts)

    pieces = (some for batch in batches for _, some in alike(checked(batch), size, TOKENS, WASTE))
    parts = side_by_side(layers.model, work, pieces)
    first = next(parts, None)
    if first is None:
        raise ValueError("batches: there are no texts to compare heads on")
    return reduce(add, parts, first)


def checked(batch: TextBatch) -> TextBatch:
    T = batch.tokens.shape[1]
    if T > LONGEST_WHOLE:
        raise ValueError(f"text: has one of {T} tokens; heads are compared on texts of at most {LONGEST_WHOLE}")
    return batch


@torch.no_grad()
def calls_of(model: PreTrainedModel, texts: TextBatch) -> list[AttentionCall]:
    texts = texts.each(lambda t: t.to(model.device))
    calls: list[AttentionCall] = []
    with observe(model, calls.append):
        model(**inputs_of(model, texts))
    width = sum(call.output.shape[1] * call.output.shape[-1] for call in calls)
    if width > WIDEST:
        raise ValueError(f"model: its heads write {width:,} numbers together; of at most {WIDEST:,} they are compared")
    return calls
