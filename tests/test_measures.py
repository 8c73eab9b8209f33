"""Known answers: heads whose every statistic is known by thought, and the definitions written out with loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.measures import applicable, row_values, uniform_values
from attnkit.reading import Reader, blocks_of
from attnkit.rows import Block, Rows
from tests.oracle import sequence_values
from tests.synthetic import BITS, call_of, padded, read

LENGTHS = [1, 2, 5, 16, 17]
WORDS = [f"word{i}" for i in range(100)]  # too many for statistics of single tokens


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values)


def alternating(T):
    return [i % 2 for i in range(T)]


def seen(i, T, causal):
    """How many keys query i may see."""
    return i + 1 if causal else T


def copies(i, T, causal):
    """How many of them, in an alternating sequence, are the query's own token, itself among them."""
    return len(range(i % 2, seen(i, T, causal), 2))


# --- heads; each is a function (i, j, T, causal) -> weight, and what it must read ---


def uniform(i, j, T, causal):
    return 1 / seen(i, T, causal)


def uniform_reads(T, causal):
    n = [seen(i, T, causal) for i in range(T)]
    reads = {
        "entropy": mean(map(math.log, n)),
        "max_weight": mean(1 / m for m in n),
        "effective_keys": mean(n),
        "distance": mean(i / 2 for i in range(T)) if causal else (T * T - 1) / (3 * T),
        "offset": -mean(i / 2 for i in range(T)) if causal else 0,
        "self_weight": mean(1 / m for m in n),
        "token_weight[0]": mean((seen(i, T, causal) + 1) // 2 / n[i] for i in range(T)),
    }
    if T >= 2:
        reads |= {
            "entropy_normalized": 1,
            "previous_weight": mean(1 / m for m in n[1:]),
            "first_weight": mean(1 / m for m in n[1:]),
            "token_weight[1]": mean(n[i] // 2 / n[i] for i in range(1 if causal else 0, T)),
        }
        if not causal:
            reads |= {"next_weight": 1 / T, "last_weight": 1 / T}
    if T >= 3:
        reads |= {"duplicate_weight": mean(i // 2 / n[i] for i in range(2, T)), "selectivity": 0}
        # what followed an earlier copy of x_i stands at i − 1, i − 3, …, not before 1
        reads["induction_weight"] = mean(i // 2 / n[i] for i in range(2, T))
    return reads


def itself(i, j, T, causal):
    return float(i == j)


def itself_reads(T, causal):
    reads = dict.fromkeys(["entropy", "distance", "offset"], 0) | dict.fromkeys(
        ["max_weight", "effective_keys", "self_weight"], 1
    )
    reads["token_weight[0]"] = mean(1 - i % 2 for i in range(T))
    if T >= 2:
        reads |= {"entropy_normalized": 0, "previous_weight": 0, "first_weight": 0}
        reads["token_weight[1]"] = mean(i % 2 for i in range(1 if causal else 0, T))
        if not causal:
            reads |= {"next_weight": 0, "last_weight": 0}
    if T >= 3:
        reads |= {"duplicate_weight": 0, "induction_weight": 0}  # selectivity: nothing on other keys, so undefined
    return reads


def previous(i, j, T, causal):
    """The first query has no previous key and looks at itself."""
    return float(j == max(i - 1, 0))


def previous_reads(T, causal):
    reads = dict.fromkeys(["max_weight", "effective_keys"], 1) | {"entropy": 0}
    reads |= {"distance": (T - 1) / T, "offset": -(T - 1) / T, "self_weight": 1 / T}
    reads["token_weight[0]"] = mean([1, *(i % 2 for i in range(1, T))])
    if T >= 2:
        reads |= {"entropy_normalized": 0, "previous_weight": 1, "first_weight": mean(i == 1 for i in range(1, T))}
        ones = [0, *(1 - i % 2 for i in range(1, T))]
        reads["token_weight[1]"] = mean(ones[1:] if causal else ones)
        if not causal:
            reads |= {"next_weight": 0, "last_weight": 0}
    if T >= 3:
        reads |= {"duplicate_weight": 0, "induction_weight": 1}  # alternating: what followed the last copy is at i − 1
    return reads


def sink(i, j, T, causal):
    return float(j == 0)


def sink_reads(T, causal):
    reads = dict.fromkeys(["max_weight", "effective_keys"], 1) | {"entropy": 0}
    reads |= {"distance": (T - 1) / 2, "offset": -(T - 1) / 2, "self_weight": 1 / T, "token_weight[0]": 1}
    if T >= 2:
        reads |= {"entropy_normalized": 0, "previous_weight": mean(i == 1 for i in range(1, T)), "first_weight": 1}
        reads["token_weight[1]"] = 0
        if not causal:
            reads |= {"next_weight": 0, "last_weight": 0}
    if T >= 3:
        reads |= {"duplicate_weight": mean(i % 2 == 0 for i in range(2, T)), "induction_weight": 0}
    return reads


def same_token(i, j, T, causal):
    """Uniform over the copies of the query's own token."""
    return float(i % 2 == j % 2) / copies(i, T, causal)


def same_token_reads(T, causal):
    c = [copies(i, T, causal) for i in range(T)]
    gaps = [[j - i for j in range(i % 2, seen(i, T, causal), 2)] for i in range(T)]
    reads = {
        "entropy": mean(map(math.log, c)),
        "max_weight": mean(1 / m for m in c),
        "effective_keys": mean(c),
        "self_weight": mean(1 / m for m in c),
        "distance": mean(mean(map(abs, g)) for g in gaps),
        "offset": mean(mean(g) for g in gaps),
        "token_weight[0]": mean(i % 2 == 0 for i in range(T)),
    }
    if T >= 2:
        reads["entropy_normalized"] = mean(math.log(c[i]) / math.log(seen(i, T, causal)) for i in range(causal, T))
        reads["previous_weight"] = 0
        reads["first_weight"] = mean((i % 2 == 0) / c[i] for i in range(1, T))
        reads["token_weight[1]"] = mean(i % 2 for i in range(1 if causal else 0, T))
        if not causal:
            reads["next_weight"] = 0
            reads["last_weight"] = mean((i % 2 == (T - 1) % 2) / c[i] for i in range(T - 1))
    if T >= 3:
        reads |= {"duplicate_weight": mean(i // 2 / c[i] for i in range(2, T)), "induction_weight": 0}
    return reads


def pairs(i, j, T, causal):
    """Block-diagonal: uniform within the pairs (0, 1), (2, 3), …; a last odd token is alone."""
    mates = [k for k in (i - i % 2, i - i % 2 + 1) if k < seen(i, T, causal)]
    return float(j in mates) / len(mates)


def pairs_reads(T, causal):
    size = [1 if i % 2 == 0 and (causal or i == T - 1) else 2 for i in range(T)]
    reads = {
        "entropy": mean(map(math.log, size)),
        "max_weight": mean(1 / m for m in size),
        "effective_keys": mean(size),
        "self_weight": mean(1 / m for m in size),
        "distance": mean((m - 1) / 2 for m in size),
        "offset": mean((m - 1) / 2 * (1 if i % 2 == 0 else -1) for i, m in enumerate(size)),
        "token_weight[0]": mean(1 if m == 1 else 0.5 for m in size),
    }
    if T >= 2:
        reads["entropy_normalized"] = mean(math.log(size[i]) / math.log(seen(i, T, causal)) for i in range(causal, T))
        reads["previous_weight"] = mean(i % 2 / 2 for i in range(1, T))
        reads["first_weight"] = mean((i == 1) / 2 for i in range(1, T))
        reads["token_weight[1]"] = mean(0 if size[i] == 1 else 0.5 for i in range(1 if causal else 0, T))
        if not causal:
            reads["next_weight"] = mean((i % 2 == 0) / 2 for i in range(T - 1))
            reads["last_weight"] = mean((T % 2 == 0 and i == T - 2) / 2 for i in range(T - 1))
    if T >= 3:
        reads |= {"duplicate_weight": 0, "induction_weight": mean(i % 2 / 2 for i in range(2, T))}
    return reads


HEADS = [
    (uniform, uniform_reads),
    (itself, itself_reads),
    (previous, previous_reads),
    (sink, sink_reads),
    (same_token, same_token_reads),
    (pairs, pairs_reads),
]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize(("head", "reads"), HEADS, ids=lambda f: f.__name__)
def test_every_statistic_of_a_known_head_is_what_thought_says(head, reads, T, causal, pad, side):
    p = [[head(i, j, T, causal) if j < seen(i, T, causal) else 0.0 for j in range(T)] for i in range(T)]
    weights, tokens, mask = padded(p, alternating(T), pad, side)

    ((values,),) = read(weights, tokens, mask if pad else None, causal=causal)
    assert values.pop("output_norm") == pytest.approx(math.sqrt(3) * 2)  # ones through ones: (2, 2, 2) at every query

    assert values == pytest.approx(reads(T, causal), abs=1e-12)


def test_a_head_that_counts_by_one_over_ones_plus_one_reads_its_count():
    """Weight 1/(k+1) on each of the k ones and on the first token: Σ over the ones is k/(k+1), whatever the order."""
    tokens = [0, 1, 1, 0, 0, 1, 0]
    k, T = 3, 7
    counted = [1.0 if j == 0 or tokens[j] else 0.0 for j in range(T)]
    weights, ids, _ = padded([[c / (k + 1) for c in counted]] * T, tokens, 0, "right")

    ((values,),) = read(weights, ids)

    assert values["token_weight[1]"] == pytest.approx(k / (k + 1))
    assert values["token_weight[0]"] == pytest.approx(1 / (k + 1))
    assert values["entropy"] == pytest.approx(math.log(k + 1))
    assert values["effective_keys"] == pytest.approx(k + 1)
    assert values["first_weight"] == pytest.approx(1 / (k + 1))
    assert values["max_weight"] == pytest.approx(1 / (k + 1))


# --- against the definitions written out with loops ---


def random_call(seed, B, H, T, causal):
    """Random maps with padding on random sides: weights, tokens, mask and each sequence's own columns."""
    g = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 2, (B, T), generator=g)
    spans, mask = [], torch.zeros(B, T, dtype=torch.bool)
    for b in range(B):
        length = int(torch.randint(1, T + 1, (), generator=g))
        start = int(torch.randint(0, 2, (), generator=g)) * (T - length)
        spans.append(slice(start, start + length))
        mask[b, spans[-1]] = True
    allowed = mask[:, None, :].expand(B, T, T)
    if causal:
        allowed = allowed & torch.ones(T, T, dtype=torch.bool).tril()
    scores = torch.randn(B, H, T, T, generator=g, dtype=torch.float64) * 3
    weights = scores.masked_fill(~allowed[:, None], -1e300).softmax(dim=-1)
    return weights, tokens, mask, spans


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), causal=st.booleans())
def test_reader_agrees_with_the_definitions_whatever_is_padded(seed, causal):
    weights, tokens, mask, spans = random_call(seed, B=5, H=3, T=7, causal=causal)

    got = read(weights, tokens, mask, causal=causal)

    for b, span in enumerate(spans):
        for h in range(3):
            wanted = sequence_values(weights[b, h, span, span].numpy(), tokens[b, span].tolist(), causal=causal)
            ours = {name: value for name, value in got[b][h].items() if name != "output_norm"}
            assert ours == pytest.approx(wanted, abs=1e-12)


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), causal=st.booleans(), rows=st.sampled_from([1, 2, 3, 7]))
def test_reader_equals_the_plain_formulas_in_blocks_of_any_size(seed, causal, rows):
    """The fast path (one matrix product, blocks of rows) against `row_values` on the whole map."""
    weights, tokens, mask, _ = random_call(seed, B=5, H=3, T=7, causal=causal)
    measures = applicable(BITS, causal=causal)
    call = call_of(weights)

    reader = Reader(measures, blocks_of(tokens, mask, causal=causal, rows=rows))
    values, defined = reader.read(reader.rows(call), call.layer)

    whole = Rows(Block.of(tokens, mask, causal=causal), weights, call.output, call.w_o)
    for k, measure in enumerate(measures.values()):
        plain, where = row_values(measure, whole)
        where = where.expand_as(plain)
        n = where.sum(dim=-1)
        assert torch.equal(defined[..., k], n > 0)
        expected = plain.where(where, 0).sum(dim=-1) / n.clamp(min=1)
        torch.testing.assert_close(values[..., k], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_the_uniform_reference_is_what_a_uniform_head_reads(causal):
    _, tokens, mask, _ = random_call(3, B=5, H=1, T=7, causal=causal)
    measures = applicable(BITS, causal=causal)
    reader = Reader(measures, blocks_of(tokens, mask, causal=causal))
    allowed = Block.of(tokens, mask, causal=causal).allowed
    weights = (allowed.double() / allowed.sum(dim=-1, keepdim=True))[:, None]  # NaN at padded queries: not to be read

    reference, said = reader.uniform()
    values, defined = reader.read(reader.rows(call_of(weights)), 0)

    for k, name in enumerate(measures):
        if name == "output_norm":
            assert not said[..., k].any()
            continue
        both = defined[:, 0, k] & said[:, 0, k]
        assert both.any()
        torch.testing.assert_close(values[both, 0, k], reference[both, 0, k], rtol=1e-10, atol=1e-12)


def test_uniform_reference_at_sixteen_tokens_is_the_textbook_number():
    """5.3125 tokens without a mask, 3.75 under a causal one."""
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    for causal, expected in ((False, 5.3125), (True, 3.75)):
        values, _ = uniform_values(applicable(BITS)["distance"], Block.of(tokens, causal=causal))

        assert float(values.mean()) == expected


def test_what_a_models_own_mask_hides_is_no_key():
    """A window of one key on each side: row i sees min(i, 1) + 1 + min(T − 1 − i, 1) keys, whatever causal says."""
    T = 5
    i = torch.arange(T)
    block = Block.of(torch.zeros(1, T, dtype=torch.int64), allowed=((i[:, None] - i).abs() <= 1)[None])

    assert block.n.tolist() == [[2, 3, 3, 3, 2]]
    values, _ = uniform_values(applicable(BITS)["distance"], block)
    assert values.tolist() == [[1 / 2, 2 / 3, 2 / 3, 2 / 3, 1 / 2]]


def test_weight_on_special_tokens_counts_the_rows_of_the_others():
    """[CLS] a b c [SEP]: a head that gives 1/2 to each special key reads 1, uniform attention 2/5."""
    special = torch.tensor([[True, False, False, False, True]])
    block = Block.of(torch.zeros(1, 5, dtype=torch.int64), special=special)
    measure = applicable(WORDS, special=True)["special_weight"]
    weights = special.double()[:, None, None, :].expand(1, 1, 5, 5) / 2

    values, where = row_values(measure, Rows(block, weights))
    uniform, _ = uniform_values(measure, block)

    assert where.tolist() == [[[False, True, True, True, False]]]
    assert values[where].tolist() == [1, 1, 1]
    assert uniform[where[:, 0]].tolist() == [0.4, 0.4, 0.4]


def test_without_special_tokens_nothing_is_said_of_them():
    block = Block.of(torch.zeros(1, 3, dtype=torch.int64), special=torch.zeros(1, 3, dtype=torch.bool))
    _, where = row_values(applicable(WORDS, special=True)["special_weight"], Rows(block, torch.ones(1, 1, 3, 3)))

    assert not where.any()
    assert "special_weight" not in applicable(WORDS)
