"""Why results are to be made: what differs between an instance's key and the result that was there before. It
only tells; what runs decides the address alone (`keys.py`).
"""

import json
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from pipeline.core.code import changed
from pipeline.core.identity import read_manifest
from pipeline.core.stage import DEFINITIONS
from pipeline.core.stages import NAMES
from pipeline.core.store import Entry
from workflow.instances import Instance, Result
from workflow.keys import Keys

LONGEST = 60  # characters of a value in a reason
NOT_MADE = "not made yet"


class Reasons:
    """Which instances of a graph are made, and why the others are not."""

    def __init__(self, keys: Keys) -> None:
        self.graph, self.keys = keys.graph, keys
        self.made = {name for name in self.graph.nodes if keys.settled(name)}

    @cached_property
    def causes(self) -> dict[str, list[str]]:
        """What changed of itself, by instance, in the order of the stages; not what follows from that."""
        order = sorted(self.graph.nodes.keys() - self.made, key=self._place)
        return {name: reasons for name in order if (reasons := self._reasons(name))}

    @cached_property
    def followers(self) -> dict[str, list[str]]:
        """The instances with a reason of their own, each with those that only follow from it."""
        found: dict[str, list[str]] = {name: [] for name in self.causes}
        first: dict[str, str] = {name: name for name in self.causes}
        for name in sorted(self.graph.nodes, key=self._place):
            if name in self.made or name in first:
                continue
            cause = next((first[before] for before in self.graph.before(name) if before in first), None)
            if cause:
                first[name] = cause
                found[cause].append(name)
        return found

    def _place(self, name: str) -> tuple[int, int]:
        return NAMES.index(name.partition("/")[0]), self._order[name]

    @cached_property
    def _order(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.graph.nodes)}

    def before(self, name: str) -> Entry | None:
        """Find the result that an instance had: that of its link, else the one made last."""
        entry = self.keys.entry(name)
        if (current := entry.current) and current.made:
            return current
        return next(iter(entry.others()), None)

    def _reasons(self, name: str) -> list[str]:
        """Say what an instance itself has otherwise than the result before; nothing if only its inputs
        differ.
        """
        if self.keys.made(name):
            return ["--forcerun names it"] if name in self.keys.forced else []  # or it follows
        if self.keys.entry(name).manifest.is_file():
            return [
                "its manifest cannot be read"
                if self.keys.entry(name).data.exists()
                else "its data was removed"
            ]
        if self.keys.entry(name).removed:
            return ["its manifest was removed"]
        if (entry := self.before(name)) is None:
            ready = self.graph.before(name).keys() <= self.made
            return [NOT_MADE] if ready else []
        node, manifest = self.graph.nodes[name], read_manifest(entry.manifest)
        now, then = self.keys.identity(name), manifest["identity"]
        found = _changed_keys(node, then, now)
        found += _changed_inputs(node, manifest, now)
        if now.get("code") != then.get("code"):
            found.append(f"the code of {node.module} changed")
        old, new = then.get("packages", {}), now.get("packages", {})
        found += [
            _versions(package, old, new)
            for package in sorted(old.keys() | new.keys())
            if old.get(package) != new.get(package)
        ]
        if not found and self.graph.before(name).keys() <= self.made:
            found = ["its inputs were made again"]
        return found


def edited(keys: Keys, name: str) -> list[str]:
    """List definitions and packages that a trained model was made with, and that are others now."""
    entry, node = keys.entry(name), keys.graph.nodes[name]
    if not node.kind.trains or not entry.made:
        return []
    manifest = read_manifest(entry.manifest)
    file = Entry(entry.run, name, manifest.get("made_as", entry.key)).folder / DEFINITIONS
    then = json.loads(file.read_text()) if file.is_file() else {}
    if "definitions" not in then:
        return []
    now = keys.code.record(node.module)
    found = changed(then["definitions"], now["definitions"])
    old, new = then["packages"], now["packages"]
    return found + [
        _versions(each, old, new) for each in sorted(old.keys() & new.keys()) if old[each] != new[each]
    ]


def _versions(package: str, old: dict[str, str], new: dict[str, str]) -> str:
    return f"{package} {old.get(package, 'none')} -> {new.get(package, 'none')}"


def _changed_inputs(node: Instance, manifest: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """List roles with other files than before, or with results of other instances. That a result was made
    again is no reason of the instance's own.
    """
    before, results = manifest["identity"]["inputs"], set(manifest.get("upstream", {}))
    sources: dict[str, list[str | Result]] = {}
    for role, source in node.inputs:
        sources.setdefault(role, []).append(source)

    def differs(role: str) -> bool:
        own, old = sources.get(role, []), before.get(role, [])
        for place, source in enumerate(own):
            if isinstance(source, Result):
                if source.node not in results:
                    return True
            elif place >= len(old) or old[place] != now["inputs"][role][place]:
                return True
        return len(old) > len(own)

    return [f"input {role} changed" for role in sorted(sources.keys() | before.keys()) if differs(role)]


def _changed_keys(node: Instance, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    defaults = {
        name: info.get_default(call_default_factory=True) for name, info in node.kind.model_fields.items()
    }
    found = [
        f"{'.'.join(path)} {_short(old)} -> {_short(new)}"
        for path, old, new in _differences(before["section"], now["section"], defaults)
    ]
    if before["version"] != now["version"]:
        found.append(f"the meaning of a key changed (version {before['version']} -> {now['version']})")
    return found


def _differences(
    before: dict[str, Any], now: dict[str, Any], defaults: Any, path: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Any, Any]]:
    """List (path, old, new) of each key in which two sections differ; a missing key has its default."""
    found = []
    for key in sorted(before.keys() | now.keys()):
        usual = defaults.get(key) if isinstance(defaults, dict) else getattr(defaults, key, None)
        old, new = before.get(key, usual), now.get(key, usual)
        if isinstance(usual, BaseModel):
            found += _differences(before.get(key, {}), now.get(key, {}), usual, (*path, key))
        elif isinstance(old, dict) and isinstance(new, dict):
            found += _differences(old, new, {}, (*path, key))
        elif old != new:
            found.append(((*path, key), old, new))
    return found


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
