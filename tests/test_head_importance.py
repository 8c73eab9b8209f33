"""`python -m analysis.head_importance`: its tables held to plain models, its sentences held to its tables."""

import copy
import json
import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

from analysis import head_importance, head_stats
from analysis.importance_tables import importance_frame, pairs_frame, predictors_frame, pruning_frame, rank_correlation
from attnkit.ablation import Donors, ablate, head_outputs
from attnkit.checkpoint import Checkpoint, save_checkpoint
from attnkit.data import Batch, DataConfig, pad
from attnkit.importance import Trial, measure_importance, pairs_of, prune, some
from attnkit.model import ModelConfig, TinyTransformer

LENGTHS = [7, 3, 7, 5, 3, 7, 5, 7, 11, 3, 5, 7, 3]  # one of 11
HEADS = [(layer, head) for layer in range(2) for head in range(3)]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(3)
    return TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)


def padded(side="right"):
    g = torch.Generator().manual_seed(1)
    some = [torch.randint(0, 2, (length,), generator=g) for length in LENGTHS]
    return Batch(pad(some, side).tokens, pad(some, side).mask, torch.tensor([int(s.sum()) % 2 for s in some]))


def cut(batch, size):
    return lambda: batch.split(size)


def without(model, heads):
    """A copy that was never taught to hear these heads."""
    deaf = copy.deepcopy(model)
    for layer, head in heads:
        deaf.layers[layer].attn.W_o.weight.data[:, 5 * head : 5 * head + 5] = 0
    return deaf


def right_and_loss(model, batch):
    logits, _ = model(batch.tokens, batch.mask)
    right = (logits.argmax(dim=1) == batch.labels).double()
    return right.numpy(), cross_entropy(logits, batch.labels, reduction="none").numpy()


def differences(model, other, batch):
    """(accuracy lost, loss increase) of every sequence."""
    (right, loss), (right_other, loss_other) = right_and_loss(model, batch), right_and_loss(other, batch)
    return right - right_other, loss_other - loss


# ---------------------------------------------------------------- against plain models


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("heads", [[(0, 1)], [(1, 2)], [(0, 0), (1, 0), (1, 1)], []])
def test_a_trial_is_the_whole_model_run_again(model, side, heads):
    batch = padded(side)
    drop, increase = differences(model, without(model, heads), batch)

    effects = Trial(model, batch).effects(dict.fromkeys(heads, 0.0)).numpy()
    np.testing.assert_allclose(effects[:, 0], drop)
    np.testing.assert_allclose(effects[:, 1], increase, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(effects[:, 2] - effects[:, 3], drop)


def test_intervals_are_those_of_the_paired_differences(model):
    batch = padded()
    table = importance_frame(measure_importance(model, cut(batch, 5)), population=False)

    zero = table[table["method"] == "zero"].set_index(["layer", "head"])
    for head in HEADS:
        for name, values in zip(
            ("accuracy_drop", "loss_increase"), differences(model, without(model, [head]), batch), strict=True
        ):
            half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
            row = zero.loc[head]
            np.testing.assert_allclose(row[name], values.mean(), rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(row[f"{name}_ci_low"], values.mean() - half, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(row[f"{name}_ci_high"], values.mean() + half, rtol=1e-9, atol=1e-12)
        assert row["answers_lost"] - row["answers_gained"] == pytest.approx(13 * row["accuracy_drop"])


def test_resample_puts_out_what_the_drawn_sequences_make_the_head_put_out(model):
    """By hand, with whole models; the only sequence of 11 tokens has no other to draw from, and does not count."""
    batch = padded()
    found = measure_importance(model, cut(batch, 4), methods=["resample"], seed=5).of_head["resample"]

    ((_, donors, has_donor),) = Donors([batch], 5).draws([batch], 2)
    assert has_donor.tolist() == [length != 11 for length in LENGTHS]
    _, before = right_and_loss(model, batch)
    for layer, head in HEADS:
        increases = []
        for donor in donors:
            with ablate(model, {(layer, head): head_outputs(model, donor)[:, layer, head]}):
                increases.append(right_and_loss(model, batch)[1] - before)
        by_hand = np.mean(increases, axis=0)[has_donor]
        assert int(found.count[layer, head, 1]) == 12
        np.testing.assert_allclose(found.mean[layer, head, 1], by_hand.mean(), rtol=1e-9, atol=1e-12)


def test_over_a_population_only_the_draw_of_resample_has_an_interval(model):
    table = importance_frame(measure_importance(model, cut(padded(), 5)), population=True)

    ends = table.filter(regex="^(accuracy|loss|gradient).*_ci_").notna().any(axis=1)
    assert set(table.loc[ends, "method"]) == {"resample"}
    resample = table[table["method"] == "resample"]
    assert (resample["loss_increase_ci_high"] > resample["loss_increase_ci_low"]).all()


def test_the_interval_of_the_draw_is_as_wide_as_draws_differ(model):
    """Over 60 seeds: the spread of the means is what each seed alone says of it, within a third."""
    tokens = torch.randint(0, 2, (97, 7), generator=torch.Generator().manual_seed(2))
    batch = Batch(tokens, labels=tokens.sum(dim=1) % 2)
    seeds = [measure_importance(model, cut(batch, 97), methods=["resample"], seed=seed) for seed in range(60)]

    means = torch.stack([found.of_head["resample"].mean[..., 1] for found in seeds])
    said = torch.stack([(found.draw.mean / found.draw.count)[..., 1] for found in seeds]).mean(dim=0).sqrt()
    ratio = (means.std(dim=0) / said).numpy()
    assert (ratio > 2 / 3).all()
    assert (ratio < 4 / 3).all()


def test_pairs_say_what_is_beyond_the_sum(model):
    batch = padded()
    table = pairs_frame(measure_importance(model, cut(batch, 5), pairs=True), pairs_of(model), population=False)

    assert len(table) == 15
    alone = {head: differences(model, without(model, [head]), batch)[1] for head in HEADS}
    rows = table.set_index(["layer_a", "head_a", "layer_b", "head_b"])
    for a, b in combinations(HEADS, 2):
        together = differences(model, without(model, [a, b]), batch)[1]
        row = rows.loc[(*a, *b)]
        np.testing.assert_allclose(row["loss_increase"], together.mean(), rtol=1e-9, atol=1e-12)
        beyond = together - alone[a] - alone[b]
        np.testing.assert_allclose(row["loss_beyond_sum"], beyond.mean(), rtol=1e-9, atol=1e-12)
        half = 1.96 * beyond.std(ddof=1) / np.sqrt(13)
        np.testing.assert_allclose(row["loss_beyond_sum_ci_high"], beyond.mean() + half, rtol=1e-9, atol=1e-12)


def test_pruning_removes_what_costs_least_by_measured_loss(model):
    """Greedy by hand: of whole models without the heads so far and one more, the one with the lowest loss."""
    batch = padded()
    importance = measure_importance(model, cut(batch, 5), methods=["zero"])
    order = prune(model, cut(batch, 5))
    table = pruning_frame(importance, order, population=False)

    gone = []
    while len(gone) < len(HEADS):
        losses = {h: right_and_loss(without(model, [*gone, h]), batch)[1].mean() for h in HEADS if h not in gone}
        gone.append(min(losses, key=losses.__getitem__))
        assert table["loss"].iloc[len(gone)] == pytest.approx(losses[gone[-1]], rel=1e-9)
    assert [head for head, _ in order] == gone
    assert table["removed"].tolist() == list(range(7))
    right, loss = right_and_loss(model, batch)
    assert table.loc[0, ["accuracy", "loss"]].tolist() == pytest.approx([right.mean(), loss.mean()])
    assert table["accuracy"].iloc[-1] == pytest.approx(right_and_loss(without(model, HEADS), batch)[0].mean())


def test_of_many_sequences_some_find_the_order_and_all_give_the_numbers(model, monkeypatch):
    monkeypatch.setattr("attnkit.importance.SEARCHED", 50)
    tokens = torch.randint(0, 2, (201, 7), generator=torch.Generator().manual_seed(2))
    batch = Batch(tokens, labels=tokens.sum(dim=1) % 2)
    order = prune(model, cut(batch, 32))

    chosen = [len(part) for part in some(cut(batch, 32), 50 / 201, 0)()]
    assert 30 < sum(chosen) < 70
    assert sum(chosen) == sum(len(part) for part in some(cut(batch, 7), 50 / 201, 0)())
    assert [head for head, _ in order] == [head for head, _ in prune(model, cut(batch, 7))]
    first, effects = order[0]
    assert float(effects.count[1]) == 201
    increase = differences(model, without(model, [first]), batch)[1]
    assert float(effects.mean[1]) == pytest.approx(increase.mean(), rel=1e-9)


# ---------------------------------------------------------------- what foretells the damage


def test_rank_correlation_is_spearmans():
    g = np.random.default_rng(0)
    x, y = g.integers(0, 5, 11), g.normal(size=11)  # with ties
    rho, low, high, p = rank_correlation(x, y)

    by_scipy = stats.spearmanr(x, y)
    assert rho == pytest.approx(by_scipy.statistic)
    assert p == pytest.approx(by_scipy.pvalue, abs=0.03)  # permutations against a t-distribution
    assert low < rho < high
    assert rank_correlation(x, -y)[0] == pytest.approx(-rho)


def test_a_perfect_order_has_no_interval_but_a_small_p():
    rho, low, high, p = rank_correlation(np.arange(8.0), np.arange(8.0) ** 3)
    assert rho == pytest.approx(1)
    assert np.isnan([low, high]).all()
    assert p == pytest.approx(2 / math.factorial(8))  # of all orders this one and its reverse are as extreme


def test_as_strong_a_correlation_of_so_few_heads_has_the_same_p():
    """All orders are tried: which ranks the two have, and which is turned round, makes no difference."""
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])
    first, turned, swapped = (rank_correlation(*pair) for pair in ((x, y), (-x, y), (y, x)))

    assert first[0] == pytest.approx(-turned[0])
    assert first[3] == turned[3] == swapped[3]


def test_predictors_leave_out_what_says_nothing():
    """A statistic that all heads share, or that one has not, orders no heads."""
    heads = [(0, 0), (0, 1), (1, 0), (1, 1)]
    values = {"entropy": [1, 2, 3, 4], "max_weight": [1, 1, 1, 1], "selectivity": [1, 2, 3, np.nan]}
    long = pd.DataFrame(
        [(*h, s, "all", v) for s, of in values.items() for h, v in zip(heads, of, strict=True)],
        columns=["layer", "head", "statistic", "group", "mean"],
    ).dropna()
    zero = pd.DataFrame(heads, columns=["layer", "head"]).assign(
        method="zero", accuracy_drop=0.0, loss_increase=[4.0, 3.0, 2.0, 1.0]
    )
    gradient = zero.assign(method="gradient", gradient_importance=[5.0, 6.0, 8.0, 7.0])

    table = predictors_frame(long, pd.concat([zero, gradient]))
    assert table[["statistic", "effect", "n"]].to_numpy().tolist() == [
        ["entropy", "loss_increase", 4],
        ["gradient_importance", "loss_increase", 4],
    ]
    assert table["spearman"].tolist() == pytest.approx([-1, -0.8])


# ---------------------------------------------------------------- the command


def run(out, *arguments, checkpoint="tests/data/weights.safetensors"):
    given = ("--checkpoint", checkpoint, "--out", out, "--device", "cpu", *arguments)
    head_importance.main([str(a) for a in given])


TABLES = ["head_importance.csv", "head_importance_statistics.csv", "pairs.csv", "pruning.csv", "predictors.csv"]


@pytest.fixture(scope="module")
def article(tmp_path_factory):
    """The article's weights over the 500 test sequences."""
    out = tmp_path_factory.mktemp("importance")
    run(out)
    return out


def test_every_promised_file_is_there_and_nothing_else(article):
    figures = [
        f"figures/{name}.{kind}" for name in ("importance", "pairs", "predictors", "pruning") for kind in ("png", "svg")
    ]
    files = {str(p.relative_to(article)) for p in article.rglob("*") if p.is_file()}
    assert files == {*TABLES, *figures, "head_importance.json", "run.json", "report.html"}


def test_the_same_run_twice_gives_the_same_bytes_and_batch_size_no_other_numbers(undrawn, article, tmp_path):
    run(tmp_path / "again")
    run(tmp_path / "small", "--batch-size", 97)

    for name in TABLES:
        assert (tmp_path / "again" / name).read_bytes() == (article / name).read_bytes(), name
    left, right = (pd.read_csv(folder / "head_importance.csv") for folder in (article, tmp_path / "small"))
    numbers = left.columns[3:]
    # In float32 a loss of 1e-4 has rounding errors of 1e-7, which other batch sizes round otherwise.
    np.testing.assert_allclose(left[numbers], right[numbers], rtol=1e-5, atol=1e-7)


def test_a_run_json_that_is_there_stays_and_other_weights_are_told_of(undrawn, article, tmp_path, uniform_checkpoint):
    head_stats.main(["--checkpoint", str(uniform_checkpoint), "--out", str(tmp_path), "--device", "cpu"])
    before = (tmp_path / "run.json").read_bytes()
    assert "Beware" not in (article / "report.html").read_text()
    run(tmp_path)

    assert (tmp_path / "run.json").read_bytes() == before
    assert "Beware: this was measured on other weights" in (tmp_path / "report.html").read_text()
    head_stats.main(["--checkpoint", "tests/data/weights.safetensors", "--out", str(tmp_path), "--device", "cpu"])
    page = (tmp_path / "report.html").read_text()
    assert "What is lost without each head" in page  # head_stats' page tells of what other studies left
    assert "Beware" not in page


def test_sequences_without_labels_are_refused(tmp_path):
    (tmp_path / "own.csv").write_text("sequence\n0011\n0111\n")
    with pytest.raises(ValueError, match="labels: there are none; what a head is worth is measured by the loss"):
        run(tmp_path / "out", "--data", tmp_path / "own.csv")


def test_own_data_of_mixed_lengths(undrawn, tmp_path):
    (tmp_path / "own.csv").write_text("sequence,label\n0011,0\n1,1\n10111,1\n0011,0\n0111,1\n11111,1\n")
    run(tmp_path / "out", "--data", tmp_path / "own.csv")

    n = pd.read_csv(tmp_path / "out" / "head_importance.csv").groupby("method")["n"].unique().map(list)
    assert n.to_dict() == {"gradient": [6], "mean": [6], "resample": [5], "zero": [6]}


def test_all_sequences_of_a_fresh_model(undrawn, tmp_path):
    config = ModelConfig(vocab_size=2, d_model=15, n_heads=3, d_ff=7, n_layers=1, max_len=7)
    model = TinyTransformer.from_config(config)
    folder = save_checkpoint(tmp_path / "fresh", model, Checkpoint(config, data=DataConfig(length=7)), [], "# a card\n")
    run(tmp_path / "out", "--split", "exhaustive", checkpoint=folder)

    record = json.loads((tmp_path / "out" / "head_importance.json").read_text())
    assert (record["sequences"], record["population"]) == (128, True)
    assert "no sampling error" in (tmp_path / "out" / "report.html").read_text()


def test_many_heads_leave_out_pairs_and_pruning(undrawn, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(head_importance, "FEW", 7)
    run(tmp_path)

    assert not (tmp_path / "pairs.csv").exists()
    assert not (tmp_path / "pruning.csv").exists()
    assert "pairs and pruning: left out; with more than 7 heads" in capsys.readouterr().out


def test_head_stats_has_the_importance_beside_the_statistics(undrawn, article, tmp_path):
    head_stats.main(
        [
            "--checkpoint",
            "tests/data/weights.safetensors",
            "--out",
            str(tmp_path),
            "--device",
            "cpu",
            "--with-importance",
        ]
    )

    wide = pd.read_csv(tmp_path / "head_stats.csv").set_index(["layer", "head"])
    of_heads = pd.read_csv(article / "head_importance.csv").set_index(["layer", "head"])
    zero, gradient = (of_heads[of_heads["method"] == method] for method in ("zero", "gradient"))
    for name, table in (("accuracy_drop", zero), ("loss_increase", zero), ("gradient_importance", gradient)):
        np.testing.assert_allclose(wide[name], table[name], rtol=1e-9)
    long = pd.read_csv(tmp_path / "head_stats_long.csv").query("statistic == 'loss_increase'")
    np.testing.assert_allclose(long["ci_high"], zero["loss_increase_ci_high"], rtol=1e-9)
    assert {"accuracy_drop", "loss_increase"} <= set(pd.read_csv(tmp_path / "dictionary.csv")["statistic"])


# ---------------------------------------------------------------- the words


def test_of_a_sample_none_lost_is_not_none_at_all(article):
    """0 of 500 still leaves up to 0.6 % of all sequences: 1 − 0.05^(1/500)."""
    page = (article / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "(of all sequences it may be up to 0.6 %, 95 % sure)" in page
