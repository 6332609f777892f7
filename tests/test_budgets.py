"""The project does not grow: pyproject.toml has the totals of lines and of keys."""

import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from pydantic import BaseModel

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.lora import Lora
from pipeline.config.root import SECTIONS, ModelNode, RunKeys
from pipeline.config.tokens import MixtureNode, SourceNode
from pipeline.core.section import Section

BUDGETS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budgets"]
FOLDERS = {
    "code": ("pipeline", "workflow"),
    "packages": ("packages",),
    "tests": ("tests",),
    "bench": ("bench",),
}
MOST = 400  # lines of a file
MOST_BYTES = 110_000  # of README.md, CONTRIBUTING.md and docs/*.md


def lines(folder: Path) -> int:
    """Lines of Python and of rules below a folder."""
    paths = [*folder.rglob("*.py"), *folder.rglob("*.smk")]
    return sum(len(path.read_text().splitlines()) for path in paths)


@pytest.mark.parametrize("total", FOLDERS)
def test_a_total_of_lines_does_not_rise(total: str) -> None:
    counted = sum(lines(ROOT / folder) for folder in FOLDERS[total])
    assert counted <= BUDGETS[total], f"{counted - BUDGETS[total]} lines more than the total of {total}"


def test_no_file_is_longer_than_a_reader_bears() -> None:
    paths = [
        path
        for folder in ("pipeline", "workflow", "packages", "tests", "bench")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert [path.name for path in paths if len(path.read_text().splitlines()) > MOST] == []


def test_the_documents_are_no_larger_than_their_budget() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(page.read_bytes()) for page in pages) <= MOST_BYTES


def number_of_keys(model: type[Section]) -> int:
    """Count the keys of a section and of the sections in it."""
    fields = [model.model_fields[name] for name in model.own_keys()]
    defaults = [field.get_default(call_default_factory=True) for field in fields]
    return sum(number_of_keys(type(each)) if isinstance(each, BaseModel) else 1 for each in defaults)


def test_the_total_of_keys_does_not_rise() -> None:
    models = [RunKeys, *SECTIONS.values(), MixtureNode, SourceNode, BenchmarkNode, ModelNode, Lora]
    counted = sum(map(number_of_keys, models))
    assert counted <= BUDGETS["keys"], f"{counted - BUDGETS['keys']} keys more than the total"
