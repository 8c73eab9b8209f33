"""What the page shows, as plain values: text and numbers in, text, numbers, bytes and figures out. No gradio here.

Every view is a pure function of what is on the page and of the files in checkpoints/: nothing is kept of a visitor.
A ValueError is a sentence for the person who asked.
"""

import base64
import io
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from attnkit.checkpoint import Checkpoint, load_checkpoint, read_checkpoint
from attnkit.data import encode
from attnkit.labels import readable
from attnkit.maps import attention_grid, attention_map
from attnkit.model import TinyTransformer
from attnkit.plots import DPI
from attnkit.style import SEQUENTIAL
from attnkit.tasks import MAJORITY, TASKS

CHECKPOINTS = Path(__file__).resolve().parents[1] / "checkpoints"
FIRST_CHOICE = "majority"
TYPES = {"png": "image/png", "svg": "image/svg+xml", "csv": "text/csv"}


class Verdict(TypedDict):
    """The answer to one sequence; what `/classify` returns."""

    checkpoint: str
    sequence: str
    prediction: str  # the class with the largest probability
    probabilities: dict[str, float]  # class -> softmax of the logits
    counts: dict[str, int]  # token -> how often it stands in the sequence
    rule: str  # the task in one sentence
    expected: str | None  # the class by the rule; None where the rule is not known here


class Maps(TypedDict):
    """The attention of every head on one sequence; what `/attention` returns."""

    checkpoint: str
    tokens: list[str]
    weights: list[list[list[list[float]]]]  # [layer][head][query][key]; the weights of a query sum to 1


class Download(TypedDict):
    name: str
    type: str  # MIME
    data: str  # base64


@dataclass(frozen=True)
class Reading:
    """One sequence, read by one checkpoint."""

    checkpoint: str
    info: Checkpoint
    sequence: str
    probabilities: list[float]  # C
    weights: np.ndarray  # (L, H, T, T) float32

    @property
    def tokens(self) -> list[str]:
        return readable(list(self.sequence))


# ---------------------------------------------------------------- checkpoints


def folders() -> dict[str, Path]:
    return {path.name: path for path in sorted(CHECKPOINTS.glob("*/")) if not path.name.startswith(".")}


def shelf() -> tuple[list[str], dict[str, str]]:
    """The names in checkpoints/ that open, the first choice first; and of those that do not, with the reason."""
    names, broken = [], {}
    for name in folders():
        try:
            open_checkpoint(name)
            names.append(name)
        except ValueError as error:
            broken[name] = str(error)
    return sorted(names, key=lambda name: name != FIRST_CHOICE), broken


def open_checkpoint(name: str) -> tuple[Checkpoint, TinyTransformer]:
    """Only by the name of a folder in checkpoints/. Raises ValueError if there is none or it does not open."""
    known = folders()
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"checkpoint: got {name!r}, allowed is {' or '.join(known) or 'none: `make train` makes one'}")
    try:
        return opened(known[name])
    except (ValueError, OSError) as error:  # where the files lie is no business of a visitor's
        raise ValueError(str(error).replace(str(CHECKPOINTS), CHECKPOINTS.name)) from None


def opened(folder: Path) -> tuple[Checkpoint, TinyTransformer]:
    files = (folder / "config.json", folder / "model.safetensors")
    return read_files(folder, tuple(file.stat().st_mtime_ns if file.is_file() else 0 for file in files))


@lru_cache(maxsize=16)
def read_files(folder: Path, changed: tuple[int, ...]) -> tuple[Checkpoint, TinyTransformer]:
    """`changed`, the times of the files, makes a checkpoint that was trained again be read again."""
    return read_checkpoint(folder), load_checkpoint(folder)


# ---------------------------------------------------------------- one sequence


def read(checkpoint: str, sequence: str) -> Reading:
    """Run the model. Raises ValueError for a checkpoint that is not there or a sequence that it cannot take."""
    info, model = open_checkpoint(checkpoint)
    tokens = token_ids(info, sequence)
    with torch.inference_mode():
        logits, attentions = model(tokens.unsqueeze(0))
    weights = torch.cat(attentions).numpy()  # one sequence: its batch axis becomes that of the layers
    return Reading(checkpoint, info, sequence, logits[0].softmax(dim=0).tolist(), weights)


def token_ids(info: Checkpoint, sequence: str) -> torch.Tensor:
    if not isinstance(sequence, str):  # the API hands on whatever JSON it is sent
        raise ValueError(f"sequence: got {type(sequence).__name__}, allowed is text")
    return encode(sequence, info.task.vocab, info.model.max_len)


def complaint(checkpoint: str, sequence: str) -> str:
    """What is wrong with a sequence, or nothing."""
    try:
        info, _ = open_checkpoint(checkpoint)
        token_ids(info, sequence)
    except ValueError as error:
        return str(error)
    return ""


def verdict(reading: Reading) -> Verdict:
    task = reading.info.task
    known = TASKS.get(task.name)
    expected = None
    if known and list(known.vocab) == task.vocab and list(known.classes) == task.classes:
        expected = task.classes[int(known.label(token_ids(reading.info, reading.sequence).unsqueeze(0)))]
    return Verdict(
        checkpoint=reading.checkpoint,
        sequence=reading.sequence,
        prediction=task.classes[int(np.argmax(reading.probabilities))],
        probabilities=dict(zip(task.classes, reading.probabilities, strict=True)),
        counts={token: reading.sequence.count(token) for token in task.vocab},
        rule=task.rule,
        expected=expected,
    )


def maps(reading: Reading) -> Maps:
    return Maps(checkpoint=reading.checkpoint, tokens=list(reading.sequence), weights=reading.weights.tolist())


def packed(reading: Reading, *, shared_scale: bool, selected: tuple[int, int] | None) -> dict[str, Any]:
    """Every map for grid.js: little-endian 16-bit integers in base64, (L, H, T, T), 65535 = weight 1.

    That is exact to 1e-5 and a third of the size of the numbers written out. `selected` is the head that stands
    large beside the grid.
    """
    layers, heads = reading.weights.shape[:2]
    return {
        "layers": layers,
        "heads": heads,
        "tokens": reading.tokens,
        "weights": base64.b64encode(np.rint(reading.weights * 65535).astype("<u2").tobytes()).decode(),
        "shared": shared_scale,
        "selected": None if selected is None else list(selected),
    }


def colours() -> str:
    """The figures' colour scale for grid.js: 256 times rrggbb, from weight 0 up."""
    return (SEQUENTIAL(range(256))[:, :3] * 255).round().astype(np.uint8).tobytes().hex()


# ---------------------------------------------------------------- sequences to start from


def random_sequence(checkpoint: str) -> str:
    info, _ = open_checkpoint(checkpoint)
    return "".join(random.choices(info.task.vocab, k=info.data.length))


def near_ties(checkpoint: str) -> dict[str, str]:
    """Sequences around the edge of the majority rule, by what they are; none for a checkpoint of another task."""
    info, _ = open_checkpoint(checkpoint)
    if info.task.name != MAJORITY.name:
        return {}
    L, half = info.data.length, info.data.length // 2
    ties = {"tie": spread(half, L), "sorted": "1" * half + "0" * half} if 2 * half == L else {}
    return ties | {"more": spread(half + 1, L), "fewer": spread((L - 1) // 2, L), "all": "1" * L}


def spread(ones: int, length: int) -> str:
    """`ones` ones among `length` bits, as evenly as they go."""
    return "".join(str((i + 1) * ones // length - i * ones // length) for i in range(length))


# ---------------------------------------------------------------- to take away


def head_figure(reading: Reading, layer: int, head: int, *, shared_scale: bool) -> Figure:
    """The article's figure: one head, large. Raises ValueError for a head that the model has not."""
    layers, heads = reading.weights.shape[:2]
    if not (layer in range(layers) and head in range(heads)):
        raise ValueError(
            f"head: got layer {layer}, head {head}, allowed is layer 0 to {layers - 1}, head 0 to {heads - 1}"
        )
    strongest = float(reading.weights.max()) if shared_scale else None
    title = f"layer {layer}, head {head}"
    figure = attention_map(reading.weights[layer, head], list(reading.sequence), title=title, vmax=strongest).figure
    assert isinstance(figure, Figure)
    figure.set_dpi(DPI)  # sharp on a phone, too
    return figure


def grid_figure(reading: Reading, *, shared_scale: bool) -> Figure:
    return attention_grid(reading.weights, list(reading.sequence), shared_scale=shared_scale)


def weights_csv(reading: Reading) -> str:
    """One line per weight: layer, head, query, query_token, key, key_token, weight; all are counted from 0."""
    layer, head, query, key = np.indices(reading.weights.shape).reshape(4, -1)
    tokens = np.array(list(reading.sequence))
    columns = {"layer": layer, "head": head, "query": query, "query_token": tokens[query]}
    columns |= {"key": key, "key_token": tokens[key], "weight": reading.weights.ravel()}
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n")


def download(name: str, content: Figure | str) -> Download:
    """A file for the browser to save; the ending of its name says what is made of the content."""
    ending = name.rsplit(".", 1)[1]
    if isinstance(content, Figure):
        file = io.BytesIO()
        content.savefig(file, format=ending, dpi=DPI)
        raw = file.getvalue()
    else:
        raw = content.encode()
    return Download(name=name, type=TYPES[ending], data=base64.b64encode(raw).decode())
