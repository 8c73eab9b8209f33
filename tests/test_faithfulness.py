"""Do attributions and flips put tokens in the same order? τ as scipy has it, models known by thought, the command."""

import copy
import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau
from torch import nn

from analysis import faithfulness
from analysis.faithfulness_report import verdict
from attnkit import faithfulness_plots
from attnkit.checkpoint import Checkpoint, save_checkpoint
from attnkit.data import Batch, DataConfig, pad
from attnkit.faithfulness import (
    COMPARISONS,
    distance_from_tie,
    levelled,
    margins_of,
    measure_faithfulness,
    quarters,
    tau_b,
)
from attnkit.model import ModelConfig, TinyTransformer
from attnkit.tasks import make_data
from tests.linear import Uniform, linear_model

T = 5
ABSOLUTE = [name for name, effect in COMPARISONS if effect == "absolute"]


# ---------------------------------------------------------------- Kendall's τ


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), length=st.integers(1, 11), kinds=st.integers(1, 7))
def test_tau_is_scipys_with_ties_and_undefined_where_that_is(seed, length, kinds):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randint(0, kinds, (2, 13, length), generator=g).double()
    expected = [kendalltau(a, b).statistic if length > 1 else np.nan for a, b in zip(x, y, strict=True)]

    np.testing.assert_allclose(tau_b(x, y), expected, rtol=1e-12)


def test_tau_of_padded_rows_is_that_of_their_tokens():
    x, y = torch.randn(2, 3, 7, dtype=torch.float64)
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3, [False] * 6 + [True]])
    found = tau_b(x, y, real)

    assert found[1] == pytest.approx(kendalltau(x[1, :4], y[1, :4]).statistic)
    assert found[2].isnan()  # one token has no order


def test_the_same_order_is_1_and_the_reverse_minus_1():
    x = torch.randn(2, T, dtype=torch.float64)

    assert tau_b(x, 3 * x + 1).tolist() == [1, 1]
    assert tau_b(x, -x).tolist() == [-1, -1]


def test_what_rounding_parts_is_tied_and_what_it_does_not_is_not():
    values = torch.tensor([[0.2, 0.2 + 1e-9, 0.2 - 1e-9, 0.2001]], dtype=torch.float64)

    assert tau_b(levelled(values), torch.tensor([[1.0, 2.0, 3.0, 4.0]])).item() == pytest.approx(
        kendalltau([0, 0, 0, 1], [1, 2, 3, 4]).statistic
    )
    assert levelled(torch.zeros(1, 3)).tolist() == [[0, 0, 0]]


def test_padding_does_not_coarsen_the_steps():
    values, mask = torch.tensor([[1.0, 1.0001, 1e9]]), torch.tensor([[True, True, False]])

    assert levelled(values, mask)[0, 0] != levelled(values, mask)[0, 1]


# ---------------------------------------------------------------- models known by thought


def results(found, by="all", group=0):
    """{(attribution, effect): (mean τ, sequences, left out)}"""
    part = found.by[by]
    columns = (part.tau.nan_mean[group], part.tau.count[group], part.undefined[group])
    return dict(zip(COMPARISONS, zip(*(c.tolist() for c in columns), strict=True), strict=True))


def test_gradients_explain_a_linear_model_and_uniform_attention_has_no_order():
    """Tokens worth −1, 0 and 1: in five of six sequences there are two kinds or more; all of a kind have no order."""
    tokens = torch.tensor(
        [[2, 2, 1, 0, 2], [0, 1, 1, 0, 0], [1, 1, 2, 1, 2], [0, 1, 2, 0, 0], [2, 1, 1, 1, 2], [2] * T]
    )
    found = results(measure_faithfulness(linear_model([-1.0, 0.0, 1.0]), lambda: Batch(tokens).split(2)))

    for name in ("gradient_x_input", "integrated_gradients"):
        assert found[name, "signed"] == (pytest.approx(1), 5, 1)
        assert found[name, "absolute"] == (pytest.approx(1), 5, 1)
    for name in ("last_layer", "mean_layers", "rollout"):
        tau, n, left_out = found[name, "absolute"]
        assert np.isnan(tau)
        assert (n, left_out) == (0, 6)


class Looking(Uniform):
    """Attends to tokens by the size of their first coordinate, to some power, whoever asks."""

    def __init__(self, power):
        super().__init__()
        self.power = power

    def forward(self, x, mask=None):
        wanted = (1 + x[..., 0].abs()) ** self.power
        weights = wanted / wanted.sum(dim=1, keepdim=True)
        return x, weights[:, None, None, :].expand(-1, 2, x.shape[1], -1)


@pytest.mark.parametrize(("power", "tau"), [(2, 1), (-1, -1)])
def test_heads_that_look_at_the_tokens_that_count_agree_with_flips_and_those_that_shun_them_disagree(power, tau):
    model, tokens = linear_model([-1.0, 0.0, 1.0]), torch.tensor([[2, 2, 1, 0, 2], [0, 1, 1, 0, 0]])
    model.layers = nn.ModuleList([Looking(power)])
    found = results(measure_faithfulness(model, lambda: [Batch(tokens)]))

    for name in ("last_layer", "mean_layers", "rollout"):
        assert found[name, "absolute"] == (pytest.approx(tau), 2, 0)


@pytest.fixture
def model():
    return TinyTransformer(2, 15, 3, 7, 2, 11).double().eval().requires_grad_(False)


def batch_of(*texts):
    return pad([torch.tensor([int(c) for c in text]) for text in texts])


def test_how_sequences_are_cut_into_batches_changes_nothing(model):
    batch = batch_of("0110", "1", "10111", "00110", "0111011", "11111", "0001101")

    def measured(size):
        groupings = {
            "quarter": quarters(partial(margins_of, model), lambda: batch.split(size)),
            "ones": distance_from_tie(11),
        }
        return measure_faithfulness(model, lambda: batch.split(size), groupings)

    whole, pieces = measured(7), measured(2)
    for name, part in whole.by.items():
        other = pieces.by[name]
        for a, b in ((part.tau.nan_mean, other.tau.nan_mean), (part.tau.std, other.tau.std)):
            torch.testing.assert_close(a, b, equal_nan=True)
        assert torch.equal(part.undefined, other.undefined)
    assert results(whole)["last_layer", "absolute"][2] == 1  # one token alone has no order
    torch.testing.assert_close(whole.missed.mean, pieces.missed.mean)


def test_groups_part_the_sequences_by_what_they_say(model):
    batch = batch_of("0110", "1", "10111", "00110", "0111011", "11111", "0001101")
    grouping = distance_from_tie(11)
    index = grouping.of(batch, torch.zeros(len(batch)))
    assert [grouping.groups[i] for i in index] == [0, 0.5, 1.5, -0.5, 1.5, 2.5, -0.5]

    of_margin = quarters(partial(margins_of, model), lambda: batch.split(3))
    found = measure_faithfulness(model, lambda: batch.split(3), {"margin": of_margin}).by["margin"]
    assert found.margin.count.sum() == 7
    assert (found.margin.high[:-1] < found.margin.low[1:]).all()  # from the smallest margins to the largest
    assert found.margin.count.tolist() == [2, 2, 1, 2]


def test_what_cannot_be_measured_is_refused(model):
    with pytest.raises(ValueError, match="there are no sequences to measure"):
        measure_faithfulness(model, list)
    with pytest.raises(ValueError, match="there are no sequences to measure"):
        quarters(partial(margins_of, model), list)
    with pytest.raises(ValueError, match="is in train mode"):
        measure_faithfulness(model.train(), lambda: [batch_of("01")])


# ---------------------------------------------------------------- the command


def run(out, *arguments, checkpoint="tests/data/weights.safetensors"):
    faithfulness.main([str(a) for a in ("--checkpoint", checkpoint, "--out", out, "--device", "cpu", *arguments)])


@pytest.fixture(scope="module")
def article(tmp_path_factory):
    """The article's weights over the 500 test sequences."""
    out = tmp_path_factory.mktemp("faithfulness")
    run(out)
    return out


@pytest.fixture
def table(article):
    return pd.read_csv(article / "faithfulness.csv")


def test_every_promised_file_is_there_and_nothing_else(article):
    figures = {f"figures/faithfulness_{name}.{kind}" for name in ("all", "groups") for kind in ("png", "svg")}
    files = {str(p.relative_to(article)) for p in article.rglob("*") if p.is_file()}

    assert files == {"faithfulness.csv", "faithfulness.json", *figures, "run.json", "report.html"}


def test_the_groups_of_the_table_are_the_whole(table):
    n = table.assign(n=table["n"] + table["undefined"]).groupby(["by", "attribution", "effect"])["n"].sum()

    assert n.tolist() == [500] * 3 * len(COMPARISONS)
    whole = table[table["by"] == "all"].set_index(["attribution", "effect"])["mean"]
    for by in ("margin", "ones_minus_half"):
        rows = table[(table["by"] == by) & (table["n"] > 0)]
        sums = rows.assign(sum=rows["mean"] * rows["n"]).groupby(["attribution", "effect"])[["sum", "n"]].sum()
        np.testing.assert_allclose((sums["sum"] / sums["n"]).loc[whole.index], whole)


def test_the_table_is_scipys_tau_of_a_flip_done_by_hand(article_model, table):
    """Attention of the last layer, over the first sequences: flipped one by one, in float64, and ranked by scipy."""
    model = copy.deepcopy(article_model).double()
    tokens = make_data(500, 16, 2)[0][:7]
    taus = []
    for sequence in tokens:
        logits, attentions = model(sequence[None])
        received = attentions[-1][0].mean(dim=(0, 1))
        flipped = sequence.repeat(16, 1) ^ torch.eye(16, dtype=torch.int64)
        changes = (model(flipped)[0].diff() - logits.diff()).abs()[:, 0]
        taus.append(kendalltau(received, changes).statistic)
    found = measure_faithfulness(article_model, lambda: [Batch(tokens)])

    assert results(found)["last_layer", "absolute"][0] == pytest.approx(np.mean(taus), abs=1e-3)
    assert found.by["all"].tau.high[0, 0] == pytest.approx(max(taus), abs=0.01)  # the model's maps are in float32


def test_the_page_says_what_the_table_says(article, table):
    page = " ".join((article / "report.html").read_text(encoding="utf-8").split())
    attention = table[(table["by"] == "all") & table["attribution"].isin(["last_layer", "mean_layers", "rollout"])]

    assert "Do the weights explain the answer?" in page
    assert verdict(attention["mean"].max()) in page
    assert page.count("<img") == 2


@pytest.mark.parametrize(
    ("tau", "words"),
    [
        (0.05, "does not say"),
        (-0.05, "does not say"),
        (-0.4, "says the reverse"),
        (0.2, "says little"),
        (0.4, "says in part"),
        (0.6, "says largely"),
        (0.9, "says closely"),
    ],
)
def test_the_answer_in_words_follows_the_number(tau, words):
    assert words in verdict(tau)


def test_the_same_run_twice_gives_the_same_bytes(undrawn, article, tmp_path):
    run(tmp_path)

    assert (tmp_path / "faithfulness.csv").read_bytes() == (article / "faithfulness.csv").read_bytes()


def test_uniform_heads_are_left_out_and_that_is_said(uniform_checkpoint, tmp_path):
    run(tmp_path, checkpoint=uniform_checkpoint)

    table = pd.read_csv(tmp_path / "faithfulness.csv").query("by == 'all'").set_index(["attribution", "effect"])
    assert table.loc[("last_layer", "absolute"), ["n", "undefined"]].tolist() == [0, 500]
    assert table.loc[("gradient_x_input", "signed"), "n"] > 490
    assert "attention, last layer, sizes: 500 of 500" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_own_sequences_need_no_labels_and_may_differ_in_length(tmp_path):
    (tmp_path / "own.csv").write_text("sequence\n0011\n1\n10111\n0011010\n0111\n11111\n")
    run(tmp_path / "out", "--data", tmp_path / "own.csv")

    table = pd.read_csv(tmp_path / "out" / "faithfulness.csv")
    whole = table[(table["by"] == "all") & (table["effect"] == "absolute")]
    assert (whole["n"] + whole["undefined"]).tolist() == [6] * len(ABSOLUTE)
    assert (whole["undefined"] >= 1).all()  # one token alone has no order


def test_of_all_sequences_there_are_no_intervals(tmp_path):
    """A fresh model over all 2^7 sequences."""
    config = ModelConfig(vocab_size=2, d_model=15, n_heads=3, d_ff=7, n_layers=1, max_len=7)
    model = TinyTransformer.from_config(config)
    folder = save_checkpoint(tmp_path / "fresh", model, Checkpoint(config, data=DataConfig(length=7)), [], "# a card\n")
    run(tmp_path / "out", "--split", "exhaustive", checkpoint=folder)

    table = pd.read_csv(tmp_path / "out" / "faithfulness.csv")
    assert not {"sem", "ci_low", "ci_high"} & set(table.columns)
    record = json.loads((tmp_path / "out" / "faithfulness.json").read_text())
    assert (record["sequences"], record["population"]) == (128, True)
    assert "no sampling error" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_figures_show_the_table(table):
    ax = faithfulness_plots.agreement(table)
    drawn = sorted(x for line in ax.lines if line.get_marker() in {"o", "s"} for x in line.get_xdata())
    assert drawn == pytest.approx(sorted(table[table["by"] == "all"]["mean"]))

    figure = faithfulness_plots.by_group(table)
    assert len(figure.axes) == 4
    rows = table.query("by == 'margin' and effect == 'signed' and attribution == 'integrated_gradients'")
    lines = [line.get_ydata() for line in figure.axes[2].lines]
    assert any(np.array_equal(y, rows["mean"]) for y in lines)
