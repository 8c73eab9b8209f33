"""What the page shows is what the model says, and a mistake gets a sentence."""

import base64
import csv
import io
import os
import xml.etree.ElementTree as ET

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attnkit import load_checkpoint
from attnkit.checkpoint import TaskInfo
from attnkit.data import DataConfig
from demo import views
from tests.serving import ARTICLE, COLOURS, ODD, ODD_TASK, TORN, fill, write


@pytest.fixture(autouse=True)
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(views, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def model_says(checkpoints, name, ids):
    logits, attentions = load_checkpoint(checkpoints / name)(torch.tensor([ids]))
    return logits[0].softmax(0).detach().numpy(), torch.stack(attentions)[:, 0].detach().numpy()


# ---------------------------------------------------------------- one sequence


def test_a_reading_is_what_the_model_says(checkpoints):
    reading = views.read(COLOURS, "a<&a<")
    probabilities, weights = model_says(checkpoints, COLOURS, [0, 1, 2, 0, 1])

    assert reading.probabilities == pytest.approx(probabilities.tolist())
    assert reading.weights.shape == (2, 3, 5, 5)
    assert np.array_equal(reading.weights, weights)


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [("01" * 8, "not majority"), ("01" * 7 + "11", "majority"), ("01" * 7 + "00", "not majority"), ("1", "majority")],
)
def test_the_rule_answers_beside_the_model_and_a_tie_is_no_majority(checkpoints, sequence, expected):
    verdict = views.verdict(views.read("majority", sequence))
    probabilities, _ = model_says(checkpoints, "majority", [int(bit) for bit in sequence])

    assert verdict["expected"] == expected
    assert verdict["counts"] == {"0": sequence.count("0"), "1": sequence.count("1")}
    assert verdict["prediction"] == ("not majority", "majority")[probabilities.argmax()]
    assert list(verdict["probabilities"].values()) == pytest.approx(probabilities.tolist())


def test_nothing_is_expected_where_the_rule_is_not_known():
    assert views.verdict(views.read(COLOURS, "a<"))["expected"] is None


def test_a_known_name_over_another_alphabet_is_not_the_known_task(checkpoints):
    """Else the majority rule would count token ids of letters."""
    write(checkpoints / "letters", ARTICLE, TaskInfo(vocab=["a", "b"]), DataConfig(), seed=2)

    assert views.verdict(views.read("letters", "ab"))["expected"] is None


def test_packed_weights_unpack_to_the_models_in_the_order_layer_head_query_key():
    reading = views.read(COLOURS, "a<&a<")
    packed = views.packed(reading, shared_scale=True, selected=(1, 2))
    weights = np.frombuffer(base64.b64decode(packed["weights"]), "<u2").reshape(2, 3, 5, 5) / 65535

    assert np.abs(weights - reading.weights).max() < 1e-5
    assert {key: packed[key] for key in packed if key != "weights"} == {
        "layers": 2,
        "heads": 3,
        "tokens": ["a", "<", "&", "a", "<"],
        "shared": True,
        "selected": [1, 2],
    }


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("", "the sequence is empty"),
        ("0120", "character '2' at position 3"),
        ("01 0", "character ' ' at position 3"),
        ("０", "character '０' at position 1"),
        ("1" * 17, "17 tokens; this checkpoint takes at most 16"),
        ("1" * 1000, "1000 tokens; this checkpoint takes at most 16"),
        ("<img src=x onerror=alert(1)>", "character '<' at position 1"),
        (["1"], "sequence: got list, allowed is text"),
        (None, "sequence: got NoneType, allowed is text"),
    ],
)
def test_a_sequence_that_cannot_be_read_is_told_so(sequence, sentence):
    with pytest.raises(ValueError, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        views.read("majority", sequence)

    assert sentence in views.complaint("majority", sequence)


def test_a_good_sequence_gets_no_complaint():
    assert views.complaint("majority", "1" * 16) == ""


# ---------------------------------------------------------------- checkpoints


def test_the_shelf_has_what_opens_and_names_what_does_not(checkpoints, tmp_path):
    (checkpoints / ".unfinished").mkdir()
    (checkpoints / "empty").mkdir()
    (checkpoints / "notes.txt").write_text("no folder, no checkpoint")
    names, broken = views.shelf()

    assert names == ["majority", COLOURS]
    assert sorted(broken) == [TORN, "empty"]
    assert "config.json: is not JSON" in broken[TORN]
    assert not any(str(tmp_path) in reason for reason in broken.values())


def test_an_empty_shelf_and_none_at_all_are_no_error(checkpoints, monkeypatch, tmp_path):
    (tmp_path / "bare").mkdir()
    for folder in (tmp_path / "bare", tmp_path / "absent"):
        monkeypatch.setattr(views, "CHECKPOINTS", folder)

        assert views.shelf() == ([], {})
        with pytest.raises(ValueError, match="`make train` makes one"):
            views.open_checkpoint("majority")


@pytest.mark.parametrize("name", ["../outside", "/etc", "", ".", "..", "majority/../majority", "majority/", None, 7])
def test_nothing_outside_the_shelf_opens(checkpoints, name, tmp_path):
    write(tmp_path / "outside", ODD, ODD_TASK, DataConfig(), seed=3)

    with pytest.raises(ValueError, match=r"^checkpoint: got .*, allowed is <b>torn or <i>colours or majority$"):
        views.open_checkpoint(name)


def test_weights_that_carry_code_stay_closed(checkpoints, tmp_path):
    """A model.safetensors that is really a pickle, and a .pt, which is not looked at in a folder."""

    class Marker:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "marker"),)

    write(checkpoints / "trap", ODD, ODD_TASK, DataConfig(), seed=4)
    torch.save({"x": Marker()}, checkpoints / "trap" / "model.safetensors")
    torch.save({"x": Marker()}, checkpoints / "trap" / "model.pt")

    assert "trap" in views.shelf()[1]
    assert not (tmp_path / "marker").exists()


def test_a_checkpoint_that_was_trained_again_is_read_again(checkpoints):
    before = views.read("majority", "0110").weights
    write(checkpoints / "majority", ARTICLE, TaskInfo(), DataConfig(), seed=5)

    assert not np.array_equal(before, views.read("majority", "0110").weights)


# ---------------------------------------------------------------- sequences to start from


def test_examples_stand_on_the_edge_of_the_rule():
    ones = {kind: sequence.count("1") for kind, sequence in views.near_ties("majority").items()}

    assert ones == {"tie": 8, "sorted": 8, "more": 9, "fewer": 7, "all": 16}
    assert {len(sequence) for sequence in views.near_ties("majority").values()} == {16}


def test_an_odd_length_has_no_tie(checkpoints):
    write(checkpoints / "seven", ARTICLE, TaskInfo(), DataConfig(length=7), seed=6)
    ones = {kind: sequence.count("1") for kind, sequence in views.near_ties("seven").items()}

    assert ones == {"more": 4, "fewer": 3, "all": 7}


def test_another_task_has_no_near_ties():
    assert views.near_ties(COLOURS) == {}


@given(st.integers(1, 60).flatmap(lambda length: st.tuples(st.integers(0, length), st.just(length))))
def test_spread_has_the_ones_asked_for_and_no_gap_longer_than_need_be(case):
    ones, length = case
    bits = views.spread(ones, length)

    assert (len(bits), bits.count("1")) == (length, ones)
    inner = bits.strip("0").split("1")[1:-1]
    assert not inner or max(map(len, inner)) - min(map(len, inner)) <= 1


def test_a_random_sequence_is_one_of_the_task_and_not_always_the_same():
    drawn = {views.random_sequence(COLOURS) for _ in range(40)}

    assert all(len(sequence) == 5 and set(sequence) <= set("a<&") for sequence in drawn)
    assert len(drawn) > 20  # of 243: forty draws with fewer than 21 different ones do not happen


# ---------------------------------------------------------------- figures and files


def test_the_large_figure_has_queries_down_and_keys_across():
    reading = views.read(COLOURS, "a<&a<")
    figure = views.head_figure(reading, 1, 2, shared_scale=True)
    ax = figure.axes[0]
    image = ax.images[0]

    assert np.allclose(image.get_array(), reading.weights[1, 2])
    assert image.origin == "upper"  # the first query is at the top
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("layer 1, head 2", "key", "query")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "<", "&", "a", "<"]


def test_the_scale_is_common_to_all_heads_or_the_heads_own():
    reading = views.read(COLOURS, "a<&a<")
    strongest = reading.weights.max(axis=(2, 3))
    layer, head = np.unravel_index(strongest.argmin(), strongest.shape)
    shared, own = (views.head_figure(reading, layer, head, shared_scale=s).axes[0].images[0] for s in (True, False))

    assert strongest[layer, head] < strongest.max()
    assert shared.get_clim() == pytest.approx((0, strongest.max()))
    assert own.get_clim() == pytest.approx((0, strongest[layer, head]))


def test_a_short_sequence_has_a_small_picture():
    """No padding is drawn or attended to: 3 tokens, 3 rows and columns."""
    figure = views.grid_figure(views.read("majority", "011"), shared_scale=True)

    shown = [ax.images[0].get_array().shape for ax in figure.axes if ax.images]
    assert shown.count((3, 3)) == 8


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (0, 3), (-1, 0), (0, None), ("0", 0)])
def test_a_head_that_is_not_there_is_refused(layer, head):
    with pytest.raises(ValueError, match="allowed is layer 0 to 1, head 0 to 2"):
        views.head_figure(views.read(COLOURS, "a"), layer, head, shared_scale=True)


def test_the_csv_has_every_weight_to_the_last_bit():
    reading = views.read(COLOURS, "a<&a<")
    rows = list(csv.DictReader(io.StringIO(views.weights_csv(reading))))

    assert len(rows) == 2 * 3 * 5 * 5
    for row in rows:
        layer, head, query, key = (int(row[axis]) for axis in ("layer", "head", "query", "key"))
        assert np.float32(row["weight"]) == reading.weights[layer, head, query, key]
        assert (row["query_token"], row["key_token"]) == (reading.sequence[query], reading.sequence[key])


def test_the_csv_of_bits_keeps_its_tokens_as_text():
    frame = pd.read_csv(io.StringIO(views.weights_csv(views.read("majority", "011"))), dtype={"key_token": str})

    assert frame["key_token"].tolist()[:3] == ["0", "1", "1"]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_downloaded_figure_opens_as_what_its_name_says(ending):
    figure = views.grid_figure(views.read(COLOURS, "a<&"), shared_scale=False)
    file = views.download(f"attention.{ending}", figure)
    content = base64.b64decode(file["data"])

    if ending == "png":
        image = Image.open(io.BytesIO(content))
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 24)) > 20  # not one flat colour
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)  # readable on a dark page, too
    else:
        assert ET.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    assert (file["name"], file["type"]) == (f"attention.{ending}", {"png": "image/png", "svg": "image/svg+xml"}[ending])


def test_no_figure_is_left_open():
    for _ in range(25):
        views.head_figure(views.read("majority", "0110"), 0, 0, shared_scale=True)
        with pytest.raises(ValueError, match="allowed is"):
            views.head_figure(views.read("majority", "0110"), 9, 0, shared_scale=True)

    assert matplotlib.pyplot.get_fignums() == []
