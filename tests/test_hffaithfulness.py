"""Do weights explain a classifier's answer? Held to models whose margins are known, and to the model by hand."""

import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from scipy.stats import kendalltau
from torch import nn

from analysis import faithfulness
from analysis.columns import unexplained
from analysis.page import Folder
from analysis.report import STUDIES
from attnkit import cli, hffaithfulness
from attnkit.attribution import answers, gradient_x_input, integrated_gradients, margins
from attnkit.faithfulness import COMPARISONS, quarters
from attnkit.hffaithfulness import KINDS, Replacement, embedded, falls, measure_faithfulness, replacement_of, words_of
from attnkit.text import TextBatch
from tests.models import TWO_PARTS, VOCAB
from tests.texts import LENGTHS, TEXTS, UNK, build_tokenizer, cut, saved, texts, with_head

MASK = Replacement("mask_token", "[MASK]", 2)
NAMES = ("bert", "roberta", "electra", "albert", "distilbert", "modernbert", "gpt2", "llama")


def special(batch):
    """The first token of each text is special."""
    marked = torch.zeros_like(batch.tokens, dtype=torch.bool)
    marked[:, 0] = True
    return TextBatch(batch.tokens, batch.mask, batch.labels, marked)


def parts(model, batch):
    pair = answers(model(**hffaithfulness.inputs_of(model, batch)).logits)
    return embedded(model, batch, pair, words_of(batch), MASK), pair


@pytest.mark.parametrize("name", NAMES)
def test_a_flip_is_the_replacement_in_the_same_place_and_the_classes_stay(name):
    """Of a causal classifier, too, which reads its answer off the last token: that is still the last one."""
    model, batch = with_head("classifier", name), special(texts())
    at, pair = parts(model, batch)
    found = falls(at, at.margins(at.vectors, *at.more), words_of(batch))

    for row, n in enumerate(LENGTHS):
        tokens = batch.tokens[row : row + 1, :n]
        before = margins(model(input_ids=tokens).logits, pair[row : row + 1])
        assert found[row, 0] == 0
        for place in range(1, n):
            flipped = tokens.clone()
            flipped[0, place] = MASK.number
            fall = before - margins(model(input_ids=flipped).logits, pair[row : row + 1])
            torch.testing.assert_close(found[row, place], fall[0], atol=1e-9, rtol=0)
        assert (found[row, n:] == 0).all()


def linear(model, worth):
    """A BERT whose margin is the mean of what its tokens' embeddings are worth: no block, no norm, no position."""

    class Mean(nn.Module):
        def forward(self, state, mask=None, *_, **__):
            return state.mean(dim=1)

    model.bert.embeddings.LayerNorm = nn.Identity()
    model.bert.pooler = Mean()
    for table in (model.bert.embeddings.position_embeddings, model.bert.embeddings.token_type_embeddings):
        table.weight.zero_()
    for layer in model.bert.encoder.layer:
        layer.attention.output.LayerNorm = layer.output.LayerNorm = nn.Identity()
        for linear in (layer.attention.output.dense, layer.output.dense):
            linear.weight.zero_()
            linear.bias.zero_()
    model.bert.embeddings.word_embeddings.weight.zero_()[:, 0] = worth
    model.classifier.weight.zero_()[:2, 0] = torch.tensor([0.5, -0.5], dtype=torch.float64)
    model.classifier.bias.zero_()[2:] = -100
    return model


def test_of_a_linear_model_all_gradients_are_what_each_token_adds_and_a_flip_takes_it_away():
    worth = torch.linspace(1, 2, VOCAB, dtype=torch.float64)
    worth[MASK.number] = 0
    model, tokens = linear(with_head("classifier"), worth), torch.tensor([[7, 96, 11, 3, 50]])
    batch = special(TextBatch(tokens))
    at, pair = parts(model, batch)
    wanted = worth[tokens] / 5

    assert pair.tolist() == [[0, 1]]
    torch.testing.assert_close(gradient_x_input(at), wanted)
    integrated, missed = integrated_gradients(at)
    wanted[0, 0] = 0  # the special token stays
    torch.testing.assert_close(integrated, wanted)
    torch.testing.assert_close(falls(at, at.margins(at.vectors, *at.more), words_of(batch)), wanted)
    assert missed.max() < 1e-7

    found = measure_faithfulness(model, cut(batch, 1), MASK).by["all"].tau.nan_mean[0].tolist()
    for comparison, tau in zip(COMPARISONS, found, strict=True):
        if comparison[0] in ("gradient_x_input", "integrated_gradients"):
            assert tau == pytest.approx(1), comparison


def test_taus_are_scipys_of_attention_and_flips_of_each_text_alone():
    model, batch = with_head("classifier"), special(texts())
    wanted = []
    for row, n in enumerate(LENGTHS):
        tokens = batch.tokens[row : row + 1, :n]
        said = model(input_ids=tokens, output_attentions=True)
        logits = said.logits[0]
        a, b = logits.topk(2).indices
        changes = []
        for place in range(1, n):
            flipped = tokens.clone()
            flipped[0, place] = MASK.number
            after = model(input_ids=flipped).logits[0]
            changes.append(float(((logits[a] - logits[b]) - (after[a] - after[b])).abs()))
        received = said.attentions[-1][0].mean(dim=(0, 1))[1:].tolist()
        wanted.append(kendalltau(received, changes).statistic if n > 2 else np.nan)

    found = measure_faithfulness(model, cut(batch, 3), MASK).by["all"]

    k = COMPARISONS.index(("last_layer", "absolute"))
    assert found.undefined[0, k] == np.isnan(wanted).sum() == 1
    assert float(found.tau.mean[0, k]) == pytest.approx(np.nanmean(wanted))


def test_how_texts_are_cut_and_in_which_thread_changes_nothing():
    model, batch = with_head("classifier"), special(texts())

    def measured(size):
        grouping = quarters(lambda some: hffaithfulness.margins_of(model, some), cut(batch, size))
        return measure_faithfulness(model, cut(batch, size), MASK, {"margin": grouping})

    whole = measured(len(LENGTHS))
    torch.set_num_threads(2)
    try:
        pieces = measured(2)
    finally:
        torch.set_num_threads(1)

    for name, part in whole.by.items():
        torch.testing.assert_close(part.tau.nan_mean, pieces.by[name].tau.nan_mean, equal_nan=True)
        assert torch.equal(part.undefined, pieces.by[name].undefined)
    margin = whole.by["margin"].margin
    assert margin.count.sum() == len(LENGTHS)
    assert (margin.count >= 1).all()
    assert (margin.high[:-1] < margin.low[1:]).all()


def test_the_best_token_that_can_stand_for_any_is_taken():
    tokenizer = build_tokenizer()
    assert replacement_of(tokenizer) == ("unk_token", "[UNK]", UNK)
    tokenizer.add_special_tokens({"mask_token": "mat"})
    assert replacement_of(tokenizer)[:2] == ("mask_token", "mat")
    for kind in KINDS:
        setattr(tokenizer, kind, None)
    with pytest.raises(ValueError, match="tokenizer: has no mask, unknown or padding token"):
        replacement_of(tokenizer)


def test_what_cannot_be_measured_is_refused_in_words():
    def refused(model, match, batches=None):
        with pytest.raises(ValueError, match=match):
            measure_faithfulness(model, batches or cut(texts(), 3), MASK)

    model = with_head("classifier")
    refused(with_head("language", "gpt2"), "model: GPT2LMHeadModel has no classification head")
    refused(with_head("classifier", TWO_PARTS[0]), "model: BartForSequenceClassification has an encoder and a decoder")
    refused(model, "text: has one of 513 tokens; .*: cut it with --max-tokens 512", lambda: [texts((513,))])
    refused(model, "batches: there are no texts to measure", list)
    refused(deepcopy(model).train(), "model: is in train mode")
    model.config.problem_type = "regression"
    refused(model, "model: its answer is not one of several classes")


def test_the_command_says_what_stands_in_a_tokens_place(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    model, out = saved(tmp_path / "a-model", "classifier"), tmp_path / "out"
    given = {"--hf": model, "--text": tmp_path / "texts.txt", "--out": out, "--device": "cpu"}

    faithfulness.main([str(part) for pair in given.items() for part in pair])

    table = pd.read_csv(out / "faithfulness.csv")
    assert set(table["by"]) == {"all", "margin"}
    whole = table[table["by"] == "all"]
    assert set(whole["n"] + whole["undefined"]) == {len(TEXTS)}
    assert (table["mean"].dropna().abs() <= 1).all()
    record = json.loads((out / "run.json").read_text())
    assert record["replacement"] == {"kind": "unk_token", "token": "[UNK]", "number": UNK}
    assert record["sequences"] == len(TEXTS)
    assert unexplained(Folder.open(out), [study.DICTIONARY for study in STUDIES]) == []
    page = " ".join((out / "report.html").read_text(encoding="utf-8").split())
    assert "the embedding of [UNK] is put in the place of its own" in page
    assert "start from the embedding of [UNK] in the place of every token that is not special" in page
    assert "7 sequences in" in capsys.readouterr().out
    with pytest.raises(cli.UsageError, match="--checkpoint: not allowed with --hf"):
        faithfulness.main(["--hf", "a", "--text", "b", "--checkpoint", "c"])
