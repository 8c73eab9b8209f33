"""Is this usual? Every head's statistics on one sequence, placed among those on a whole set. No gradio here."""

from typing import Any

import numpy as np
import torch

from attnkit.data import Batch
from attnkit.measures import applicable
from attnkit.observe import private
from attnkit.reading import read_batch
from demo.shelf import open_reference
from demo.views import Reading, switching
from demo.words import Refusal

ORDINARY = (0.5, 99.5)  # percentiles: one sequence in a hundred is outside


def statistics(reading: Reading) -> dict[str, Any]:
    """Of each statistic: its name, its value for each head, and the percentile of that; None where undefined.

    `among` is the set that the percentiles are of; where it is None there are none, and `why` says why, unless
    nobody has made any.
    """
    measures = applicable(reading.info.task.vocab)
    model = private(reading.model)
    with switching(model, reading.gates, reading.means):
        read = read_batch(model, Batch(reading.ids[None]), measures, fused=False)
    values = read.values.masked_fill(~read.defined, torch.nan)[0].numpy()  # (L, H, K)
    places, among, why = np.full(values.shape, np.nan), None, None
    try:
        reference = open_reference(reading.checkpoint)
        if reference is not None:
            length = int(reference.length)
            if len(reading.pieces) != length:
                raise Refusal("usual_length", length=length)
            if list(reference.statistics) != list(measures) or reference.quantiles.shape[:-1] != values.shape:
                raise Refusal("usual_other")
            places = reference.percentiles(values)
            among = {"count": int(reference.count), "length": length}
    except ValueError as error:
        why = error
    odd = (places < ORDINARY[0]) | (places > ORDINARY[1])
    return {
        "statistics": [
            {"name": name, "values": listed(values[..., k]), "percentiles": listed(places[..., k])}
            for k, name in enumerate(measures)
        ],
        "unusual": [
            [[name for name, is_odd in zip(measures, head, strict=True) if is_odd] for head in layer] for layer in odd
        ],
        "among": among,
        "why": why,
    }


def listed(table: np.ndarray) -> list[list[float | None]]:
    """JSON has no NaN."""
    return [[float(x) if np.isfinite(x) else None for x in row] for row in table]
