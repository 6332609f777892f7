"""An instance of a stage, and how it names what it reads."""

from dataclasses import dataclass
from typing import Any

from pipeline.config.launch import LaunchSection
from pipeline.config.section import Section
from pipeline.crawl.sources import file_name
from pipeline.protocol.addresses import is_remote
from pipeline.protocol.manifest import fingerprint

MINIWEB = "miniweb:"  # before the name of a generated file
READ = ("warc", "index")  # inputs that may be on a server


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


def is_part(source: str | list[str]) -> bool:
    """Whether a benchmark's questions are a part of the run's own word problems."""
    return any(name.startswith("problems:") for name in ([source] if isinstance(source, str) else source))


def file_of(file: str | Result) -> str:
    """The name of a WARC file or index."""
    return file_name(file.path if isinstance(file, Result) else file)


def is_downloading(node: Instance) -> bool:
    """Whether an instance reads WARC files, records of an index, or an index, from a server."""
    from pipeline.crawl.index import is_index  # slow to import, and no other job needs it

    base = is_remote(node.section.get("base_url", ""))
    named = (source for key, source in node.inputs if key in READ)
    sources = [source.path if isinstance(source, Result) else source for source in named]
    return any(is_remote(source) or (base and is_index(source)) for source in sources)
