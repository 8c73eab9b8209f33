"""What a person takes away opens as what it says and holds what was shown."""

import base64
import csv
import io
import xml.etree.ElementTree as ET

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnkit.heatmaps import attention_map
from attnkit.reference import Reference
from demo import figures, shelf, views
from tests.serving import COLOURS, add_reference, fill, write_spaced

TIED = "0101010101010101"


@pytest.fixture(autouse=True)
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def test_the_large_figure_has_queries_down_and_keys_across():
    reading = views.read(COLOURS, "a<&a<")
    figure = figures.head_figure(reading, [1, 2], shared_scale=True)
    ax = figure.axes[0]
    image = ax.images[0]

    assert np.allclose(image.get_array(), reading.weights[1, 2])
    assert image.origin == "upper"  # the first query is at the top
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("layer 1, head 2", "key", "query")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "<", "&", "a", "<"]


def test_the_scale_is_common_to_all_heads_or_the_heads_own():
    reading = views.read(COLOURS, "a<&a<")
    strongest = reading.weights.max(axis=(2, 3))
    layer, head = map(int, np.unravel_index(strongest.argmin(), strongest.shape))
    shared, own = (figures.head_figure(reading, [layer, head], shared_scale=s).axes[0].images[0] for s in (True, False))

    assert strongest[layer, head] < strongest.max()
    assert shared.get_clim() == pytest.approx((0, strongest.max()))
    assert own.get_clim() == pytest.approx((0, strongest[layer, head]))


def test_a_short_sequence_has_a_small_picture():
    """No padding is drawn or attended to: 3 tokens, 3 rows and columns."""
    figure = figures.grid_figure(views.read("majority", "011"), shared_scale=True)

    shown = [ax.images[0].get_array().shape for ax in figure.axes if ax.images]
    assert shown.count((3, 3)) == 8


@pytest.mark.parametrize(("layer", "head"), [(2, 0), (0, 3), (-1, 0), (0, None), ("0", 0)])
def test_a_head_that_is_not_there_is_refused(layer, head):
    with pytest.raises(ValueError, match="allowed is layer 0 to 1, head 0 to 2"):
        figures.head_figure(views.read(COLOURS, "a"), [layer, head], shared_scale=True)


def test_the_csv_has_every_weight_to_the_last_bit():
    reading = views.read(COLOURS, "a<&a<")
    rows = list(csv.DictReader(io.StringIO(figures.weights_csv(reading).decode())))

    assert len(rows) == 2 * 3 * 5 * 5
    for row in rows:
        layer, head, query, key = (int(row[axis]) for axis in ("layer", "head", "query", "key"))
        assert np.float32(row["weight"]) == reading.weights[layer, head, query, key]
        assert (row["query_token"], row["key_token"]) == (reading.sequence[query], reading.sequence[key])


def test_the_csv_of_bits_keeps_its_tokens_as_text():
    frame = pd.read_csv(io.BytesIO(figures.weights_csv(views.read("majority", "011"))), dtype={"key_token": str})

    assert frame["key_token"].tolist()[:3] == ["0", "1", "1"]


def test_tokens_of_several_characters_are_labels_of_their_own(checkpoints):
    write_spaced(checkpoints / "spaced")
    reading, tokens = views.read("spaced", "red  redder blue red"), ["red", "redder", "blue", "red"]
    heat_map, arcs = (figures.head_figure(reading, [1, 2], arcs=a, shared_scale=True).axes[0] for a in (False, True))
    frame = pd.read_csv(io.BytesIO(figures.weights_csv(reading)))

    assert [label.get_text() for label in heat_map.get_yticklabels()] == tokens
    assert sorted(text.get_text() for text in arcs.texts) == sorted(2 * tokens)  # on either side
    assert frame["key_token"].tolist()[:4] == tokens


def test_the_npz_has_the_whole_reading_and_opens_without_running_code():
    reading = views.read(COLOURS, "a<&a<", [[1, 2]])
    arrays = np.load(io.BytesIO(figures.weights_npz(reading)), allow_pickle=False)

    assert np.array_equal(arrays["weights"], reading.weights)
    assert arrays["value_norms"].shape == (2, 3, 5)
    assert arrays["logits"].tolist() == reading.logits.tolist()
    assert "".join(arrays["tokens"]) == reading.sequence
    assert arrays["off"].tolist() == [[1, 2]]
    assert str(arrays["checkpoint"]) == COLOURS


# ---------------------------------------------------------------- what is shown is what is drawn


def drawn(figure):
    return [np.asarray(ax.images[0].get_array()) for ax in figure.axes if ax.images and ax.get_label() != "<colorbar>"]


def test_a_figure_shows_the_quantity_that_the_page_shows(checkpoints):
    add_reference(checkpoints / "majority")
    mean = Reference.load(checkpoints / "majority").mean_attention
    reading, other = views.read("majority", TIED), views.read("majority", TIED[::-1])
    expected = {
        "weights": reading.weights[1, 3],
        "norms": reading.weights[1, 3] * reading.value_norms[1, 3],
        "difference": reading.weights[1, 3] - mean[1, 3],
    }
    for quantity, values in expected.items():
        (image,) = drawn(figures.head_figure(reading, [1, 3], quantity=quantity, shared_scale=False))
        assert np.allclose(image, values), quantity
    images = drawn(figures.grid_figure(reading, quantity="beside", beside=other, shared_scale=True))
    assert np.allclose(images[7], reading.weights[1, 3] - other.weights[1, 3])


def test_two_readings_stand_side_by_side_on_one_scale_with_their_difference():
    one, two = views.read("majority", TIED), views.read("majority", TIED, [[0, 0]])
    figure = figures.head_figure(two, [1, 2], quantity="beside", beside=one, shared_scale=False)
    before, after, change = drawn(figure)
    scales = [ax.images[0].get_clim() for ax in figure.axes if ax.images]

    assert np.allclose(before, one.weights[1, 2])
    assert np.allclose(after, two.weights[1, 2])
    assert np.allclose(change, two.weights[1, 2] - one.weights[1, 2])
    assert scales[0] == scales[1]
    assert scales[2][0] == -scales[2][1]


def test_readings_of_two_lengths_have_no_difference():
    one, two = views.read("majority", "0110"), views.read("majority", "011")

    assert len(drawn(figures.head_figure(two, [1, 2], beside=one, shared_scale=True))) == 2
    with pytest.raises(ValueError, match="quantity: got 'beside', which is none, or not known for this sequence"):
        figures.grid_figure(two, quantity="beside", beside=one, shared_scale=True)


@pytest.mark.parametrize("quantity", ["difference", "beside", "<b>", None])
def test_a_quantity_that_is_not_there_is_refused(quantity):
    with pytest.raises(ValueError, match=r"^quantity: got "):
        figures.grid_figure(views.read("majority", "011"), quantity=quantity, shared_scale=True)


def test_nothing_has_changed_is_white_and_no_error():
    reading = views.read("majority", "0110")
    file = figures.file(reading, "png", None, quantity="beside", beside=reading, shared_scale=True)

    assert Image.open(io.BytesIO(base64.b64decode(file["data"]))).format == "PNG"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("arcs", [False, True])
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
@pytest.mark.parametrize("head", [None, [1, 2]])
def test_a_downloaded_figure_opens_as_what_its_name_says_and_is_the_same_each_time(ending, head, arcs):
    file, again = (
        figures.file(views.read(COLOURS, "a<&"), ending, head, shared_scale=False, arcs=arcs) for _ in range(2)
    )
    content = base64.b64decode(file["data"])

    if ending == "png":
        image = Image.open(io.BytesIO(content))
        assert image.format == "PNG"
        assert len(image.convert("RGB").getcolors(1 << 24)) > 20  # not one flat colour
        assert image.convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)  # readable on a dark page, too
    elif ending == "svg":
        assert ET.fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"
    else:
        assert content.startswith(b"%PDF-")
        assert content.rstrip().endswith(b"%%EOF")
    assert file["name"] == ("attention" if head is None else "attention-layer1-head2") + f".{ending}"
    assert file["type"] == {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}[ending]
    assert file == again


def test_an_ending_that_is_none_is_refused():
    with pytest.raises(ValueError, match="file: got 'exe', allowed is png, svg, pdf, csv, npz"):
        figures.file(views.read(COLOURS, "a<&"), "exe", None, shared_scale=False)


def test_no_figure_is_left_open():
    for _ in range(25):
        figures.head_figure(views.read("majority", "0110"), [0, 0], shared_scale=True)
        with pytest.raises(ValueError, match="allowed is"):
            figures.head_figure(views.read("majority", "0110"), [9, 0], shared_scale=True)

    assert matplotlib.pyplot.get_fignums() == []


# ---------------------------------------------------------------- in another language


def written(figure):
    """Titles and the labels of axes."""
    found = [*figure.texts, *(t for ax in figure.axes for t in (ax.title, ax.xaxis.label, ax.yaxis.label))]
    return {line for text in found for line in text.get_text().split("\n") if line}


@pytest.fixture
def chinese():
    if not figures.chinese_font():
        pytest.skip("no Chinese font on this machine")


def test_a_chinese_page_saves_figures_that_are_labelled_in_chinese(chinese, checkpoints):
    """Every label, of every quantity, of one head and of all; names and tokens stay."""
    add_reference(checkpoints / "majority")
    one, other = views.read("majority", TIED), views.read("majority", TIED, [[0, 1]])
    drawn = [figures.grid_figure(one, quantity=q, shared_scale=True) for q in ("weights", "norms", "difference")]
    drawn += [
        figures.head_figure(one, [1, 2], quantity=q, beside=other, shared_scale=True) for q in ("norms", "beside")
    ]
    drawn += [figures.grid_figure(one, quantity="beside", beside=other, shared_scale=True)]
    drawn += [figures.head_figure(one, [1, 2], arcs=True, shared_scale=True)]
    labels = set().union(*(written(figures.speak(figure, "zh")) for figure in drawn))

    assert labels >= {"查询", "键", "注意力权重", "第 1 层，头 2", f"第 1 层，头 2：{TIED}, majority，去掉 0.1"}
    for label in labels:
        left = label.replace(f"{TIED}, majority", "")
        assert not any("a" <= letter.lower() <= "z" for letter in left), label


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_figure_in_chinese_is_drawn_without_a_missing_letter(chinese, ending):
    """A letter without a glyph would be a warning, and so an error."""
    reading = views.read("majority", TIED)
    given = {"quantity": "weights", "shared_scale": True}
    in_english, in_chinese = (figures.file(reading, ending, [0, 1], language=l, **given) for l in ("en", "zh"))

    assert in_chinese["data"] != in_english["data"]


def test_a_token_that_is_called_as_a_label_stays_a_token(chinese):
    ax = attention_map(np.eye(3), ["query", "b", "key"], title="layer 0, head 0")
    figures.speak(ax.figure, "zh")

    assert [label.get_text() for label in ax.get_yticklabels()] == ["query", "b", "key"]
    assert (ax.get_title(), ax.get_ylabel()) == ("第 0 层，头 0", "查询")


def test_without_a_chinese_font_figures_stay_english(monkeypatch):
    monkeypatch.setattr(figures, "chinese_font", lambda: None)
    figure = figures.speak(figures.head_figure(views.read("majority", TIED), [1, 2], shared_scale=True), "zh")

    assert written(figure) == {"layer 1, head 2", "query", "key", "attention weight"}
