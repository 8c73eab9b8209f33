"""A transformers model run again with other outputs of its heads, from the layer on where they differ.

Below that layer nothing changes: the blocks there give out what they gave before, without running.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from attnkit.ablation import replaced
from attnkit.hf import Site, intervene
from attnkit.pretrained import has_two_parts, inputs_of
from attnkit.text import TextBatch

Change = Callable[[Site, Tensor], Tensor]  # heads' outputs (B, H, T, e) -> others


@dataclass(frozen=True)
class Layers:
    """How a model is built."""

    model: PreTrainedModel
    layers: int
    heads: int  # of each layer
    blocks: Sequence[nn.Module]  # one a layer, run one after the other; none where the model is built in another way

    @classmethod
    @torch.no_grad()
    def of(cls, model: PreTrainedModel, batch: TextBatch) -> "Layers":
        """Told by a run over two tokens.

        Raises ValueError for a model in train mode, of two parts, that never calls transformers' attention interface,
        or whose layers do not all have as many heads of attention.
        """
        if has_two_parts(model):
            name = type(model).__name__
            raise ValueError(f"model: {name} has an encoder and a decoder; pass one: model.get_encoder()")
        two = TextBatch(batch.tokens[:1, :1].expand(1, 2).to(model.device))
        sites: list[Site] = []

        def see(site: Site, output: Tensor) -> Tensor:
            sites.append(site)
            return output

        run(model, two, see)
        heads = {site.query.shape[1] for site in sites}
        if [site.layer for site in sites] != list(range(len(sites))) or len(heads) > 1:
            raise ValueError(f"model: {type(model).__name__} does not have as many heads of attention in every layer")
        stacks = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == len(sites)]
        blocks = next((list(stack) for stack in stacks if is_sequence(model, two, stack)), [])
        return cls(model, len(sites), heads.pop(), blocks)


def run(model: PreTrainedModel, batch: TextBatch, change: Change) -> Any:
    """What the model says of the texts, with the heads' outputs changed on the way."""
    with intervene(model, change):
        return model(**inputs_of(model, batch))


def is_sequence(model: PreTrainedModel, batch: TextBatch, stack: nn.ModuleList) -> bool:
    """Does the model run these modules one after the other, each once and with one attention, the next one, inside?"""
    events: list[tuple[str, int]] = []

    def see(site: Site, output: Tensor) -> Tensor:
        events.append(("attention", site.layer))
        return output

    hooks = []
    for k, block in enumerate(stack):
        hooks.append(block.register_forward_pre_hook(lambda *_, k=k: events.append(("into", k))))
        hooks.append(block.register_forward_hook(lambda *_, k=k: events.append(("out of", k))))
    try:
        run(model, batch, see)
    finally:
        for hook in hooks:
            hook.remove()
    return events == [(what, k) for k in range(len(stack)) for what in ("into", "attention", "out of")]


@contextmanager
def recorded(blocks: Sequence[nn.Module], outputs: list[Any]) -> Iterator[None]:
    """Let the first blocks give out `outputs`, which they gave before, without running."""
    before = [block.__dict__.get("forward") for block in blocks]
    try:
        for block, output in zip(blocks, outputs, strict=False):
            block.__dict__["forward"] = lambda *_, output=output, **__: output
        yield
    finally:
        for block, own in zip(blocks, before, strict=True):
            block.__dict__.pop("forward", None)
            if own is not None:
                block.__dict__["forward"] = own


class Replay:
    """A batch, on the model's device, that has run once as it is and can run again with another output of a head."""

    def __init__(self, layers: Layers, batch: TextBatch):
        self.layers, self.batch = layers, batch
        self.outputs: list[Any] = []  # of each block
        hooks = [block.register_forward_hook(lambda *given: self.outputs.append(given[-1])) for block in layers.blocks]
        try:
            with torch.no_grad():
                self.said = run(layers.model, batch, lambda site, output: output)
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def without(self, layer: int, head: int, new: Tensor | float) -> Any:
        """What the model says with `new`, which broadcasts to (B, T, e), in the place of the head's output."""
        calls = count(layer if self.layers.blocks else 0)  # the first attention that runs is that of the layer

        def change(site: Site, output: Tensor) -> Tensor:
            return replaced(output, {head: new}) if next(calls) == layer else output

        with recorded(self.layers.blocks, self.outputs[:layer]):
            return run(self.layers.model, self.batch, change)
