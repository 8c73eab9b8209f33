"""Writing folders so that a reader never meets half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(folder: str | Path, *, last: str) -> Iterator[Path]:
    """Yield an empty folder to write into; its files move to `folder` if all goes well, else none of them does.

    `last` names the file that moves last: it marks the folder as complete. Other files in `folder` stay.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as name:
        stage = Path(name)
        yield stage
        files = sorted(path.relative_to(stage) for path in stage.rglob("*") if path.is_file())
        for file in sorted(files, key=lambda path: path == Path(last)):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / file, folder / file)
