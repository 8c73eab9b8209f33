"""What the page shows is what the model says, with any heads off, and a mistake gets a sentence."""

import base64
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from attnkit import load_checkpoint
from attnkit.checkpoint import TaskInfo
from attnkit.data import DataConfig
from attnkit.observe import observe, private
from demo import packing, samples, shelf, views
from tests.serving import ARTICLE, COLOURS, fill, write, write_spaced


@pytest.fixture(autouse=True)
def checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf, "CHECKPOINTS", tmp_path / "checkpoints")
    return fill(tmp_path / "checkpoints")


def model_says(checkpoints, name, ids):
    logits, attentions = load_checkpoint(checkpoints / name)(torch.tensor([ids]))
    return logits[0].softmax(0).detach().numpy(), torch.stack(attentions)[:, 0].detach().numpy()


def test_a_reading_is_what_the_model_says(checkpoints):
    reading = views.read(COLOURS, "a<&a<")
    probabilities, weights = model_says(checkpoints, COLOURS, [0, 1, 2, 0, 1])

    assert reading.logits.softmax(0).tolist() == pytest.approx(probabilities.tolist())
    assert reading.weights.shape == (2, 3, 5, 5)
    assert np.array_equal(reading.weights, weights)


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [("01" * 8, "not majority"), ("01" * 7 + "11", "majority"), ("01" * 7 + "00", "not majority"), ("1", "majority")],
)
def test_the_rule_answers_beside_the_model_and_a_tie_is_no_majority(checkpoints, sequence, expected):
    verdict = views.verdict(views.read("majority", sequence))
    probabilities, _ = model_says(checkpoints, "majority", [int(bit) for bit in sequence])

    assert verdict["expected"] == expected
    assert verdict["counts"] == {"0": sequence.count("0"), "1": sequence.count("1")}
    assert verdict["prediction"] == ("not majority", "majority")[probabilities.argmax()]
    assert list(verdict["probabilities"].values()) == pytest.approx(probabilities.tolist())


def test_nothing_is_expected_where_the_rule_is_not_known():
    assert views.verdict(views.read(COLOURS, "a<"))["expected"] is None


def test_a_known_name_over_another_alphabet_is_not_the_known_task(checkpoints):
    """Else the majority rule would count token ids of letters."""
    write(checkpoints / "letters", ARTICLE, TaskInfo(vocab=["a", "b"]), DataConfig(), seed=2)

    assert views.verdict(views.read("letters", "ab"))["expected"] is None


def test_packed_weights_unpack_to_the_models_in_the_order_layer_head_query_key():
    reading = views.read(COLOURS, "a<&a<", [[1, 2]])
    packed = packing.packed(reading)
    weights = np.frombuffer(base64.b64decode(packed["weights"]), "<u2").reshape(2, 3, 5, 5) / 65535

    assert np.abs(weights - reading.weights).max() < 1e-5
    assert (packed["layers"], packed["heads"], packed["off"]) == (2, 3, "1.2")
    assert packed["tokens"] == ["a", "<", "&", "a", "<"]


def test_tokens_of_several_characters_are_counted_and_shown_as_tokens(checkpoints):
    write_spaced(checkpoints / "spaced")
    reading = views.read("spaced", "red redder red")
    cells = packing.cells(reading)

    assert views.verdict(reading)["counts"] == {"red": 2, "redder": 1, "blue": 0}
    assert views.maps(reading)["tokens"] == packing.packed(reading)["tokens"] == ["red", "redder", "red"]
    assert cells["separator"].join(cells["tokens"]) == "red redder red"
    assert len(views.read("spaced", samples.random_sequence("spaced")).ids) == 5


def test_value_norms_are_what_one_key_alone_would_write(checkpoints):
    """A sequence of one token attends to itself alone: the norm is that of the head's whole output."""
    reading = views.read(COLOURS, "<")
    calls = []
    model = private(reading.model)
    with observe(model, calls.append), torch.no_grad():
        model(reading.ids[None])
    written = torch.cat([torch.linalg.vector_norm(call.output @ call.w_o, dim=-1) for call in calls])

    assert reading.value_norms[:, :, 0] == pytest.approx(written[:, :, 0].numpy(), rel=1e-5)


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("", "the sequence is empty"),
        ("0120", "character '2' at position 3"),
        ("01 0", "character ' ' at position 3"),
        ("０", "character '０' at position 1"),
        ("1" * 17, "17 tokens; this checkpoint takes at most 16"),
        ("1" * 1000, "1000 tokens; this checkpoint takes at most 16"),
        ("<img src=x onerror=alert(1)>", "character '<' at position 1"),
        (["1"], "sequence: got list, allowed is text"),
        (None, "sequence: got NoneType, allowed is text"),
    ],
)
def test_a_sequence_that_cannot_be_read_is_told_so(sequence, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        views.read("majority", sequence)


# ---------------------------------------------------------------- heads that are off


def by_hand(checkpoints, name, ids, off):
    """The logits with the output projection's columns of these heads at 0: another way to the same ablation."""
    model = load_checkpoint(checkpoints / name)
    with torch.no_grad():
        for layer, head in off:
            d = model.config.d_model // model.config.n_heads
            model.layers[layer].attn.W_o.weight[:, head * d : (head + 1) * d] = 0
        return model(torch.tensor([ids]))[0][0]


@pytest.mark.parametrize(
    "off", [[], [[0, 1]], [[1, 2], [0, 0]], [[layer, head] for layer in (0, 1) for head in range(3)]]
)
def test_a_head_that_is_off_writes_nothing(checkpoints, off):
    logits = views.read(COLOURS, "a<&a<", off).logits

    assert torch.allclose(logits, by_hand(checkpoints, COLOURS, [0, 1, 2, 0, 1], off), atol=1e-6)


def test_each_change_is_what_making_it_gives(checkpoints):
    """One batch of all single changes, against one reading for each."""
    reading = views.read(COLOURS, "a<&a<", [[0, 1]])
    changes = views.changes(reading)

    def margin(sequence, off):
        logits = views.read(COLOURS, sequence, off).logits
        return float(logits[reading.answer] - logits[1 - reading.answer])

    before = margin("a<&a<", [[0, 1]])
    flipped = ["<<&a<", "a&&a<", "a<aa<", "a<&<<", "a<&a&"]
    assert changes.tokens == pytest.approx([margin(s, [[0, 1]]) - before for s in flipped], abs=1e-5)
    for layer in range(2):
        for head in range(3):
            off = [] if [layer, head] == [0, 1] else [[0, 1], [layer, head]]
            assert changes.heads[layer][head] == pytest.approx(margin("a<&a<", off) - before, abs=1e-5)
            assert changes.answers[layer][head] == views.read(COLOURS, "a<&a<", off).answer


def test_the_margin_is_negative_for_any_other_class():
    logits = torch.tensor([1.0, 4.0, 2.5])

    assert [float(views.margins(logits, answer)) for answer in range(3)] == [-3.0, 1.5, -1.5]


def test_ablation_tells_before_after_and_each(checkpoints):
    answer = views.ablation(views.read("majority", "0110100", [[1, 3], [0, 2], [1, 3]]))

    assert answer["heads"] == [[0, 2], [1, 3]]
    assert answer["before"] == views.verdict(views.read("majority", "0110100"))
    assert answer["after"] == views.verdict(views.read("majority", "0110100", [[0, 2], [1, 3]]))
    assert [(worth["layer"], worth["head"]) for worth in answer["each"]] == [(l, h) for l in range(2) for h in range(4)]


@pytest.mark.parametrize("head", [[2, 0], [0, 3], [-1, 0], [0], [0, 1, 2], "0.1", 7, None, [True, False, 0], ["0", 1]])
def test_a_head_that_is_not_there_is_refused(head):
    with pytest.raises(ValueError, match=r"^head: got .*, allowed is layer 0 to 1, head 0 to 2$"):
        views.read(COLOURS, "a", [head])


@pytest.mark.parametrize("heads", ["0.1", 7, None, {"layer": 0}])
def test_heads_that_are_no_list_are_refused(heads):
    with pytest.raises(ValueError, match=r"^head: got "):
        views.read(COLOURS, "a", heads)


def test_a_replacement_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="replacement: got 'noise', allowed is zero, mean"):
        views.read(COLOURS, "a", [], "noise")


def test_heads_are_written_as_layer_dot_head():
    assert views.heads_of("0.1 12.3 cross.2.0") == [[0, 1], [12, 3], ["cross", 2, 0]]
    assert views.written(views.heads_of("0.1 cross.2.0")) == ["0.1", "cross.2.0"]
    assert views.heads_of("") == views.heads_of(None) == []
    assert views.heads_of("<b> 1 0.x") == ["<b>", "1", "0.x"]


def test_one_visitors_hooks_never_meet_anothers_reading():
    """Eight threads read one shared model at once, each with other heads off; none sees another's."""
    cases = [("0110100", off) for off in ([], [[0, 0]], [[0, 1], [1, 1]], [[1, 3]])] * 2
    alone = [views.read("majority", *case).logits.tolist() for case in cases]

    def often(case):
        return [views.read("majority", *case).logits.tolist() for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(often, cases))

    assert len({tuple(logits) for logits in alone}) == 4  # else nothing could be seen
    assert together == [[logits] * 20 for logits in alone]


def test_a_reading_leaves_the_shared_model_as_it_was():
    _, model = shelf.open_checkpoint("majority")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    views.changes(views.read("majority", "0110100", [[0, 0]]))

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
