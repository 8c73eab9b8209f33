"""Models that write one text from another (BART, T5): their decoder's text is foretold, every token of it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    BertConfig,
    EncoderDecoderConfig,
    LongT5Config,
    LongT5ForConditionalGeneration,
)

from analysis import head_stats, head_tables
from attnkit import hf, hfreading, pretrained
from attnkit.hfimportance import measure_importance, of_kind
from attnkit.hfstats import collect
from attnkit.replay import Layers
from attnkit.tables import accuracy_and_loss
from attnkit.text import NOTHING, Text, TextBatch, encode, stack
from demo import parts, sentences, served
from tests.models import LAYERS, TWO_PARTS, VOCAB, H
from tests.texts import CAT, CLS, MAT, PAD, SAT, SEP, THE, build_tokenizer, cut, texts, with_head

KINDS = ("encoder", "decoder", "cross")
VOCABULARY = [str(k) for k in range(VOCAB)]
DECODES = {"is_decoder": True, "add_cross_attention": True}
WRITTEN = (4, 6, 2, 3, 7, 1, 5)  # tokens


@pytest.fixture(scope="module", params=TWO_PARTS)
def model(request):
    return with_head("writer", request.param)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("a-writer")
    model.float().save_pretrained(folder)
    model.double()
    build_tokenizer(side="right").save_pretrained(folder)
    return folder


def pairs():
    """Random texts, and others that are to be written."""
    to_write = texts(WRITTEN)
    read = torch.cat([torch.full((len(WRITTEN), 1), CLS), to_write.tokens[:, :-1]], dim=1)
    return replace(texts(), decoder=TextBatch(read, to_write.mask, targets=to_write.tokens))


def own_losses(model, batch):
    """transformers' own loss of each text, alone and without padding."""
    losses = []
    for row in range(len(batch)):
        read, to_write = (
            t[row, mask[row]][None]
            for t, mask in ((batch.tokens, batch.mask), (batch.decoder.targets, batch.decoder.mask))
        )
        losses.append(float(model(input_ids=read, labels=to_write).loss))
    return losses


def silence(model, kind, layer, head):
    """Set the columns of a head's output projection to 0."""
    if model.config.model_type == "t5":
        block = (model.encoder if kind == "encoder" else model.decoder).block[layer]
        projection = block.layer[1].EncDecAttention.o if kind == "cross" else block.layer[0].SelfAttention.o
    else:
        block = (model.model.encoder if kind == "encoder" else model.model.decoder).layers[layer]
        projection = (block.encoder_attn if kind == "cross" else block.self_attn).out_proj
    d = projection.weight.shape[1] // H
    projection.weight[:, head * d : (head + 1) * d] = 0


@pytest.mark.parametrize("name", TWO_PARTS)
def test_it_is_loaded_with_its_language_model_head(name, folder):
    model, _ = pretrained.load(str(folder))

    assert type(model).__name__.endswith("ForConditionalGeneration")
    assert pretrained.task_of(model) == "language"
    assert pretrained.has_two_parts(model)


def test_the_loss_is_transformers_own_each_text_counted_once(model):
    """transformers' loss is of float32."""
    batch = pairs()

    for size in (7, 3, 1):
        found = collect(model, batch.split(size), VOCABULARY).of_kind

        assert set(found) == set(KINDS)
        for kind in KINDS:
            accuracy, loss = accuracy_and_loss(found[kind].stats)
            assert accuracy is None
            assert loss == pytest.approx(np.mean(own_losses(model, batch)), abs=1e-5)


def test_a_head_is_worth_what_the_loss_is_without_its_columns_of_w_o(folder):
    batch = pairs()
    model, _ = pretrained.load(str(folder))
    model = model.double().requires_grad_(False)
    found, similarities = measure_importance(model, cut(batch, 3), methods=["zero"])
    before = own_losses(model, batch)

    for kind, layer, head in (("encoder", 1, 2), ("decoder", 0, 0), ("cross", 1, 1)):
        own, _ = pretrained.load(str(folder))
        silence(own.double().requires_grad_(False), kind, layer, head)
        lost = np.mean(own_losses(own, batch)) - np.mean(before)
        of_this, _ = of_kind(Layers.of(model, batch), kind, found, similarities)

        assert found.effects == ("accuracy_drop", "loss_increase")
        assert of_this.of_head["zero"].mean[layer, head, 1] == pytest.approx(lost, abs=1e-5)
        assert abs(lost) > 1e-3


def test_how_texts_are_cut_and_padded_changes_nothing(model):
    batch = pairs()
    wide = batch.each(lambda t: torch.nn.functional.pad(t, (0, 4)) if t.ndim == 2 else t)

    whole, _ = measure_importance(model, cut(batch, 7))
    for batches, size in ((cut(batch, 3), 2), (cut(wide, 4), 3)):
        some, _ = measure_importance(model, batches, size=size)

        assert set(whole.of_head) == {"zero", "mean", "gradient"}
        for method, moments in whole.of_head.items():
            torch.testing.assert_close(some.of_head[method].mean, moments.mean, atol=1e-6, rtol=1e-6)
            assert torch.equal(some.of_head[method].count, moments.count)


def test_every_token_of_the_decoders_text_is_foretold_with_the_mark_that_ends_it():
    found, _ = encode(build_tokenizer(), [Text("the", "cat sat"), Text("the cat", "mat")], 9, start=CLS)

    decoder = stack([windows[0] for windows in found], PAD).decoder

    assert decoder.tokens.tolist() == [[CLS, CLS, CAT, SAT], [CLS, CLS, MAT, PAD]]
    assert decoder.targets.tolist() == [[CLS, CAT, SAT, SEP], [CLS, MAT, SEP, NOTHING]]


def test_where_there_is_nothing_to_write_there_is_no_loss():
    """A tokenizer that adds no mark makes no token of an empty text: the decoder reads its start alone."""
    tokenizer = build_tokenizer(special=False, side="right")
    model = with_head("writer", "t5")
    found, _ = encode(tokenizer, [Text("the", ""), Text("the", "mat")], 9, start=CLS)
    batch = stack([windows[0] for windows in found], PAD)

    foretold = hfreading.next_tokens(batch, model(**pretrained.inputs_of(model, batch)).logits)

    assert batch.decoder.tokens.tolist() == [[CLS], [CLS]]
    assert batch.decoder.targets.tolist() == [[NOTHING], [MAT]]
    assert foretold[0].isnan().all()
    assert foretold[1].isfinite().all()


def test_what_is_to_be_written_is_cut_as_the_tokenizer_cuts_what_is_written():
    """As Marian's and NLLB's do, which have another language there; a text that writes itself is in its own."""

    class Translating(type(build_tokenizer())):
        def _switch_to_target_mode(self):
            self.mode = {MAT: SAT}

        def _switch_to_input_mode(self):
            self.mode = {}

        def _encode_plus(self, *args, **more):
            whole = super()._encode_plus(*args, **more)
            whole["input_ids"] = [[self.mode.get(t, t) for t in ids] for ids in whole["input_ids"]]
            return whole

    tokenizer = build_tokenizer()
    tokenizer.__class__ = Translating

    ((of_pair,),), _ = encode(tokenizer, [Text("mat", "the mat")], 9, start=CLS)
    ((alone,),), _ = encode(tokenizer, [Text("mat")], 9, start=CLS)

    assert (of_pair.tokens, of_pair.decoder.targets) == ([CLS, MAT, SEP], [CLS, THE, SAT, SEP])
    assert alone.decoder.targets == [CLS, MAT, SEP]


@pytest.mark.parametrize("paired", [True, False])
def test_the_tables_of_each_kind_tell_the_loss_per_token(folder, tmp_path, monkeypatch, capsys, paired):
    """And what a head is worth to it. Of texts without a pair it is said that they write themselves."""
    monkeypatch.setattr(head_tables, "draw", lambda *_: None)
    monkeypatch.setattr(head_tables, "write_report", lambda *_: None)
    rows = [{"text": "the cat sat", "pair": "mat"}, {"text": "cat", "pair": "sat the mat"}]
    file, out = tmp_path / "texts.jsonl", tmp_path / "out"
    file.write_text("\n".join(json.dumps(row if paired else {"text": row["text"]}) for row in rows))
    given = ["--hf", str(folder), "--text", str(file), "--out", str(out), "--device", "cpu"]

    head_stats.main([*given, "--with-importance"])

    printed = capsys.readouterr().out
    model, tokenizer = pretrained.load(str(folder))
    losses = []
    for row in rows:
        of_row = row["text"], row["pair" if paired else "text"]
        read, to_write = (tokenizer(text, return_tensors="pt").input_ids for text in of_row)
        losses.append(float(model(input_ids=read, labels=to_write).loss.detach()))
    for kind in KINDS:
        record = json.loads((out / kind / "run.json").read_text())
        assert record["loss_per_token"] == pytest.approx(np.mean(losses), abs=1e-5)
        assert record["model"]["architecture"] == type(model).__name__
        long = pd.read_csv(out / kind / "head_stats_long.csv")
        assert len(long[long["statistic"] == "loss_increase"]) == LAYERS * H
    assert ("the texts have no `pair`: what the decoder is to write is the text itself" in printed) != paired


def test_the_page_tells_what_comes_next_in_the_decoders_text(folder):
    """After the second text, or at its beginning where there is none yet, as transformers' own logits."""
    subject = served.serve(str(folder))
    own, _ = pretrained.load(str(folder))
    start = own.config.decoder_start_token_id
    try:
        for second, read in (("sat the", [start, CLS, SAT, THE]), ("", [start, CLS])):
            reading = sentences.read(subject, "the cat sat", second=second, kind="cross")
            ids = torch.tensor([[CLS, THE, CAT, SAT, SEP]])
            logits = own(input_ids=ids, decoder_input_ids=torch.tensor([read])).logits[0, -1].double()
            told = sentences.verdict(reading)

            assert reading.pieces == subject.tokenizer.convert_ids_to_tokens(read)
            assert torch.allclose(reading.said, logits, atol=1e-5)
            assert told["task"] == "language"
            assert "After the decoder’s text the model expects" in parts.answer("en", reading)
            assert told["prediction"] in parts.answer("en", reading)
            _, turns = sentences.effects(reading)
            after = sentences.read(subject, "the cat sat", [["cross", 1, 2]], second=second, kind="cross")
            assert turns[1][2] == (after.answer != reading.answer)
    finally:
        served.subject = None


def test_an_answer_that_is_no_token_of_the_tokenizer_is_told_by_its_number(folder):
    """T5 has more logits than its tokenizer tokens, as others whose sizes are rounded up."""
    subject = served.serve(str(folder))
    served.subject = None

    assert sentences.named(subject, CAT) == "cat"
    assert sentences.named(subject, 91) == "#91"


def two_berts():
    """A BERT that another one writes after; transformers has no body of such a model, and no config with sizes."""
    small = {"vocab_size": VOCAB, "hidden_size": 15, "num_attention_heads": H, "num_hidden_layers": LAYERS}
    encoder, decoder = (BertConfig(**small, intermediate_size=7, **more) for more in ({}, DECODES))
    config = EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = CLS, PAD
    torch.manual_seed(3)
    return AutoModelForSeq2SeqLM.from_config(config, attn_implementation="eager").eval().requires_grad_(False)


def test_of_two_berts_each_has_its_own_attention(tmp_path):
    """Both have their layers in a part that is called encoder."""
    two_berts().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    model, _ = pretrained.load(str(tmp_path))
    batch, calls = pairs(), []
    with hf.observe(model, calls.append):
        model(**pretrained.inputs_of(model, batch))
    said = two_berts()(**pretrained.inputs_of(model, batch), output_attentions=True)

    assert type(model).__name__ == "EncoderDecoderModel"
    own = {"encoder": said.encoder_attentions, "decoder": said.decoder_attentions, "cross": said.cross_attentions}
    assert sorted((call.kind, call.layer) for call in calls) == sorted((k, n) for k in KINDS for n in range(LAYERS))
    for call in calls:
        torch.testing.assert_close(call.weights, own[call.kind][call.layer], atol=1e-5, rtol=0)


def test_an_encoder_whose_attention_cannot_be_seen_is_told_of(tmp_path, monkeypatch, capsys):
    """LongT5's computes it in blocks of its own."""
    monkeypatch.setattr(head_tables, "draw", lambda *_: None)
    monkeypatch.setattr(head_tables, "write_report", lambda *_: None)
    config = LongT5Config(vocab_size=VOCAB, d_model=15, d_kv=4, num_heads=H, num_layers=LAYERS, d_ff=7, local_radius=3)
    config.decoder_start_token_id = PAD
    LongT5ForConditionalGeneration(config).save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    (file := tmp_path / "texts.txt").write_text("the cat sat\nmat", encoding="utf-8")
    said = "the encoder of LongT5ForConditionalGeneration computes its attention in a way of its own, which is not me"

    head_stats.main(["--hf", str(tmp_path), "--text", str(file), "--out", str(tmp_path / "out"), "--device", "cpu"])
    subject = served.serve(str(tmp_path))
    served.subject = None

    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["cross", "decoder"]
    assert said in capsys.readouterr().out
    assert said in json.loads((tmp_path / "out" / "cross" / "run.json").read_text())["warnings"][-1]
    for language, words in (("en", "whose own attention cannot be seen"), ("zh", "无法看到")):
        assert words in parts.text_words(language, subject)["intro"]
