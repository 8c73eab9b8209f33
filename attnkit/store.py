"""The finished shards of a pass over a data set, kept on disk so that an interrupted run goes on where it stopped.

A shard is some batches in a row. Its statistics are sums, so that adding the shards in order gives the same table to
the last bit, whether they were summed now or before the interruption.
"""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from attnkit.data import Batch
from attnkit.headstats import Cell, HeadStats, collect
from attnkit.meanmaps import MapSums
from attnkit.measures import applicable
from attnkit.model import TinyTransformer
from attnkit.moments import Moments
from attnkit.offsets import OffsetSums
from attnkit.reading import Readings
from attnkit.tables import per_sequence_table
from attnkit.workers import cut

MOMENTS = ("count", "mean", "m2", "low", "high")
OFFSETS = ("weights", "pairs")
SHARD = 32  # batches


@dataclass(frozen=True)
class KindStats:
    """What is known of all heads of one kind of attention after some sequences."""

    stats: HeadStats
    offsets: OffsetSums | None = None  # of texts, unless queries and keys are of two of them
    methods: frozenset[str] = frozenset()  # of texts: how they were read, `hfreading.WHOLE`, `hfreading.BLOCKS`

    def __add__(self, other: "KindStats") -> "KindStats":
        offsets = None if self.offsets is None or other.offsets is None else self.offsets + other.offsets
        return KindStats(self.stats + other.stats, offsets, self.methods | other.methods)


class Store:
    """A folder of shards. `identity` says what they are sums of: shards of anything else are refused."""

    def __init__(self, folder: Path, identity: dict[str, Any], *, resume: bool):
        self.folder = folder
        file = folder / "identity.json"
        if resume and file.is_file():
            check_identity(json.loads(file.read_text(encoding="utf-8")), identity)
            return
        self.clear()
        folder.mkdir(parents=True)
        file.write_text(json.dumps(identity, indent=2) + "\n", encoding="utf-8")

    def get(self, number: int, kind: str = "self") -> KindStats | None:
        """What is kept of a finished shard, or None. `kind`: of attention."""
        file = self.shard(number, kind)
        return load_stats(file) if file.is_file() else None

    def put(self, number: int, kept: KindStats, per_sequence: list[pa.Table], kind: str = "self") -> None:
        """Keep a finished shard, and with it the rows of its sequences if there are any."""
        if per_sequence:
            write_row_groups(self.rows(f"{number:06d}", kind), per_sequence)
        unfinished = self.shard(number, kind).with_suffix(".tmp")
        save_stats(kept, unfinished)
        os.replace(unfinished, self.shard(number, kind))  # the shard counts as finished from here on

    def write_per_sequence(self, file: Path, kind: str = "self") -> None:
        """Join the rows of all shards into one Parquet file, a row group at a time."""
        parts = (pq.ParquetFile(part) for part in sorted(self.folder.glob(self.rows("*", kind).name)))
        write_row_groups(file, (part.read_row_group(i) for part in parts for i in range(part.num_row_groups)))

    def clear(self) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def shard(self, number: int, kind: str) -> Path:
        return self.folder / f"{number:06d}-{kind}.safetensors"

    def rows(self, number: str, kind: str) -> Path:
        return self.folder / f"{number}-{kind}.parquet"


def check_identity(kept: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in sorted({*kept, *wanted}):
        if kept.get(key) != wanted.get(key):
            raise ValueError(
                f"resume: the finished part is of {key} {kept.get(key)!r}, this run is of {wanted.get(key)!r}; "
                "run without --resume to start over"
            )


def write_row_groups(file: Path, tables: Iterable[pa.Table]) -> None:
    writer = None
    try:
        for table in tables:
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
    finally:
        if writer:
            writer.close()


def save_stats(kept: KindStats, file: Path) -> None:
    """Write the sums as a safetensors file: every tensor under a path of names, and JSON beside them."""
    stats, tensors = kept.stats, dict[str, Tensor]()
    if kept.offsets is not None:
        tensors |= {f"offsets/{name}": getattr(kept.offsets, name) for name in OFFSETS}
    for (label, predicted), cell in stats.cells.items():
        at = f"cells/{label}/{predicted}"
        for part in ("values", "uniform", "loss"):
            moments = getattr(cell, part)
            tensors |= {f"{at}/{part}/{name}": getattr(moments, name) for name in MOMENTS}
        tensors[f"{at}/histogram"] = cell.histogram
    for T, sums in stats.maps.items():
        tensors |= {f"maps/{T}/{name}": getattr(sums, name) for name in ("weights", "squares", "uniform")}
    head = {
        "names": stats.names,
        "longest": stats.longest,
        "cells": list(stats.cells),
        "maps": {str(T): sums.count for T, sums in stats.maps.items()},
        "methods": sorted(kept.methods),
    }
    save_file({name: t.contiguous().clone() for name, t in tensors.items()}, file, {"attnkit": json.dumps(head)})


def load_stats(file: Path) -> KindStats:
    """Read what `save_stats` wrote; every number is the same to the bit."""
    with safe_open(file, framework="pt") as opened:
        head = json.loads(opened.metadata()["attnkit"])

        def moments(at: str) -> Moments:
            return Moments(*(opened.get_tensor(f"{at}/{name}") for name in MOMENTS))

        cells = {}
        for label, predicted in head["cells"]:
            at = f"cells/{label}/{predicted}"
            values, uniform, loss = (moments(f"{at}/{part}") for part in ("values", "uniform", "loss"))
            cells[label, predicted] = Cell(values, uniform, opened.get_tensor(f"{at}/histogram"), loss)
        maps = {
            int(T): MapSums(
                count, *(opened.get_tensor(f"maps/{T}/{name}") for name in ("weights", "squares", "uniform"))
            )
            for T, count in head["maps"].items()
        }
        offsets = None
        if f"offsets/{OFFSETS[0]}" in opened.keys():  # noqa: SIM118  # it is no dict
            offsets = OffsetSums(*(opened.get_tensor(f"offsets/{name}") for name in OFFSETS))
    stats = HeadStats(tuple(head["names"]), head["longest"], cells, maps)
    return KindStats(stats, offsets, frozenset(head["methods"]))


def collect_in_shards(
    model: TinyTransformer, batches: Iterable[Batch], vocab: Sequence[str], store: Store, *, per_sequence: bool = False
) -> HeadStats:
    """`headstats.collect`, a shard at a time: what `store` has is taken from there, what is new is kept in it."""
    names = tuple(applicable(vocab))
    stats = HeadStats(names, model.config.max_len)
    first = 0  # the number of the shard's first sequence
    for number, shard in enumerate(cut(batches, SHARD)):
        part = store.get(number)
        if part is None:
            seen: list[Readings] = []
            part = KindStats(collect(model, shard, vocab, on_readings=seen.append if per_sequence else None))
            store.put(number, part, per_sequence_tables(seen, names, first))
        stats = stats + part.stats
        first += sum(map(len, shard))
    return stats


def per_sequence_tables(seen: list[Readings], names: Sequence[str], first: int) -> list[pa.Table]:
    tables = []
    for readings in seen:
        tables.append(per_sequence_table(readings, names, {"row": first + np.arange(len(readings.predicted))}))
        first += len(readings.predicted)
    return tables
