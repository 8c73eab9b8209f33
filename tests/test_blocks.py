"""Long rows in blocks: the same numbers as the plain formulas on whole maps, whatever the mask, and no map ever."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")

from attnkit.blocks import BlockReader
from attnkit.hf import Site, whole
from attnkit.measures import MEASURES, applicable, row_values, uniform_values
from attnkit.rows import Rows
from attnkit.spans import PLACES, Scene, Side

H, D_K, D_V, D = 3, 5, 4, 7
WORDS = [f"word{i}" for i in range(97)]
BITS = ["0", "1"]


def texts(g, B, T, vocab, padding):
    """Random tokens, padded on a random side, the first and the last one special."""
    tokens, mask = torch.randint(0, vocab, (B, T), generator=g), torch.ones(B, T, dtype=torch.bool)
    special = torch.zeros(B, T, dtype=torch.bool)
    for b in range(B):
        length = int(torch.randint(1, T + 1, (), generator=g)) if padding else T
        start = int(torch.randint(0, 2, (), generator=g)) * (T - length)
        mask[b] = False
        mask[b, start : start + length] = True
        special[b, [start, start + length - 1]] = True
    return Side(tokens, mask if padding else None, special)


def mask_of(kind, queries, keys):
    """As models hand it over, (B, 1, R, T): with the padding of the keys in it."""
    B, R, T = len(queries.tokens), queries.tokens.shape[1], keys.tokens.shape[1]
    i, j = torch.arange(R)[:, None], torch.arange(T)
    allowed = {
        "whole": torch.ones(R, T, dtype=torch.bool),
        "causal": j <= i,
        "window": (i - j).abs() <= 2,
        "causal window": (j <= i) & (i - j < 3),
    }[kind]
    if keys.mask is None and kind in ("whole", "causal"):
        return None
    return allowed.expand(B, 1, R, T) & (True if keys.mask is None else keys.mask[:, None, None])


def site_of(g, B, R, T, mask, causal, *, bias=False, softcap=None):
    shapes = (B, H, R, D_K), (B, H, T, D_K), (B, H, T, D_V)
    query, key, value = (torch.randn(shape, generator=g) * 2 for shape in shapes)
    added = torch.randn(1, H, R, T, generator=g) if bias else None
    w_o = torch.randn(H, D_V, D, generator=g)
    return Site("self", 0, query, key, value, mask, causal, D_K**-0.5, added, softcap, w_o)


def plain(measures, scene, site):
    """By `row_values` on the whole map, in float64: values and where they are defined (B, H, K), and the reference."""
    block = scene.block(site, slice(0, site.query.shape[2]))
    weights, output = (t.double() for t in whole(site))
    weights = weights.masked_fill(~block.real[:, None, :, None], 0)
    rows = Rows(block, weights, output, site.w_o.double())
    values, defined, reference = [], [], []
    for measure in measures.values():
        v, where = row_values(measure, rows)
        where = where.expand_as(v)
        n = where.sum(dim=-1)
        values.append(torch.where(where, v, 0).sum(dim=-1) / n.clamp(min=1))
        defined.append(n > 0)
        said = uniform_values(measure, block)
        if said is None:
            reference.append(torch.full((len(weights),), torch.nan, dtype=torch.float64))
            continue
        u, where = (t.expand(len(weights), -1) for t in said)
        n = where.sum(dim=-1)
        mean = torch.where(where, u.double(), 0).sum(dim=-1) / n.clamp(min=1)
        reference.append(torch.where(n > 0, mean, torch.nan))
    return torch.stack(values, -1), torch.stack(defined, -1), torch.stack(reference, -1)


def assert_same(reader, site, measures, scene):
    values, defined, reference = plain(measures, scene, site)
    output, ours, where = reader.read(site)
    uniform, said = reader.uniform(site)

    assert torch.equal(where, defined)
    torch.testing.assert_close(ours[defined], values[defined], atol=1e-5, rtol=1e-5)
    assert torch.equal(said, ~reference.isnan())
    torch.testing.assert_close(uniform[said], reference[said], atol=1e-6, rtol=1e-6)
    block = scene.block(site, slice(0, site.query.shape[2]))
    real = block.real.expand(len(output), -1)
    theirs = whole(site)[1]
    torch.testing.assert_close(output.transpose(1, 2)[real], theirs.transpose(1, 2)[real], atol=1e-5, rtol=1e-5)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["whole", "causal", "window", "causal window"]),
    rows=st.sampled_from([1, 3, 4, 128]),
    vocab=st.sampled_from([2, 97]),
    padding=st.booleans(),
    bias=st.booleans(),
    softcap=st.sampled_from([None, 1.5]),
    fused=st.booleans(),
)
def test_blocks_read_what_the_plain_formulas_read_on_whole_maps(seed, kind, rows, vocab, padding, bias, softcap, fused):
    g = torch.Generator().manual_seed(seed)
    batch = texts(g, 3, 11, vocab, padding)
    causal = kind.startswith("causal")
    site = site_of(g, 3, 11, 11, mask_of(kind, batch, batch), causal, bias=bias, softcap=softcap)
    measures = applicable(BITS if vocab == 2 else WORDS, causal=causal, special=True)
    scene = Scene(batch, batch)

    assert_same(BlockReader(measures, scene, rows=rows, fused=fused), site, measures, scene)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.sampled_from([(5, 11), (11, 5)]),
    padding=st.booleans(),
    rows=st.sampled_from([1, 3, 128]),
    fused=st.booleans(),
)
def test_attention_on_another_sequence_is_read_without_places(seed, lengths, padding, rows, fused):
    g = torch.Generator().manual_seed(seed)
    R, T = lengths
    queries, keys = texts(g, 3, R, 97, padding), texts(g, 3, T, 97, padding)
    site = site_of(g, 3, R, T, mask_of("whole", queries, keys), False)
    measures = {name: m for name, m in applicable(WORDS, special=True).items() if name not in PLACES}
    scene = Scene(queries, keys, cross=True)

    assert_same(BlockReader(measures, scene, rows=rows, fused=fused), site, measures, scene)


def test_a_second_layer_reads_as_the_first_does():
    """What was prepared for one layer is used again for the next."""
    g = torch.Generator().manual_seed(0)
    batch = texts(g, 2, 7, 97, True)
    measures, scene = applicable(WORDS, special=True), Scene(batch, batch)
    reader = BlockReader(measures, scene, rows=3)
    for _ in range(2):
        assert_same(reader, site_of(g, 2, 7, 7, mask_of("whole", batch, batch), False), measures, scene)


@pytest.mark.parametrize("fused", [True, False])
def test_scores_that_are_no_numbers_are_refused(fused):
    g = torch.Generator().manual_seed(0)
    batch = texts(g, 1, 7, 97, False)
    site = site_of(g, 1, 7, 7, None, False)
    site.query[0, 1, 3, 2] = torch.nan
    reader = BlockReader(applicable(WORDS, special=True), Scene(batch, batch), rows=5, fused=fused)

    with pytest.raises(ValueError, match=r"^layer 0: rows of attention do not sum to 1 \(off by nan\)$"):
        reader.read(site)


def test_a_sharp_row_reads_as_the_one_key_that_it_sees():
    """A score that is 1,000 higher than the others leaves nothing to them."""
    side, T = Side(torch.arange(5)[None]), 5
    query = torch.zeros(1, 1, T, 2)
    query[..., 0] = 1000
    key = torch.zeros(1, 1, T, 2)
    key[0, 0, 3, 0] = 1
    value = torch.arange(T).float()[None, None, :, None]
    measures = applicable(WORDS)
    output, values, _ = BlockReader(measures, Scene(side, side)).read(
        Site("self", 0, query, key, value, None, False, 1.0)
    )

    read = dict(zip(measures, values[0, 0].tolist(), strict=True))
    assert torch.equal(output, torch.full((1, 1, T, 1), 3.0))
    assert (read["entropy"], read["max_weight"], read["effective_keys"]) == (0, 1, 1)
    assert read["distance"] == (3 + 2 + 1 + 0 + 1) / 5


def test_the_weights_are_those_of_exp_to_the_last_digits_of_float32():
    """Over all scores that leave a weight; the columns of the values pick out each key."""
    T = 1 << 9
    side, score = Side(torch.arange(T)[None]), -torch.linspace(0, 80, T)
    key, query = score[None, None, :, None], torch.ones(1, 1, T, 1)
    value = torch.eye(T)[None, None]
    weights, _, _ = BlockReader({"entropy": MEASURES["entropy"]}, Scene(side, side)).read(
        Site("self", 0, query, key, value, None, False, 1.0)
    )

    wanted = score.double().softmax(dim=-1)
    torch.testing.assert_close(weights[0, 0, 0].double(), wanted, rtol=1e-6, atol=0)


PEAK = """
import torch
from attnkit.blocks import BlockReader
from attnkit.hf import Site
from attnkit.measures import applicable
from attnkit.spans import Scene, Side
from benchmarks import peak_memory
T = 16384
tokens = torch.randint(0, 5000, (1, T))
q, k, v = (torch.randn(1, 1, T, 8) for _ in range(3))
site = Site("self", 0, q, k, v, None, False, 8**-0.5)
batch = Side(tokens, None, tokens == 0)
before = peak_memory()
measures = applicable([str(i) for i in range(5000)], special=True)
_, values, _ = BlockReader(measures, Scene(batch, batch)).read(site)
print(peak_memory() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux tells it")
def test_no_map_is_ever_held():
    """At 16,384 tokens one map of float32 is 1,024 MB."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 1024 / 2


def test_where_the_plain_formulas_read_one_block_is_prepared_at_a_time():
    """Of few words every token has statistics of its own, for which a block keeps many times its size."""
    g = torch.Generator().manual_seed(3)
    side = texts(g, 1, 17, 2, False)
    site = site_of(g, 1, 17, 17, None, False)

    lots = {
        len(vocab): [len(spans) for spans in BlockReader(applicable(vocab), Scene(side, side), rows=5).spans(site, 0)]
        for vocab in (BITS, WORDS)
    }

    assert lots == {len(BITS): [1, 1, 1, 1], len(WORDS): [4]}
