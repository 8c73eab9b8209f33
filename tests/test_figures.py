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

from demo import figures, shelf, views
from tests.serving import COLOURS, fill


@pytest.fixture(autouse=True)
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def test_the_large_figure_has_queries_down_and_keys_across():
    reading = views.read(COLOURS, "a<&a<")
    figure = figures.head_figure(reading, 1, 2, shared_scale=True)
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
    shared, own = (figures.head_figure(reading, layer, head, shared_scale=s).axes[0].images[0] for s in (True, False))

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
        figures.head_figure(views.read(COLOURS, "a"), layer, head, shared_scale=True)


def test_the_csv_has_every_weight_to_the_last_bit():
    reading = views.read(COLOURS, "a<&a<")
    rows = list(csv.DictReader(io.StringIO(figures.weights_csv(reading))))

    assert len(rows) == 2 * 3 * 5 * 5
    for row in rows:
        layer, head, query, key = (int(row[axis]) for axis in ("layer", "head", "query", "key"))
        assert np.float32(row["weight"]) == reading.weights[layer, head, query, key]
        assert (row["query_token"], row["key_token"]) == (reading.sequence[query], reading.sequence[key])


def test_the_csv_of_bits_keeps_its_tokens_as_text():
    frame = pd.read_csv(io.StringIO(figures.weights_csv(views.read("majority", "011"))), dtype={"key_token": str})

    assert frame["key_token"].tolist()[:3] == ["0", "1", "1"]


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_downloaded_figure_opens_as_what_its_name_says(ending):
    figure = figures.grid_figure(views.read(COLOURS, "a<&"), shared_scale=False)
    file = figures.download(f"attention.{ending}", figure)
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
        figures.head_figure(views.read("majority", "0110"), 0, 0, shared_scale=True)
        with pytest.raises(ValueError, match="allowed is"):
            figures.head_figure(views.read("majority", "0110"), 9, 0, shared_scale=True)

    assert matplotlib.pyplot.get_fignums() == []
