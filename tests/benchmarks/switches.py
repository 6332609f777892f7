"""Import the grader with a switch at each rule: a function, or the body of an `if`.

`install()` before the first import of the grader. A rule that is off returns a neutral value, or its `if`
does not hold; `passed` collects the rules that a case passes.
"""

import ast
import importlib.util
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NamedTuple

PACKAGE = "pipeline.grader."


class Rule(NamedTuple):
    """Where a rule stands: `text` is its first line."""

    module: str
    line: int
    lines: int
    text: str


rules: list[Rule] = []
passed: set[int] = set()
off: int | None = None


def is_on(rule: int) -> bool:
    """Whether a rule that a case passes is switched on."""
    passed.add(rule)
    return rule != off


def _neutral(function: ast.FunctionDef) -> ast.expr:
    """Return what a function gives that decides nothing, by the type that it returns."""
    returned = ast.unparse(function.returns) if function.returns else "None"
    types = {argument.arg: argument.annotation for argument in function.args.args}
    same = [name for name, type_ in types.items() if type_ and ast.unparse(type_) == returned]
    if returned in ("str", "Expression") and same:
        return ast.Name(same[0], ast.Load())
    empty = {"bool": "False", "Decision": "('undecided', 'off')", "str": "''", "tuple[str, str]": "('', '')"}
    for start in ("list", "set", "frozenset", "tuple", "dict"):
        empty |= (
            {returned: f"{start}()"} if returned.startswith(start + "[") and "None" not in returned else {}
        )
    return ast.parse(empty.get(returned, "None"), mode="eval").body


class _Switches(ast.NodeTransformer):
    def __init__(self, path: Path) -> None:
        self.module, self.source = path.stem, path.read_text().splitlines()

    def _switch(self, first: ast.AST, last: ast.AST) -> ast.expr:
        text = self.source[first.lineno - 1].strip()
        rules.append(Rule(self.module, first.lineno, last.end_lineno - first.lineno + 1, text))
        return ast.parse(f"_is_on({len(rules) - 1})", mode="eval").body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        switch, neutral = self._switch(node, node), _neutral(node)
        self.generic_visit(node)
        yields = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))
        if not yields and not node.name.startswith("__"):
            guard = ast.If(ast.UnaryOp(ast.Not(), switch), [ast.Return(neutral)], [])
            node.body.insert(ast.get_docstring(node) is not None, guard)
        return node

    def visit_If(self, node: ast.If) -> ast.If:
        switch = self._switch(node, node.body[-1])
        self.generic_visit(node)
        node.test = ast.BoolOp(ast.And(), [node.test, switch])
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = Path(self.get_filename(fullname))
        tree = _Switches(path).visit(ast.parse(path.read_text()))
        hook = ast.parse(f"from {__name__} import is_on as _is_on").body
        tree.body[1:1] = hook  # behind the docstring
        return compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: list[str] | None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(PACKAGE):
            return None
        file = Path(path[0]) / f"{name.removeprefix(PACKAGE)}.py"
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))


def install() -> None:
    """Put the switches into every module of the grader that is imported from now on."""
    sys.meta_path.insert(0, _Finder)
