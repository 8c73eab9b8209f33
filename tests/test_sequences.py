"""Files of one's own: nothing is lost, nothing guessed, and what is wrong is named with its row."""

import json

import pandas as pd
import pytest
import torch

from attnkit.sequences import file_dataset

BITS, CLASSES = ("0", "1"), ("no", "yes")
ROWS = [("0011", "yes"), ("0", "no"), ("101", "1")]  # a class by its number will do


def write(folder, ending, rows, columns=("sequence", "label")):
    path = folder / f"data{ending}"
    frame = pd.DataFrame(rows, columns=list(columns), dtype=object)
    if ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_parquet(path)
    return path


def everything(path, vocab=BITS, batch_size=512, max_len=5):
    batches = list(file_dataset(path, vocab, CLASSES, max_len).batches(batch_size))
    tokens = [
        row[m].tolist()
        for b in batches
        for row, m in zip(b.tokens, b.mask if b.mask is not None else b.tokens >= 0, strict=True)
    ]
    labels = [label for b in batches if b.labels is not None for label in b.labels.tolist()]
    return tokens, labels


@pytest.mark.parametrize("batch_size", [1, 2, 512])
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_digit_strings_keep_their_zeros_and_labels_their_rows(tmp_path, ending, batch_size):
    assert everything(write(tmp_path, ending, ROWS), batch_size=batch_size) == (
        [[0, 0, 1, 1], [0], [1, 0, 1]],
        [1, 0, 1],
    )


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_tokens_that_spell_missing_values_stay_tokens(tmp_path, ending):
    vocab = ("NA", "null", "None", "nan")
    path = write(tmp_path, ending, [("NA null",), ("None nan NA",), ("nan",)], ["sequence"])

    assert everything(path, vocab) == ([[0, 1], [2, 3, 0], [3]], [])


def test_one_length_needs_no_mask_and_mixed_lengths_have_one(tmp_path):
    (alike,) = file_dataset(write(tmp_path, ".csv", [("01", "no"), ("11", "no")]), BITS, CLASSES, 5).batches(9)
    assert alike.mask is None

    (mixed,) = file_dataset(write(tmp_path, ".csv", ROWS), BITS, CLASSES, 5).batches(9)
    assert torch.equal(mixed.mask.sum(dim=1), torch.tensor([4, 1, 3]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("01", "no"), ("0120", "no")],
            r"data.csv: row 2: character '2' at position 3 is not in the vocabulary \{0,1\}",
        ),
        ([("01", "no"), ("", "no")], r"data.csv: row 2: the sequence is empty; type 1 to 5 of the characters \{0,1\}"),
        ([("010101", "no")], "data.csv: row 1: 6 tokens; this checkpoint takes at most 5"),
        ([("01", "maybe")], "data.csv: row 1: label: got 'maybe', allowed is one of 'no', 'yes' or 0 to 1"),
        ([], "data.csv: has no rows"),
    ],
)
def test_a_bad_row_is_named_by_its_number(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        everything(write(tmp_path, ".csv", rows))


def test_the_row_number_counts_through_all_batches(tmp_path):
    with pytest.raises(ValueError, match="row 4: character 'x' at position 1"):
        everything(write(tmp_path, ".csv", [*ROWS, ("x", "no")]), batch_size=2)


def test_a_missing_label_is_named_and_never_made_up(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"sequence": "01", "label": 1}\n{"sequence": "01"}\n')

    with pytest.raises(ValueError, match="row 2: no label, where the rows before have one"):
        everything(path)


def test_a_number_is_refused_since_its_zeros_are_gone(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"sequence": 11}\n')

    with pytest.raises(ValueError, match="row 1: sequence: got int 11, allowed is text"):
        everything(path)


def test_files_that_are_something_else_are_refused_in_a_line(tmp_path):
    for ending, content, message in [
        (".txt", b"01", r"data: got 'data.txt', allowed are files that end in .csv, .jsonl, .parquet"),
        (".csv", b"seq\n01\n", "has no column 'sequence'; its columns are 'seq'"),
        (".csv", b"sequence\n\xff\xfe\n", "is not UTF-8 text"),
        (".csv", b'sequence\n"01', "unexpected end of data"),
        (".jsonl", b"{", "row 1: is not JSON"),
        (".jsonl", b"[1]", "row 1: got list, allowed is an object"),
        (".parquet", b"nonsense", "is not Parquet"),
    ]:
        path = tmp_path / f"data{ending}"
        path.write_bytes(content)

        with pytest.raises(ValueError, match=message) as error:
            everything(path)
        assert "\n" not in str(error.value)


def test_a_missing_file_is_named_with_its_whole_path(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"data: there is no file {tmp_path / 'none.csv'}"):
        file_dataset(tmp_path / "none.csv", BITS, CLASSES, 5)
