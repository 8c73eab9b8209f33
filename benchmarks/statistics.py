"""How fast are all statistics, next to the model alone and to other ways? `python -m benchmarks.statistics`

All candidates run the same weights over the same sequences and take turns. Memory is the peak of a process of its own.
"""

import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from statistics import median
from typing import Any

import pandas as pd
import torch

from attnkit.data import Batch
from attnkit.headstats import HeadStats, collect
from attnkit.measures import applicable, row_values
from attnkit.model import TinyTransformer
from attnkit.rows import Block, Rows
from attnkit.tables import long_frame, wide_frame
from attnkit.tasks import MAJORITY
from benchmarks import Row, in_turns, notebook, side_by_side
from benchmarks.training import article_model

L, VOCAB, CLASSES = 16, MAJORITY.vocab, MAJORITY.classes
SEQUENCES = MAJORITY.count(L)
SOME = 8192  # sequences where a candidate would take minutes over all of them
BATCH = 512
FEW, MANY = 10_000, 1_000_000  # sequences between which memory must not grow
ROUNDS, MANY_ROUNDS = 3, 9  # the forward pass alone, on two threads, takes now one, now nearly twice the time


def batches(n: int) -> Iterable[Batch]:
    for start in range(0, n, BATCH):
        x, y = MAJORITY.enumerate(L, start, min(start + BATCH, n))
        yield Batch(x, labels=y)


@torch.no_grad()
def forward(model: TinyTransformer, n: int) -> None:
    for batch in batches(n):
        model(batch.tokens)


def statistics(model: TinyTransformer, n: int) -> pd.DataFrame:
    stats: HeadStats = collect(model, batches(n), VOCAB)
    return wide_frame(long_frame(stats, applicable(VOCAB), CLASSES, population=n == SEQUENCES))


def bert() -> Any:
    """A BERT of the article's size that hands its attention out."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=L,
    )
    config._attn_implementation = "eager"  # the one that hands weights out
    return BertForSequenceClassification(config).eval()


@torch.no_grad()
def bert_statistics(model: Any, n: int) -> pd.DataFrame:
    """The mean of every statistic for each head, but for the outputs, which BERT keeps to itself: plain torch."""
    measures = {name: m for name, m in applicable(VOCAB).items() if name != "output_norm"}
    sums, counts = torch.zeros(2, 2, 4, len(measures), dtype=torch.float64)  # layers and heads, in order
    for batch in batches(n):
        attentions = model(batch.tokens, output_attentions=True).attentions
        block = Block.of(batch.tokens)
        for layer, weights in enumerate(attentions):
            rows = Rows(block, weights)
            for k, measure in enumerate(measures.values()):
                values, defined = row_values(measure, rows)
                of_sequences = torch.where(defined, values, 0).sum(dim=-1) / defined.sum(dim=-1).clamp(min=1)
                sums[layer, :, k] += of_sequences.sum(dim=0)
                counts[layer, :, k] += defined.any(dim=-1).sum(dim=0)
    return pd.DataFrame((sums / counts).flatten(0, 1).numpy(), columns=list(measures))


def peak_over(n: int) -> float:
    """The peak of a process that measures `n` sequences, in MiB."""
    code = f"from benchmarks import peak_memory, statistics as s; s.statistics_of_many({n}); print(peak_memory())"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def statistics_of_many(n: int) -> None:
    """All sequences, again and again, until `n` of them were read."""
    again = (batch for _ in range(-(-n // SEQUENCES)) for batch in batches(SEQUENCES))
    collect(article_model().eval(), islice(again, -(-n // BATCH)), VOCAB)


def rows() -> list[Row]:
    model = article_model().eval()
    ours = in_turns(
        {"forward": lambda: forward(model, SEQUENCES), "all": lambda: statistics(model, SEQUENCES)}, MANY_ROUNDS
    )
    speed = {name: SEQUENCES / median(seconds) for name, seconds in ours.items()}
    shares = [alone / both for alone, both in zip(ours["forward"], ours["all"], strict=True)]
    some = list(batches(SOME))
    loops = side_by_side(
        {
            "ours": lambda: statistics(model, SOME),
            "all": lambda: notebook.loop(model, some),
            "five": lambda: notebook.loop(model, some, five=True),
        },
        ROUNDS,
    )
    few, many = peak_over(FEW), peak_over(MANY)
    found = [
        Row(
            f"all statistics over {SEQUENCES:,} sequences, beside the forward pass alone",
            f"{speed['all']:,.0f} a second beside {speed['forward']:,.0f}: {speed['all'] / speed['forward']:.2f}; "
            f"{min(shares):.2f} to {max(shares):.2f} in the {MANY_ROUNDS} rounds",
        ),
        Row(
            f"the same statistics, but for the output norm, in a notebook's loop over {SOME:,} sequences",
            f"{loops['all'] / loops['ours']:.1f} times as long; five of them {loops['five'] / loops['ours']:.1f} times",
        ),
        Row(
            f"peak memory over {FEW:,} and over {MANY:,} sequences",
            f"{few:.0f} and {many:.0f} MiB: {many / few - 1:+.1%}",
        ),
    ]
    try:
        other = bert()
    except ImportError:
        return [
            *found,
            Row("a BERT of the same size with output_attentions", "not measured: transformers is not installed"),
        ]
    peer = side_by_side({"ours": lambda: statistics(model, SOME), "bert": lambda: bert_statistics(other, SOME)}, ROUNDS)
    what = f"a BERT of the same size with output_attentions and the plain formulas, over {SOME:,}"
    return [*found, Row(what, f"{peer['bert'] / peer['ours']:.2f} times as long")]


if __name__ == "__main__":
    for row in rows():
        print(row.what, row.result, sep="\n  ")
