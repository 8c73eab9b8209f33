"""Texts for small transformers models: a tokenizer of eight words, random batches, and models for a purpose."""

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from copy import deepcopy

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

from attnkit.text import TextBatch
from tests.models import CONFIGS, VOCAB, build

WORDS = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "sat", "mat"])}
PAD, CLS, SEP, UNK, THE, CAT, SAT, MAT = range(8)
TEXTS = ["the cat sat", "cat", "the mat", "mat the cat sat", "sat sat", "cat the mat sat the", "mat"]
SENTENCES = [
    "The cat sat on the mat.",
    "Attention heads look at the previous word, or at the next one.",
    "To be or not to be.",
    "Rain fell all night, and in the morning the river had risen.",
    "Nobody knew where the old road went.",
]
CLASSES = 5
LENGTHS = (7, 3, 5, 1, 4, 6, 3)
AUTO = {
    "classifier": AutoModelForSequenceClassification,
    "language": AutoModelForCausalLM,
    "writer": AutoModelForSeq2SeqLM,  # of one text from another
}


def build_tokenizer(*, special=True, pad_token="[PAD]", side="left"):
    """A tokenizer of words; with `special`, [CLS] stands before a text and [SEP] after it."""
    core = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        core.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", pad_token=pad_token)
    tokenizer.padding_side = side
    return tokenizer


def texts(lengths=LENGTHS, labels=False):
    """Random tokens, padded on the right; with `labels`, a class for each text."""
    g = torch.Generator().manual_seed(5)
    T = max(lengths)
    tokens = torch.randint(3, VOCAB, (len(lengths), T), generator=g)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    which = torch.randint(0, CLASSES, (len(lengths),), generator=g) if labels else None
    return TextBatch(tokens * mask, mask, which)


def cut(batch, size):
    return lambda: batch.split(size)


def with_head(kind, name="bert"):
    """A random model for a purpose, with the weights of `build` and float64, so that what is equal is so to 1e-9."""
    config = deepcopy(CONFIGS[name])
    config.pad_token_id = 0
    config.num_labels = CLASSES
    config.decoder_start_token_id = CLS
    torch.manual_seed(3)
    model = AUTO[kind].from_config(config, attn_implementation="eager").double().eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.5)
    return model


def saved(folder, kind):
    """A random model and a tokenizer of words, as a folder."""
    config = deepcopy(CONFIGS["gpt2" if kind == "language" else "bert"])
    config.pad_token_id = 0
    config.id2label = {0: "no", 1: "yes"}
    torch.manual_seed(3)
    if kind == "embedding":
        model = build("bert")
    else:
        model = AUTO[kind].from_config(config)
        for parameter in model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    build_tokenizer(special=kind != "language").save_pretrained(folder)
    return folder
