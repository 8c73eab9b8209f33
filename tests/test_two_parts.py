"""The page on a model of an encoder and a decoder: each kind of attention is held to its own eager maps."""

import asyncio
import base64
import csv
import io
from copy import deepcopy

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from transformers import AutoModel, BartForSequenceClassification

from attnkit import hfreading
from attnkit.pretrained import inputs_of
from demo import api, figures, packing, parts, sentences, served
from demo.words import Refusal
from tests.models import CONFIGS, TWO_PARTS, build, save_two_parts
from tests.texts import CAT, CLS, SEP, THE, build_tokenizer

KINDS = ("encoder", "decoder", "cross")
TEXT, SECOND = (
    "the cat sat the mat",
    "the cat",
)  # 7 tokens with [CLS] and [SEP]; 4: the start and three of [CLS] the cat [SEP]
ENCODER = ["[CLS]", "the", "cat", "sat", "the", "mat", "[SEP]"]
DECODER = {"bart": ["[SEP]", "[CLS]", "the", "cat"], "t5": ["[PAD]", "[CLS]", "the", "cat"]}


@pytest.fixture(scope="module", autouse=True)
def none_is_served_after():
    yield
    served.subject = None


@pytest.fixture(scope="module", params=TWO_PARTS)
def folder(request, tmp_path_factory):
    return save_two_parts(request.param, tmp_path_factory.mktemp(request.param), build_tokenizer(side="right"))


@pytest.fixture(scope="module")
def subject(folder):
    return served.serve(str(folder))


@pytest.fixture
def model(folder):
    """One of the test's own, which may be changed."""
    return AutoModel.from_pretrained(folder, attn_implementation="eager").eval().requires_grad_(False)


def read(subject, kind="encoder", off=()):
    return sentences.read(subject, TEXT, off, second=SECOND, kind=kind)


def embedding(model, reading):
    states = model(**inputs_of(model, reading.batch)).last_hidden_state[0].double()
    return torch.nn.functional.normalize(states.mean(dim=0), dim=0)


def silence(model, kind, layer, head):
    """Set the columns of a head's output projection to 0."""
    if model.config.model_type == "t5":
        block = (model.encoder if kind == "encoder" else model.decoder).block[layer]
        projection = block.layer[1].EncDecAttention.o if kind == "cross" else block.layer[0].SelfAttention.o
    else:
        block = (model.encoder if kind == "encoder" else model.decoder).layers[layer]
        projection = (block.encoder_attn if kind == "cross" else block.self_attn).out_proj
    d = projection.weight.shape[1] // 3
    projection.weight[:, head * d : (head + 1) * d] = 0


def test_what_the_page_draws_of_each_kind_is_the_models_own(subject, model):
    reading = read(subject)
    said = model(**inputs_of(model, reading.batch), output_attentions=True)
    own = {"encoder": said.encoder_attentions, "decoder": said.decoder_attentions, "cross": said.cross_attentions}
    sides = {"encoder": (ENCODER, ENCODER), "decoder": (DECODER[model.config.model_type],) * 2}
    sides["cross"] = (DECODER[model.config.model_type], ENCODER)

    for kind in KINDS:
        told = packing.packed(read(subject, kind))
        shape = told["layers"], told["heads"], len(told["tokens"]), len(told["keys"])
        weights = np.frombuffer(base64.b64decode(told["weights"]), "<u2").reshape(shape) / 65535

        assert (told["tokens"], told["keys"]) == sides[kind]
        assert shape[:2] == (2 if kind == "encoder" else 5, 3)
        assert np.abs(weights - torch.stack(own[kind])[:, 0].numpy()).max() < 2e-5  # 1e-5, and half a step of 1/65535
        assert np.array(told["norms"]).shape == (*shape[:2], shape[3])


def test_a_head_that_is_off_in_any_kind_is_a_model_without_its_columns_of_w_o(subject, model):
    as_it_is = embedding(model, read(subject))
    off = [["cross", 4, 2], ["encoder", 1, 0], ["decoder", 0, 1]]
    for head in off:
        silence(model, *head)

    for kind in KINDS:
        reading = read(subject, kind, off)

        assert reading.margin == pytest.approx(float(embedding(model, reading) @ as_it_is), abs=1e-5)
        assert reading.margin < 0.999
    assert packing.question(reading)["off"] == "encoder.1.0 decoder.0.1 cross.4.2"


def test_what_a_switch_would_do_is_what_it_does(subject):
    """Of heads that are on and off, in each kind, while one of another kind is off."""
    off = [["encoder", 1, 2], ["cross", 3, 0]]
    for kind in KINDS:
        reading = read(subject, kind, off)
        change, _ = sentences.effects(reading)
        for layer, head in ((1, 2), (0, 1), (3, 0))[: 2 if kind == "encoder" else 3]:
            name = [kind, layer, head]
            after = read(subject, kind, [one for one in off if one != name] + ([] if name in off else [name]))

            assert change[layer][head] == pytest.approx(after.margin - reading.margin, abs=1e-5)


def test_statistics_are_the_library_s_for_each_kind_and_across_none_is_of_places(subject):
    batch = read(subject).batch
    all_kinds = hfreading.read_batch(subject.model, batch, subject.measures)
    for kind in KINDS:
        found = sentences.statistics(read(subject, kind))["statistics"]
        readings = all_kinds[kind].readings
        wanted = readings.values.masked_fill(~readings.defined, torch.nan)[0].numpy()
        values = np.array([[[np.nan if x is None else x for x in row] for row in one["values"]] for one in found])

        assert values == pytest.approx(np.moveaxis(wanted, -1, 0), rel=1e-5, abs=1e-5, nan_ok=True)
    assert {one["name"] for one in found} >= {"entropy", "special_weight", "output_norm"}
    assert not {one["name"] for one in found} & {"previous_weight", "distance", "self_weight", "selectivity"}


def test_without_a_second_text_the_decoder_reads_what_it_begins_with(subject):
    alone = sentences.read(subject, TEXT, kind="cross")
    start = DECODER[subject.model.config.model_type][:2]  # then what the tokenizer puts before any text

    assert alone.pieces == start
    assert alone.weights.shape == (5, 3, 2, 7)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"kind": "self"}, "attention: got 'self', allowed is encoder, decoder, cross"),
        ({"kind": ["cross"]}, "attention: got ['cross'], allowed is encoder, decoder, cross"),
        (
            {"off": [[0, 1]]},
            "head: got [0, 1], allowed is its attention (encoder, decoder, cross), its layer and its number",
        ),
        ({"off": [["self", 0, 1]]}, "attention: got 'self', allowed is encoder, decoder, cross"),
        ({"off": [["encoder", 2, 0]]}, "head: got [2, 0], allowed is layer 0 to 1, head 0 to 2"),
        ({"second": 7}, "sequence: got int, allowed is text"),
        ({"text": " "}, "the text for the encoder is empty; type up to {longest} tokens"),
        ({"second": "cat " * 200}, None),
    ],
)
def test_what_is_not_there_is_refused_in_a_sentence(subject, more, sentence):
    longest = subject.longest  # BART has 64 places, T5 any number
    with pytest.raises(Refusal) as refused:
        sentences.read(subject, **({"text": TEXT} | more))

    expected = "202 tokens for the decoder; this page takes at most {longest}, and cuts nothing off"
    assert str(refused.value) == (sentence or expected).format(longest=longest)


def test_what_is_saved_says_its_kind_and_has_both_sides(subject):
    reading = read(subject, "cross", [["encoder", 0, 2]])
    rows = list(csv.DictReader(io.StringIO(figures.weights_csv(reading).decode())))
    arrays = np.load(io.BytesIO(figures.weights_npz(reading)))
    name = figures.file(reading, "png", [4, 1], shared_scale=True)["name"]
    ax = figures.head_figure(reading, [4, 1], shared_scale=True).axes[0]

    assert len(rows) == 5 * 3 * 4 * 7
    for row in rows:
        assert (row["kind"], row["query_token"]) == ("cross", reading.pieces[int(row["query"])])
        assert row["key_token"] == ENCODER[int(row["key"])]
    assert np.array_equal(arrays["weights"], reading.weights)
    assert (arrays["keys"].tolist(), arrays["off"].tolist(), str(arrays["kind"])) == (ENCODER, ["encoder.0.2"], "cross")
    assert name == "attention-cross-layer4-head1.png"
    assert ax.get_title() == "cross attention, layer 4, head 1"
    assert [label.get_text() for label in ax.get_xticklabels()] == ENCODER
    assert [label.get_text() for label in ax.get_yticklabels()] == reading.pieces
    assert np.allclose(ax.images[0].get_array(), reading.weights[4, 1])


def test_the_page_says_what_is_off_in_which_kind_and_ranks_the_kind_that_is_shown(subject):
    reading = read(subject, "decoder", [["decoder", 0, 0], ["cross", 4, 2]])
    effects, _ = packing.effects(reading)

    assert "decoder attention, layer 0, head 0, cross attention, layer 4, head 2" in parts.answer("en", reading)
    assert "交叉注意力，第 4 层，头 2" in parts.answer("zh", reading)
    assert "layer 0, head 0" not in parts.ranks("en", effects, reading)
    assert "decoder attention" in parts.ranks("en", effects, reading)
    assert "解码器注意力" in parts.ranks("zh", effects, reading)


def test_programs_may_ask_for_each_kind(subject):
    answer = asyncio.run(api.attention_of_text(TEXT, SECOND, "cross"))

    assert (answer["kind"], answer["keys"], len(answer["tokens"])) == ("cross", ENCODER, 4)
    assert np.allclose(answer["weights"], read(subject, "cross").weights)
    assert asyncio.run(api.attention_of_text(TEXT))["kind"] == "encoder"


def test_a_classifier_s_decoder_reads_the_text_once_more_and_takes_no_other(tmp_path):
    config = deepcopy(CONFIGS["bart"])
    config.num_labels = 3
    torch.manual_seed(0)
    BartForSequenceClassification(config).save_pretrained(tmp_path)
    build_tokenizer(side="right").save_pretrained(tmp_path)
    subject = served.serve(str(tmp_path))
    own = BartForSequenceClassification.from_pretrained(tmp_path).eval()
    reading = sentences.read(subject, "the cat", kind="cross")
    logits = own(input_ids=torch.tensor([[CLS, THE, CAT, SEP]])).logits[0]

    assert reading.pieces == ["[SEP]", "[CLS]", "the", "cat"]
    assert torch.allclose(reading.said, logits.double(), atol=1e-5)
    with pytest.raises(Refusal, match="second: got a text, but this model reads one text alone"):
        sentences.read(subject, "the cat", second="sat")


def test_a_model_of_one_part_has_no_kinds(tmp_path):
    for part in (build("bert"), build_tokenizer()):
        part.save_pretrained(tmp_path)
    told = packing.packed(sentences.read(served.serve(str(tmp_path)), TEXT, [[1, 2]]))

    assert (told["kinds"], told["off"]) == ([], "1.2")
    assert not {"kind", "second"} & told.keys()


def test_a_reading_without_a_second_text_is_named_by_the_first_alone(subject):
    assert figures.named(sentences.read(subject, TEXT)) == f"{TEXT}, {subject.name}"
    assert figures.named(read(subject)) == f"{TEXT} → {SECOND}, {subject.name}"


def test_what_stands_beside_the_colours_is_broken_into_lines_where_the_figure_ends(subject):
    """The name of the other reading is longer than the figure is high."""
    long = "the cat sat the mat " * 12
    reading, beside = (sentences.read(subject, long, off, kind="cross") for off in ([], [["encoder", 0, 2]]))
    figure = figures.in_lines(figures.grid_figure(reading, quantity="beside", beside=beside, shared_scale=True))
    figure.canvas.draw()
    (label,) = [ax.yaxis.label for ax in figure.axes if long.split()[0] in ax.get_ylabel()]
    box = label.get_window_extent()

    assert label.get_text().endswith("without encoder.0.2")
    assert box.y0 > 0
    assert box.y1 < figure.bbox.height


def test_titles_of_figures_side_by_side_are_apart(subject):
    """The names of two readings of these texts are wider than their maps."""
    reading, beside = read(subject, "cross"), read(subject, "cross", [["encoder", 0, 2]])
    figure = figures.head_figure(reading, [1, 1], beside=beside, shared_scale=True)
    figures.in_lines(figure).canvas.draw()
    first, second, third = (ax.title.get_window_extent() for ax in figure.axes[:3])

    assert "".join(figure.axes[0].get_title().split()).endswith(",withoutencoder.0.2")
    assert first.x0 > 0
    assert first.x1 < second.x0
    assert second.x1 < third.x0
