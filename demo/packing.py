"""Views as the page's scripts take them: compact, and marked with what they are of. No gradio here."""

import base64
import json
from typing import Any

import numpy as np

from attnkit.data import separator
from attnkit.labels import readable
from attnkit.reference import LEVELS, METHODS, WORTH, Reference
from demo import sentences
from demo.sentences import Sentence
from demo.shelf import open_checkpoint, open_reference
from demo.views import Reading, changes, written
from demo.words import Refusal

SPREAD = (0.01, 0.25, 0.5, 0.75, 0.99)  # the quantiles that the page draws of a distribution


def packed(reading: Reading | Sentence) -> dict[str, Any]:
    """Every map for the grid: little-endian 16-bit integers in base64, (L, H, R, T), 65535 = weight 1.

    R `tokens` look at T `keys`. That is exact to 1e-5 and a third of the size of the numbers written out.
    """
    layers, heads = reading.weights.shape[:2]
    return {
        "state": state(reading),
        **question(reading),
        "kinds": reading.subject.kinds if isinstance(reading, Sentence) and reading.two_parts else [],
        "steps": list(reading.steps),
        "layers": layers,
        "heads": heads,
        "tokens": reading.labels,
        "keys": reading.key_labels,
        "weights": integers(reading.weights),
        "norms": None if reading.value_norms is None else reading.value_norms.astype(float).round(4).tolist(),
        "prediction": reading.prediction,
        "margin": reading.margin,
        "digits": reading.digits,
    }


def wire(told: Any) -> str:
    """As the page's scripts take what is more than a word: see props.js."""
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def state(reading: Reading | Sentence) -> str:
    """What a reading is of, as one text: numbers that follow it carry this, so that none is shown beside another's."""
    return json.dumps(question(reading))


def question(reading: Reading | Sentence) -> dict[str, str]:
    """What a reading is of, as the page asks for it and as its links say."""
    asked = {
        "checkpoint": reading.checkpoint,
        "sequence": reading.sequence,
        "off": " ".join(written(reading.off)),
        "replacement": reading.replacement,
    }
    return asked | (reading.two_parts if isinstance(reading, Sentence) else {})


def cells(reading: Reading) -> dict[str, Any]:
    vocab = reading.info.task.vocab
    names = dict(zip(vocab, readable(vocab), strict=True))
    told = {"state": state(reading), "tokens": reading.pieces, "vocab": vocab, "names": names}
    return told | {"separator": separator(vocab)}


def effects(reading: Reading | Sentence) -> tuple[dict[str, Any], dict[str, Any]]:
    """What switching a head, and what changing a token, would do, for the grid and for the cells.

    `turns` is where another class would be answered. No token of a text has another that would be its opposite.
    """
    of = state(reading)
    if isinstance(reading, Sentence):
        heads, turns = sentences.effects(reading)
        return {"of": of, "heads": heads, "turns": turns}, {"of": of, "tokens": [], "turns": []}
    found = changes(reading)
    heads_turn = [[answer != reading.answer for answer in row] for row in found.answers]
    flips_turn = [reading.margin + change < 0 for change in found.tokens]
    return {"of": of, "heads": found.heads, "turns": heads_turn}, {
        "of": of,
        "tokens": found.tokens,
        "turns": flips_turn,
    }


def integers(weights: np.ndarray) -> str:
    return base64.b64encode(np.rint(weights * 65535).astype("<u2").tobytes()).decode()


def hexes(rgba: np.ndarray) -> str:
    return (rgba[:, :3] * 255).round().astype(np.uint8).tobytes().hex()


# ---------------------------------------------------------------- over the whole set


def reference(checkpoint: str) -> Reference:
    """Raises ValueError where nobody has measured what is usual, or the file does not open."""
    known = open_reference(checkpoint)
    if known is None:
        raise Refusal("not_measured", name=checkpoint)
    return known


def over_set(checkpoint: str) -> dict[str, Any]:
    """What is known of every head over a whole set, as far as the page needs it at once. Raises as `reference`."""
    known = reference(checkpoint)
    info, _ = open_checkpoint(checkpoint)
    return {
        "checkpoint": checkpoint,
        "length": int(known.length),
        "count": int(known.count),
        "statistics": known.statistics.tolist(),
        "columns": known.columns.tolist(),
        "means": significant(known.means),
        "quantiles": significant(known.quantiles[..., [int(np.abs(LEVELS - level).argmin()) for level in SPREAD]]),
        "mean_attention": integers(known.mean_attention),
        "sharpest": spelled(known.sharpest, info.task.vocab),
        "flattest": spelled(known.flattest, info.task.vocab),
        "nearest_wrong": spelled(known.nearest_wrong, info.task.vocab),
    }


def studies(checkpoint: str) -> dict[str, Any]:
    """The rest: for what a visitor opens. Raises as `reference`."""
    known = reference(checkpoint)
    table = known.differences
    return {
        "checkpoint": checkpoint,
        "classes": known.classes.tolist(),
        "ends": significant(known.quantiles[..., [0, -1]]),
        "histogram": known.histogram.tolist(),
        "differences": {name: plain(table[name]) for name in table.dtype.names or ()},  # a population has no p
        "methods": METHODS,
        "effects": WORTH,
        "worth": significant(known.worth),
        "steps": known.steps.tolist(),
        "uniform": significant(known.uniform),
        "training": significant(known.training),
    }


def plain(column: np.ndarray) -> Any:
    return significant(column) if column.dtype.kind == "f" else column.tolist()


def significant(numbers: np.ndarray) -> Any:
    """As nested lists, to six digits; JSON has no NaN."""
    if numbers.ndim:
        return [significant(part) for part in numbers]
    return float(f"{numbers:.6g}") if np.isfinite(numbers) else None


def spelled(ids: np.ndarray, vocab: list[str]) -> Any:
    """Token ids (…, T) as nested lists of what one would type."""
    if ids.ndim > 1:
        return [spelled(row, vocab) for row in ids]
    return separator(vocab).join(vocab[i] for i in ids)
