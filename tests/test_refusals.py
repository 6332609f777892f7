"""Configurations that cannot be meant are refused before the first job, in one line that names the key."""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest
import yaml
from conftest import ROOT

from pipeline.config.root import Config
from pipeline.core.errors import InputError
from pipeline.core.overlays import DEFAULTS, merge, read_config
from workflow.forecast.refusals import refusals
from workflow.graph import Graph
from workflow.preflight import nothing_to_do


def rows() -> Iterator[Any]:
    """The rows of `data/refusals.yaml`: overlays, keys on top of them, what is said."""
    for name, group in yaml.safe_load((ROOT / "tests/data/refusals.yaml").read_text()).items():
        place = [key for key in group.get("at", "").split(".") if key]
        for number, (keys, *words) in enumerate(group["rows"]):
            change = reduce(lambda inner, key: {key: inner}, reversed(place), keys)
            values = merge(group.get("given", {}), change)
            yield pytest.param(group.get("overlays", []), values, words, id=f"{name} {number}")


@pytest.mark.parametrize(("overlays", "values", "words"), rows())
def test_a_configuration_that_cannot_be_is_one_line_that_names_the_key(
    monkeypatch: pytest.MonkeyPatch, overlays: list[str], values: dict[str, Any], words: list[str]
) -> None:
    monkeypatch.chdir(ROOT)
    below = read_config([DEFAULTS, *(ROOT / f"configs/{name}.yaml" for name in overlays)])
    try:
        graph = Graph(Config(merge(below, values)))
        lines = refusals(graph.config) or [nothing_to_do(graph)]
    except InputError as error:
        lines = [str(error)]
        assert lines[0].startswith("config key ") and "SECRET" not in lines[0]
    said = [line for line in lines if line and all(word in line for word in words)]
    assert len(said) == 1 and "\n" not in said[0], lines
