"""The counting card: heads that count in a known way are found out, and others are left undecided."""

from functools import reduce
from operator import add

import numpy as np
import pandas as pd
import pytest
import torch

from analysis import counting
from analysis.counting import count, curves_frame, decide, errors, positional_errors, sums_of, ways_frame
from attnkit.data import Batch, pad
from attnkit.model import TinyTransformer
from attnkit.observe import AttentionCall
from attnkit.tasks import exhaustive

T = 7
TOKENS = exhaustive(T)[0][:-1]  # all but 1111111, which has no zero to anchor on
X = TOKENS.double()
ONES = X.sum(dim=1)


def call(weights, values=X):
    """Heads with these weights (B, H, T, T) on values (B, T) that say what the token is."""
    B, H, _, _ = weights.shape
    value = values[:, None, :, None].expand(B, H, -1, 1)
    return AttentionCall(0, value, value, value, None, 1.0, weights, weights @ value, torch.ones(H, 1, 3).double())


def normalised(scores):
    return scores / scores.sum(dim=-1, keepdim=True)


def preferring(ones_weigh):
    """Every one weighs so much, (B, T) by query or a number, where a zero weighs 1."""
    r = torch.as_tensor(ones_weigh).double().expand(len(X), T)[:, :, None]
    return normalised(1 + (r - 1) * X[:, None, :])


def anchored():
    """The ones and the first zero share the weight alike."""
    first = torch.zeros_like(X).scatter(1, (TOKENS == 0).int().argmax(dim=1, keepdim=True), 1.0)
    return normalised((X + first)[:, None, :].expand(-1, T, -1))


HEADS = {
    ("uniform", 1.0): preferring(1.0),
    ("leaning", 3.0): preferring(3.0),
    ("leaning", 0.5): preferring(0.5),
    ("clustering", 5.0): preferring(torch.where(TOKENS == 1, 5.0, 0.2)),
    ("clustering", 0.25): preferring(torch.where(TOKENS == 1, 0.25, 4.0)),
    ("majority", 4.0): preferring(torch.where(2 * ONES > T, 4.0, 0.25)[:, None]),
    ("readout", 1.0): anchored(),
    ("positional", 1.0): torch.eye(T).roll(1, dims=1).double().expand(len(X), -1, -1),
}


@pytest.mark.parametrize(("way", "preference"), HEADS, ids=str)
def test_a_head_that_counts_in_a_known_way_is_found_out(way, preference):
    table = ways_frame({T: sums_of([call(HEADS[way, preference][:, None])], TOKENS)}).set_index("way")

    assert table["verdict"].unique().tolist() == [way]
    assert table.loc[way, "r2"] == pytest.approx(1, abs=1e-6)
    assert table.loc[way, "preference"] == pytest.approx(preference, rel=1e-3)
    assert table["margin"].iloc[0] > 0.99


def test_a_mixture_is_undecided():
    """Half position, half own token: neither explains it."""
    mixed = (HEADS["clustering", 5.0] + HEADS["positional", 1.0]) / 2
    table = ways_frame({T: sums_of([call(mixed[:, None])], TOKENS)})

    assert set(table["verdict"]) == {"undecided"}
    assert table["r2"].max() < 0.9


def test_a_way_must_explain_enough_and_be_ahead_of_the_next():
    assert decide({"uniform": 0.95, "leaning": 0.89, "readout": -3.0}, share=0.3)[0] == "uniform"
    assert decide({"uniform": 0.95, "leaning": 0.92}, share=0.3) == ("undecided", pytest.approx(1 - 0.05 / 0.08))
    assert decide({"uniform": 0.85, "leaning": 0.1}, share=0.3)[0] == "undecided"
    assert decide({"uniform": 1.0, "leaning": 1.0}, share=0.3) == ("undecided", 0.0)
    assert decide({"uniform": 0.5, "positional": 0.96, "leaning": 0.5}, share=0.3)[0] == "positional"
    assert decide({"uniform": 0.95, "positional": 0.96, "leaning": 0.5}, share=0.3)[0] == "uniform"
    assert decide({"uniform": 1.0, "leaning": 0.9}, share=0.02) == ("idle", pytest.approx(0.6))


def test_a_head_whose_values_do_not_know_the_tokens_is_idle():
    """Two heads attend alike; what one reads is the same for every token."""
    weights = preferring(3.0)[:, None].expand(-1, 2, -1, -1)
    value = torch.stack([X, torch.ones_like(X)], dim=1)[..., None]
    both = AttentionCall(0, value, value, value, None, 1.0, weights, weights @ value, torch.ones(2, 1, 3).double())
    table = ways_frame({T: sums_of([both], TOKENS)}).drop_duplicates(["layer", "head"])

    assert table["verdict"].tolist() == ["leaning", "idle"]
    assert table["share"].tolist() == pytest.approx([1, 0], abs=1e-9)


def noisy(seed, B=61, length=T):
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 2, (B, length), generator=g)
    weights = torch.rand(B, 2, length, length, generator=g, dtype=torch.float64) ** 4
    return tokens, normalised(weights)


def test_errors_are_those_of_a_loop_and_every_sequence_counts_once():
    found, by_hand, positional = {}, 0.0, 0.0
    for length, B in ((5, 31), (7, 61)):
        tokens, weights = noisy(length, B, length)
        found[length] = sums_of([call(weights, tokens.double())], tokens)
        mean = weights[:, 1].mean(dim=0)
        for x, p in zip(tokens.double(), weights[:, 1], strict=True):
            for i in range(length):
                w = float(p[i] @ x)
                by_hand += (w - float(x.sum()) / (float(x.sum()) + 1)) ** 2 / length
                positional += (w - float(mean[i] @ x)) ** 2 / length

    predict, _ = counting.FORMS["readout"]
    assert errors(found, (0, 1), predict, 0.0) == pytest.approx(by_hand, rel=1e-9)
    assert positional_errors(found, (0, 1)) == pytest.approx(positional, rel=1e-9)


def test_r2_is_the_share_of_the_variance_over_all_queries():
    tokens, weights = noisy(3)
    table = ways_frame({T: sums_of([call(weights, tokens.double())], tokens)}).set_index(["head", "way"])

    w = (weights * tokens[:, None, None, :]).sum(dim=-1)[:, 0].numpy()
    uniform = tokens.double().mean(dim=1, keepdim=True).numpy()
    expected = 1 - ((w - uniform) ** 2).sum() / ((w - w.mean()) ** 2).sum()
    assert table.loc[(0, "uniform"), "r2"] == pytest.approx(expected, rel=1e-9)


def test_curves_are_means_by_the_number_of_ones_and_the_own_token():
    tokens, weights = noisy(4)
    sums = {T: sums_of([call(weights, tokens.double())], tokens)}
    curves = curves_frame(sums, ways_frame(sums)).set_index(["layer", "head", "length", "ones", "token"])

    w = (weights * tokens[:, None, None, :]).sum(dim=-1)[:, 1]
    here = (tokens.sum(dim=1, keepdim=True) == 3) & (tokens == 1)
    row = curves.loc[(0, 1, T, 3, 1)]
    assert row["n"] == int(here.sum())
    assert row["measured"] == pytest.approx(float(w[here].mean()), rel=1e-9)
    assert (row["uniform"], row["readout"]) == pytest.approx((3 / 7, 3 / 4))
    assert (curves["n"] > 0).all()


def test_the_curve_of_position_is_the_mean_over_all_places_of_the_ones():
    """Over all sequences with 3 ones, not just in expectation."""
    g = torch.Generator().manual_seed(0)
    fixed = normalised(torch.rand(T, T, generator=g, dtype=torch.float64)).expand(len(X), 1, T, T)
    sums = {T: sums_of([call(fixed)], TOKENS)}
    curves = curves_frame(sums, ways_frame(sums))

    np.testing.assert_allclose(curves["measured"], curves["positional"], atol=1e-12)


def test_batches_and_padding_change_nothing():
    torch.manual_seed(2)
    model = TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)
    g = torch.Generator().manual_seed(1)
    some = [torch.randint(0, 2, (length,), generator=g) for length in [7, 3, 7, 5, 3, 7, 5, 7, 11, 3, 5, 7, 3]]
    whole = ways_frame(count(model, [pad(some)]))

    for batches in ([pad(some[:4], "left"), pad(some[4:])], [Batch(s[None]) for s in some]):
        parts = count(model, batches)
        assert {k: float(v.sequences.sum()) for k, v in parts.items()} == {7: 5, 3: 4, 5: 3, 11: 1}
        pd.testing.assert_frame_equal(ways_frame(parts), whole, rtol=1e-6, atol=1e-9)
    one, two = (count(model, [pad(part)]) for part in (some[:4], some[4:]))
    assert torch.equal(reduce(add, (one[7], two[7])).sequences, count(model, [pad(some)])[7].sequences)


# ---------------------------------------------------------------- the command


def run(out, *arguments, checkpoint="tests/data/weights.safetensors"):
    counting.main([str(a) for a in ("--checkpoint", checkpoint, "--out", out, "--device", "cpu", *arguments)])


def test_the_articles_heads_average_in_the_first_layer_and_follow_the_majority_in_the_second(tmp_path):
    run(tmp_path)

    table = pd.read_csv(tmp_path / "counting.csv").set_index(["layer", "head", "way"])
    best = table["r2"].unstack().idxmax(axis=1)
    assert (best[0] == "leaning").all()
    verdict = table["verdict"].groupby(["layer", "head"]).first()
    assert (verdict[1] == "majority").any()
    assert (verdict == "undecided").any()
    assert not (verdict == "idle").any()
    page = (tmp_path / "report.html").read_text()
    assert "How each head counts" in page
    assert "It looks at the majority: its tokens weigh" in page
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    figures = {"figures/counting.png", "figures/counting.svg"}
    assert files == {"counting.csv", "counting_curves.csv", "counting.json", "run.json", "report.html", *figures}


def test_a_uniform_model_counts_by_averaging(uniform_checkpoint, tmp_path):
    run(tmp_path, checkpoint=uniform_checkpoint)

    assert set(pd.read_csv(tmp_path / "counting.csv")["verdict"]) == {"uniform"}
    assert "It averages: every token weighs the same" in (tmp_path / "report.html").read_text()


def test_another_task_is_refused(tmp_path):
    from attnkit.checkpoint import Checkpoint, TaskInfo, save_checkpoint
    from attnkit.model import ModelConfig

    config = ModelConfig(vocab_size=3, d_model=15, n_heads=3, d_ff=7, n_layers=2, max_len=11)
    task = TaskInfo("colours", ["r", "g", "b"], ["warm", "cold"], "None.")
    model = TinyTransformer.from_config(config)
    folder = save_checkpoint(tmp_path / "other", model, Checkpoint(config, task), [], "# a card\n")
    (tmp_path / "own.csv").write_text("sequence\nrgb\n")
    with pytest.raises(ValueError, match="task: got 'colours'; the ways to count are those of the majority task"):
        run(tmp_path / "out", "--data", tmp_path / "own.csv", checkpoint=folder)
