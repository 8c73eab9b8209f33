"""Texts from a file to a batch: every ending, special tokens known, what is cut counted, faults named."""

import json

import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch

from attnkit.text import Texts, encode_texts, read_texts
from tests.texts import CAT, CLS, MAT, PAD, SAT, SEP, THE, UNK, build_tokenizer

TEXTS = ["the cat sat", "cat", 'the "mat", sat']


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
    assert [text.text for text in read_texts(write(tmp_path, ending))] == TEXTS


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_on_the_right_and_special_tokens_are_known(side):
    batch, truncated = encode_texts(build_tokenizer(side=side), TEXTS[:2], 7)

    assert batch.tokens.tolist() == [[CLS, THE, CAT, SAT, SEP], [CLS, CAT, SEP, PAD, PAD]]
    assert batch.mask.int().tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.special.int().tolist() == [[1, 0, 0, 0, 1], [1, 0, 1, 0, 0]]
    assert truncated == 0


def test_a_tokenizer_without_padding_or_special_tokens_is_none_the_worse():
    batch, _ = encode_texts(build_tokenizer(special=False, pad_token=None), TEXTS[:2], 7)

    assert batch.mask.sum(dim=1).tolist() == [3, 1]
    assert not batch.special.any()


def test_long_texts_are_cut_between_their_special_tokens_and_counted(tmp_path):
    texts = Texts(write(tmp_path, ".txt"), build_tokenizer(), 4)

    next(texts.batches(2))  # a pass that does not go to the end says nothing of the texts
    assert texts.seen.count == 0
    for _ in range(2):  # a second pass counts anew
        batches = list(texts.batches(2))
        assert (texts.seen.count, texts.seen.truncated) == (3, 2)
    assert batches[0].tokens.tolist() == [[CLS, THE, CAT, SEP], [CLS, CAT, SEP, PAD]]
    assert batches[1].tokens.tolist() == [[CLS, THE, UNK, SEP]]
    assert batches[1].mask is None


def test_a_batch_keeps_what_is_special_when_it_is_cut_or_moved():
    batch, _ = encode_texts(build_tokenizer(), TEXTS, 7)

    assert torch.equal(batch[1:].special, batch.special[1:])


def table_of(folder, **columns):
    path = folder / "texts.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_a_long_text_gives_windows_that_overlap_and_none_is_cut(tmp_path):
    """Two words fit between [CLS] and [SEP]; with one shared, a text of four words needs three windows."""
    path = table_of(tmp_path, text=["the cat sat mat", "cat"], label=["a", "b"])
    texts = Texts(path, build_tokenizer(), 4, overlap=1)

    (batch,) = texts.batches(5)

    assert batch.tokens.tolist() == [
        [CLS, THE, CAT, SEP],
        [CLS, CAT, SAT, SEP],
        [CLS, SAT, MAT, SEP],
        [CLS, CAT, SEP, PAD],
    ]
    assert batch.labels.tolist() == [0, 0, 0, 1]
    assert (texts.seen.count, texts.seen.sequences, texts.seen.truncated, texts.seen.length) == (2, 4, 0, 4)


def test_a_pair_is_one_sequence_whose_parts_are_known(tmp_path):
    (batch,) = Texts(table_of(tmp_path, text=["the cat"], pair=["sat"]), build_tokenizer(), 9).batches(5)

    assert batch.tokens.tolist() == [[CLS, THE, CAT, SEP, SAT, SEP]]
    assert batch.segments.tolist() == [[0, 0, 0, 0, 1, 1]]
    assert batch.special.int().tolist() == [[1, 0, 0, 1, 0, 1]]


@pytest.mark.parametrize("pair", [True, False])
def test_a_decoder_reads_the_pair_or_else_the_text_itself_a_token_late(tmp_path, pair):
    columns = {"text": ["the cat", "mat"]} | ({"pair": ["sat", "the mat sat"]} if pair else {})

    (batch,) = Texts(table_of(tmp_path, **columns), build_tokenizer(), 9, start=UNK).batches(5)

    assert batch.tokens.tolist() == [[CLS, THE, CAT, SEP], [CLS, MAT, SEP, PAD]]
    wanted = (
        [[UNK, CLS, SAT, PAD, PAD], [UNK, CLS, THE, MAT, SAT]] if pair else [[UNK, CLS, THE, CAT], [UNK, CLS, MAT, PAD]]
    )
    assert batch.decoder.tokens.tolist() == wanted
    assert batch.decoder.special[:, :3].int().tolist() == [[1, 1, 0], [1, 1, 0]]
    assert torch.equal(batch[1:].decoder.tokens, batch.decoder.tokens[1:])


def test_labels_are_those_of_the_file_in_their_order_or_those_of_the_model(tmp_path):
    path = table_of(tmp_path, text=["cat", "mat", "sat"], label=["good", "bad", "good"])

    (own,) = (texts := Texts(path, build_tokenizer(), 9)).batches(5)
    (known,) = Texts(path, build_tokenizer(), 9, classes=["bad", "fair", "good"]).batches(5)

    assert (own.labels.tolist(), texts.labels) == ([0, 1, 0], ["good", "bad"])
    assert known.labels.tolist() == [2, 0, 2]


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        (
            {"text": ["cat"], "label": ["odd"]},
            {"classes": ["a", "b"]},
            "row 1: label: got 'odd', allowed is one of 'a', 'b'",
        ),
        (
            {"text": ["cat"] * 17, "label": range(17)},
            {},
            "row 17: label: '16' is one too many, allowed are 16 different",
        ),
        (
            {"text": ["cat"], "pair": ["mat"]},
            {"overlap": 0},
            "row 1: pair: two texts that are read as one cannot be cut",
        ),
    ],
)
def test_labels_and_pairs_that_do_not_fit_are_named(tmp_path, columns, more, message):
    with pytest.raises(ValueError, match=message):
        list(Texts(table_of(tmp_path, **columns), build_tokenizer(), 9, **more).batches(5))


def test_either_all_rows_have_a_label_or_none(tmp_path):
    (path := tmp_path / "a.jsonl").write_text('{"text": "cat", "label": 1}\n{"text": "mat"}\n')

    with pytest.raises(ValueError, match="row 2: label: has none, unlike the first row"):
        list(Texts(path, build_tokenizer(), 9).batches(5))


@pytest.mark.parametrize("overlap", [-1, 3])
def test_windows_that_would_not_move_on_are_refused(tmp_path, overlap):
    """Of five tokens two are special: windows of three words move on if they share at most two."""
    with pytest.raises(ValueError, match=f"overlap: got {overlap}, allowed is a whole number from 0 to 2"):
        Texts(write(tmp_path, ".txt"), build_tokenizer(), 5, overlap=overlap)


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
        list(Texts(path, build_tokenizer(special=False), 7).batches(5))


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"caf\xe9\n")

    with pytest.raises(ValueError, match="is not UTF-8 text"):
        list(read_texts(path))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"text: there is no file .*nowhere\.txt"):
        Texts(tmp_path / "nowhere.txt", build_tokenizer(), 7)


def test_no_text_fits_between_the_special_tokens_of_too_short_a_limit(tmp_path):
    with pytest.raises(ValueError, match="longest: got 2, allowed is a whole number of at least 3"):
        Texts(write(tmp_path, ".txt"), build_tokenizer(), 2)
