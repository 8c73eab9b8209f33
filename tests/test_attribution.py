"""What an answer owes to its tokens: models whose answer is known by thought, and padding that changes nothing."""

import pytest
import torch

from attnkit.attribution import (
    Embedded,
    answers,
    attention_received,
    flip_effects,
    gradient_x_input,
    integrated_gradients,
    margins,
)
from attnkit.data import Batch, pad
from attnkit.model import TinyTransformer
from tests.linear import linear_model

T = 5


@pytest.fixture
def model():
    """Three tokens, three classes, three heads, in float64, with maps that are far from uniform."""
    model = TinyTransformer(3, 15, 3, 7, 2, 11, 3).double().eval().requires_grad_(False)
    for layer in model.layers:
        layer.attn.W_q.weight.mul_(5)
    return model


@pytest.fixture
def batch():
    return Batch(torch.randint(0, 3, (13, 7), generator=torch.Generator().manual_seed(1)))


def test_of_a_linear_model_all_gradients_are_what_each_token_adds_and_a_flip_takes_it_away():
    model = linear_model([-1.0, 0.0, 1.0])
    batch = Batch(torch.tensor([[2, 2, 1, 0, 2], [0, 0, 1, 0, 2]]))
    pair = answers(model(batch.tokens)[0])
    worth = (batch.tokens - 1) / T * torch.tensor([[1], [-1]])  # the second sequence is answered with the other class

    assert pair.tolist() == [[0, 1], [1, 0]]
    integrated, missed = integrated_gradients(Embedded.of(model, batch, pair))
    for found in (gradient_x_input(Embedded.of(model, batch, pair)), integrated):
        torch.testing.assert_close(found, worth.double())
    assert missed.max() < 1e-7  # captum keeps the widths of its steps in float32
    fall, change = flip_effects(model, batch, pair)
    torch.testing.assert_close(fall, 1.5 * worth.double())  # the mean of the two others is −worth / 2
    torch.testing.assert_close(change, torch.where(batch.tokens == 1, 1.0, 1.5).double() / T)


def test_gradients_add_up_to_the_margin_less_that_of_no_tokens(model, batch):
    pair = answers(model(batch.tokens)[0])
    found, missed = integrated_gradients(Embedded.of(model, batch, pair), steps=100)
    nothing = TinyTransformer.from_config(model.config).double().eval()
    nothing.load_state_dict(model.state_dict())
    nothing.embed.weight.data.zero_()
    whole = margins(model(batch.tokens)[0], pair) - margins(nothing(batch.tokens)[0], pair)

    torch.testing.assert_close((found.sum(dim=1) - whole).abs(), missed, rtol=1e-6, atol=1e-9)
    assert missed.max() < 0.01 * whole.abs().max()


def test_a_flip_is_another_token_in_the_same_place_and_the_classes_stay(model, batch):
    pair = answers(model(batch.tokens)[0])
    fall, change = flip_effects(model, batch, pair)
    a, b = pair[4].tolist()

    def margin(tokens):
        logits = model(tokens[None])[0][0]
        return float(logits[a] - logits[b])

    here = batch.tokens[4]
    falls = []
    for other in {0, 1, 2} - {int(here[3])}:
        flipped = here.clone()
        flipped[3] = other
        falls.append(margin(here) - margin(flipped))
    assert float(fall[4, 3]) == pytest.approx(sum(falls) / 2)
    assert float(change[4, 3]) == pytest.approx(sum(map(abs, falls)) / 2)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model, side):
    lengths = (7, 3, 5)
    sequences = [torch.randint(0, 3, (n,)) for n in lengths]

    def everything(batch):
        logits, weights = model(batch.tokens, batch.mask)
        pair = answers(logits)
        found = attention_received(weights, batch.mask)
        found["gradient"], found["integrated"] = (
            gradient_x_input(Embedded.of(model, batch, pair)),
            integrated_gradients(Embedded.of(model, batch, pair))[0],
        )
        found["fall"], found["change"] = flip_effects(model, batch, pair)
        return found

    batch = pad(sequences, side)
    together = everything(batch)
    for row, sequence in enumerate(sequences):
        for name, alone in everything(Batch(sequence[None])).items():
            torch.testing.assert_close(together[name][row, batch.mask[row]], alone[0], msg=name)


def test_attention_received_is_averaged_over_heads_and_queries_of_the_last_and_of_all_layers():
    to_first = torch.zeros(T, T, dtype=torch.float64)
    to_first[:, 0] = 1
    uniform = torch.full((T, T), 1 / T, dtype=torch.float64)
    layers = [torch.stack([uniform, uniform])[None], torch.stack([to_first, uniform])[None]]
    found = attention_received(layers)

    assert found["last_layer"][0].tolist() == pytest.approx([0.6, 0.1, 0.1, 0.1, 0.1])  # half of 1 and half of 1/5
    assert found["mean_layers"][0].tolist() == pytest.approx([0.4, 0.15, 0.15, 0.15, 0.15])


def test_rollout_keeps_half_in_place_at_every_layer():
    """Two layers that look at token 2 alone leave a quarter where it was; a shift twice is 1/4, 1/2, 1/4."""
    to_third = torch.zeros(T, T, dtype=torch.float64)
    to_third[:, 2] = 1
    found = attention_received([to_third[None, None]] * 2)["rollout"][0]
    assert found.tolist() == pytest.approx([0.05, 0.05, 0.8, 0.05, 0.05])

    shift = torch.zeros(T, T, dtype=torch.float64)
    shift[0, 3] = shift[1:, 0] = 1  # 0 looks at 3, all others at 0
    found = attention_received([shift[None, None], torch.eye(T, dtype=torch.float64)[None, None]])["rollout"][0]
    assert found.tolist() == pytest.approx(
        [0.5, 0.1, 0.1, 0.2, 0.1]
    )  # the lower layer's map alone counts: 5 and 4 halves


def test_rollout_goes_from_the_last_layer_down_to_the_tokens():
    first, last = torch.zeros(2, T, T, dtype=torch.float64)
    first[:, 0] = 1  # below, everything looks at 0
    last[:, 1] = 1  # above, everything looks at 1
    found = attention_received([first[None, None], last[None, None]])["rollout"][0]

    # Half goes to 1, of which half on to 0; half stays, of which half goes to 0 and half stays.
    assert found.tolist() == pytest.approx([0.25 + 0.25 + 0.05, 0.25 + 0.05, 0.05, 0.05, 0.05])


def test_the_answer_and_its_runner_up_are_the_two_largest_logits():
    logits = torch.tensor([[1.0, 4.0, 2.5], [3.0, -1.0, 0.0]])

    assert answers(logits).tolist() == [[1, 2], [0, 2]]
    assert margins(logits, answers(logits)).tolist() == [1.5, 3.0]
    assert margins(logits, torch.tensor([[0, 1], [0, 1]])).tolist() == [-3.0, 4.0]


def test_a_model_without_a_choice_is_refused(batch):
    with pytest.raises(ValueError, match="has one class; an answer has a margin only over another"):
        answers(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="has one token; there is no other to flip it to"):
        flip_effects(linear_model([1.0]), Batch(torch.zeros(1, T, dtype=torch.int64)), torch.tensor([[0, 1]]))
