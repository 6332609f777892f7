"""Rooms do not grow unseen: each has a budget of lines in pyproject.toml, and what grows pays elsewhere."""

import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from pydantic import BaseModel

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.lora import Lora
from pipeline.config.root import SECTIONS, ModelNode, RunKeys
from pipeline.config.section import Section
from pipeline.config.tokens import MixtureNode, SourceNode

BUDGETS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budgets"]
MOST = 400  # lines of a file
MOST_KEYS = BUDGETS.pop("keys")
MOST_BYTES = 117_000  # of README.md, CONTRIBUTING.md and docs/*.md; the goal is 110,000


def lines(folder: Path) -> int:
    """Lines of Python and of rules below a folder."""
    found = [*folder.rglob("*.py"), *folder.rglob("*.smk")]
    return sum(len(path.read_text().splitlines()) for path in found)


def test_every_room_has_a_budget() -> None:
    rooms = {f"pipeline/{path.name}" for path in (ROOT / "pipeline").iterdir() if any(path.glob("*.py"))}
    assert set(BUDGETS) == rooms | {"workflow", "tests"}


@pytest.mark.parametrize("room", BUDGETS)
def test_no_room_is_larger_than_its_budget(room: str) -> None:
    assert lines(ROOT / room) <= BUDGETS[room]


def test_no_file_is_longer_than_a_reader_bears() -> None:
    paths = [path for folder in ("pipeline", "workflow", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in paths if len(path.read_text().splitlines()) > MOST] == []


def test_the_documents_are_no_larger_than_their_budget() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert sum(len(page.read_bytes()) for page in pages) <= MOST_BYTES


def number_of_keys(model: type[Section]) -> int:
    """Count the keys of a section and of the sections in it."""
    fields = [model.model_fields[name] for name in model.own_keys()]
    defaults = [field.get_default(call_default_factory=True) for field in fields]
    return sum(number_of_keys(type(each)) if isinstance(each, BaseModel) else 1 for each in defaults)


def test_the_configuration_has_no_more_keys_than_its_budget() -> None:
    models = [RunKeys, *SECTIONS.values(), MixtureNode, SourceNode, BenchmarkNode, ModelNode, Lora]
    assert sum(map(number_of_keys, models)) <= MOST_KEYS
