"""A transformers model run again with other outputs of its heads, from the first output on that is another.

Up to there nothing changes: what runs before gives out what it gave, without running.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from attnkit.ablation import Head, replaced
from attnkit.hf import Site, attending, fused, intervene
from attnkit.pretrained import inputs_of, two_tokens
from attnkit.text import TextBatch

Change = Callable[[int, Tensor], Tensor]  # the number of an attention, its heads' outputs (B, H, T, e) -> others


@dataclass(frozen=True)
class Layers:
    """How a model is built."""

    model: PreTrainedModel
    sites: Sequence[tuple[str, int]]  # every attention, in the order in which they run: its kind and its layer
    heads: int  # of each
    names: Sequence[str]  # of its blocks, one a layer, run one after the other; none where it is built in another way

    @property
    def layers(self) -> int:
        """How many attentions there are: of a model of one part one a layer."""
        return len(self.sites)

    @property
    def blocks(self) -> list[nn.Module]:
        return [self.model.get_submodule(name) for name in self.names]

    @classmethod
    @torch.no_grad()
    def of(cls, model: PreTrainedModel, batch: TextBatch) -> "Layers":
        """Told by a run over two tokens.

        Raises ValueError for a model in train mode, that never calls transformers' attention interface, or whose layers
        do not all have as many heads of attention; and for one of two parts, if there is no text for its decoder.
        """
        two = two_tokens(model, batch)
        sites: list[tuple[str, int]] = []
        heads: set[int] = set()

        def see(site: Site, output: Tensor) -> Tensor:
            sites.append((site.kind, site.layer))
            heads.add(site.query.shape[1])
            return output

        with intervene(model, see):
            model(**inputs_of(model, two))
        of_kind = [[layer for kind, layer in sites if kind == one] for one in dict(sites)]
        if any(numbers != list(range(len(numbers))) for numbers in of_kind) or len(heads) > 1:
            name = type(model).__name__
            raise ValueError(f"model: {name} does not have as many heads of attention in every layer")
        lists = {name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m) == len(sites)}
        blocks = next((name for name, stack in lists.items() if is_sequence(model, two, stack)), None)
        names = [] if blocks is None else [f"{blocks}.{k}" for k in range(len(sites))]
        return cls(model, sites, heads.pop(), names)


def run(model: PreTrainedModel, batch: TextBatch, change: Change) -> Any:
    """What the model says of the texts, with the heads' outputs changed on the way."""
    calls = count()
    with intervene(model, lambda _, output: change(next(calls), output)):
        return model(**inputs_of(model, batch))


def is_sequence(model: PreTrainedModel, batch: TextBatch, stack: nn.ModuleList) -> bool:
    """Does the model run these modules one after the other, each once and with one attention, the next one, inside?"""
    events: list[tuple[str, int]] = []

    def see(number: int, output: Tensor) -> Tensor:
        events.append(("attention", number))
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
def recorded(outputs: Mapping[nn.Module, Any], again: Callable[[Any], Any]) -> Iterator[None]:
    """Let each of these modules give out `again` what it gave before, without running, when it is called first."""
    own = {module: module.__dict__.get("forward") for module in outputs}

    def instead(module: nn.Module, *_: Any, **__: Any) -> Any:
        as_before(module)
        return again(outputs[module])

    def as_before(module: nn.Module) -> None:
        module.__dict__.pop("forward", None)
        if own[module] is not None:
            module.__dict__["forward"] = own[module]

    try:
        for module in outputs:
            module.__dict__["forward"] = partial(instead, module)
        yield
    finally:
        for module in outputs:
            as_before(module)


def copies(given: Any, texts: int, n: int) -> Any:
    """What a module gave out of so many texts, as if they had stood side by side n times."""
    if isinstance(given, Tensor) and given.ndim and len(given) == texts and n > 1:
        return given.repeat(n, *[1] * (given.ndim - 1))
    return type(given)(copies(part, texts, n) for part in given) if isinstance(given, (tuple, list)) else given


class Replay:
    """A batch, on the model's device, that has run once as it is and can run again with other outputs of its heads.

    Up to the first output that is another nothing runs again: neither the blocks below nor what leads to the queries,
    keys and values in that block.
    """

    def __init__(self, layers: Layers, batch: TextBatch):
        self.layers, self.batch = layers, batch
        self.heads: list[Tensor] = []  # the heads' outputs (B, H, T, e) of each attention
        self.blocks: dict[nn.Module, Any] = {}  # what each block gave out, in their order
        self.on_the_way: list[dict[nn.Module, Tensor]] = []  # what linear maps gave out in each block before attention
        passed: dict[nn.Module, Tensor] = {}

        def enter(block: nn.Module, _: Any) -> None:
            passed.clear()

        def leave(block: nn.Module, _: Any, output: Any) -> None:
            self.blocks[block] = output

        def pass_by(linear: nn.Module, _: Any, output: Tensor) -> None:
            passed.setdefault(linear, output)

        def attend(number: int, output: Tensor) -> Tensor:
            self.heads.append(output)
            self.on_the_way.append(dict(passed))
            return output

        hooks = []
        for block in layers.blocks:
            hooks += [block.register_forward_pre_hook(enter), block.register_forward_hook(leave)]
            linear = (module for module in block.modules() if isinstance(module, (nn.Linear, Conv1D)))
            hooks += [module.register_forward_hook(pass_by) for module in linear]
        try:
            with torch.no_grad():
                self.said = run(layers.model, batch, attend)
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def without(self, trials: Sequence[Mapping[Head, Tensor | float]]) -> Any:
        """What the model says with other outputs of some heads, as if the texts stood side by side once for each trial.

        A replacement is a number, or broadcasts to the head's output (B, T, e).
        """
        n, first = len(trials), min(layer for trial in trials for layer, _ in trial)
        calls = count(first if self.blocks else 0)  # the first attention that runs is that of the layer

        def attend(site: Site) -> Tensor:
            layer = next(calls)
            new = [{head: output for (at, head), output in trial.items() if at == layer} for trial in trials]
            if layer != first and not any(new):
                return fused(site)
            parts = [self.heads[layer]] * n if layer == first else list(fused(site).chunk(n))
            return torch.cat([replaced(part, heads) for part, heads in zip(parts, new, strict=True)])

        again = partial(copies, texts=len(self.batch), n=n)
        known = dict(islice(self.blocks.items(), first))
        with attending(self.layers.model, attend), recorded(known | self.on_the_way[first], again):
            return self.layers.model(**inputs_of(self.layers.model, self.batch.each(again)))
