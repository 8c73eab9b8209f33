"""Writing folders so that a reader never meets half of one, and telling files apart."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def staged(folder: str | Path, *, last: str, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Yield an empty folder to write into; its files move to `folder` if all goes well, else none of them does.

    `last` names the file that moves last: it marks the folder as complete. Other files in `folder` stay, but for
    those that `stale` names: what an earlier run has written, and this one has not, is gone.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder) as name:
        new, old = Path(name, "new"), Path(name, "old")
        new.mkdir()
        yield new
        files = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
        gone = [Path(name) for name in stale if Path(name) not in files]
        try:
            for file in sorted(files, key=lambda path: path == Path(last)):
                for path in (folder / file, old / file):
                    path.parent.mkdir(parents=True, exist_ok=True)
                if (folder / file).is_file():
                    os.replace(folder / file, old / file)
                os.replace(new / file, folder / file)
            for file in gone:
                (folder / file).unlink(missing_ok=True)
        except BaseException:  # an interrupt, too, must not leave new files beside old ones
            for file in files:
                if (old / file).exists():
                    os.replace(old / file, folder / file)
                elif not (new / file).exists():
                    (folder / file).unlink()
            raise


def sha256(*files: Path) -> str:
    """Of one file, or of several one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with open(file, "rb") as opened:
            while piece := opened.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()
