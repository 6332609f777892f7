"""The workflow as a graph of stage instances, built from the configuration alone.

The rules ask it what an instance reads and which section it runs with; `keys.py` gives each its address.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import yaml

from pipeline.config.report import PAPER
from pipeline.config.root import Config, ConfigError, hint
from pipeline.core.errors import InputError
from pipeline.core.overlays import DEFAULTS, merge, read_config
from workflow.arguments import problem
from workflow.corpus import URLS, add_corpus, add_decontamination, add_tokens, lists_of
from workflow.crawl import add_crawl
from workflow.instances import Instances, Result
from workflow.models import add_models


class Graph(Instances):
    """All instances of a run. Each is made by a job of its own."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for add in BUILDERS:
            add(self)
        self.before = cache(self._before)

    def _before(self, name: str) -> dict[str, None]:
        """List the instances whose results an instance reads."""
        sources = (source for _, source in self.nodes[name].inputs)
        return dict.fromkeys(one.node for one in sources if isinstance(one, Result))

    def last(self, names: Iterable[str]) -> list[str]:
        """Leave out of `names` those that another of them reads: they are made before that one anyway, unless
        it is pinned.
        """
        named = dict.fromkeys(names)
        read = {before for name in named if name not in self.config.pins for before in self.before(name)}
        return [name for name in named if name not in read]

    def names(self, stage: str) -> list[str]:
        """List the names of the instances of a stage."""
        return [name for name, node in self.nodes.items() if node.stage == stage]


def _add_miniweb(graph: Instances) -> None:
    if graph.config.sections["miniweb"].enabled:
        graph.add("miniweb", "pipeline.examples.miniweb", graph.config.sections["miniweb"], [])


def _add_problems(graph: Instances) -> None:
    section = graph.config.sections["problems"]
    sources = graph.inputs("source", section.source, "problems.source")
    if not sources:
        return
    nodes = graph.config.benchmarks
    names = section.kept_out
    if names is None:
        names = [name for name, node in nodes.items() if not _is_part(node.source)]
    for name in names:
        if name not in nodes:
            known = hint(name, list(nodes))
            raise ConfigError(f"config key problems.kept_out: no benchmark {name!r}{known}")
    # Only what decides which questions a benchmark has, not how or how many of them are asked.
    which = {"source", "split", "language", "fields"}
    kept_out = {name: nodes[name].model_dump(mode="json", include=which) for name in names}
    inputs = [*sources, *graph.benchmark_files(names)]
    # The filled-in benchmarks say which are kept out: null and the list of these are the same.
    own = ("source", "kept_out")
    graph.add("problems", "pipeline.examples.problems", section, inputs, own, benchmarks=kept_out)


def _is_part(source: str | list[str]) -> bool:
    """Whether a benchmark's questions are a part of the run's own word problems."""
    return any(name.startswith("problems:") for name in ([source] if isinstance(source, str) else source))


def _add_report(graph: Instances) -> None:
    section = graph.config.sections["report"]
    inputs = [(name, Result(name)) for name in graph.nodes]
    inputs += graph.inputs("truth", section.truth, "report.truth")
    inputs += lists_of(graph, URLS)
    inputs += [("claims", section.claims), ("paper", PAPER)]
    more = {"run": graph.config.run, "pins": graph.config.pins}
    graph.add("report", "pipeline.report", section, inputs, **more)


# In the order of the stages: a builder may read what those before it have added.
BUILDERS = (
    _add_miniweb,
    _add_problems,
    add_crawl,
    add_corpus,
    add_decontamination,
    add_tokens,
    add_models,
    _add_report,
)


def read_values(words: list[str]) -> dict[str, Any]:
    """Return the values of the `KEY=VALUE` words of `--config`."""
    found: dict[str, Any] = {}
    if told := problem(["--config", *words]):
        raise InputError(told)
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"--config {word}: the value is not YAML") from error
    return found


def read_graph(files: list[str], words: list[str]) -> Graph:
    """Return the graph of the configuration files and `KEY=VALUE` words on top of the defaults."""
    return Graph(Config(merge(read_config([DEFAULTS, *files]), read_values(words))))
