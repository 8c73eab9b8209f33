"""The model card: the README.md of a checkpoint folder, for someone who finds the folder alone."""

from collections.abc import Sequence

from attnkit.checkpoint import Checkpoint
from attnkit.model import TinyTransformer

CARD = """\
# {task}

A transformer encoder of {parameters:,} parameters, small enough to look at every attention weight it computes.
It reads {length} tokens, each one of {vocab}, and answers {classes}.

**The rule it was taught.** {rule}

| what | is |
|---|---|
| model | d_model {model.d_model}, n_heads {model.n_heads}, d_ff {model.d_ff}, n_layers {model.n_layers}, post-norm, \
ReLU, sinusoidal positions, mean pooling |
| longest sequence | {model.max_len} tokens |
| data | {data.n_train:,} training and {data.n_test:,} test sequences of independent, equally likely tokens \
(seeds {data.train_seed} and {data.test_seed}) |
| training | {training} |
| made with | {versions} |

## Results

{results}

## Load

```python
import torch
from attnkit import load_checkpoint

model = load_checkpoint("path/to/this/folder")
logits, attentions = model(torch.zeros(1, {length}, dtype=torch.int64))  # attentions: one (B, H, T, T) per layer
```

`config.json` holds every setting and result, `history.csv` the loss and accuracy of every epoch,
`model.safetensors` the weights{snapshots}. None of them can carry code.

## Limits

It knows this one rule, on sequences of {length} tokens; on other lengths it was neither trained nor tested. It is made
for studying attention, and what its heads do need not carry over to other models or other seeds.
"""


def model_card(info: Checkpoint, model: TinyTransformer, results: str) -> str:
    """Return the card as Markdown. `results` are sentences."""
    return CARD.format(
        task=info.task.name,
        parameters=sum(p.numel() for p in model.parameters()),
        length=info.data.length,
        vocab=" ".join(f"`{token}`" for token in info.task.vocab),
        classes=" or ".join(f"“{name}”" for name in info.task.classes),
        rule=info.task.rule,
        model=info.model,
        data=info.data,
        training=", ".join(f"{name} {value}" for name, value in info.training.items()),
        versions=", ".join(f"{name} {version}" for name, version in info.versions.items()),
        results=results,
        snapshots=snapshots_in_words(info.snapshots),
    )


def snapshots_in_words(steps: Sequence[int]) -> str:
    if not steps:
        return ""
    return f",\n`snapshots/` the weights on the way there, after {', '.join(map(str, steps))} steps"
