"""What a head of a transformers model is worth, held to models whose weights say what must come out."""

from copy import deepcopy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

import torch
from torch.nn.functional import cosine_similarity, cross_entropy, kl_div
from transformers.pytorch_utils import Conv1D

from attnkit import hf, hfimportance, hftrials
from attnkit.ablation import replaced
from attnkit.hfimportance import measure_importance
from attnkit.replay import Layers, Replay
from attnkit.text import TextBatch
from tests.models import CONFIGS, LAYERS, TWO_PARTS, build
from tests.texts import LENGTHS, cut, texts, with_head

ONE_PART = [name for name in CONFIGS if name not in TWO_PARTS and name != "vit"]


def deaf(model, layer, heads):
    """A copy of a BERT whose output projection does not hear these heads."""
    model = deepcopy(model)
    for head in heads:
        model.base_model.encoder.layer[layer].attention.output.dense.weight.data[:, 5 * head : 5 * head + 5] = 0
    return model


def alone(model, batch, read):
    """`read` of what the model itself says of each text, without padding."""
    return [read(model(input_ids=t[None, : int(m.sum())])) for t, m in zip(batch.tokens, batch.mask, strict=True)]


@pytest.mark.parametrize("name", ONE_PART)
def test_running_on_from_a_layer_is_running_the_whole_model(name):
    model, batch = build(name), texts()
    layers = Layers.of(model, batch)
    replay = Replay(layers, batch)
    real = {"input_ids": batch.tokens, "attention_mask": batch.mask.long()}

    assert len(layers.blocks) == (0 if name == "albert" else LAYERS)
    for layer in range(layers.layers):
        trials = [{(layer, 0): 0.0}, {(layer, 2): 1.0}, {(layer, 1): 0.0, (layers.layers - 1, 0): 0.0}]
        found = replay.without(trials)[0].chunk(3)
        for of_trial, trial in zip(found, trials, strict=True):

            def change(site, output, trial=trial):
                return replaced(output, {head: new for (at, head), new in trial.items() if at == site.layer})

            with hf.intervene(model, change):
                wanted = model(**real)[0]
            torch.testing.assert_close(of_trial[batch.mask], wanted[batch.mask], atol=1e-5, rtol=1e-5)
            assert not torch.allclose(of_trial[batch.mask], replay.said[0][batch.mask], atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_what_leads_to_the_attention_that_changes_does_not_run_again(name):
    model, batch = build(name), texts()
    replay = Replay(Layers.of(model, batch), batch)
    ran, way = [], {"bert": "attention.self", "gpt2": "attn.c_attn", "llama": "self_attn.q_proj"}[name]
    named = {module: full for full, module in model.named_modules()}
    for linear in (m for m in model.modules() if isinstance(m, (torch.nn.Linear, Conv1D))):
        own = linear.forward
        linear.forward = lambda x, own=own, linear=linear: (ran.append(named[linear]), own(x))[1]

    replay.without([{(1, 0): 0.0}])

    assert ran
    assert not [n for n in ran if ".0." in n or way in n]


@pytest.mark.parametrize("name", TWO_PARTS)
def test_heads_of_encoder_decoder_and_cross_attention_are_worth_what_they_move(name):
    """The embedding is that of the decoder, over its own real tokens; each text alone, by the model itself."""
    model = build(name).double()
    batch = replace(texts(), decoder=texts((4, 6, 2, 3, 7, 1, 5)))
    layers = Layers.of(model, batch)

    found, similarities = measure_importance(model, cut(batch, 4))

    assert set(layers.sites) == set(product(("encoder", "decoder", "cross"), range(LAYERS)))
    for kind, layer, head in (("encoder", 0, 1), ("decoder", 1, 2), ("cross", 0, 0)):

        def change(site, output, of=(kind, layer), head=head):
            return replaced(output, {head: 0.0} if (site.kind, site.layer) == of else {})

        moved = []
        for row in range(len(batch)):
            some = batch.each(lambda t, row=row: t[[row]])
            ids, decoder = some.tokens[some.mask][None], some.decoder.tokens[some.decoder.mask][None]
            before = model(input_ids=ids, decoder_input_ids=decoder)[0].mean(dim=1)
            with hf.intervene(model, change):
                after = model(input_ids=ids, decoder_input_ids=decoder)[0].mean(dim=1)
            moved.append(1 - float(cosine_similarity(before, after)))
        of_kind, _ = hfimportance.of_kind(layers, kind, found, similarities)
        assert of_kind.of_head["zero"].mean[layer, head, 0] == pytest.approx(np.mean(moved), abs=1e-6)


@pytest.mark.parametrize("kind", ["classifier", "embedding"])
def test_a_head_that_nobody_hears_is_worth_nothing(kind):
    """Rounding apart: the same sum over other sizes of a batch."""
    model = build("bert").double() if kind == "embedding" else with_head(kind)

    found, similarities = measure_importance(deaf(model, 1, [2]), cut(texts(labels=kind == "classifier"), 3))

    for method, moments in found.of_head.items():
        assert moments.mean[1, 2].abs().max() < 1e-12, method
        assert moments.mean[1, 1].abs().max() > 1e-6, method
    if kind == "embedding":
        torch.testing.assert_close(similarities.changed["zero"][:, 1, 2], similarities.plain, atol=1e-6, rtol=0)


def test_without_a_head_the_labels_are_as_hard_as_for_a_model_that_does_not_hear_it():
    model, batch = with_head("classifier"), texts(labels=True)

    found, nothing = measure_importance(model, cut(batch, 3))

    def read(output):
        return output.logits[0]

    before = torch.stack(alone(model, batch, read))
    after = torch.stack(alone(deaf(model, 0, [1]), batch, read))
    losses = [cross_entropy(x, batch.labels) for x in (before, after)]
    right = [(x.argmax(dim=1) == batch.labels).double().mean() for x in (before, after)]
    drop, loss, lost, gained = found.of_head["zero"].mean[0, 1]
    assert drop == pytest.approx(float(right[0] - right[1]), abs=1e-9)
    assert loss == pytest.approx(float(losses[1] - losses[0]), abs=1e-9)
    assert lost - gained == pytest.approx(float(drop))
    assert found.whole.mean.tolist() == pytest.approx([float(right[0]), float(losses[0])])
    assert nothing is None


def test_without_labels_a_classifier_is_held_against_itself():
    model, batch = with_head("classifier"), texts()

    found, _ = measure_importance(model, cut(batch, 3))

    before, after = (torch.stack(alone(m, batch, lambda o: o.logits[0])) for m in (model, deaf(model, 1, [0])))
    divergence = kl_div(after.log_softmax(1), before.log_softmax(1), reduction="none", log_target=True).sum(1)
    changed = (before.argmax(dim=1) != after.argmax(dim=1)).double()
    assert found.of_head["zero"].mean[1, 0].tolist() == pytest.approx([float(changed.mean()), float(divergence.mean())])
    assert found.whole.mean[0] == 1
    assert "gradient" not in found.of_head
    assert found.effects == ("answers_changed", "divergence")


def test_the_loss_of_a_language_model_is_its_own_and_texts_of_one_token_have_none():
    model, batch = with_head("language", "gpt2"), texts()

    found, _ = measure_importance(model, cut(batch, 3), methods=["zero", "gradient"])

    long = [n for n in LENGTHS if n > 1]
    own = [
        float(model(input_ids=tokens[None, :n], labels=tokens[None, :n]).loss)
        for tokens, n in zip(batch.tokens, LENGTHS, strict=True)
        if n > 1
    ]
    assert found.whole.mean[1] == pytest.approx(sum(own) / len(own), abs=1e-6)  # transformers' loss is of float32
    assert found.whole.count.tolist() == [len(long)] * 2
    assert (
        found.of_head["zero"].count[0, 0].tolist() == found.of_head["gradient"].count[0, 0].tolist() == [len(long)] * 2
    )
    assert found.effects == ("accuracy_drop", "loss_increase")


def test_an_embedding_is_the_mean_over_real_tokens_and_pairs_are_neighbours():
    model, batch = build("bert").double(), texts()

    found, similarities = measure_importance(model, cut(batch, 3), methods=["zero"])

    def read(output):
        return output.last_hidden_state[0].mean(dim=0)

    before, after = (torch.stack(alone(m, batch, read)) for m in (model, deaf(model, 1, [2])))
    cosines = [torch.stack([cosine_similarity(x[i], x[i + 1], dim=0) for i in (0, 2, 4)]) for x in (before, after)]
    change, moved = found.of_head["zero"].mean[1, 2].tolist()
    assert change == pytest.approx(float((1 - cosine_similarity(before, after)).mean()), abs=1e-6)
    assert moved == pytest.approx(float((cosines[1] - cosines[0]).abs().mean()), abs=1e-6)
    assert found.of_head["zero"].count[1, 2].tolist() == [7, 3]  # seven texts: the last has no partner
    torch.testing.assert_close(similarities.plain.double(), cosines[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(similarities.changed["zero"][:, 1, 2].double(), cosines[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["classifier", "language", "embedding"])
def test_texts_side_by_side_in_threads_of_their_own_are_worth_the_same(kind, monkeypatch):
    """And so are few heads at a time: of 14 tokens, two texts at most, one or two heads are replaced."""
    model = build("bert").double() if kind == "embedding" else with_head(kind, "gpt2" if kind == "language" else "bert")
    batch, told = texts(labels=kind == "classifier"), []
    whole, pairs = measure_importance(model, cut(batch, 7))
    monkeypatch.setattr(hftrials, "TOKENS", 14)

    torch.set_num_threads(2)
    try:
        parts, other = measure_importance(model, cut(batch, 4), tick=told.append)
    finally:
        left = torch.get_num_threads()
        torch.set_num_threads(1)

    for method, moments in whole.of_head.items():
        torch.testing.assert_close(parts.of_head[method].mean, moments.mean, atol=1e-6, rtol=1e-6)
        assert torch.equal(parts.of_head[method].count, moments.count)
    if kind == "embedding":
        torch.testing.assert_close(other.changed["zero"], pairs.changed["zero"], atol=1e-6, rtol=0)
    assert left == 2
    assert sum(told) == len(batch) * LAYERS * 3 * 2


@pytest.mark.parametrize("kind", ["classifier", "language", "embedding"])
def test_how_texts_are_cut_and_padded_changes_nothing(kind):
    model = build("gpt2").double() if kind == "embedding" else with_head(kind, "gpt2")
    batch = texts(labels=kind == "classifier")
    wide = batch.each(lambda t: torch.nn.functional.pad(t, (0, 4)) if t.ndim == 2 else t)

    whole, pairs = measure_importance(model, cut(batch, 7))
    for batches, size in ((cut(batch, 1), 1), (cut(batch, 3), 2), (cut(wide, 4), 3)):
        parts, other = measure_importance(model, batches, size=size)
        for method, moments in whole.of_head.items():
            torch.testing.assert_close(parts.of_head[method].mean, moments.mean, atol=1e-6, rtol=1e-6)
            assert torch.equal(parts.of_head[method].count, moments.count)
        if kind == "embedding":
            torch.testing.assert_close(other.plain, pairs.plain, atol=1e-6, rtol=0)


def test_the_gradient_is_the_finite_difference_of_a_gate_on_the_output():
    model, batch = with_head("classifier"), texts(labels=True)
    step = 1e-5
    losses = []
    for gate in (1 + step, 1 - step):
        gated = deepcopy(model)
        gated.base_model.encoder.layer[0].attention.output.dense.weight.data[:, 5:10] *= gate
        logits = torch.cat(alone(gated, batch, lambda o: o.logits))
        losses.append(cross_entropy(logits, batch.labels, reduction="none"))
    slopes = (losses[0] - losses[1]) / (2 * step)

    found, _ = measure_importance(model, cut(batch, 3), methods=["gradient"])

    wanted = [float(-slopes.mean()), float(slopes.abs().mean())]
    assert found.of_head["gradient"].mean[0, 1].tolist() == pytest.approx(wanted, abs=1e-6)


def test_the_mean_of_a_head_that_never_varies_changes_nothing():
    model = build("bert").double()
    value = model.encoder.layer[0].attention.self.value
    value.weight.data[:5], value.bias.data[:5] = 0, torch.arange(1.0, 6.0)

    found, _ = measure_importance(model, cut(texts(), 3))

    assert found.of_head["mean"].mean[0, 0].max() < 1e-12
    assert found.of_head["zero"].mean[0, 0].min() > 1e-6


def test_the_model_is_as_before_even_when_a_text_breaks_it():
    model, batch = build("bert"), texts()
    before = model(input_ids=batch.tokens)[0]

    def stop(texts):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        measure_importance(model, cut(batch, 3), tick=stop)
    replay = Replay(Layers.of(model, batch), batch)
    with pytest.raises(ValueError, match=r"replacements: head 1 got one of shape \(4,\), the head's output is"):
        replay.without([{(1, 1): torch.zeros(4)}])

    assert torch.equal(model(input_ids=batch.tokens)[0], before)
    assert model.config._attn_implementation == "eager"
    assert not any(m._forward_hooks or m._forward_pre_hooks or "forward" in m.__dict__ for m in model.modules())


def test_what_cannot_be_measured_is_refused_in_words():
    batch = texts(labels=True)
    with pytest.raises(ValueError, match="methods: got resample; allowed are zero, mean, gradient"):
        measure_importance(build("bert"), cut(batch, 3), methods=["resample"])
    with pytest.raises(ValueError, match="batches: there are no texts"):
        measure_importance(build("bert"), lambda: [])
    with pytest.raises(ValueError, match="BartModel has an encoder and a decoder, and there is no text for the deco"):
        measure_importance(build("bart"), cut(batch, 3))
    with pytest.raises(ValueError, match="train mode"):
        measure_importance(build("bert").train(), cut(batch, 3))
    number = with_head("classifier")
    number.config.problem_type = "regression"
    with pytest.raises(ValueError, match="model: its answer is not one of several classes"):
        measure_importance(number, cut(batch, 3))
    wrong = TextBatch(batch.tokens, batch.mask, batch.labels.masked_fill(batch.labels == batch.labels[0], 9))
    with pytest.raises(ValueError, match="labels: got 9, allowed are whole numbers from 0 to 4"):
        measure_importance(with_head("classifier"), cut(wrong, 3))


def test_no_more_tokens_run_side_by_side_than_there_may_be(monkeypatch):
    """One text alone may have more: nothing is cut."""
    monkeypatch.setattr(hftrials, "TOKENS", 12)
    model, sizes = build("bert"), []
    model.embeddings.register_forward_hook(lambda *given: sizes.append(tuple(given[-1].shape[:2])))

    measure_importance(model, cut(texts((30, 3, 3, 6, 6, 3)), 6), methods=["zero"])

    assert max(n * T for n, T in sizes if T < 30) == 12
    assert max(n for n, T in sizes if T == 30) == 1


def test_what_a_model_is_for_is_told_by_its_class():
    tasks = [hfimportance.task_of(m) for m in (build("bert"), with_head("classifier"), with_head("language", "gpt2"))]

    assert tasks == ["embedding", "classification", "language"]
