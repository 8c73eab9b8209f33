"""Heads of transformers models removed one after the other, held to models that do not hear them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch

from analysis.importance_report import how_few
from analysis.importance_tables import pruning_frame
from analysis.text_importance_report import how_many
from attnkit import hf, hfimportance
from attnkit.ablation import replaced
from attnkit.hfimportance import cheapest_first, measure_importance, points_of, prune
from attnkit.importance_plots import pruning
from attnkit.pretrained import inputs_of
from tests.models import HEADS, build
from tests.texts import cut, texts, with_head

NO_BREAK = "\N{NO-BREAK SPACE}"


def without(model, batch, gone):
    """What the model says of the texts when these heads, (kind, layer, head), put out nothing."""

    def change(site, output):
        return replaced(output, {head: 0.0 for kind, layer, head in gone if (kind, layer) == (site.kind, site.layer)})

    with hf.intervene(model, change):
        return model(**inputs_of(model, batch))


def test_each_set_costs_what_the_model_loses_without_all_of_it(monkeypatch):
    """At points evenly apart, the last of them all heads; between them nothing is measured."""
    model, batch = with_head("classifier"), texts(labels=True)
    monkeypatch.setattr(hfimportance, "STEPS", 4)
    order = [(1, 2), (0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]

    found = prune(model, cut(batch, 3), order)

    assert [head for head, _ in found] == order
    assert points_of(6) == [2, 3, 5, 6]
    assert [n for n, (_, m) in enumerate(found, start=1) if m is not None] == [2, 3, 5, 6]
    losses = [
        float(torch.nn.functional.cross_entropy(without(model, batch, gone).logits, batch.labels))
        for gone in ([], *([("self", *head) for head in order[:n]] for n in points_of(6)))
    ]
    measured = [float(m.mean[1]) for _, m in found if m is not None]
    assert measured == pytest.approx([loss - losses[0] for loss in losses[1:]], abs=1e-9)


@pytest.mark.parametrize("kind", ["classifier", "language", "embedding"])
def test_how_texts_are_cut_changes_nothing(kind):
    model = build("gpt2").double() if kind == "embedding" else with_head(kind, "gpt2")
    batch = texts(labels=kind == "classifier")

    (whole, parts) = (prune(model, cut(batch, n), HEADS, size=size) for n, size in ((7, 32), (3, 2)))

    assert len(whole) == len(HEADS)
    for (_, a), (_, b) in zip(whole, parts, strict=True):
        torch.testing.assert_close(a.mean, b.mean, atol=1e-6, rtol=1e-6)
        assert torch.equal(a.count, b.count)


def test_of_a_model_of_two_parts_the_heads_of_one_kind_go():
    model = build("bart").double()
    batch = replace(texts(), decoder=texts((4, 6, 2, 3, 7, 1, 5)))
    *_, (_, last) = prune(model, cut(batch, 4), HEADS, kind="cross")

    before, after = (
        torch.nn.functional.normalize(
            (said[0] * batch.decoder.mask[..., None]).sum(dim=1) / batch.decoder.mask.sum(dim=1)[:, None]
        )
        for said in (without(model, batch, gone) for gone in ([], [("cross", *head) for head in HEADS]))
    )
    assert float(last.mean[0]) == pytest.approx(float((1 - (before * after).sum(dim=1)).mean()), abs=1e-6)


@pytest.mark.parametrize("kind", ["classifier", "language", "embedding"])
def test_the_cheapest_head_goes_first(kind):
    model = (
        build("bert").double() if kind == "embedding" else with_head(kind, "bert" if kind == "classifier" else "gpt2")
    )
    found, _ = measure_importance(model, cut(texts(), 7), methods=["zero"])
    effect = {"classifier": "divergence", "language": "loss_increase", "embedding": "embedding_change"}[kind]

    order = cheapest_first(found)

    lost = [float(found.of_head["zero"].mean[layer, head, found.effects.index(effect)]) for layer, head in order]
    assert sorted(order) == HEADS
    assert lost == sorted(lost)


def test_the_table_has_a_row_for_every_head_and_nothing_where_nothing_was_measured(monkeypatch):
    monkeypatch.setattr(hfimportance, "STEPS", 2)
    model, batch = with_head("language", "gpt2"), cut(texts(), 7)
    importance, _ = measure_importance(model, batch, methods=["zero"])

    table = pruning_frame(importance, prune(model, batch, HEADS), population=False)

    assert table["removed"].tolist() == list(range(7))
    assert list(zip(table["layer"][1:], table["head"][1:], strict=True)) == HEADS
    assert table.index[table["loss"].notna()].tolist() == [0, 3, 6]
    measured = table[table["loss"].notna()]
    right, loss = importance.whole.mean.tolist()
    np.testing.assert_allclose(measured["loss"] - measured["loss_increase"], loss)
    np.testing.assert_allclose(measured["accuracy"] + measured["accuracy_drop"], right)
    assert measured["loss_increase_ci_high"].iloc[-1] > measured["loss_increase"].iloc[-1]


def test_sentences_say_what_the_table_says():
    table = pd.DataFrame(
        {"removed": range(9), "layer": [np.nan, *[0] * 4, *[1] * 4], "head": [np.nan, *range(4), *range(4)]}
    )
    lost = [0, np.nan, 0.1, np.nan, 0.2, np.nan, 0.3, np.nan, 2]

    text = how_many(table.assign(loss_increase=lost), "loss_increase").text
    none = how_few(table.assign(accuracy=[1, np.nan, 0.75, *[np.nan] * 5, 0.5]), 4)
    few = how_few(table.assign(accuracy=[1, np.nan, 1, np.nan, 1, np.nan, 0.75, np.nan, 0.5]), 4).text

    assert text.replace(NO_BREAK, " ") == (
        "Of 8 heads, without the 2 that cost least alone, the loss per token rises by 0.100 nats; without the 4 that "
        "cost least alone, the loss per token rises by 0.200 nats."
    )
    assert none.topic == "All are needed"
    assert none.text.startswith("Without the 2 heads that cost least alone, at least 0.1")
    assert few.replace(NO_BREAK, " ") == (
        "4 of 8 heads can go together for less than 0.1 % of the answers: layer 0, heads 0, 1, 2 and 3. The accuracy "
        "is then 100 %, and 75.0 % with 2 more."
    )


@pytest.mark.parametrize("heads", [6, 144])
def test_the_figure_draws_what_is_measured_and_names_heads_that_are_few(heads):
    lost = np.where(np.arange(heads + 1) % 3 == 0, 0.5, np.nan)
    frame = pd.DataFrame({"removed": range(heads + 1), "layer": 0.0, "head": 1.0, "embedding_change": lost})

    figure = pruning(frame.assign(similarity_change=lost))

    assert [ax.get_ylabel() for ax in figure.axes] == ["change of the cosine", "1 − cosine"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == list(range(0, heads + 1, 3))
    assert ("+ 0.1" in [t.get_text() for t in figure.axes[1].get_xticklabels()]) == (heads == 6)
    assert figure.get_size_inches()[0] < 10
