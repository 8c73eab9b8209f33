"""Head statistics of transformers models over texts, held to a loop over the model's own eager maps."""

import math

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from transformers import AutoModel

from attnkit import hf, hfstats, pretrained
from attnkit.pretrained import inputs_of
from attnkit.reading import NO_LABEL
from attnkit.tables import accuracy_and_loss, groups, long_frame, offsets_frame
from attnkit.text import TextBatch, encode_texts
from tests.models import CAUSAL, CONFIGS, LAYERS, TWO_PARTS, VOCAB, answering, build
from tests.texts import SENTENCES

LENGTHS = (7, 3, 5)
ONE_PART = [name for name in CONFIGS if name not in TWO_PARTS and name != "vit"]


def texts(lengths=LENGTHS, seed=5, **more):
    """Random tokens; the first and the last of each text are called special."""
    g = torch.Generator().manual_seed(seed)
    T = max(lengths)
    tokens = torch.randint(3, VOCAB, (len(lengths), T), generator=g)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    special = torch.zeros_like(mask)
    for row, length in enumerate(lengths):
        special[row, [0, length - 1]] = True
    return TextBatch(tokens, mask, special=special, **more)


def values_of(w, plain_queries, special_keys):
    """Some statistics of one map (R, T), by numpy."""
    row = -np.where(w > 0, w * np.log(np.where(w > 0, w, 1)), 0).sum(axis=1)
    values = {
        "entropy": row.mean(),
        "max_weight": w.max(axis=1).mean(),
        "effective_keys": (1 / (w**2).sum(axis=1)).mean(),
        "special_weight": w[plain_queries][:, special_keys].sum(axis=1).mean(),
    }
    i, j = np.indices(w.shape)
    places = {"distance": (w * abs(i - j)).sum(axis=1).mean(), "previous_weight": np.diagonal(w, -1).mean()}
    return values, places


def by_loop(model, batch):
    """{(kind, layer, head, statistic): mean over the texts}, each text alone and unpadded through the eager model."""
    found = {}
    for row in range(len(batch)):
        ids, special = alone(batch, row)
        given, sides = {"input_ids": ids[None]}, {"self": (special, special), "encoder": (special, special)}
        if batch.decoder is not None:
            given["decoder_input_ids"], of_decoder = alone(batch.decoder, row)[0][None], alone(batch.decoder, row)[1]
            sides |= {"decoder": (of_decoder, of_decoder), "cross": (of_decoder, special)}
        said = model(**given, output_attentions=True)
        named = {"attentions": "self", "encoder_attentions": "encoder", "decoder_attentions": "decoder"}
        named |= {"cross_attentions": "cross"}
        for name, kind in named.items():
            queries, keys = sides.get(kind, (special, special))
            for layer, maps in enumerate(getattr(said, name, None) or ()):
                for head, w in enumerate(maps[0].double().numpy()):
                    values, places = values_of(w, ~queries.numpy(), keys.numpy())
                    values |= {} if kind == "cross" else places
                    for statistic, value in values.items():
                        found.setdefault((kind, layer, head, statistic), []).append(value)
    return {key: np.mean(values) for key, values in found.items()}


def alone(batch, row):
    """A text without its padding, and which of its tokens are special."""
    real = batch.mask[row]
    return batch.tokens[row, real], batch.special[row, real]


def table(found, kind="self"):
    long = long_frame(found.of_kind[kind].stats, found.measures[kind], [], population=False)
    return long.set_index(["layer", "head", "statistic"])


def collect(model, batches, **more):
    return hfstats.collect(model, batches, [""] * VOCAB, **more)


@pytest.fixture(params=["whole maps", "blocks of rows"])
def method(request, monkeypatch):
    """Both ways that attention is read; the second is taken as if two tokens were many."""
    if request.param == "blocks of rows":
        monkeypatch.setattr(hf, "LONGEST_WHOLE", 2)
    return request.param


@pytest.mark.parametrize("name", ONE_PART)
def test_statistics_are_those_of_a_loop_over_the_eager_maps(name, method):
    model, batch = build(name), texts()
    wanted = by_loop(model, batch)

    found = collect(model, [batch])

    of_all = table(found)
    for (_, layer, head, statistic), value in wanted.items():
        assert of_all.loc[(layer, head, statistic), "mean"] == pytest.approx(value, abs=1e-5)
    assert of_all.index.get_level_values("layer").unique().tolist() == list(range(LAYERS))
    assert set(of_all["group"]) == {"all"}
    assert ("next_weight" in of_all.index.get_level_values("statistic")) == (name not in CAUSAL)
    assert found.of_kind["self"].methods == {method}


@pytest.mark.parametrize("name", TWO_PARTS)
def test_encoder_decoder_and_cross_attention_are_told_apart(name, method):
    """The decoder's texts have other lengths, so that queries and keys cannot be confused."""
    model, batch = build(name), texts(decoder=texts((4, 6, 3), seed=7))
    wanted = by_loop(model, batch)

    found = collect(model, [batch])

    assert set(found.of_kind) == {"encoder", "decoder", "cross"} == {kind for kind, *_ in wanted}
    for (kind, layer, head, statistic), value in wanted.items():
        assert table(found, kind).loc[(layer, head, statistic), "mean"] == pytest.approx(value, abs=1e-5)
    assert "distance" not in found.measures["cross"]
    assert "next_weight" in found.measures["encoder"]
    assert "next_weight" not in found.measures["decoder"]
    assert found.of_kind["cross"].offsets is None
    assert all(of_kind.methods == {method} for of_kind in found.of_kind.values())


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen3"])
def test_both_methods_read_the_same(name, monkeypatch):
    """Every number of every table, references included; the windows of Qwen3's layers are unlike."""
    model, batch = build(name), texts((11, 3, 7))
    whole = collect(model, [batch])
    monkeypatch.setattr(hf, "LONGEST_WHOLE", 2)

    blocks = collect(model, [batch])

    numbers = table(whole).columns.drop("group")
    pd.testing.assert_frame_equal(table(whole)[numbers], table(blocks)[numbers], atol=1e-5, rtol=1e-5)
    ours, theirs = (offsets_frame(found.of_kind["self"].offsets) for found in (whole, blocks))
    pd.testing.assert_frame_equal(ours, theirs, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_offset_profile_is_the_mean_over_all_diagonals(name, method):
    """Texts of two lengths, apart from each other: the sums grow with the longest. Causal heads have nothing ahead."""
    model = build(name)
    sums, pairs = {}, {}
    for lengths in ((5, 3), (7,)):
        batch = texts(lengths)
        for row in range(len(batch)):
            maps = model(input_ids=alone(batch, row)[0][None], output_attentions=True).attentions
            for layer, m in enumerate(maps):
                for (head, i, j), w in np.ndenumerate(m[0].double().numpy()):
                    if name == "gpt2" and j > i:
                        continue
                    key = layer, head, j - i
                    sums[key], pairs[key] = sums.get(key, 0) + w, pairs.get(key, 0) + 1

    frame = offsets_frame(collect(model, [texts((5, 3)), texts((7,))]).of_kind["self"].offsets)

    found = frame.set_index(["layer", "head", "offset"])
    assert found["n"].to_dict() == pairs
    assert {key: found.loc[key, "mean"] for key in sums} == pytest.approx(
        {k: sums[k] / pairs[k] for k in sums}, abs=1e-5
    )


def test_in_bfloat16_the_statistics_are_those_of_its_queries_and_keys(method):
    """The model's own weights are only good to 2^-8; ours are in float32 of what it hands over."""
    model, batch = build("bert", dtype=torch.bfloat16), texts()
    entropies = []

    def attend(site):
        if len(entropies) == 0:
            scores = site.query.double() @ site.key.double().transpose(-2, -1) * site.scale
            p = scores.masked_fill(~batch.mask[:, None, None], -1e300).softmax(dim=-1)
            rows = torch.special.entr(p).sum(dim=-1).masked_fill(~batch.mask[:, None], 0)
            entropies.append((rows.sum(dim=-1) / batch.mask.sum(dim=-1)[:, None]).mean(dim=0))
        return hf.whole(site)[1]

    with hf.attending(model, attend):
        model(input_ids=batch.tokens, attention_mask=batch.mask.long())

    found = table(collect(model, [batch]))
    for head, value in enumerate(entropies[0].tolist()):
        assert found.loc[(0, head, "entropy"), "mean"] == pytest.approx(value, abs=1e-5)


def test_a_window_has_a_reference_of_its_own():
    """ModernBERT's first layer sees everything, its second two tokens to either side."""
    found = table(collect(build("modernbert"), [texts((7,))]))

    keys_in_window = [3, 4, 5, 5, 5, 4, 3]
    assert found.loc[(0, 0, "entropy"), "uniform"] == pytest.approx(math.log(7))
    assert found.loc[(1, 0, "entropy"), "uniform"] == pytest.approx(np.log(keys_in_window).mean())


@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert"])
def test_how_texts_are_cut_into_batches_changes_nothing(name):
    model, batch = build(name), texts()
    at_once = table(collect(model, [batch]))

    one_by_one = table(collect(model, batch.split(1)))
    by_length = table(collect(model, [batch], size=2))

    numbers = at_once.columns.drop("group")
    for other in (one_by_one, by_length):
        pd.testing.assert_frame_equal(at_once[numbers], other[numbers], atol=1e-5, rtol=1e-4)


def test_texts_of_like_length_run_together_and_long_ones_run_alone():
    batch = texts((700, 3, 40, 600, 3, 39, 3))

    rows, parts = zip(*hfstats.alike(batch, 2, tokens=1024, waste=0.05), strict=True)

    assert rows == ([1, 4], [6], [5, 2], [3], [0])  # at most two; of 80 tokens one is padding; 1,200 are too many
    assert [part.tokens.shape for part in parts] == [(2, 3), (1, 3), (2, 40), (1, 600), (1, 700)]
    assert torch.equal(parts[2].tokens[0, :39], batch.tokens[5, :39])
    assert [part.mask is None for part in parts] == [True, True, False, True, True]


def test_the_encoder_of_a_model_of_two_parts_is_a_model():
    encoder = build("t5").get_encoder()

    found = table(collect(encoder, [texts()]))

    for (_, *key), value in by_loop(encoder, texts()).items():
        assert found.loc[tuple(key), "mean"] == pytest.approx(value, abs=1e-5)


def test_a_model_of_two_parts_without_a_text_for_its_decoder_is_refused():
    with pytest.raises(
        ValueError, match="BartModel has an encoder and a decoder, and there is no text for the decoder"
    ):
        collect(build("bart"), [texts()])


def test_a_classifier_of_two_parts_answers_at_the_mark_that_ends_a_text():
    """It takes no text without one, and of how it is built it tells by a run over two tokens."""
    model, end = answering("bart", "BartForSequenceClassification"), 2
    real = torch.tensor([[True] * 4, [True, True, False, False]])
    ids, read = torch.tensor([[5, 7, 11, end], [3, end, 0, 0]]), torch.tensor([[end, 5, 7, 11], [end, 3, 0, 0]])
    batch = TextBatch(ids, real, special=ids == end, decoder=TextBatch(read, real, special=read == end))
    logits = model(**inputs_of(model, batch)).logits

    stats = collect(model, [batch]).of_kind["cross"].stats

    assert {predicted for _, predicted in stats.cells} == set(logits.argmax(dim=1).tolist())


def test_no_texts_are_refused():
    with pytest.raises(ValueError, match="batches: there are none"):
        collect(build("bert"), [])


def test_a_classifiers_texts_are_grouped_by_label_and_prediction():
    names = {"id2label": {0: "bad", 1: "fair", 2: "good"}, "label2id": {"bad": 0, "fair": 1, "good": 2}}
    model, labels = answering("bert", "BertForSequenceClassification", **names), torch.tensor([2, 0, 2])
    batch = TextBatch(texts().tokens, texts().mask, labels, texts().special)
    each = [model(input_ids=alone(batch, row)[0][None]).logits[0].double() for row in range(3)]
    predicted = [int(logits.argmax()) for logits in each]
    loss = np.mean([float(-logits.log_softmax(0)[label]) for logits, label in zip(each, labels.tolist(), strict=True)])

    stats = collect(model, [batch]).of_kind["self"].stats

    assert set(stats.cells) == set(zip(labels.tolist(), predicted, strict=True))
    right = np.mean([p == label for p, label in zip(predicted, labels.tolist(), strict=True)])
    assert accuracy_and_loss(stats) == (pytest.approx(right), pytest.approx(loss, abs=1e-5))
    assert pretrained.classes_of(model) == ["bad", "fair", "good"]
    unlabelled = collect(model, [texts()]).of_kind["self"].stats
    assert set(unlabelled.cells) == {(NO_LABEL, p) for p in predicted}
    assert accuracy_and_loss(unlabelled) == (None, None)


def test_labels_of_a_model_that_predicts_no_class_make_groups_and_no_accuracy():
    batch = TextBatch(texts().tokens, texts().mask, torch.tensor([1, 0, 1]), texts().special)

    stats = collect(build("bert"), [batch]).of_kind["self"].stats

    assert set(groups(stats, ["a", "b"])) == {"all", "label=a", "label=b"}
    assert accuracy_and_loss(stats) == (None, None)


def test_the_loss_of_a_language_model_is_that_of_its_next_tokens_each_text_counted_once():
    model, batch = answering("gpt2", "GPT2LMHeadModel"), texts((7, 3, 1))
    losses = []
    for row in range(2):  # the third has no token to foretell
        ids = alone(batch, row)[0][None]
        losses.append(float(model(input_ids=ids, labels=ids).loss))

    accuracy, loss = accuracy_and_loss(collect(model, [batch]).of_kind["self"].stats)

    assert accuracy is None
    assert loss == pytest.approx(np.mean(losses), abs=1e-5)


def test_minilm_over_sentences_reads_as_a_loop_over_its_eager_maps(minilm):
    """Real weights, the tokenizer that came with them, and sentences of different lengths."""
    model, tokenizer = pretrained.load(str(minilm))
    batch, _ = encode_texts(tokenizer, SENTENCES, pretrained.longest_text(model, tokenizer))
    eager = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval().requires_grad_(False)
    wanted = by_loop(eager, batch)

    found = table(hfstats.collect(model, batch.split(2), pretrained.vocabulary(tokenizer)))

    assert len(found) == len(found.index.unique())
    for (_, layer, head, statistic), value in wanted.items():
        assert found.loc[(layer, head, statistic), "mean"] == pytest.approx(value, abs=1e-5)
