"""Which heads of a transformers model look alike, held to scipy on the model's own eager maps."""

import json
import subprocess
import sys
from dataclasses import replace

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
from attnkit import cli, hf, hfsimilarity
from attnkit.replay import Layers
from tests.models import HEADS, TWO_PARTS, build
from tests.texts import TEXTS, build_tokenizer, saved, texts

LENGTHS = (7, 3, 5, 4)


def compare(model, batches, **more):
    return hfsimilarity.compare(Layers.of(model, texts(LENGTHS)), batches, **more)["self"]


def by_scipy(layers):
    """The divergence of every two heads of one text, from its eager maps (1, H, R, T); of rows in which there is
    something to choose: a causal head's first query has one key."""
    maps = torch.cat(layers, dim=1)[0].double().numpy()
    rows = [r for r in range(maps.shape[1]) if (maps[:, r] > 0).sum(axis=1).max() > 1]
    return [[np.mean([jensenshannon(a[r], b[r], base=2) ** 2 for r in rows]) for b in maps] for a in maps]


@pytest.fixture(params=["as short", "as long, a few rows at a time"])
def length(request, monkeypatch):
    """What is done to long texts is done to short ones."""
    if request.param != "as short":
        monkeypatch.setattr(hf, "LONGEST_WHOLE", 0)
        monkeypatch.setattr(hfsimilarity, "TOGETHER", 3 * max(LENGTHS) * len(HEADS) * len(LENGTHS))


@pytest.mark.parametrize("name", ["bert", "gpt2", "qwen3", "gemma2", "modernbert", "albert"])
def test_divergences_are_scipys_on_the_eager_maps_of_each_text_alone(name, length):
    model, batch = build(name), texts(LENGTHS)
    of_texts = [
        by_scipy(model(input_ids=tokens[None, :n], output_attentions=True).attentions)
        for tokens, n in zip(batch.tokens, LENGTHS, strict=True)
    ]

    found = compare(model, [batch])

    np.testing.assert_allclose(found.divergence.mean, np.mean(of_texts, axis=0), atol=1e-5)
    assert (found.divergence.count == len(LENGTHS)).all()


@pytest.mark.parametrize("name", TWO_PARTS)
def test_of_two_parts_each_kind_of_attention_is_compared_by_itself(name, length):
    model = build(name)
    other = LENGTHS[::-1]
    batch = replace(texts(LENGTHS), decoder=texts(other))
    wanted = {"encoder": [], "decoder": [], "cross": []}
    for row, (n, m) in enumerate(zip(LENGTHS, other, strict=True)):
        said = model(
            input_ids=batch.tokens[row : row + 1, :n],
            decoder_input_ids=batch.decoder.tokens[row : row + 1, :m],
            output_attentions=True,
        )
        for kind in wanted:
            maps = said.cross_attentions if kind == "cross" else said[f"{kind}_attentions"]
            wanted[kind].append(by_scipy(maps))

    found = hfsimilarity.compare(Layers.of(model, batch), [batch])

    assert [*found] == ["encoder", "decoder", "cross"]
    for kind, alike in found.items():
        np.testing.assert_allclose(alike.divergence.mean, np.mean(wanted[kind], axis=0), atol=1e-5)
        assert alike.cka.shape == (len(HEADS), len(HEADS))


PEAK = """
import torch
from attnkit.hfsimilarity import compare_texts
from attnkit.text import TextBatch
from benchmarks import peak_memory
from transformers import BertConfig, BertModel
T = 16384
config = BertConfig(vocab_size=97, hidden_size=4, num_attention_heads=1, num_hidden_layers=1, intermediate_size=7,
                    max_position_embeddings=T)
model = BertModel(config).eval()
texts = TextBatch(torch.randint(0, 97, (1, T)))
before = peak_memory()
compare_texts(model, texts)
print(peak_memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux tells it")
def test_no_map_is_ever_held():
    """At 16,384 tokens one map of float32 is 1,024 MB."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 1024 / 2


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
    monkeypatch.setattr(hfsimilarity, "WIDEST", 29)
    with pytest.raises(ValueError, match="model: its heads write 30 numbers together; of at most 29 they are compared"):
        compare(model, [texts(LENGTHS)])


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


def test_of_two_parts_each_kind_has_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(head_similarity, "figures", lambda folder: ())
    model = build("bart")
    model.config.decoder_start_token_id = 1
    model.save_pretrained(tmp_path / "model")
    build_tokenizer(side="right").save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    given = {"--hf": tmp_path / "model", "--text": tmp_path / "texts.txt", "--out": tmp_path / "out"}

    head_similarity.main([str(part) for pair in given.items() for part in pair])

    tables = [pd.read_csv(tmp_path / "out" / kind / "similarity.csv") for kind in ("encoder", "decoder", "cross")]
    assert [len(table) for table in tables] == [len(HEADS) * (len(HEADS) - 1) / 2] * 3
    assert len({tuple(table["js_divergence"]) for table in tables}) == 3
