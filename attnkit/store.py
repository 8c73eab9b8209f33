"""The finished shards of a pass over a data set, kept on disk so that an interrupted run goes on where it stopped.

A shard is some batches in a row. Its statistics are sums, so that adding the shards in order gives the same table to
the last bit, whether they were summed now or before the interruption.
"""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
from attnkit.reading import Readings
from attnkit.tables import per_sequence_table
from attnkit.workers import cut

MOMENTS = ("count", "mean", "m2", "low", "high")
SHARD = 32  # batches


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

    def get(self, number: int) -> HeadStats | None:
        """The statistics of a finished shard, or None."""
        file = self.shard(number)
        return load_stats(file) if file.is_file() else None

    def put(self, number: int, stats: HeadStats, per_sequence: list[pa.Table]) -> None:
        """Keep a finished shard, and with it the rows of its sequences if there are any."""
        if per_sequence:
            write_row_groups(self.rows(number), per_sequence)
        unfinished = self.shard(number).with_suffix(".tmp")
        save_stats(stats, unfinished)
        os.replace(unfinished, self.shard(number))  # the shard counts as finished from here on

    def write_per_sequence(self, file: Path) -> None:
        """Join the rows of all shards into one Parquet file, a row group at a time."""
        parts = (pq.ParquetFile(part) for part in sorted(self.folder.glob("*.parquet")))
        write_row_groups(file, (part.read_row_group(i) for part in parts for i in range(part.num_row_groups)))

    def clear(self) -> None:
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def shard(self, number: int) -> Path:
        return self.folder / f"{number:06d}.safetensors"

    def rows(self, number: int) -> Path:
        return self.folder / f"{number:06d}.parquet"


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


def save_stats(stats: HeadStats, file: Path) -> None:
    """Write HeadStats as a safetensors file: every tensor under a path of names, and JSON beside them."""
    tensors: dict[str, Tensor] = {}
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
    }
    save_file({name: t.contiguous().clone() for name, t in tensors.items()}, file, {"attnkit": json.dumps(head)})


def load_stats(file: Path) -> HeadStats:
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
    return HeadStats(tuple(head["names"]), head["longest"], cells, maps)


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
            kept: list[Readings] = []
            part = collect(model, shard, vocab, on_readings=kept.append if per_sequence else None)
            store.put(number, part, per_sequence_tables(kept, names, first))
        stats = stats + part
        first += sum(map(len, shard))
    return stats


def per_sequence_tables(kept: list[Readings], names: Sequence[str], first: int) -> list[pa.Table]:
    tables = []
    for readings in kept:
        tables.append(per_sequence_table(readings, names, first))
        first += len(readings.predicted)
    return tables
