"""What a written rule asks of the graph: the files of its inputs and outputs, its arguments and its cores."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from snakemake.io import ancient, local

from pipeline.core.addresses import is_remote
from pipeline.core.arguments import keep, shortened
from pipeline.core.errors import InputError
from pipeline.core.stage import WORK
from pipeline.core.tries import started
from workflow.crawl import is_downloading
from workflow.instances import Instance, Result
from workflow.keys import Keys

LISTS = WORK / "inputs"
MANY = 100  # results that a job waits for one by one
ROLE = re.compile("[./]")  # after the kind of a role
NONE = {"gpu": 0, "launcher": ""}  # what the shell of a rule needs a value for; others are unset
Function = Callable[..., Any]


class Job:
    """The instances of a run as jobs of Snakemake, which know theirs by its key.

    `begin`: called before anything of an instance is asked for. `remote`: results lie in a storage of
    Snakemake's, so that data has to be brought beside manifests.
    """

    def __init__(self, keys: Keys, begin: Callable[[], None], remote: bool = False) -> None:
        self.keys, self.graph, self.begin, self.remote = keys, keys.graph, begin, remote
        self._configs: dict[int, str] = {}
        self._sources = lru_cache(1)(self._list_sources)

    def node(self, wildcards: Any) -> Instance:
        """Get the instance that a job makes. Raises InputError for one that no configuration names."""
        self.begin()
        if wildcards.key not in self.keys.names:
            raise InputError(
                f"{wildcards.key}: not what this configuration asks for on this machine; the packages, the"
                " code or the files are others than where the workflow was planned"
            )
        return self.graph.nodes[self.keys.names[wildcards.key]]

    def read(self, *kinds: str) -> Function:
        """Return the input function of the roles of these kinds: `benchmark` is that of `benchmark.gsm8k`,
        `sft` that of `sft/instruct`. Addresses and hub ids are no files.
        """

        def files(wildcards: Any) -> list[Any]:
            sources = self._sources(self.node(wildcards).name)
            named = (source for role, source in sources if ROLE.split(role)[0] in kinds)
            return list({str(path): path for source in named for path in self._files(source)}.values())

        files.kinds = kinds  # type: ignore[attr-defined]  # for `check`
        return files

    def check(self, rules: Mapping[str, Iterable[Any]]) -> None:
        """Compare the roles that the graph gives the programs with those that their rules name; `rules`: the
        input functions of each program's rule. Raises InputError for a role that no input has.
        """
        named = {module: {kind for one in inputs for kind in one.kinds} for module, inputs in rules.items()}
        for node in self.graph.nodes.values():
            for role, _ in node.inputs:
                if (kind := ROLE.split(role)[0]) not in named[node.module]:
                    raise InputError(f"{node.name}: the rule of {node.module} names no input {kind!r}")

    def _list_sources(self, name: str) -> list[tuple[str, str | Result]]:
        """List the sources that a job waits for, by role: all that its program reads. Where these are more
        than `MANY` results, those that another of them reads are left out: Snakemake takes its time for each.
        A pinned instance reads nothing: it is there, and what it came from may be gone.
        """
        names = list(self.keys.before(name))
        if len(names) > MANY and not (self.remote and self.graph.nodes[name].stage != "report"):
            names = self.graph.last(names)
        waited, pinned = set(names), self.keys.pinned(name)
        return [
            (role, source)
            for role, source in self.graph.nodes[name].inputs
            if (source.node in waited if isinstance(source, Result) else not pinned)
        ]

    def _files(self, source: str | Result) -> list[Any]:
        if isinstance(source, Result):
            entry = self.keys.entry(source.node)
            paths = [str(path) for path in (entry.manifest, *([entry.data] if self.remote else []))]
            # Ancient: no time counts. A job before this one that runs does.
            return list(map(ancient, paths)) if self.keys.settled(source.node) else paths
        inside = Path(source).is_relative_to(self.keys.run)  # no result that a rule of this run may make
        if is_remote(source) or source.startswith("hub:") or inside or not Path(source).exists():
            return []
        return [local(ancient(source)) if self.remote else ancient(source)]

    def words(self, wildcards: Any, output: Any, threads: int) -> str:
        """Params function: the arguments of the program, its section by the keys that differ from their
        defaults. It takes `threads`, so that Snakemake never reruns anything for it.
        """
        node = self.node(wildcards)
        words = [word for given in self._inputs(node, output)[0] for word in ("--input", given)]
        config, launch = self._config(node), self._launch(node, max(1, threads // ranks_of(node)))
        return f"{shlex.join(words)} --config {config} --launch {shlex.quote(launch)} --planned".lstrip()

    def _config(self, node: Instance) -> str:
        """Write the section as a word of a shell, made once for all instances that share it."""
        if id(node.section) not in self._configs:
            values = self.keys.section(node).model_dump(mode="json", exclude_defaults=True)
            text = json.dumps(values, sort_keys=True, ensure_ascii=False)
            self._configs[id(node.section)] = shlex.quote(text)
        return self._configs[id(node.section)]

    def _inputs(self, node: Instance, output: Any) -> tuple[list[str], str]:
        """Write the words of `--input`, and the text of the list that they name if they are too many or hold
        a secret: no command line and no message of Snakemake shows a signature.
        """
        place = str(output.manifest).removesuffix(str(self.keys.entry(node.name).manifest))
        return shortened([f"{role}={self._path(source, place)}" for role, source in node.inputs], LISTS)

    def _path(self, source: str | Result, place: str) -> str:
        if isinstance(source, Result):
            return f"{place}{self.keys.entry(source.node).data}/{source.path}".rstrip("/")
        return source

    def _launch(self, node: Instance, threads: int) -> str:
        """Say how a program runs: no part of what it makes."""
        weak = self.graph.config.sections["sandbox"].weak
        sandbox = {"weak_sandbox": True} if weak and node.stage in ("rl", "evaluate", "trajectory") else {}
        values = node.launch.model_dump(mode="json", exclude_defaults=True)
        return json.dumps(values | {"threads": threads} | sandbox, sort_keys=True)

    def cores(self, wildcards: Any) -> int:
        """Threads function: cores of a program with ranks, on one machine."""
        node = self.node(wildcards)
        return node.launch.threads * ranks_of(node)

    def downloads(self, wildcards: Any) -> int:
        """Resources function: 1 for a job that reads files of a server; a profile limits their number."""
        return int(is_downloading(self.node(wildcards)))

    def keep(self, name: str, output: Any) -> None:
        """Write the list of inputs that the command line of an instance's job names, if it does."""
        words, text = self._inputs(self.graph.nodes[name], output)
        if text:
            keep(words[0], text)


def made_meanwhile(keys: Keys, targets: Iterable[Any]) -> str | None:
    """Find the instance that a job's command line asks for, if its result was made since the workflow was
    started: a job of an earlier start went on and made it. Snakemake would remove it.
    """
    names = (keys.names.get(target.wildcards_dict.get("key", "")) for target in targets)
    return next((name for name in names if name and keys.entry(name).made_since(started())), None)


def light_when_linked(job: Job, resources: Any, usual: Any) -> None:
    """Let a job that will only link its result ask for no more than a job without GPUs: Snakemake evaluates
    resources anew when all inputs of a job are there, and then it is known. `resources`: those of the rule,
    with what the profile sets; `usual`: those of a rule for which it sets nothing.
    """

    def light(resource: Any) -> Function:
        def value(
            wildcards: Any, input: Any, threads: int, attempt: int, rulename: str, async_run: Any
        ) -> Any:
            linked = job.keys.may_link(job.node(wildcards).name)
            if linked and resource.name not in usual:
                return NONE.get(resource.name)
            asked = usual[resource.name] if linked else resource
            more = {"input": input, "threads": threads, "attempt": attempt}
            return asked.evaluate(wildcards, **more, rulename=rulename, async_run=async_run).value

        return value

    for name, resource in list(resources.items()):
        if not name.startswith("_"):
            resources[name] = light(resource)


def ranks_of(node: Instance) -> int:
    """Count the processes of an instance's program on one machine."""
    return node.launch.ranks if node.kind.has_ranks() else 1
