"""`analysis.head_stats --hf` over texts: its tables, record and page, and what it refuses."""

import json

import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from analysis import head_stats, head_tables
from analysis.columns import unexplained
from analysis.page import Folder
from analysis.report import STUDIES
from attnkit import cli, hf
from tests.models import answering, build
from tests.texts import SENTENCES, build_tokenizer

KINDS = ("encoder", "decoder", "cross")


@pytest.fixture
def undrawn(monkeypatch):
    """For tests of tables: the figures and the page take most of a run's time."""
    monkeypatch.setattr(head_tables, "draw", lambda *_: None)
    monkeypatch.setattr(head_tables, "write_report", lambda *_: None)


def test_the_command_writes_its_tables_and_counts_what_was_cut(minilm, tmp_path, capsys, undrawn):
    file, out = tmp_path / "texts.txt", tmp_path / "out"
    file.write_text("\n".join(SENTENCES), encoding="utf-8")

    run(minilm, file, out, "--max-tokens", "12")

    tables = ["dictionary.csv", "differences.csv", "head_stats.csv", "head_stats_long.csv", "head_stats_long.parquet"]
    assert sorted(p.name for p in out.iterdir()) == [*tables, "histograms.csv", "offset_profile.csv", "run.json"]
    record = json.loads((out / "run.json").read_text())
    assert (record["texts"], record["truncated"], record["model"]["architecture"]) == (5, 2, "BertModel")
    assert record["warnings"] == ["2 of 5 texts were cut to 12 tokens"]
    assert "warning: 2 of 5 texts were cut to 12 tokens" in capsys.readouterr().out
    wide = pd.read_csv(out / "head_stats.csv")
    assert wide[["layer", "head"]].to_numpy().tolist() == [[layer, head] for layer in range(6) for head in range(12)]
    assert set(pd.read_csv(out / "dictionary.csv")["statistic"]) == set(wide.columns) - {"layer", "head"}


@pytest.fixture
def saved(tmp_path):
    """A random model of an architecture with a tokenizer of eight words, as a folder."""

    def save(model):
        folder = tmp_path / "a-model"
        model.save_pretrained(folder)
        build_tokenizer(side="right").save_pretrained(folder)
        return folder

    return save


def test_a_model_of_two_parts_gets_a_folder_for_each_kind_of_attention(saved, tmp_path, undrawn):
    (file := tmp_path / "texts.jsonl").write_text(
        '{"text": "the cat the", "pair": "mat"}\n{"text": "cat", "pair": "sat"}'
    )

    run(saved(build("bart")), file, tmp_path / "out")

    records = {kind: json.loads((tmp_path / "out" / kind / "run.json").read_text()) for kind in KINDS}
    assert {kind: record["attention"] for kind, record in records.items()} == {kind: kind for kind in KINDS}
    assert {record["method"] for record in records.values()} == {"whole maps"}
    statistics = {kind: set(pd.read_csv(tmp_path / "out" / kind / "head_stats.csv")) for kind in KINDS}
    assert "token_weight[cat]" in statistics["cross"]
    assert not statistics["cross"] & {"distance", "selectivity"}
    assert {"distance", "next_weight", "selectivity"} <= statistics["encoder"]


def test_a_classifier_without_labels_is_told_of_by_its_own_predictions(saved, tmp_path):
    """With its figures and its page."""
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    (file := tmp_path / "texts.txt").write_text("the cat sat\ncat\nmat sat the\nsat sat\nthe the\ncat mat\n")

    run(saved(answering("bert", "BertForSequenceClassification", **names)), file, out := tmp_path / "out")

    record = json.loads((out / "run.json").read_text())
    assert (record["groups"], record["accuracy"], record["loss"]) == ("the model's own predictions", None, None)
    assert record["model"]["architecture"] == "BertForSequenceClassification"
    assert {g for g in pd.read_csv(out / "head_stats_long.csv")["group"] if g != "all"} <= {
        "predicted=bad",
        "predicted=good",
    }
    page = (out / "report.html").read_text()
    assert "What the 6 attention heads of a-model do" in page
    assert "the 6 texts of" in page
    assert "How far ahead or back each head looks" in page
    assert unexplained(Folder.open(out), [study.DICTIONARY for study in STUDIES]) == []


def test_a_language_models_long_texts_are_read_in_windows_and_blocks(saved, tmp_path, monkeypatch, undrawn, capsys):
    monkeypatch.setattr(hf, "LONGEST_WHOLE", 3)
    (file := tmp_path / "texts.csv").write_text("text\nthe cat sat mat the cat\nmat\n")

    run(
        saved(answering("gpt2", "GPT2LMHeadModel")),
        file,
        out := tmp_path / "out",
        "--max-tokens",
        "5",
        "--window-overlap",
        "1",
        "--batch-size",
        "1",
    )

    record = json.loads((out / "run.json").read_text())
    assert (record["texts"], record["sequences"], record["truncated"], record["longest"]) == (2, 4, 0, 5)
    assert record["method"] == "blocks of rows and whole maps"
    assert record["loss_per_token"] > 0
    assert "2 texts were read in 4 windows of at most 5 tokens" in capsys.readouterr().out


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


def run(model, file, out, *more):
    head_stats.main([*("--hf", str(model), "--text", str(file), "--out", str(out), "--device", "cpu"), *more])
