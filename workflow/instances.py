"""An instance of a stage, and how it names what it reads."""

from dataclasses import dataclass
from typing import Any

from pipeline.common.manifest import fingerprint
from pipeline.config.launch import LaunchSection
from pipeline.config.section import Section


@dataclass(frozen=True)
class Result:
    """A file or folder among the results of another instance; `path` is relative to its data folder."""

    node: str
    path: str = ""


@dataclass(frozen=True)
class Instance:
    """An instance of a stage. `name`: its folder under the run's results; `inputs`: (key, source) pairs;
    `launch`: how its program runs, which is no part of what it makes.
    """

    name: str
    module: str
    kind: type[Section]
    section: dict[str, Any]
    inputs: tuple[tuple[str, str | Result], ...]
    launch: LaunchSection

    @property
    def stage(self) -> str:
        return self.name.partition("/")[0]

    @property
    def instance(self) -> str:
        return self.name.partition("/")[2] or self.name


Inputs = list[tuple[str, str | Result]]


def files_name(files: list[str | Result]) -> str:
    """A name that goes with the files and not with their place in a list that may grow anywhere."""
    return fingerprint({"files": [str(file) for file in files]})[:8]
