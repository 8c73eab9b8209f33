"""One command runs every study and writes one page; what fails is named."""

import pytest

from analysis import all_studies
from attnkit import cli
from attnkit.checkpoint import Checkpoint, save_checkpoint
from attnkit.data import DataConfig
from attnkit.model import ModelConfig, TinyTransformer


def test_every_study_leaves_its_section_on_one_page(tmp_path, capsys):
    config = ModelConfig(vocab_size=2, d_model=6, n_heads=2, d_ff=7, n_layers=1, max_len=5)
    made = Checkpoint(config, data=DataConfig(length=5, n_test=17))
    checkpoint = save_checkpoint(tmp_path / "fresh", TinyTransformer.from_config(config), made, [], "# a card\n")
    all_studies.main(["--checkpoint", str(checkpoint), "--out", str(tmp_path / "out"), "--device", "cpu"])

    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for section in ("heads", "importance", "one-by-one", "counting", "similarity", "faithfulness", "provenance"):
        assert f'<section id="{section}">' in page
    assert "Beware" not in page
    assert "5 studies in" in capsys.readouterr().out
    assert '"sequences": 32' in (tmp_path / "out" / "run.json").read_text()  # the page is of all sequences


def test_a_study_that_fails_is_named_with_its_last_word(tmp_path, capsys):
    assert cli.run(lambda: all_studies.main(["--checkpoint", str(tmp_path / "none"), "--device", "cpu"])) == 1

    error = capsys.readouterr().err.strip()
    assert error.startswith("error: head_stats: ")
    assert str(tmp_path / "none") in error
    assert "\n" not in error


@pytest.mark.parametrize("study", [all_studies.FIRST, *all_studies.AFTER, all_studies.OF_SNAPSHOTS])
def test_every_study_that_is_run_is_there(study):
    __import__(f"analysis.{study[0]}")


@pytest.mark.parametrize("snapshots", [[], [0, 7]])
def test_training_is_followed_where_it_has_kept_snapshots(tmp_path, monkeypatch, snapshots):
    ran = []
    monkeypatch.setattr(all_studies, "run", lambda study: ran.append(study[0]))
    monkeypatch.setattr(all_studies, "write_report", lambda out: out)
    config = ModelConfig(vocab_size=2, d_model=6, n_heads=2, d_ff=7, n_layers=1, max_len=5)
    model = TinyTransformer.from_config(config)
    weights = dict.fromkeys(snapshots, model.state_dict())
    checkpoint = save_checkpoint(tmp_path, model, Checkpoint(config, snapshots=snapshots), [], "# a card\n", weights)
    all_studies.main(["--checkpoint", str(checkpoint), "--out", str(tmp_path / "out"), "--device", "cpu"])

    assert ran[0] == "head_stats"
    assert ("training_dynamics" in ran) is bool(snapshots)
    assert len(ran) == len(set(ran)) == 5 + bool(snapshots)
