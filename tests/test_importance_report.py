"""What the page says of importance, held to tables that are written by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.importance_report import answers, changes, over_all
from analysis.page import Folder
from analysis.report import write_report
from attnkit import importance_plots


def test_sentences_say_what_the_tables_say(tmp_path):
    """Tables written by hand: head 1.1 loses 7 of 200 answers, head 0.0 none, and so on; the words follow."""
    heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    frame = pd.DataFrame([(*h, m) for h in heads for m in ("zero", "mean", "resample", "gradient")])
    frame.columns = ["layer", "head", "method"]
    lost = {"zero": [0, 1, 0, 7], "mean": [0, 0, 0, 5], "resample": [0, 0, 12, 0], "gradient": [np.nan] * 4}
    frame["n"] = 200
    frame["answers_lost"] = [
        lost[m][heads.index((layer, h))] for layer, h, m in frame[["layer", "head", "method"]].values
    ]
    frame["accuracy_drop"] = frame["answers_lost"] / 200
    frame["loss_increase"], frame["gradient_importance"] = 0.25, 0.5
    frame.to_csv(tmp_path / "head_importance.csv", index=False)
    record = {"checkpoint_sha256": "ab", "data": "200 sequences", "sequences": 200, "population": True}
    for name in ("run", "head_importance"):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    pruning = pd.DataFrame({"removed": [0, 1, 2, 3, 4], "layer": [None, 1, 0, 0, 1], "head": [None, 0, 0, 1, 1]})
    pruning.assign(accuracy=[1, 1, 1, 0.75, 0.5]).to_csv(tmp_path / "pruning.csv", index=False)
    page = " ".join(write_report(tmp_path).read_text().replace("\N{NO-BREAK SPACE}", " ").split())

    for sentence in (
        "Without layer 1, head 1, 7 of 200 answers become wrong (3.5 %) and the loss rises by 0.250 nats.",
        "2 of 4 heads can be removed, each alone, without losing one of the 200 answers: "
        "layer 0, head 0; layer 1, head 0.",
        "each alone, less than 0.1 % of the answers is lost: layer 0, head 1.",
        "layer 1, head 0 does the most harm: 12 of 200 answers become wrong (6.0 %). The model can do without",
        "2 of 4 heads can go together for less than 0.1 % of the answers: layer 0, head 0; layer 1, head 0.",
        "The accuracy is then 100 %, and 75.0 % with one more.",
        "Without it, none of 200 answers is lost and the loss rises by 0.250 nats.",
    ):
        assert sentence in page


def test_what_is_lost_of_all_sequences_is_told_beside_what_is_lost_of_a_sample():
    """Of 8 answers head 0.1 loses two and wins one, head 0.0 none."""
    long = pd.DataFrame({"layer": 0, "head": [0, 1], "statistic": "accuracy_drop", "n": 8, "mean": [0.0, 0.125]})
    folder = Folder(Path(), {"population": True, "checkpoint_sha256": "ab"})
    folder.__dict__["long"] = long.assign(max=[0.0, 1.0])
    sample = {"population": False, "checkpoint_sha256": "ab"}

    assert over_all(folder, sample).text.replace("\N{NO-BREAK SPACE}", " ") == (
        "1 of 2 heads can be removed, each alone, without losing one of all 8 answers: layer 0, head 0. "
        "Layer 0, head 1 costs most, 12.5 % of them."
    )
    assert over_all(folder, {"population": False, "checkpoint_sha256": "of other weights"}) is None
    assert over_all(folder, {"population": True, "checkpoint_sha256": "ab"}) is None


def test_one_answer_becomes_and_two_become_wrong_and_little_is_not_counted():
    rows = [pd.Series({"answers_lost": lost, "n": 4}) for lost in (1, 2)]

    assert [answers(row).split("answers ")[1].split()[0] for row in rows] == ["becomes", "become"]
    assert changes(-1e-5).replace("\N{NO-BREAK SPACE}", " ") == "the loss hardly falls (by less than 0.001 nats)"


def test_the_heads_that_are_pruned_are_named_by_whole_numbers():
    """Read from a file they are not whole: of the row in which none is removed there is no head."""
    table = pd.DataFrame({"removed": [0, 1, 2], "layer": [np.nan, 1.0, 0.0], "head": [np.nan, 0.0, 3.0]})
    figure = importance_plots.pruning(table.assign(accuracy=1.0, loss=0.1))

    assert [label.get_text() for label in figure.axes[1].get_xticklabels()] == ["none", "+ 1.0", "+ 0.3"]
