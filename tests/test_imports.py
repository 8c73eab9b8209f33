"""Who may import whom: downwards only, and nothing heavy by just importing attnkit."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("attnkit", "analysis", "demo", "benchmarks")

# From the bottom up; a module may import those of lower floors and of its own, but not in a circle.
FLOORS = (
    {"attnkit.moments", "attnkit.model", "attnkit.tasks", "attnkit.files"},
    {"attnkit.data", "attnkit.observe", "attnkit.checkpoint", "attnkit.measures", "attnkit.cli"},
    {"attnkit.train", "attnkit.headstats", "attnkit.hf"},
)
DRAWING = ("matplotlib", "seaborn")
FORBIDDEN = (
    ("attnkit", ("analysis", "demo", "benchmarks", "tests", "gradio")),
    ("analysis", ("demo", "benchmarks", "tests", "gradio")),
    ("demo", ("analysis", "benchmarks", "tests")),
    ("attnkit.model", ("attnkit",)),
    *((f"attnkit.{name}", DRAWING) for name in ("data", "observe", "checkpoint", "measures", "train", "headstats")),
    ("demo.views", ("gradio",)),
    *((room, ("matplotlib.pyplot",)) for room in ROOMS),
)


def imports_of(source):
    """Every module that a file names in an import, also inside functions: `from a import b` names a and a.b."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def read_tree():
    """{module: the names it imports} for every file of the project; a package is called by its name alone."""
    tree = {}
    for file in (file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        tree[module] = imports_of(file.read_text(encoding="utf-8"))
    return tree


def within(name, package):
    return name == package or name.startswith(package + ".")


def violations(tree):
    """What is wrong with a tree of {module: names it imports}, as sentences."""
    wrong = []
    for module, names in tree.items():
        for who, what in FORBIDDEN:
            if within(module, who):
                wrong += [f"{module} imports {n}" for n in sorted(names) if any(within(n, w) for w in what)]
    floor = {module: number for number, modules in enumerate(FLOORS) for module in modules}
    for module, names in tree.items():
        wrong += [f"{module} imports {n}, which is above it" for n in names if floor.get(n, 0) > floor.get(module, 9)]
    graph = {module: names & (tree.keys() - set(ROOMS)) for module, names in tree.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        wrong.append(f"a circle of imports: {' <- '.join(error.args[1])}")
    return wrong


def test_imports_go_downwards_only():
    tree = read_tree()

    assert {"attnkit.model", "attnkit.train", "benchmarks.training"} <= tree.keys()
    assert violations(tree) == []


@pytest.mark.parametrize(
    ("module", "source", "sentence"),
    [
        ("attnkit.train", "import analysis.head_stats", "attnkit.train imports analysis.head_stats"),
        ("attnkit.plots", "def f():\n  from demo import views", "attnkit.plots imports demo"),
        ("attnkit.new", "import gradio as gr", "attnkit.new imports gradio"),
        ("analysis.report", "from demo.views import draw", "analysis.report imports demo.views"),
        ("demo.app", "from analysis import report", "demo.app imports analysis"),
        ("attnkit.model", "from attnkit.data import Batch", "attnkit.model imports attnkit.data"),
        ("attnkit.measures", "import seaborn", "attnkit.measures imports seaborn"),
        ("demo.views", "from matplotlib import pyplot", "demo.views imports matplotlib.pyplot"),
        ("attnkit.data", "import attnkit.train", "attnkit.data imports attnkit.train, which is above it"),
        ("attnkit.tasks", "from attnkit import checkpoint", "attnkit.tasks imports attnkit.checkpoint, which is above"),
        ("attnkit.data", "import attnkit.checkpoint", "a circle of imports"),
    ],
)
def test_a_wrong_import_is_found(module, source, sentence):
    tree = read_tree()
    tree[module] = tree.get(module, set()) | imports_of(source)

    assert any(wrong.startswith(sentence) for wrong in violations(tree))


HEAVY = ("matplotlib", "seaborn", "gradio", "transformers", "pandas", "pyarrow", "jinja2")


def loaded_by(statement):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return {name for name in done.stdout.split() if name in HEAVY}


@pytest.mark.parametrize("statement", ["import attnkit", "import attnkit.train"])
def test_importing_loads_nothing_heavy_and_prints_nothing(statement):
    assert loaded_by(statement) == set()


def test_something_heavy_would_be_found():
    assert "pandas" in loaded_by("import attnkit, pandas")
