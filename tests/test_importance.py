"""What a head is worth: replaced outputs, held to what the weights themselves say."""

import copy

import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from analysis import head_importance
from attnkit.ablation import ablate
from attnkit.data import Batch
from attnkit.importance import EFFECTS, Trial, measure_importance
from attnkit.model import TinyTransformer

DROP, LOSS = EFFECTS.index("accuracy_drop"), EFFECTS.index("loss_increase")


@pytest.fixture
def model():
    torch.manual_seed(3)
    return TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)


@pytest.fixture
def batch():
    tokens = torch.randint(0, 2, (13, 7), generator=torch.Generator().manual_seed(1))
    return Batch(tokens, labels=tokens.sum(dim=1) % 2)


def cut(batch, size):
    return lambda: batch.split(size)


def without_slice(model, layer, head):
    """A copy whose output projection does not hear the head: what zero ablation must equal."""
    deaf = copy.deepcopy(model)
    deaf.layers[layer].attn.W_o.weight.data[:, 5 * head : 5 * head + 5] = 0
    return deaf


@pytest.mark.parametrize("head", [(0, 0), (0, 2), (1, 1)])
def test_removing_a_head_is_zeroing_its_slice_of_the_output_projection(model, batch, head):
    expected, _ = without_slice(model, *head)(batch.tokens)
    with ablate(model, {head: 0.0}):
        logits, _ = model(batch.tokens)
    torch.testing.assert_close(logits, expected, rtol=1e-12, atol=1e-12)

    effects = Trial(model, batch).effects({head: 0.0})
    before, _ = model(batch.tokens)
    losses = [cross_entropy(x, batch.labels, reduction="none") for x in (expected, before)]
    torch.testing.assert_close(effects[:, LOSS], losses[0] - losses[1], rtol=1e-9, atol=1e-12)
    right = [(x.argmax(dim=1) == batch.labels).double() for x in (before, expected)]
    assert torch.equal(effects[:, DROP], right[0] - right[1])


def test_a_head_that_nobody_hears_costs_nothing_by_any_method(model, batch):
    deaf = without_slice(model, 1, 2)

    found = measure_importance(deaf, cut(batch, 5))
    for moments in found.of_head.values():
        torch.testing.assert_close(moments.mean[1, 2], torch.zeros_like(moments.mean[1, 2]), rtol=0, atol=1e-12)


def test_the_mean_of_a_head_that_never_varies_changes_nothing(model, batch):
    """Values that come from the bias alone: the head writes the same on every sequence."""
    constant = copy.deepcopy(model)
    constant.layers[0].attn.W_v.weight.data[:5] = 0

    found = measure_importance(constant, cut(batch, 5), methods=["mean", "zero"])
    assert found.of_head["mean"].mean[0, 0].abs().max() < 1e-12
    assert found.of_head["zero"].mean[0, 0, LOSS].abs() > 1e-9


def test_the_gradient_is_the_finite_difference_of_a_gate_on_the_output(model, batch):
    slopes = Trial(model, batch).slopes()

    step = 1e-6
    for layer, head in [(0, 1), (1, 0)]:
        losses = []
        for gate in (1 + step, 1 - step):
            gated = copy.deepcopy(model)
            gated.layers[layer].attn.W_o.weight.data[:, 5 * head : 5 * head + 5] *= gate
            losses.append(cross_entropy(gated(batch.tokens)[0], batch.labels, reduction="none"))
        torch.testing.assert_close(slopes[:, layer, head], (losses[0] - losses[1]) / (2 * step), rtol=1e-5, atol=1e-9)


def test_batches_change_nothing_and_gradients_do_not_carry_over(model, batch):
    whole, parts = (measure_importance(model, cut(batch, size), pairs=True) for size in (13, 4))

    for name, moments in whole.of_head.items():
        torch.testing.assert_close(parts.of_head[name].mean, moments.mean, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(parts.of_head[name].m2, moments.m2, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(parts.pairs.mean, whole.pairs.mean, rtol=1e-9, atol=1e-12)


def test_nothing_of_it_stays_on_the_model_even_after_an_error(model, batch):
    before, _ = model(batch.tokens)
    names = set(model.state_dict())
    with pytest.raises(RuntimeError, match="on purpose"), ablate(model, {(0, 0): 0.0}):
        raise RuntimeError("on purpose")

    assert torch.equal(model(batch.tokens)[0], before)
    assert set(model.state_dict()) == names
    assert not any(m._forward_hooks for m in model.modules())


def test_what_cannot_be_measured_is_refused_in_words(model, batch):
    with pytest.raises(ValueError, match="replacements: got layer 2, head 0; the model has 2 layers of 3 heads"):
        ablate(model, {(2, 0): 0.0}).__enter__()
    with pytest.raises(ValueError, match="labels: there are none"):
        Trial(model, Batch(batch.tokens))
    with pytest.raises(ValueError, match="train mode"):
        Trial(copy.deepcopy(model).train(), batch)
    with pytest.raises(ValueError, match="methods: got nonsense; allowed are zero, mean, resample, gradient"):
        measure_importance(model, cut(batch, 5), methods=["nonsense"])


def test_on_the_articles_model_heads_can_go_and_one_first_layer_head_cannot(article_model):
    """Over a slice of all sequences around the tie, where answers are easiest to lose."""
    from attnkit.tasks import exhaustive

    x, y = exhaustive(16)
    near = (x.sum(dim=1) - 8).abs() <= 1
    batch = Batch(x[near][::7], labels=y[near][::7])
    found = measure_importance(article_model, cut(batch, 1024), methods=["zero"])

    drop = found.of_head["zero"].mean[..., DROP]
    assert (drop == 0).any()  # a head without which every answer stays
    assert drop.max() > 0.01
    assert drop.argmax() < 4  # the one that counts most is in the first layer


def test_the_command_writes_a_row_per_head_and_method_with_intervals(tmp_path):
    head_importance.main(["--checkpoint", "tests/data/weights.safetensors", "--out", str(tmp_path), "--device", "cpu"])

    table = pd.read_csv(tmp_path / "head_importance.csv")
    assert len(table) == 8 * 4
    assert {"layer", "head", "method", "accuracy_drop", "loss_increase"} < set(table)
    zero = table[table["method"] == "zero"]
    assert (zero["loss_increase_ci_low"] <= zero["loss_increase"]).all()
    assert (zero["loss_increase"] <= zero["loss_increase_ci_high"]).all()
    assert len(pd.read_csv(tmp_path / "pairs.csv")) == 8 * 7 / 2
    assert len(pd.read_csv(tmp_path / "pruning.csv")) >= 8
    assert "What is lost without each head" in (tmp_path / "report.html").read_text(encoding="utf-8")
