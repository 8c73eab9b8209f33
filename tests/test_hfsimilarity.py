"""Which heads of a transformers model look alike, held to scipy on the model's own eager maps."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from scipy.spatial.distance import jensenshannon

from analysis import head_similarity
from analysis.columns import unexplained
from analysis.page import Folder
from analysis.report import STUDIES
from attnkit import cli, hfsimilarity
from attnkit.replay import Layers
from attnkit.text import TextBatch
from tests.models import LAYERS, TWO_PARTS, VOCAB, H, build
from tests.test_hfimportance import texts
from tests.test_text_importance import TEXTS, saved

LENGTHS = (7, 3, 5, 4)
HEADS = list(product(range(LAYERS), range(H)))


def compare(model, batches, **more):
    return hfsimilarity.compare(Layers.of(model, texts(LENGTHS)), batches, **more)


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen3", "albert"])
def test_divergences_are_scipys_on_the_eager_maps_of_each_text_alone(name):
    """Of rows in which there is something to choose: a causal head's first query has one key."""
    model, batch = build(name), texts(LENGTHS)
    of_texts = []
    for tokens, n in zip(batch.tokens, LENGTHS, strict=True):
        maps = (
            torch.cat(model(input_ids=tokens[None, :n], output_attentions=True).attentions, dim=1)[0].double().numpy()
        )
        rows = [r for r in range(n) if (maps[:, r] > 0).sum(axis=1).max() > 1]
        of_texts.append([[np.mean([jensenshannon(a[r], b[r], base=2) ** 2 for r in rows]) for b in maps] for a in maps])

    found = compare(model, [batch])

    np.testing.assert_allclose(found.divergence.mean, np.mean(of_texts, axis=0), atol=1e-5)
    assert (found.divergence.count == len(LENGTHS)).all()


def test_a_head_and_its_copy_are_the_same_and_their_numbers_are_those_of_the_table():
    model = build("bert")
    attention = model.encoder.layer[1].attention
    for linear in (attention.self.query, attention.self.key, attention.self.value):
        for parameter in (linear.weight, linear.bias):
            parameter.data[10:15] = parameter.data[:5]  # of head 2, as of head 0
    attention.output.dense.weight.data[:, 10:15] = attention.output.dense.weight.data[:, :5]

    found = compare(model, [texts(LENGTHS)])

    a, b = HEADS.index((1, 0)), HEADS.index((1, 2))
    assert found.divergence.mean[a, b] == pytest.approx(0, abs=1e-9)
    assert found.cka[a, b] == pytest.approx(1, abs=1e-6)
    others = [found.divergence.mean[a, k] for k in range(len(HEADS)) if k not in (a, b)]
    assert min(others) > 0.01


def test_how_texts_are_cut_and_in_which_thread_changes_nothing(monkeypatch):
    model, batch = build("gpt2"), texts(LENGTHS)
    at_once = compare(model, [batch])
    monkeypatch.setattr(hfsimilarity, "TOKENS", 8)

    torch.set_num_threads(2)
    try:
        one_by_one = compare(model, batch.split(3), size=1)
    finally:
        torch.set_num_threads(1)

    torch.testing.assert_close(one_by_one.divergence.mean, at_once.divergence.mean, atol=1e-6, rtol=1e-5)
    np.testing.assert_allclose(one_by_one.cka, at_once.cka, atol=1e-5)


def test_what_cannot_be_compared_is_refused_in_words(monkeypatch):
    model = build("bert")
    with pytest.raises(ValueError, match="batches: there are no texts to compare heads on"):
        compare(model, [])
    with pytest.raises(ValueError, match="text: has one of 513 tokens; heads are compared on texts of at most 512"):
        compare(model, [TextBatch(torch.full((1, 513), VOCAB - 1))])
    monkeypatch.setattr(hfsimilarity, "WIDEST", 29)
    with pytest.raises(ValueError, match="model: its heads write 30 numbers together; of at most 29 they are compared"):
        compare(model, [texts(LENGTHS)])
    two = replace(texts(LENGTHS), decoder=texts(LENGTHS))
    layers = Layers.of(build(TWO_PARTS[0]), two)
    with pytest.raises(ValueError, match="model: BartModel has an encoder and a decoder; heads are compared in models"):
        hfsimilarity.compare(layers, [two])


def test_the_command_writes_its_tables_and_its_section(tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    model, out = saved(tmp_path / "a-model", "language"), tmp_path / "out"
    given = {"--hf": model, "--text": tmp_path / "texts.txt", "--out": out, "--device": "cpu"}

    head_similarity.main([str(part) for pair in given.items() for part in pair])

    table = pd.read_csv(out / "similarity.csv")
    assert len(table) == len(HEADS) * (len(HEADS) - 1) / 2
    assert set(table["n"]) == {sum(len(text.split()) > 1 for text in TEXTS)}  # one token has no choice
    assert table["js_distance"].between(0, 1).all()
    record = json.loads((out / "similarity.json").read_text())
    assert (record["sequences"], record["model"]["architecture"]) == (len(TEXTS), "GPT2LMHeadModel")
    assert unexplained(Folder.open(out), [study.DICTIONARY for study in STUDIES]) == []
    assert "Which heads do the same" in (out / "report.html").read_text(encoding="utf-8")
    assert "7 texts in" in capsys.readouterr().out
    with pytest.raises(cli.UsageError, match="--checkpoint: not allowed with --hf"):
        head_similarity.main(["--hf", "a", "--text", "b", "--checkpoint", "c"])
