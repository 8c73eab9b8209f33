"""`python -m analysis.head_stats` as a user runs it: what it writes, refuses, and finds again after an interruption."""

import copy
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from analysis import head_stats
from attnkit import store as shards
from attnkit.tasks import make_data
from tests.oracle import sequence_values

LONG = ["layer", "head", "statistic", "group", "n", "mean", "std", "sem", "ci_low", "ci_high", "min", "max"]
TABLES = [
    "head_stats.csv",
    "head_stats_long.csv",
    "differences.csv",
    "histograms.csv",
    "offset_profile.csv",
    "dictionary.csv",
]
REST = ["head_stats_long.parquet", "mean_attention.npz", "report.html", "run.json", "figures"]


def run(out, *arguments, checkpoint="tests/data/weights.safetensors"):
    head_stats.main([str(a) for a in ("--checkpoint", checkpoint, "--out", out, "--device", "cpu", *arguments)])


@pytest.fixture(scope="module")
def article(tmp_path_factory):
    """The article's weights over the 500 test sequences."""
    out = tmp_path_factory.mktemp("article")
    run(out, "--per-sequence")
    return out


def test_every_promised_file_is_there_and_nothing_else(article):
    assert sorted(p.name for p in article.iterdir()) == sorted([*TABLES, *REST, "per_sequence.parquet"])
    names = {p.stem for p in (article / "figures").iterdir()}
    assert {p.name for p in (article / "figures").iterdir()} == {f"{n}.{e}" for n in names for e in ("png", "svg")}


def test_tables_agree_with_a_loop_in_float64_over_the_article_weights(article, article_model):
    """Independent of everything but the model: the definitions, in plain Python, on float64 maps."""
    x, _ = make_data(500, 16, 2)
    model = copy.deepcopy(article_model).double()
    values: dict[tuple, list[float]] = {}
    for row in x[:500:10]:
        for layer, maps in enumerate(model(row[None])[1]):
            for head, p in enumerate(maps[0].detach().numpy()):
                for name, value in sequence_values(p, row.tolist()).items():
                    values.setdefault((layer, head, name), []).append(value)

    table = pq.read_table(article / "per_sequence.parquet").to_pandas()
    some = table[table["row"] % 10 == 0].groupby(["layer", "head"]).mean()
    assert len(table) == 500 * 8
    for (layer, head, name), by_hand in values.items():
        assert some.loc[(layer, head), name] == pytest.approx(np.mean(by_hand), abs=1e-5)
    long = (
        pd.read_csv(article / "head_stats_long.csv").query("group == 'all'").set_index(["layer", "head", "statistic"])
    )
    for (layer, head), rows in table.groupby(["layer", "head"]):
        assert long.loc[(layer, head, "entropy"), "mean"] == pytest.approx(rows["entropy"].mean(), abs=1e-9)
        assert long.loc[(layer, head, "selectivity"), "n"] == rows["selectivity"].notna().sum()


def test_the_tables_have_their_columns_and_a_row_per_head(article):
    wide = pd.read_csv(article / "head_stats.csv")
    long = pd.read_csv(article / "head_stats_long.csv")

    assert list(wide)[:2] == ["layer", "head"]
    assert len(wide) == 8
    assert list(long)[: len(LONG)] == LONG
    assert long.equals(pd.read_parquet(article / "head_stats_long.parquet"))
    assert set(long["group"]) == {
        "all", "label=not majority", "label=majority", "predicted=not majority", "predicted=majority", "correct",
    }  # fmt: skip  # all 500 are right: no group `wrong`
    maps = np.load(article / "mean_attention.npz")
    assert maps["mean_attention"].shape == (2, 4, 16, 16)
    assert maps["mean_attention"].dtype == np.float64
    np.testing.assert_allclose(maps["mean_attention"].sum(axis=-1), 1, atol=1e-6)


def test_run_json_says_what_ran_on_what(article):
    record = json.loads((article / "run.json").read_text(), parse_constant=pytest.fail)

    wanted = {
        "checkpoint",
        "checkpoint_sha256",
        "data",
        "sequences",
        "seconds",
        "sequences_per_second",
        "device",
        "versions",
    }
    assert wanted <= set(record)
    assert (record["sequences"], record["accuracy"], record["device"]) == (500, 1.0, "cpu")
    assert record["warnings"] == []


def test_the_same_run_twice_gives_the_same_bytes(article, tmp_path):
    run(tmp_path, "--per-sequence")

    for name in [*TABLES, "per_sequence.parquet", *(f"figures/{p.name}" for p in (article / "figures").iterdir())]:
        assert (tmp_path / name).read_bytes() == (article / name).read_bytes(), name


@pytest.mark.parametrize("size", [7, 500])
def test_batch_size_changes_no_number(undrawn, article, tmp_path, size):
    run(tmp_path, "--batch-size", size)

    left, right = (pd.read_csv(folder / "head_stats_long.csv") for folder in (article, tmp_path))
    assert left[LONG[:5]].equals(right[LONG[:5]])
    np.testing.assert_allclose(left[LONG[5:]], right[LONG[5:]], rtol=1e-9, atol=1e-12)


def test_uniform_checkpoint_reads_as_uniform_and_says_so(undrawn, tmp_path, capsys):
    """All query and key weights 0: ln 16 nats, 5.3125 tokens, 1/16; and the alarm that weights may not be loaded."""
    weights = load_file("tests/data/weights.safetensors")
    for name, tensor in weights.items():
        if ".W_q." in name or ".W_k." in name:
            weights[name] = torch.zeros_like(tensor)
    save_file(weights, tmp_path / "uniform.safetensors")
    run(tmp_path / "out", checkpoint=tmp_path / "uniform.safetensors")

    wide = pd.read_csv(tmp_path / "out" / "head_stats.csv")
    np.testing.assert_allclose(wide["entropy"], np.log(16), rtol=1e-6)
    np.testing.assert_allclose(wide["distance"], 5.3125, rtol=1e-6)
    np.testing.assert_allclose(wide["max_weight"], 1 / 16, rtol=1e-6)
    assert "positional_share" not in wide
    assert "warning: Every head is uniform within 1 %" in capsys.readouterr().out


def test_a_saturated_checkpoint_gives_numbers_and_strict_json(tmp_path):
    """Every query weight times 1e4: rows nearly one-hot, with exact zeros."""
    weights = load_file("tests/data/weights.safetensors")
    for name in [n for n in weights if ".W_q.weight" in n]:
        weights[name] = weights[name] * 1e4
    save_file(weights, tmp_path / "saturated.safetensors")
    run(tmp_path / "out", checkpoint=tmp_path / "saturated.safetensors")

    long = pd.read_csv(tmp_path / "out" / "head_stats_long.csv")
    assert long["mean"].notna().all()
    assert np.isfinite(long["mean"]).all()
    assert long.query("statistic == 'entropy'")["min"].ge(0).all()
    json.loads((tmp_path / "out" / "run.json").read_text(), parse_constant=pytest.fail)


def test_own_data_of_mixed_lengths(undrawn, tmp_path):
    (tmp_path / "own.csv").write_text("sequence,label\n0011,not majority\n1,majority\n10111,1\n0011,0\n")
    run(tmp_path / "out", "--data", tmp_path / "own.csv")

    maps = np.load(tmp_path / "out" / "mean_attention.npz")
    assert sorted(maps) == ["mean_attention_1", "mean_attention_4", "mean_attention_5"]
    long = pd.read_csv(tmp_path / "out" / "head_stats_long.csv").query("layer == 0 and head == 0 and group == 'all'")
    counts = long.set_index("statistic")["n"]
    assert (counts["entropy"], counts["entropy_normalized"]) == (4, 3)  # one token has no choice


def test_a_bad_row_writes_nothing(undrawn, tmp_path):
    (tmp_path / "own.csv").write_text("sequence\n0011\n0012\n")

    with pytest.raises(ValueError, match=r"own\.csv: row 2: character '2' at position 4"):
        run(tmp_path / "out", "--data", tmp_path / "own.csv")
    assert not [p for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")]


def test_an_untrained_baseline_stands_beside_each_number(undrawn, tmp_path):
    run(tmp_path, "--baseline", "untrained")

    long = pd.read_csv(tmp_path / "head_stats_long.csv")
    of_all = long[long["group"] == "all"]
    assert of_all["untrained"].notna().all()
    assert not np.allclose(of_all["untrained"], of_all["mean"])


class Stop(Exception):
    pass


def stopping(at, original, calls):
    """`collect`, but call number `at` fails; `calls` grows with each."""

    def collect(*args, **kwargs):
        calls.append(args)
        if len(calls) == at:
            raise Stop
        return original(*args, **kwargs)

    return collect


def test_an_interrupted_run_goes_on_and_ends_in_the_same_bits(undrawn, monkeypatch, tmp_path, article):
    """500 sequences are 8 batches, 4 shards of two: the third is interrupted, so two are kept and two are left."""
    calls = []
    monkeypatch.setattr(shards, "SHARD", 2)
    monkeypatch.setattr(shards, "collect", stopping(3, shards.collect, calls))
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    with pytest.raises(Stop):
        run(resumed, "--batch-size", "64", "--per-sequence")
    assert not (resumed / "head_stats.csv").exists()

    run(resumed, "--batch-size", "64", "--per-sequence", "--resume")
    assert len(calls) == 3 + 2
    run(whole, "--batch-size", "64", "--per-sequence")

    for name in TABLES:
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()
    rows = pq.read_table(resumed / "per_sequence.parquet").to_pandas()
    assert rows["row"].unique().tolist() == list(range(500))
    pd.testing.assert_frame_equal(rows, pq.read_table(article / "per_sequence.parquet").to_pandas())


def test_resuming_something_else_is_refused(undrawn, monkeypatch, tmp_path):
    monkeypatch.setattr(shards, "collect", stopping(1, shards.collect, []))
    with pytest.raises(Stop):
        run(tmp_path)

    with pytest.raises(ValueError, match="resume: the finished part is of batch_size 512, this run is of 64"):
        run(tmp_path, "--batch-size", "64", "--resume")


def test_from_any_folder_without_a_display_or_utf8(tmp_path):
    """As a command, in a strange place: exit 0, files where --out says, UTF-8 in them, no carriage returns."""
    weights = shutil.copy("tests/data/weights.safetensors", tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"}
    environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "MPLBACKEND": "TkAgg"}
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-W", "error::FutureWarning", "-m", "analysis.head_stats",
         "--checkpoint", weights, "--out", "a folder/reports", "--split", "test"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stderr
    assert (tmp_path / "a folder" / "reports" / "report.html").read_text(encoding="utf-8")


def test_arguments_that_exclude_each_other_are_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        run("out", "--split", "test", "--data", "own.csv")
    assert stop.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
