"""The key of each instance of a graph, known before anything runs, and where its result stands.

`pipeline.core.identity` says what a key covers. A result that is not at its key's address is not made,
and nothing else decides what is current.
"""

from collections.abc import Callable, Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pipeline.config.root import ConfigError, hint
from pipeline.core.code import Code
from pipeline.core.identity import Digests, digest_of, essence, identity, part_of, read_manifest
from pipeline.core.manifest import fingerprint
from pipeline.core.section import Section
from pipeline.core.stage import CODE, DIGESTS
from pipeline.core.store import STORE, Entry
from workflow.graph import Graph
from workflow.instances import Instance, Result

SHOWN = 5  # keys that a message names


class Keys:
    """Keys and addresses of the instances of a graph, computed when asked for. Nothing is written before
    `save`, so that a dry run writes nothing but digests of files that took long to read.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.run = graph, Path("results") / graph.config.run
        self.digests, self.code = Digests(DIGESTS, lazy=True), Code(CODE)
        self.forced: set[str] = set()  # instances to make again whatever is there; set it before all else
        self.key = cache(self._key)
        self.entry = cache(lambda name: Entry(self.run, name, self.key(name)))
        self.settled = cache(self._settled)
        self._inputs = cache(lambda path, *how: digest_of(path, self.digests, *how))
        self._sections: dict[int, tuple[Any, dict[str, Any]]] = {}
        if unknown := graph.config.pins.keys() - graph.nodes.keys():
            name = min(unknown)
            raise ConfigError(f"config key pins: no instance {name!r}{hint(name, list(graph.nodes))}")

    @cached_property
    def names(self) -> dict[str, str]:
        """The instances by their keys."""
        return {self.key(name): name for name in self.graph.nodes}

    def identity(self, name: str) -> dict[str, Any]:
        """Gather all that the key of an instance covers."""
        return self._identity(name, self._source)

    def _identity(self, name: str, identify: Callable[[str, str | Result, Section], str]) -> dict[str, Any]:
        node = self.graph.nodes[name]
        section, own = self._section(node)
        inputs: dict[str, list[str]] = {}
        for role, source in node.inputs:
            inputs.setdefault(role, []).append(identify(role, source, section))
        return identity(node.stage, node.instance, section, inputs, node.module, self.code, own)

    def save(self) -> None:
        """Remember what was read of the user's files and of the code."""
        self.digests.save()
        self.code.save()

    def log(self, name: str) -> Path:
        """Name the log of an instance's job."""
        return self.run / "logs" / f"{name}-{self.key(name)}.log"

    def made(self, name: str) -> bool:
        """Whether the result of an instance is there."""
        return self.entry(name).made

    def section(self, node: Instance) -> Any:
        """Get the section of an instance."""
        return self._section(node)[0]

    def _section(self, node: Instance) -> tuple[Any, dict[str, Any]]:
        """Read the section of an instance and what of it counts, read once where many share it."""
        mark = id(node.section)
        if mark not in self._sections:
            section = node.kind.model_validate(node.section)
            self._sections[mark] = (section, essence(section))
        return self._sections[mark]

    def _source(self, role: str, source: str | Result, section: Any) -> str:
        if isinstance(source, Result):
            return self.entry(source.node).mark(source.path)
        return self._inputs(source, section.reads_manifests, role in section.named)

    def _key(self, name: str) -> str:
        if (pinned := self.graph.config.pins.get(name)) is None:
            return fingerprint(self.identity(name))
        if not Entry(self.run, name, pinned).made:
            there = sorted(path.parent.name for path in (self.run / STORE / name).glob("*/manifest.json"))
            known = f"there are {', '.join(there[:SHOWN])}" if there else "it was never made"
            raise ConfigError(f"config key pins.{name}: {pinned}: no such result; {known}")
        return pinned

    def _settled(self, name: str) -> bool:
        """Whether no job is to run for an instance, as seen when first asked: it is made, and all before it
        are. A result before it that is made again may have other bytes; if not, its own stays.
        """
        return self.made(name) and name not in self.forced and all(map(self.settled, self.before(name)))

    def before(self, name: str) -> Iterable[str]:
        """List the instances that a job for this one waits for: none for a pinned one, which has no job."""
        return () if self.pinned(name) else self.graph.before(name)

    def pinned(self, name: str) -> bool:
        """Whether an instance stays although what it came from changed."""
        return name in self.graph.config.pins

    def needed(self, names: Iterable[str]) -> set[str]:
        """Gather `names` and all instances before them."""
        seen, pending = set(names), list(names)
        while pending:
            new = [before for before in self.before(pending.pop()) if before not in seen]
            seen.update(new)
            pending += new
        return seen

    def unmade(self, names: Iterable[str]) -> list[str]:
        """List the instances not made among `names` and all before them, without those that another of them
        reads.
        """
        seen = self.needed(names)
        return self.graph.last(name for name in self.graph.nodes if name in seen and not self.made(name))

    def damaged(self) -> list[str]:
        """List manifests that are there and stand for no result: they cannot be read, or their data is gone.
        To Snakemake they are files, so their jobs have to be forced.
        """
        entries = map(self.entry, self.graph.nodes)
        return [str(one.manifest) for one in entries if not one.made and one.manifest.is_file()]

    def may_link(self, name: str) -> bool:
        """Whether the result of an instance was made under another key, from the same content. False while an
        input is not there yet.
        """
        if name in self.forced or self.pinned(name) or not all(map(self.made, self.before(name))):
            return False
        return self.entry(name).same(self.fingerprint(name), self.digests) is not None

    def fingerprint(self, name: str) -> str:
        """Hash what an instance is made from by content; all its inputs are there."""
        return fingerprint(self._identity(name, self._content))

    def _content(self, role: str, source: str | Result, section: Any) -> str:
        if not isinstance(source, Result):
            return self._source(role, source, section)
        manifest = self.entry(source.node).manifest
        if section.reads_manifests and not source.path:
            return self.digests.file(manifest)
        return part_of(read_manifest(manifest), source.path or ".")
