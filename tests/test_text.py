"""Texts from a file to a batch: every ending, special tokens known, what is cut counted, faults named."""

import json

import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from attnkit.text import Texts, encode_texts, read_texts

WORDS = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "sat", "mat"])}
PAD, CLS, SEP, UNK, THE, CAT, SAT, MAT = range(8)
TEXTS = ["the cat sat", "cat", 'the "mat", sat']


def build(*, special=True, pad_token="[PAD]", side="left"):
    """A tokenizer of words; with `special`, [CLS] stands before a text and [SEP] after it."""
    core = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    if special:
        core.post_processor = processors.BertProcessing(("[SEP]", SEP), ("[CLS]", CLS))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]", pad_token=pad_token)
    tokenizer.padding_side = side
    return tokenizer


def write(folder, ending):
    path = folder / f"texts{ending}"
    frame = pd.DataFrame({"text": TEXTS, "other": range(3)})
    if ending == ".txt":
        path.write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    elif ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".jsonl":
        path.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS), encoding="utf-8")
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", [".txt", ".csv", ".jsonl", ".parquet"])
def test_every_kind_of_file_gives_the_same_texts(tmp_path, ending):
    assert list(read_texts(write(tmp_path, ending))) == TEXTS


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_on_the_right_and_special_tokens_are_known(side):
    batch, truncated = encode_texts(build(side=side), TEXTS[:2], 7)

    assert batch.tokens.tolist() == [[CLS, THE, CAT, SAT, SEP], [CLS, CAT, SEP, PAD, PAD]]
    assert batch.mask.int().tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.special.int().tolist() == [[1, 0, 0, 0, 1], [1, 0, 1, 0, 0]]
    assert truncated == 0


def test_a_tokenizer_without_padding_or_special_tokens_is_none_the_worse():
    batch, _ = encode_texts(build(special=False, pad_token=None), TEXTS[:2], 7)

    assert batch.mask.sum(dim=1).tolist() == [3, 1]
    assert not batch.special.any()


def test_long_texts_are_cut_between_their_special_tokens_and_counted(tmp_path):
    texts = Texts(write(tmp_path, ".txt"), build(), 4)

    for _ in range(2):  # a second pass counts anew
        batches = list(texts.batches(2))
        assert (texts.count, texts.truncated) == (3, 2)
    assert batches[0].tokens.tolist() == [[CLS, THE, CAT, SEP], [CLS, CAT, SEP, PAD]]
    assert batches[1].tokens.tolist() == [[CLS, THE, UNK, SEP]]
    assert batches[1].mask is None


def test_a_batch_keeps_what_is_special_when_it_is_cut_or_moved():
    batch, _ = encode_texts(build(), TEXTS, 7)

    assert torch.equal(batch[1:].special, batch.special[1:])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.docx", "", r"text: got 'a.docx', allowed are files that end in \.txt, \.csv, \.jsonl, \.parquet"),
        ("a.txt", "\n \n", "has no texts"),
        ("a.csv", "words\nthe cat\n", "has no column 'text'; its columns are 'words'"),
        ("a.jsonl", '{"text": "cat"}\n{"text": 3}\n', "row 2: text: got int 3, allowed is text"),
        ("a.jsonl", '{"text": "cat"}\n{"txt": "sat"}\n', "row 2: text: got nothing, allowed is text"),
        ("a.jsonl", '{"text": "cat"}\n{"text": ""}\n', "row 2: text: the tokenizer makes no token of it"),
    ],
)
def test_a_fault_is_named_with_its_file_and_row(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")

    with pytest.raises(ValueError, match=message):
        list(Texts(path, build(special=False), 7).batches(5))


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9\n")

    with pytest.raises(ValueError, match="is not UTF-8 text"):
        list(read_texts(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"text: there is no file .*nowhere\.txt"):
        Texts(tmp_path / "nowhere.txt", build(), 7)


def test_no_text_fits_between_the_special_tokens_of_too_short_a_limit(tmp_path):
    with pytest.raises(ValueError, match="longest: got 2, allowed is a whole number of at least 3"):
        Texts(write(tmp_path, ".txt"), build(), 2)
