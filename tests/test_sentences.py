"""The page on a transformers model: held to its own eager attention, and to a model without the head's weights."""

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from attnkit import hfreading
from demo import figures, packing, parts, sentences, served
from demo.words import Refusal

TEXT = "The cat did not chase the mouse because it was tired."


@pytest.fixture(scope="module")
def serving():
    yield served.serve
    served.subject = None


@pytest.fixture(scope="module")
def subject(minilm, serving):
    return serving(str(minilm))


@pytest.fixture(scope="module")
def small(minilm, tmp_path_factory):
    """Random models of odd sizes, with the tokenizer of a real one: {kind: folder}."""
    tokenizer, folders = AutoTokenizer.from_pretrained(minilm), {}
    sizes = {"hidden_size": 15, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 7}
    torch.manual_seed(0)
    for kind, model in (
        ("classification", BertForSequenceClassification(BertConfig(**sizes, num_labels=3))),
        (
            "language",
            GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=15, n_head=3, n_layer=2, n_positions=64)),
        ),
    ):
        for parameter in model.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.5)
        folders[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folders[kind])
        tokenizer.save_pretrained(folders[kind])
    return folders


@pytest.fixture(scope="module")
def eager(minilm):
    return AutoModel.from_pretrained(minilm, attn_implementation="eager").eval().requires_grad_(False)


def embedding(model, reading):
    states = model(input_ids=reading.batch.tokens)[0][0].double()
    return torch.nn.functional.normalize(states.mean(dim=0), dim=0)


def test_the_maps_are_the_models_own(subject, eager):
    reading = sentences.read(subject, TEXT)
    maps = eager(input_ids=reading.batch.tokens, output_attentions=True).attentions

    assert reading.pieces[:4] == ["[CLS]", "the", "cat", "did"]
    assert np.allclose(reading.weights, torch.stack(maps)[:, 0], atol=1e-5)
    assert reading.margin == pytest.approx(1)


def test_a_head_that_is_off_is_a_model_without_its_columns_of_w_o(subject, eager, minilm):
    reading = sentences.read(subject, TEXT, [[2, 3], [0, 11]])
    without = AutoModel.from_pretrained(minilm).eval().requires_grad_(False)
    for layer, head in ((2, 3), (0, 11)):
        without.encoder.layer[layer].attention.output.dense.weight[:, 32 * head : 32 * (head + 1)] = 0

    assert reading.margin == pytest.approx(float(embedding(without, reading) @ embedding(eager, reading)), abs=1e-6)
    assert reading.margin < 0.999


def test_what_a_switch_would_do_is_what_it_does(subject):
    """Of a head that is on, and of one that is off; the texts of a batch are apart."""
    reading = sentences.read(subject, TEXT, [[2, 3]])
    change, turns = sentences.effects(reading)
    for layer, head, off in ((0, 4, [[0, 4], [2, 3]]), (5, 11, [[2, 3], [5, 11]]), (2, 3, [])):
        after = sentences.read(subject, TEXT, off)

        assert change[layer][head] == pytest.approx(after.margin - reading.margin, abs=1e-6)
    assert not np.any(turns)


def test_a_classifier_answers_with_its_classes_and_a_language_model_with_the_next_token(small, serving):
    for kind, folder in small.items():
        subject = serving(str(folder))
        reading = sentences.read(subject, TEXT)
        logits = subject.model(input_ids=reading.batch.tokens).logits[0]
        logits = (logits if kind == "classification" else logits[-1]).double()
        change, turns = sentences.effects(reading)
        after = sentences.read(subject, TEXT, [[1, 2]])
        told = sentences.verdict(reading)
        best = int(logits.argmax())
        expected = f"LABEL_{best}" if kind == "classification" else subject.tokenizer.convert_ids_to_tokens([best])[0]

        assert subject.task == kind
        assert reading.prediction == expected
        assert next(iter(told["likely"].values())) == pytest.approx(float(logits.softmax(0).max()), abs=1e-5)
        assert turns[1][2] == (after.answer != best)
        kept = after.said[best] - after.said.index_fill(0, torch.tensor([best]), -torch.inf).max()
        assert change[1][2] == pytest.approx(float(kept) - reading.margin, abs=1e-4)


def test_a_byte_is_told_as_one_whatever_stands_beside_it(tmp_path, serving):
    """No other token here has a sign that says so: é is two bytes, Ã and ©, which are letters as well."""
    vocab = {sign: number for number, sign in enumerate(sorted(ByteLevel.alphabet()))}
    core = Tokenizer(BPE(vocab, []))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    config = GPT2Config(vocab_size=256, n_embd=15, n_head=3, n_layer=2, n_positions=64)
    for part in (GPT2LMHeadModel(config), PreTrainedTokenizerFast(tokenizer_object=core)):
        part.save_pretrained(tmp_path)
    subject = serving(str(tmp_path))
    reading = sentences.read(subject, "é")
    ax = figures.head_figure(reading, [1, 2], shared_scale=True).axes[0]

    assert reading.pieces == ["Ã", "©"]
    assert packing.packed(reading)["tokens"] == ["<C3>", "<A9>"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["<C3>", "<A9>"]
    assert sentences.named(subject, vocab["Ã"]) == "<C3>"


def test_of_two_answers_that_are_written_alike_the_likelier_is_told(small, serving):
    subject = serving(str(small["classification"]))
    subject.model.config.id2label = dict.fromkeys(range(3), "same")
    reading = sentences.read(subject, TEXT)

    assert sentences.verdict(reading)["likely"] == {"same": pytest.approx(float(reading.said.softmax(0).max()))}


def test_statistics_are_the_library_s(subject):
    reading = sentences.read(subject, TEXT)
    read = hfreading.read_batch(subject.model, reading.batch, subject.measures)["self"].readings
    found = sentences.statistics(reading)

    for k, one in enumerate(found["statistics"]):
        values = np.array([[np.nan if x is None else x for x in row] for row in one["values"]])
        wanted = read.values[0, :, :, k].masked_fill(~read.defined[0, :, :, k], torch.nan).numpy()
        assert values == pytest.approx(wanted, rel=1e-5, abs=1e-5, nan_ok=True)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" ", "the text is empty; type up to 128 tokens"),
        ("one " * 127, "129 tokens; this page takes at most 128, and cuts nothing off"),
        ("x" * 4001, "4001 characters; this page takes at most 4000"),
        (["a"], "sequence: got list, allowed is text"),
    ],
)
def test_a_text_that_is_not_taken_is_refused_and_never_cut(subject, text, sentence):
    with pytest.raises(Refusal, match=f"^{sentence}$"):
        sentences.read(subject, text)
    if isinstance(text, str) and len(text) == 508:
        assert len(sentences.read(subject, text[:-4]).pieces) == 128


def test_a_head_that_is_not_there_is_refused(subject):
    with pytest.raises(Refusal, match=r"head: got \[6, 0\], allowed is layer 0 to 5, head 0 to 11"):
        sentences.read(subject, TEXT, [[6, 0]])


def test_a_model_that_is_nowhere_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"^hf: got '.*nothing'[^\n]*$"):
        served.serve(str(tmp_path / "nothing"))


def test_what_the_page_is_told_has_nothing_of_checkpoints(subject):
    reading = sentences.read(subject, TEXT, [[1, 1]])
    told = packing.packed(reading)

    assert (told["steps"], told["prediction"], told["digits"]) == ([], "", 4)
    assert len(told["norms"]) == 6
    assert packing.effects(reading)[1]["tokens"] == []
    assert "cosine" in parts.answer("en", reading)
    with pytest.raises(ValueError, match="quantity: got 'difference'"):
        figures.file(reading, "png", None, quantity="difference", shared_scale=True)
    assert figures.file(reading, "csv", None)["name"] == "attention.csv"
