"""`analysis.head_importance --hf`: its tables held to the library, its sentences held to its tables."""

import json

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from scipy import stats

from analysis import head_importance, head_stats
from analysis.columns import unexplained
from analysis.importance_tables import importance_frame, similarity_frame
from analysis.page import Folder
from analysis.report import STUDIES, write_report
from attnkit.hfimportance import measure_importance
from tests.models import LAYERS, H, build
from tests.texts import TEXTS, build_tokenizer, cut, saved, texts

KINDS = ("encoder", "decoder", "cross")


def run(tmp_path, kind):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    out, model = tmp_path / "out", saved(tmp_path / "model", kind)
    given = {"--hf": model, "--text": tmp_path / "texts.txt", "--out": out, "--device": "cpu", "--batch-size": 2}
    head_importance.main([str(a) for pair in given.items() for a in pair])
    return out


COLUMNS = {
    "embedding": ["embedding_change", "similarity_change", "pairs", "similarity_rank"],
    "classifier": ["answers_changed", "divergence"],
    "language": ["accuracy_drop", "loss_increase", "gradient_importance"],
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_command_writes_a_row_per_head_and_method_and_its_section(kind, tmp_path, capsys):
    out = run(tmp_path, kind)

    table = pd.read_csv(out / "head_importance.csv")
    methods = ["zero", "mean", *(["gradient"] if kind == "language" else [])]
    assert table[["layer", "head", "method"]].to_numpy().tolist() == [
        [layer, head, method] for layer in range(LAYERS) for head in range(H) for method in methods
    ]
    measured = [c for c in table.columns if not c.endswith(("_ci_low", "_ci_high"))]
    assert measured == ["layer", "head", "method", "n", *COLUMNS[kind]]
    assert set(table["n"]) == {5 if kind == "language" else 7}  # texts of one token have no next
    assert sorted(p.name for p in (out / "figures").glob("*.png")) == [
        "importance.png",
        "predictors.png",
        "pruning.png",
    ]
    assert set(pd.read_csv(out / "predictors.csv")["effect"]) <= set(COLUMNS[kind])
    assert unexplained(Folder.open(out), [study.DICTIONARY for study in STUDIES]) == []
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The most and the least" in page
    assert "Head by head" in page
    assert "7 texts in" in capsys.readouterr().out
    record = json.loads((out / "head_importance.json").read_text())
    assert (record["sequences"], record["truncated"], record["population"]) == (7, 0, False)


def test_of_two_parts_each_kind_of_attention_has_a_folder(undrawn, tmp_path):
    """The same numbers stand in the tables of statistics, if they are asked for there."""
    model = build("bart")
    model.save_pretrained(tmp_path / "model")
    build_tokenizer(side="right").save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    given = ["--hf", tmp_path / "model", "--text", tmp_path / "texts.txt", "--out", tmp_path / "out", "--device", "cpu"]

    head_importance.main([str(part) for part in given])
    head_stats.main([*(str(part) for part in given), "--with-importance"])

    tables = {kind: pd.read_csv(tmp_path / "out" / kind / "head_importance.csv") for kind in KINDS}
    for kind, table in tables.items():
        zero = table[table["method"] == "zero"]
        assert zero[["layer", "head"]].to_numpy().tolist() == [
            [layer, head] for layer in range(LAYERS) for head in range(H)
        ]
        long = pd.read_csv(tmp_path / "out" / kind / "head_stats_long.csv")
        beside = long[long["statistic"] == "similarity_change"]["mean"]
        np.testing.assert_allclose(beside, zero["similarity_change"], atol=1e-9)
    assert len({tuple(table["embedding_change"]) for table in tables.values()}) == len(KINDS)


def test_similarities_are_ranked_over_the_pairs():
    found, similarities = measure_importance(build("bert"), cut(texts(), 3))

    frame = similarity_frame(found, similarities).set_index(["layer", "head", "method"])

    for (layer, head, method), row in frame.iterrows():
        rank = stats.spearmanr(similarities.plain, similarities.changed[method][:, layer, head]).statistic
        assert row["similarity_rank"] == pytest.approx(rank)
    assert set(frame["pairs"]) == {3}


def test_a_single_pair_has_no_rank():
    found, similarities = measure_importance(build("bert"), cut(texts((5, 3)), 2), methods=["zero"])

    assert similarity_frame(found, similarities)["similarity_rank"].isna().all()


def test_the_table_has_the_moments_of_what_the_model_can_lose():
    found, _ = measure_importance(build("bert"), cut(texts(), 3))

    frame = importance_frame(found, population=False).set_index(["layer", "head", "method"])

    for method, moments in found.of_head.items():
        row = frame.loc[(1, 2, method)]
        assert row[["embedding_change", "similarity_change"]].tolist() == moments.mean[1, 2].tolist()
        high = moments.mean[1, 2] + 1.96 * moments.sem[1, 2]
        assert row[["embedding_change_ci_high", "similarity_change_ci_high"]].tolist() == pytest.approx(high.tolist())


def test_sentences_say_what_the_tables_say(tmp_path):
    """Written by hand: head 1.0 moves similarities most, 0.1 least; with the mean output half as much is lost."""
    heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    moved = np.array([0.02, 0.01, 0.08, 0.04])
    frames = [
        pd.DataFrame(heads, columns=["layer", "head"]).assign(
            method=method,
            n=20,
            embedding_change=scale * moved / 2,
            similarity_change=scale * moved,
            pairs=10,
            similarity_rank=1 - scale * moved,
        )
        for method, scale in (("zero", 1.0), ("mean", 0.5))
    ]
    pd.concat(frames).to_csv(tmp_path / "head_importance.csv", index=False)
    record = {"checkpoint_sha256": "ab", "data": "20 texts", "sequences": 20, "population": False}
    for name in ("run", "head_importance"):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))

    page = " ".join(write_report(tmp_path).read_text().replace("\N{NO-BREAK SPACE}", " ").split())

    for sentence in (
        "Without layer 1, head 0, the cosine of two texts moves by 0.0800 on average and a text’s embedding turns by "
        "0.0400 (1 − cosine), the most of all 4 heads; without layer 0, head 1, the cosine of two texts moves by 0.01",
        "The heads of layer 1 cost most, 0.0600 on average",
        "The head in the middle then costs 0.50 times what it costs to remove it",
        "Layer 1, head 0 changes most which pairs are the similar ones: the rank correlation of the 10 cosines with "
        "those of the whole model is 0.9200 without it, and 0.9700 without the head in the middle.",
    ):
        assert sentence in page
