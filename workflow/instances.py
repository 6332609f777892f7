"""The instances of a run, what they read, and how the configuration names files and results."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from glob import glob
from os.path import exists, isdir, realpath  # False for a name too long for a file, where Path raises
from typing import Any

from pipeline.config.root import Config, ConfigError, hint
from pipeline.core.identity import data_of
from pipeline.core.launch.section import LaunchSection
from pipeline.core.section import Section
from pipeline.core.stages import MODEL_STAGES

MINIWEB = "miniweb:"  # before the name of a generated file
OWN = {
    MINIWEB: "miniweb.enabled",
    "problems:": "problems.source",
}  # prefixes of a stage's files, and its key
REMOTE = ("hub:", "http://", "https://", "s3://")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
HUB_PAGE = "https://huggingface.co/"
HUB_FORM = "hub:<owner>/<name>[/<config>]:<split>"
HUB_SET = re.compile(r"hub:[^:/@]+/[^:/@]+")
NUMBER = re.compile(r"([0-9]+)")
HUB_DATA = re.compile(r"hub:[^:/]+/[^:/]+(/[^:/]+)?:.+")


@dataclass(frozen=True)
class Result:
    """A file or folder among the results of another instance; `path` is relative to its data folder."""

    node: str
    path: str = ""


Inputs = list[tuple[str, str | Result]]


@dataclass(frozen=True)
class Instance:
    """An instance of a stage. `name`: its folder under the run's results; `inputs`: (role, source) pairs;
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


def _place(source: "str | Result") -> str:
    """Return what tells a file or a data set of the hub from others, whatever its revision and part."""
    found = HUB_SET.match(source) if isinstance(source, str) else None
    return found[0] if found else realpath(source) if isinstance(source, str) else ""


def _by_number(path: str) -> tuple[list[str | int], str]:
    """Give what puts paths into the order of the numbers in them."""
    return [int(part) if place % 2 else part for place, part in enumerate(NUMBER.split(path))], path


def _remedy(source: str) -> str:
    """Say what a source may mean that is no file."""
    if source.startswith(("~", "$")):
        return "; write the whole path: nothing is put in for `~` and `$`"
    hub = HUB_ID.fullmatch(source) and "." not in source
    return f"; a data set of the hub is {HUB_FORM}" if hub else ""


class Instances:
    """The instances of a run by name, in the order in which they are added: what one reads is before it."""

    def __init__(self, config: Config) -> None:
        self.config, self._launch_of = config, cache(config.launch_of)
        self._dumps: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.nodes: dict[str, Instance] = {}
        self.missing: list[str] = []  # files of the `data_folder` that are not there yet

    def add(
        self,
        name: str,
        module: str,
        section: Any,
        inputs: Inputs,
        without: tuple[str, ...] = (),
        **more: Any,
    ) -> Result:
        """Add an instance; returns its result. `without`: keys that it does not depend on; `more`: values
        filled in here.
        """
        values = self._dumped(section, module.rpartition(".")[2], without)
        # By role, so that the order of keys in a file changes nothing; a role's own sources keep theirs.
        ordered = tuple(sorted(inputs, key=lambda pair: pair[0]))
        stage, _, model = name.partition("/")
        launch = self._launch_of(stage, model if stage in MODEL_STAGES else None)
        section_here = values | more if more else values
        if name in self.nodes:
            raise ConfigError(f"{name}: two jobs of this name; is {inputs[0][1]} given twice?")
        self.nodes[name] = Instance(name, module, type(section), section_here, ordered, launch)
        return Result(name)

    def _dumped(self, section: Any, program: str, without: tuple[str, ...]) -> dict[str, Any]:
        """Give the keys of a section that a program depends on, as JSON values: one mapping for the thousands
        of instances that share it.
        """
        mark = (id(section), read := section.programs.get(program), without)
        if mark not in self._dumps:
            dumped = section.model_dump(mode="json").items()
            kept = (pair for pair in dumped if (read is None or pair[0] in read) and pair[0] not in without)
            self._dumps[mark] = dict(kept)
        return self._dumps[mark]

    def read(self, name: str, role: str) -> list[Result]:
        """List the results that an instance reads in a role."""
        inputs = self.nodes[name].inputs
        return [source for kind, source in inputs if kind == role and isinstance(source, Result)]

    def inputs(self, role: str, sources: str | list[str] | None, where: str) -> Inputs:
        """Give what the sources of a configuration key name, as inputs in a role: see `sources`."""
        return [(role, source) for source in self.sources(sources, where)]

    def sources(self, sources: str | list[str] | None, where: str) -> list[str | Result]:
        """Read source strings as files or results; globs are expanded, hub ids and URLs stay as they are."""
        found: list[str | Result] = []
        for source in [sources] if isinstance(sources, str) else sources or []:
            if source.startswith(tuple(OWN)):
                found.append(self._own(source, where))
            elif source.startswith(REMOTE):
                if source.startswith("hub:") and not HUB_DATA.fullmatch(source):
                    raise ConfigError(f"config key {where}: {source}: expected {HUB_FORM}")
                if where != "crawl.warc" and not source.startswith("hub:"):
                    raise ConfigError(f"config key {where}: {source}: only crawl.warc reads addresses")
                found.append(source)
            else:
                named = [source] if exists(source) else []  # a name may hold brackets
                # Round 10.tsv comes after 2.tsv; others keep the order that results may depend on.
                order = _by_number if where == "corpus.annotations" else None
                files = named or sorted(glob(source), key=order) or self.expected(source, where)
                if not files:
                    raise ConfigError(f"config key {where}: {source}: no such file{_remedy(source)}")
                found += map(data_of, files)
        for source in found if self.held_back else ():
            name, use = self.held_back.get(_place(source), ("", ""))
            if use and not (use == "evaluate" and where.startswith("benchmarks.")):
                raise ConfigError(f"config key {where}: {source}: crawl.texts.{name}.use says {use}")
        return found

    @cached_property
    def held_back(self) -> dict[str, tuple[str, str]]:
        """Name and use of the sources of texts that are not for training, by each of their files or data
        sets.
        """
        texts = self.config.sections["crawl"].texts
        return {
            _place(file): (name, source.use)
            for name, source in (texts.items() if isinstance(texts, dict) else ())
            for one in ([source.data] if isinstance(source.data, str) else source.data)
            for file in (sorted(glob(one)) or [one])
            if source.use != "train"
        }

    def _own(self, source: str, where: str) -> Result:
        """Read `miniweb:<file>` or such a name: a file that the stage of that name makes."""
        stage, _, file = source.partition(":")
        if stage not in self.nodes:
            raise ConfigError(f"config key {where}: {source!r} needs {OWN[f'{stage}:']}")
        files = self.config.sections[stage].files
        if file not in files:
            raise ConfigError(f"config key {where}: {source!r} is not generated{hint(file, files)}")
        return Result(stage, file)

    def expected(self, source: str, where: str) -> list[str]:
        """Give the source itself where it is to be found in the `data_folder` one day, else nothing."""
        folder = self.config.data_folder
        if folder is None or not source.startswith(f"{folder.rstrip('/')}/"):
            return []
        self.missing.append(f"{where}: {source}")
        return [source]

    def model_source(self, source: str, where: str) -> str:
        """Check that a model is a folder that is there or expected, or a hub id."""
        if not isdir(source) and not self.expected(source, where) and not HUB_ID.fullmatch(source):
            hint = f"; write {source.removeprefix(HUB_PAGE)}" if source.startswith(HUB_PAGE) else ""
            hint = "; it is a file: name the folder" if exists(source) else hint
            raise ConfigError(f"config key {where}: {source}: no such folder, and not a hub id{hint}")
        return data_of(source)

    def benchmark_fields(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Give the columns of those of these benchmarks whose columns have other names."""
        return {name: fields for name in names if (fields := self.config.benchmarks[name].fields)}

    def benchmark_files(self, names: Iterable[str]) -> Inputs:
        """Give the questions of these benchmarks, as inputs `benchmark.NAME`."""
        found: Inputs = []
        for name in names:
            source = self.config.benchmarks[name].source
            found += self.inputs(f"benchmark.{name}", source, f"benchmarks.{name}.source")
        return found
