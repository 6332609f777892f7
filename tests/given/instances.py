"""Stages to run in a test's own process, and the graph of a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.root import Config
from pipeline.core.overlays import DEFAULTS, read_config
from pipeline.core.section import Section
from pipeline.core.stage import Stage
from workflow.graph import Graph

Given = Mapping[str, str | Path | Sequence[str | Path]]


def open_stage(
    work: Path, section: Section, inputs: Given, instance: str = "test", **launch: Any
) -> Stage[Any]:
    """A stage that works in `work`, with the folder for its results; an input is one path or several."""
    several = {name: [given] if isinstance(given, str | Path) else given for name, given in inputs.items()}
    paths = {name: list(map(str, given)) for name, given in several.items()}
    stage = Stage("test", instance, section, "", paths, work, work / "out", work / "m.json", launch)
    stage.partial.mkdir(parents=True)
    return stage


def graph_of(**sections: Any) -> Graph:
    """The graph of these sections on top of the defaults."""
    return Graph(Config(read_config([DEFAULTS]) | sections))
