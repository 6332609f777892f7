"""Reads YAML files, and configuration files as Snakemake does, for the programs outside the workflow."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.errors import InputError
from pipeline.core.manifest import ROOT

DEFAULTS = ROOT / "configs/default.yaml"
DEEPEST = 100


class _Loader(yaml.CSafeLoader):
    """Refuses a key that stands twice in a mapping; YAML itself would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name in (name for name, _ in node.value if isinstance(name, yaml.ScalarNode)):
            if (name.tag, name.value) in seen:
                problem = f"key {name.value!r} stands twice"
                raise yaml.constructor.ConstructorError(problem=problem, problem_mark=name.start_mark)
            seen.add((name.tag, name.value))
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds. Raises InputError in one line if it is missing, or is no sound YAML."""
    text = ""
    try:
        text = path.read_bytes().decode()
        _refuse_deep(text)
        value = yaml.load(text, _Loader)
        _refuse_circles(value, ())
        return value
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f", line {mark.line + 1}" if mark else ""
        reason = problem or (str(error).splitlines() or [type(error).__name__])[0]
        remedy = "; save it as UTF-8" if isinstance(error, UnicodeDecodeError) else ""
        if mark and "\t" in "".join(text.splitlines()[mark.line : mark.line + 1]):
            remedy = "; write spaces instead of tabs"
        raise InputError(f"{path}: not YAML ({reason}{where}){remedy}") from error


def _refuse_deep(text: str) -> None:
    """Refuse deep values: libyaml crashes the interpreter on some thousand levels."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} times")


def _refuse_circles(value: Any, above: tuple[int, ...]) -> None:
    """Refuse a value that an alias makes a part of itself: nothing here could follow it to its end."""
    if isinstance(value, dict | list):
        if id(value) in above:
            raise ValueError("a value is a part of itself")
        for part in value.values() if isinstance(value, dict) else value:
            _refuse_circles(part, (*above, id(value)))


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge values as Snakemake does: mappings merge, anything else of `above` replaces what is below."""
    values = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(values.get(key), dict)
        values[key] = merge(values[key], value) if both else value
    return values


def read_config(files: Iterable[str | Path]) -> dict[str, Any]:
    """Read configuration files as Snakemake reads them: later ones win, mappings merge."""
    values: dict[str, Any] = {}
    for file in files:
        content = read_yaml(Path(file))
        if not isinstance(content, dict | None):
            raise InputError(f"{file}: expected a mapping")
        values = merge(values, content or {})
    return values
