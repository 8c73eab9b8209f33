"""Machine code that is kept on disk."""

import shutil
import subprocess
import sys
from pathlib import Path

from attnkit import __file__ as package

RUN = "from loops.outer import outer; print(outer(1))"


def test_machine_code_is_made_anew_when_what_it_calls_has_changed(tmp_path):
    """Numba itself looks at the file of the outer loop alone, which stays the same."""
    folder = tmp_path / "loops"
    folder.mkdir()
    shutil.copy(Path(package).with_name("machine.py"), folder)
    begin = "from loops.machine import compiled\n"
    called = "@compiled\ndef inner(x):\n    return x + {}\n"
    (folder / "outer.py").write_text(f"{begin}from loops.inner import inner\n@compiled\ndef outer(x): return inner(x)")

    answers = []
    for more in (1, 1, 41):
        (folder / "inner.py").write_text(begin + called.format(more))
        done = subprocess.run([sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, check=True)
        answers.append(int(done.stdout))

    assert answers == [2, 2, 42]
    assert len(list((folder / "__pycache__").glob("outer*.nbi"))) == 2
