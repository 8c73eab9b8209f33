"""What programs may ask: three endpoints, typed and documented. Their docstrings are what visitors read."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import gradio as gr

from demo import sentences, served, views
from demo.lanes import REST
from demo.shelf import FIRST_CHOICE


def endpoint(view: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(view)
    async def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return await REST.run(lambda: view(*args, **kwargs))
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None

    return telling


@endpoint
def classify(sequence: str, checkpoint: str = FIRST_CHOICE) -> views.Verdict:
    """Classify one sequence: its class, the probability of each class, the margin, and the counts behind it."""
    return views.verdict(views.read(checkpoint, sequence))


@endpoint
def attention(sequence: str, checkpoint: str = FIRST_CHOICE) -> views.Maps:
    """Every head's attention on one sequence: weights[layer][head][query][key]; the weights of a query sum to 1."""
    return views.maps(views.read(checkpoint, sequence))


@endpoint
def attention_of_text(text: str, second: str = "", kind: str = "") -> sentences.TextMaps:
    """Every head's attention on one text: weights[layer][head][query][key]; the weights of a query sum to 1.

    A model of an encoder and a decoder also takes what its decoder reads, and which kind is asked for: encoder (the
    default), decoder or cross, where the keys are the encoder's.
    """
    if served.subject is None:
        raise ValueError("no transformers model is served here")
    return sentences.maps(sentences.read(served.subject, text, second=second, kind=kind))


@endpoint
def ablate(
    sequence: str, heads: list[list[int]], replacement: str = "zero", checkpoint: str = FIRST_CHOICE
) -> views.Ablation:
    """Switch heads off, [[layer, head], …]: the answer before and after, and what each single head is worth then."""
    return views.ablation(views.read(checkpoint, sequence, heads, replacement))
