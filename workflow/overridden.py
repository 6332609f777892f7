"""Keys of an overlay that change less than they seem to: nodes set the same key themselves, or another key
leaves them without effect.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.root import LAUNCHED, ModelNode
from pipeline.core.overlays import merge, read_config
from pipeline.core.stages import MODEL_STAGES

KeyPath = tuple[str, ...]


def overridden_keys(files: Sequence[str | Path], command_line: dict[str, Any]) -> list[str]:
    """Return a line for each key of a later file that nodes of an earlier one override, with their keys.

    A file that sets a section's key and a node's means both. `command_line`: the values of `--config`.
    """
    overlays = [(str(file), read_config([file])) for file in files] + [("--config", command_line)]
    whole: dict[str, Any] = {}
    earlier: dict[KeyPath, Any] = {}
    for _, values in overlays:
        whole = merge(whole, values)
    lines = []
    for name, values in overlays:
        given = dict(_paths(values))
        for path, value in given.items():
            winners = [one for one in _nodes_keys(path, whole) if one in earlier and one not in given]
            if keys := [".".join(one) for one in winners if earlier[one] != value]:
                verb = "is" if len(keys) == 1 else "are"
                lines.append(f"{name}: {'.'.join(path)} has no effect where {', '.join(keys)} {verb} set")
        earlier |= given
    return lines + list(_inert(whole))


def _inert(whole: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each RL model whose clips do nothing: with one update the ratio is 1."""
    section = dict(_mappings({"rl": whole.get("rl")})).get("rl", {})
    for name, node in _mappings(whole.get("models")):
        keys = section | node
        clips = [key for key in ("clip", "clip_high") if keys.get(key) is not None]
        if node.get("stage") == "rl" and clips and keys.get("updates", 1) == 1:
            yield f"models.{name}: no effect of {' and '.join(clips)}: with updates: 1 the ratio is 1"


def _paths(values: dict[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    for name, value in values.items():
        yield (*above, str(name)), value
        if isinstance(value, dict):
            yield from _paths(value, (*above, str(name)))


def _nodes_keys(path: KeyPath, whole: dict[str, Any]) -> Iterator[KeyPath]:
    """Keys of stages and nodes that win over the key `path` of a section."""
    section, *rest = path
    if len(rest) - (rest[:1] == ["launch"]) != 1:
        return
    if section == "launch":
        yield from ((stage, "launch", *rest) for stage in LAUNCHED)
        rest = ["launch", *rest]
    for name, node in _mappings(whole.get("models")):
        asked = section == "evaluate" and rest[0] in ModelNode.model_fields
        if asked or section in ("launch", node.get("stage")) and node.get("stage") in MODEL_STAGES:
            yield "models", name, *rest
    if section == "evaluate" and rest[0] in BenchmarkNode.model_fields:
        yield from (("benchmarks", name, *rest) for name, _ in _mappings(whole.get("benchmarks")))


def _mappings(nodes: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return nodes by name; null has removed some, and what is no mapping is refused elsewhere."""
    named = nodes.items() if isinstance(nodes, dict) else ()
    return [(str(name), node) for name, node in named if isinstance(node, dict)]
