"""What the page makes of a reference: what is usual for a sequence, and a head that writes its mean output."""

import numpy as np
import pytest
import torch

from attnkit import load_checkpoint
from attnkit.data import Batch, DataConfig, task_dataset
from attnkit.measures import applicable
from attnkit.reading import read_batch
from attnkit.reference import FILE
from attnkit.tasks import get_task
from demo import shelf, usual, views
from tests.serving import COLOURS, add_reference, fill


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def test_the_pages_statistics_are_the_library_s(checkpoints):
    found = usual.statistics(views.read(COLOURS, "a<&a<"))
    model, measures = load_checkpoint(checkpoints / COLOURS), applicable(["a", "<", "&"])
    read = read_batch(model, Batch(torch.tensor([[0, 1, 2, 0, 1]])), measures)

    assert [one["name"] for one in found["statistics"]] == list(measures)
    for k, one in enumerate(found["statistics"]):
        known = [[x if x is not None else float("nan") for x in row] for row in one["values"]]
        expected = read.values[0, :, :, k].masked_fill(~read.defined[0, :, :, k], torch.nan)
        assert np.array(known) == pytest.approx(expected.numpy(), rel=1e-5, abs=1e-5, nan_ok=True)
    assert (found["among"], found["why"]) == (None, None)


def test_a_head_is_unusual_outside_the_middle_99_percent(checkpoints):
    """Every token a one: no statistic of token 0 can be higher than on any sequence with zeros."""
    add_reference(checkpoints / "majority")
    found = usual.statistics(views.read("majority", "1" * 16))
    odd = {
        (one["name"], layer, head)
        for one in found["statistics"]
        for layer, row in enumerate(one["percentiles"])
        for head, at in enumerate(row)
        if at is not None and not 0.5 <= at <= 99.5
    }

    assert found["among"] == {"count": 500, "length": 16}
    assert ("token_weight[1]", 0, 0) in odd
    assert odd == {
        (name, layer, head)
        for layer, row in enumerate(found["unusual"])
        for head, names in enumerate(row)
        for name in names
    }


def test_a_head_that_is_off_writes_nothing_and_those_after_it_are_read_without_it(checkpoints):
    before, after = (usual.statistics(views.read("majority", "0110" * 4, off)) for off in ([], [[0, 2]]))
    values = {
        one["name"]: (a, one["values"])
        for a, one in zip([one["values"] for one in before["statistics"]], after["statistics"], strict=True)
    }

    assert values["entropy"][0][0] == values["entropy"][1][0]
    assert values["entropy"][0][1] != values["entropy"][1][1]


@pytest.mark.parametrize(
    ("sequence", "sentence"), [("0110", "What is usual is known for sequences of length 16 only.")]
)
def test_another_length_has_statistics_but_no_percentiles(checkpoints, sequence, sentence):
    add_reference(checkpoints / "majority")
    found = usual.statistics(views.read("majority", sequence))

    assert str(found["why"]) == sentence
    assert found["among"] is None
    assert all(at is None for one in found["statistics"] for row in one["percentiles"] for at in row)
    assert found["statistics"][0]["values"][0][0] is not None


def test_a_damaged_reference_is_told_and_takes_nothing_else_away(checkpoints, tmp_path):
    (checkpoints / "majority" / FILE).write_text("torn")
    found = usual.statistics(views.read("majority", "01" * 8))

    assert "reference.npz: is damaged" in str(found["why"])
    assert str(tmp_path) not in str(found["why"])
    assert found["statistics"][0]["values"][0][0] is not None


# ---------------------------------------------------------------- heads at their mean


def test_a_head_at_its_mean_writes_the_mean_of_what_it_writes_over_the_set(checkpoints):
    """Against the forward pass with its output replaced by hand."""
    add_reference(checkpoints / "majority")
    model = load_checkpoint(checkpoints / "majority").requires_grad_(False)
    site = model.layers[0].attn.attention
    (batch,) = task_dataset(get_task("majority"), DataConfig(), "test").batches(500)
    outputs = []
    hook = site.register_forward_hook(lambda module, inputs, result: outputs.append(result[0]))
    model(batch.tokens)
    hook.remove()

    def at_its_mean(module, inputs, result):
        output = result[0].clone()
        output[:, 2] = outputs[0][:, 2].mean(dim=0)
        return output, result[1]

    site.register_forward_hook(at_its_mean)
    logits = model(torch.tensor([[int(bit) for bit in "0110" * 4]]))[0][0]
    reading = views.read("majority", "0110" * 4, [[0, 2]], "mean")

    assert torch.allclose(reading.logits, logits, atol=1e-5)
    assert not torch.allclose(reading.logits, views.read("majority", "0110" * 4, [[0, 2]]).logits, atol=1e-3)


def test_the_mean_is_refused_where_nobody_has_measured_it(checkpoints):
    with pytest.raises(ValueError, match=r"the mean outputs are known up to length 0, the sequence has 1$"):
        views.read(COLOURS, "a", [[0, 0]], "mean")
