"""`analysis.training_dynamics --hf`: the checkpoints that transformers' Trainer keeps, each as if it were alone."""

import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from scipy.spatial.distance import jensenshannon

from analysis import training_dynamics, training_report
from analysis.columns import unexplained
from analysis.page import Folder
from analysis.report import STUDIES
from attnkit import cli, hf, hfsimilarity, hfstats, pretrained, training_plots
from attnkit.text import encode_texts
from tests.models import HEADS, LAYERS, TWO_PARTS, H, build
from tests.texts import TEXTS, build_tokenizer, saved, texts

LENGTHS = (7, 3, 5, 4)
STEPS = (2, 10, 100)  # as words they would stand in another order


def turned(model, layer, head):
    """Another query projection for one head of a BERT."""
    model = deepcopy(model)
    torch.manual_seed(11)
    model.base_model.encoder.layer[layer].attention.self.query.weight.data[5 * head : 5 * head + 5] = torch.randn(5, 15)
    return model


def training(folder, kind):
    """A training in which nothing changes until step 10, and a head of the last layer from there to step 100."""
    first = saved(folder / f"checkpoint-{STEPS[0]}", kind)
    model, tokenizer = pretrained.load(str(first))
    for step in STEPS[1:]:
        if kind != "language" and step == STEPS[2]:
            model = turned(model, 1, 2)
        model.save_pretrained(folder / f"checkpoint-{step}")
        tokenizer.save_pretrained(folder / f"checkpoint-{step}")
    (folder / "checkpoint-best").mkdir()
    (folder / "checkpoint-7").write_text("no folder")
    return folder


def follow(folder, out, texts=TEXTS):
    out.mkdir(exist_ok=True)
    lines = [json.dumps(text if isinstance(text, dict) else {"text": text}) for text in texts]
    (out / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    given = {"--hf": folder, "--text": out / "texts.jsonl", "--out": out, "--device": "cpu"}
    training_dynamics.main([str(part) for pair in given.items() for part in pair])


def run(folder, out, texts=TEXTS):
    follow(folder, out, texts)
    return {name: pd.read_csv(out / f"training_{name}.csv") for name in ("dynamics", "curve", "changes")}


@pytest.mark.parametrize("few", [False, True])
def test_a_change_is_scipys_divergence_of_a_head_from_itself(few, monkeypatch):
    if few:
        monkeypatch.setattr(hf, "LONGEST_WHOLE", 0)
        monkeypatch.setattr(hfsimilarity, "TOGETHER", 1)
    model, batch = build("bert"), texts(LENGTHS)
    other = turned(model, 1, 2)
    wanted = []
    for tokens, n in zip(batch.tokens, LENGTHS, strict=True):
        p, q = (torch.cat(m(tokens[None, :n], output_attentions=True).attentions, dim=1)[0] for m in (model, other))
        wanted.append((jensenshannon(p.double(), q.double(), base=2, axis=-1) ** 2).mean(axis=-1))

    found = hfsimilarity.change(model, other, [batch.split(3).__next__(), batch[3:]])["self"]

    np.testing.assert_allclose(found.mean, np.mean(wanted, axis=0), atol=1e-6)
    at = HEADS.index((1, 2))
    assert found.mean[at] > 0.01
    assert found.mean[:at].max() < 1e-9  # below and beside, nothing moves
    with pytest.raises(ValueError, match="batches: there are no texts to compare heads on"):
        hfsimilarity.change(model, other, [])


def test_the_tables_are_those_of_each_checkpoint_alone(undrawn, tmp_path, capsys):
    """Of a classifier, with labels: half of them are not its answers."""
    folder = training(tmp_path / "a-training", "classifier")
    labels = ["no", "yes", "no", "yes", "no", "yes", "no"]
    tables = run(folder, tmp_path / "out", [{"text": t, "label": k} for t, k in zip(TEXTS, labels, strict=True)])

    dynamics, curve, changes = (tables[name] for name in ("dynamics", "curve", "changes"))
    assert curve["step"].tolist() == list(STEPS)
    assert set(curve["n"]) == {len(TEXTS)}
    for step in STEPS:
        model, tokenizer = pretrained.load(str(folder / f"checkpoint-{step}"))
        batch, _ = encode_texts(tokenizer, TEXTS, 9)
        logits = model(input_ids=batch.tokens, attention_mask=batch.mask.long()).logits.detach()
        truth = torch.tensor([["no", "yes"].index(label) for label in labels])
        (row,) = curve[curve["step"] == step].itertuples()
        assert row.accuracy == pytest.approx(float((logits.argmax(dim=1) == truth).double().mean()))
        assert row.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, truth)), abs=1e-5)
        collected = hfstats.collect(model, [batch], pretrained.vocabulary(tokenizer)).of_kind["self"].stats
        mean = sum(cell.values.mean * cell.values.count for cell in collected.cells.values()) / len(TEXTS)
        here = dynamics[(dynamics["step"] == step) & (dynamics["statistic"] == "entropy")]
        np.testing.assert_allclose(here["mean"], mean[..., collected.names.index("entropy")].ravel(), atol=1e-6)
    moved = changes.set_index(["step_from", "layer", "head"])["js_distance"]
    assert (moved[2] < 1e-4).all()
    assert moved[10].idxmax() == (1, 2)
    per_doubling = changes["js_distance"] / np.log2((1 + changes["step_to"]) / (1 + changes["step_from"]))
    np.testing.assert_allclose(changes["per_doubling"], per_doubling)
    assert "7 texts at 3 checkpoints" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "known"), [("language", ["loss"]), ("embedding", [])])
def test_what_a_model_does_not_say_is_left_out_and_the_page_is_whole(undrawn, kind, known, tmp_path, monkeypatch):
    out = tmp_path / "out"
    tables = run(training(tmp_path / "a-training", kind), out)

    measured = [column for column in tables["curve"] if not column.endswith(("_ci_low", "_ci_high"))]
    assert measured == ["checkpoint", "step", "n", *known]
    curve = training_plots.curve(tables["curve"], tables["changes"])
    assert len(curve.axes) == len(known) + 2  # the heads, and the bar of their colours
    monkeypatch.setattr(training_plots, "statistics", lambda *_, **__: None)  # takes seconds
    names = [name for name, _ in training_report.figures(Folder.open(out))]
    assert names == ["training_curve", "training_statistics"]
    record = json.loads((out / "training_dynamics.json").read_text())
    assert record["trainings"][0]["checkpoint"].endswith("a-training")
    assert record["checkpoint"].endswith(f"checkpoint-{STEPS[-1]}")
    assert unexplained(Folder.open(out), [s.DICTIONARY for s in STUDIES]) == []
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "When each head changes most" in page
    assert "Accuracy lost" not in page
    assert ("nats a token" in page) == (kind == "language")


def test_of_two_parts_each_kind_has_a_folder(undrawn, tmp_path):
    for step in STEPS[:2]:
        model = build(TWO_PARTS[0])
        model.config.decoder_start_token_id = 1
        model.save_pretrained(tmp_path / "model" / f"checkpoint-{step}")
        build_tokenizer(side="right").save_pretrained(tmp_path / "model" / f"checkpoint-{step}")

    follow(tmp_path / "model", tmp_path / "out")

    for kind in ("encoder", "decoder", "cross"):
        changes = pd.read_csv(tmp_path / "out" / kind / "training_changes.csv")
        assert len(changes) == LAYERS * H
        assert (changes["js_distance"] < 1e-4).all()


def test_what_cannot_be_followed_is_one_clear_line(undrawn, tmp_path):
    with pytest.raises(
        ValueError, match=r"^hf: got '.*nowhere': there is no such folder; allowed is one of .* Trainer$"
    ):
        pretrained.trained(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"has none of the folders checkpoint-<step> .*; a change takes two$"):
        pretrained.trained(tmp_path / "empty")
    saved(tmp_path / "two" / "checkpoint-1", "embedding")
    with pytest.raises(ValueError, match="has 1 of the folders checkpoint-<step>"):
        pretrained.trained(tmp_path / "two")
    saved(tmp_path / "two" / "checkpoint-2", "language")
    small = build("bert")
    small.encoder.layer = small.encoder.layer[:1]
    small.config.num_hidden_layers = 1
    small.save_pretrained(tmp_path / "two" / "checkpoint-3")
    build_tokenizer().save_pretrained(tmp_path / "two" / "checkpoint-3")
    with pytest.raises(ValueError, match="checkpoint-3 has other layers and heads than checkpoint-1"):
        follow(tmp_path / "two", tmp_path / "out")
    with pytest.raises(cli.UsageError, match="--split: not allowed with --hf"):
        training_dynamics.main(["--hf", "a", "--text", "b", "--split", "test"])


def test_a_head_that_never_changes_is_said_to_and_has_no_frame(undrawn, tmp_path):
    """As those of layers that a fine-tuning leaves alone."""
    out = tmp_path / "out"
    tables = run(training(tmp_path / "a-training", "embedding"), out)

    page = (out / "report.html").read_text(encoding="utf-8")
    assert (
        "From step 10 to 100: layer 1, head 2. Not at all: layer 0, heads 0, 1 and 2; layer 1, heads 0 and 1." in page
    )
    cells = training_plots.curve(tables["curve"], tables["changes"]).axes[0]
    assert [patch.get_y() for patch in cells.patches] == [HEADS.index((1, 2))]
