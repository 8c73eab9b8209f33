"""`analysis.head_stats --hf`: what it leaves of each text, what it goes on with, and what else stands beside it."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from analysis import head_stats, head_tables
from analysis.columns import unexplained
from analysis.page import Folder
from analysis.report import STUDIES
from attnkit import hfstats, pretrained
from attnkit.hfimportance import measure_importance
from attnkit.text import encode_texts
from tests.models import LAYERS, TWO_PARTS, H, build
from tests.texts import TEXTS, build_tokenizer, saved

CUT = ("--batch-size", "1", "--max-tokens", "5")  # with `TOGETHER` 2 texts are read at a time
TABLES = ("head_stats.csv", "head_stats_long.csv", "histograms.csv", "offset_profile.csv", "differences.csv")


@pytest.fixture(autouse=True)
def undrawn_and_few_at_a_time(monkeypatch):
    monkeypatch.setattr(head_tables, "draw", lambda *_: None)
    monkeypatch.setattr(head_tables, "write_report", lambda *_: None)
    monkeypatch.setattr("analysis.texts.TOGETHER", 2)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("a-model"), "embedding")


def run(model, out, *more, texts=TEXTS, name="texts.txt"):
    out.mkdir(exist_ok=True)
    (out / name).write_text("\n".join(texts), encoding="utf-8")
    given = ["--hf", str(model), "--text", str(out / name), "--out", str(out), "--device", "cpu", *CUT]
    head_stats.main([*given, *more])
    return out


def rows_of(out):
    return pq.read_table(out / "per_sequence.parquet").to_pandas().set_index(["row", "window", "layer", "head"])


@pytest.mark.parametrize("windows", [False, True])
def test_every_text_has_a_row_per_head_that_is_its_own_table(model, tmp_path, windows):
    """Of like length run together, yet the rows are in the order of the file; a text of two windows has two."""
    out = run(model, tmp_path, "--per-sequence", *(["--window-overlap", "0"] if windows else []))

    rows = rows_of(out)
    nowhere_defined = [name for name in rows if rows[name].isna().all()]
    assert {name for _, name in unexplained(Folder.open(out), [s.DICTIONARY for s in STUDIES])} <= {*nowhere_defined}
    loaded, tokenizer = pretrained.load(str(model))
    places = [(row, window) for row, window, _, _ in rows.index[:: LAYERS * H]]
    cut = [(row, len(tokenizer(text)["input_ids"])) for row, text in enumerate(TEXTS)]
    wanted = [(row, k) for row, n in cut for k in range(1 if not windows or n <= 5 else 2)]
    assert places == wanted
    for row, text in enumerate(TEXTS):
        batch, truncated = encode_texts(tokenizer, [text], 5)
        if truncated and windows:
            continue  # the first window ends where the tokenizer says
        found = hfstats.collect(loaded, [batch], pretrained.vocabulary(tokenizer)).of_kind["self"].stats
        mean = found.cells[-1, -1].values.mean
        of_text = rows.loc[(row, 0)]
        assert (of_text["tokens"] == batch.tokens.shape[1]).all()
        np.testing.assert_allclose(of_text["entropy"], mean[..., found.names.index("entropy")].ravel(), atol=1e-6)
    assert rows["label"].isna().all()
    assert rows["predicted"].isna().all()


def test_a_run_that_is_interrupted_goes_on_to_the_same_bits(model, tmp_path, monkeypatch):
    """Seven texts are four batches of two: the third is interrupted, so two are kept and two are left."""
    whole, halves = run(model, tmp_path / "whole", "--per-sequence"), tmp_path / "halves"
    own, calls = hfstats.collect, []

    def stopping(*args, **more):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return own(*args, **more)

    monkeypatch.setattr(hfstats, "collect", stopping)
    with pytest.raises(KeyboardInterrupt, match="the finished part is kept: go on with --resume --out"):
        run(model, halves, "--per-sequence")
    with pytest.raises(ValueError, match="resume: the finished part is of data"):
        run(model, halves, "--per-sequence", "--resume", texts=TEXTS[1:], name="others.txt")
    with pytest.raises(ValueError, match="resume: the finished part is of checkpoint_sha256"):
        run(saved(tmp_path / "other", "classifier"), halves, "--per-sequence", "--resume")
    assert not (halves / "head_stats.csv").exists()

    run(model, halves, "--per-sequence", "--resume")

    assert len(calls) == 3 + 2
    for name in (*TABLES, "per_sequence.parquet"):
        assert (halves / name).read_bytes() == (whole / name).read_bytes(), name
    assert not (halves / ".unfinished").exists()


@pytest.mark.parametrize("kind", ["embedding", "classifier", "language"])
def test_what_heads_are_worth_stands_in_the_same_table(kind, tmp_path):
    folder = saved(tmp_path / "model", kind)
    out = run(folder, tmp_path / "out", "--with-importance")

    long = pd.read_csv(out / "head_stats_long.csv")
    loaded, tokenizer = pretrained.load(str(folder))
    batch, _ = encode_texts(tokenizer, TEXTS, 5)
    found, _ = measure_importance(loaded, lambda: [batch], methods=["zero"])
    for k, effect in enumerate(found.effects):
        of_effect = long[long["statistic"] == effect]
        np.testing.assert_allclose(of_effect["mean"], found.of_head["zero"].mean[..., k].ravel(), atol=1e-6)
        assert of_effect["n"].tolist() == found.of_head["zero"].count[..., k].ravel().tolist()
    assert ("gradient_importance" in set(long["statistic"])) == (kind == "language")
    assert set(found.effects) <= set(pd.read_csv(out / "dictionary.csv")["statistic"])


def test_a_fresh_model_of_the_same_architecture_stands_beside_each_number(model, tmp_path):
    long = pd.read_csv(run(model, tmp_path, "--baseline", "untrained") / "head_stats_long.csv")

    loaded, _ = pretrained.load(str(model))
    fresh, again = (pretrained.untrained(loaded) for _ in range(2))
    assert type(fresh) is type(loaded)
    assert not fresh.training
    weights = [m.encoder.layer[0].attention.self.query.weight for m in (fresh, again, loaded)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    entropy = long[long["statistic"] == "entropy_normalized"]
    assert (entropy["untrained"] > 0.99).all()  # small weights attend uniformly
    assert (entropy["mean"] < entropy["untrained"]).all()


@pytest.mark.parametrize("name", TWO_PARTS)
def test_of_two_parts_each_kind_has_its_rows(name, tmp_path):
    """Queries of cross attention are the decoder's tokens."""
    model = build(name)
    model.config.decoder_start_token_id = 1
    model.save_pretrained(tmp_path / "model")
    build_tokenizer(side="right").save_pretrained(tmp_path / "model")
    pairs = [json.dumps({"text": "the cat the", "pair": "mat"}), json.dumps({"text": "cat", "pair": "sat the"})]

    out = run(tmp_path / "model", tmp_path / "out", "--per-sequence", texts=pairs, name="pairs.jsonl")

    tokens = {kind: rows_of(out / kind)["tokens"].iloc[:: LAYERS * H].tolist() for kind in ("encoder", "cross")}
    assert tokens == {"encoder": [5, 3], "cross": [3, 4]}
    assert rows_of(out / "decoder")["distance"].notna().all()
    assert "distance" not in rows_of(out / "cross")
