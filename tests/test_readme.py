"""What README.md says is so: its examples run, its front matter makes a Space, its tree is the tree."""

import re
from pathlib import Path

import pytest
import torch

from attnkit.measures import MEASURES
from tests.synthetic import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def front_matter():
    block = README.split("---")[1]
    return {key: value.strip().strip('"') for key, value in re.findall(r"^(\w+):\s*(.+)$", block, re.MULTILINE)}


def test_the_front_matter_makes_a_space_of_the_pinned_gradio():
    matter = front_matter()

    assert matter["sdk"] == "gradio"
    assert f"gradio=={matter['sdk_version']}" in (ROOT / "requirements.txt").read_text().split()
    assert (ROOT / matter["app_file"]).is_file()
    assert (ROOT / "checkpoints" / "majority" / "model.safetensors").is_file()


def test_the_example_prints_a_row_per_head(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(EXAMPLES[0], {})

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["layer", "head", "entropy", "selectivity", "positional_share"]
    assert len(lines) == 1 + 2 * 4


def test_the_added_statistic_reads_what_thought_says(monkeypatch):
    """Uniform over 5 tokens: the two end rows have one neighbour, the other three have two: 8/25."""
    for name, measure in dict(MEASURES).items():
        monkeypatch.setitem(MEASURES, name, measure)
    monkeypatch.delitem(MEASURES, "neighbour_weight", raising=False)
    exec(EXAMPLES[1], {})
    try:
        ((values,),) = read(torch.full((1, 1, 5, 5), 0.2, dtype=torch.float64), torch.zeros(1, 5, dtype=torch.int64))
    finally:
        MEASURES.pop("neighbour_weight")

    assert values["neighbour_weight"] == pytest.approx(8 / 25)


def test_every_file_that_the_readme_names_is_there():
    tree = re.search(r"```\nattnkit/\n(.*?)```", README, re.DOTALL)[1]
    named = re.findall(r"^  (\w+\.py)|(?<=[ ;,(])(\w+\.py)(?= )", tree.split("\nanalysis/")[0], re.MULTILINE)
    linked = re.findall(r"\]\(((?!http)[^)]+)\)", README)

    missing = [name for pair in named for name in pair if name and not (ROOT / "attnkit" / name).is_file()]
    missing += [path for path in linked if not (ROOT / path).is_file()]
    assert missing == []


def test_every_module_stands_in_the_readmes_tree():
    modules = {path.name for path in (ROOT / "attnkit").glob("*.py")} - {"__init__.py"}

    assert {name for name in modules if name not in README} == set()


def test_every_make_target_is_phony_or_a_file_and_runs_under_a_plain_shell():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))

    assert targets <= phony
    assert {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").is_file()} <= phony
    assert not re.search(r"\bsource |\[\[|\.ONESHELL|sed -i", text)
