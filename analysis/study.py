"""How a study leaves what it found: its tables, its record and its figures, all of them or none."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.page import Figures, draw
from analysis.subject import write_json
from attnkit.files import staged


def write_study(
    out: Path,
    name: str,
    tables: Mapping[str, pd.DataFrame],
    record: Mapping[str, Any],
    figures: Figures,
    *,
    parquet: Iterable[str] = (),
    stale: Iterable[str] = (),
) -> None:
    """Write the tables as CSV, those named in `parquet` as that, `name`.json, and the figures that they give.

    The table called `name` comes last. A folder that no other study has begun takes the record as its run.json, too.
    `stale`: tables that an earlier run may have left and this one does not have.
    """
    with staged(out, last=f"{name}.csv", stale=[f"{table}.csv" for table in stale]) as folder:
        for table, frame in tables.items():
            if table in parquet:
                frame.to_parquet(folder / f"{table}.parquet", index=False)
            else:
                frame.to_csv(folder / f"{table}.csv", index=False, lineterminator="\n", encoding="utf-8")
        write_json(folder / f"{name}.json", dict(record))
        if not (out / "run.json").exists():
            write_json(folder / "run.json", dict(record))
        draw(folder, figures)
