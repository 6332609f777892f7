r"""What SymPy prints, as LaTeX: Matrix([[1, 2], [3, 4]]), Interval.Ropen(0, 1), (x <= 2) & (0 < x).

SymPy's own parser reads it, in a worker process with limits on time, memory and files. Before that the text
must be an expression of listed names only, so no other code can run. Without SymPy nothing is read.
"""

import ast
import re
import subprocess
import sys
from functools import lru_cache

from . import sympy_worker
from .helper import HelperProcess

MAX_CHARACTERS = 1000
WAIT = 30.0  # seconds for a start or a text; the worker limits its own processor time to far less
_NAMES = """
Matrix ImmutableDenseMatrix ImmutableMatrix MutableDenseMatrix Rational Integer Float Fraction S Interval
Union Intersection FiniteSet Complement EmptySet Reals Integers Naturals Naturals0 And Or Eq Ne Lt Le Gt Ge
Poly Point Point2D Point3D Tuple oo zoo I E pi sqrt cbrt root exp log ln sin cos tan cot sec csc asin acos
atan acot sinh cosh tanh Abs factorial binomial floor ceiling Max Min Mod re im conjugate gcd lcm set list
tuple
"""
_OWN = re.compile(  # writing that only programs use
    r"(?<![\\A-Za-z])(?:[A-Z][a-z]+(?:[A-Z][a-z]+)*\d?D?\s*[(.]|S[.(]|(?:EmptySet|Reals)\b|set\("
    r"|(?:np|numpy|math|sympy|sp)\.)|\)\s*[&|]\s*\("
)
_MODULE = re.compile(r"\b(?:np|numpy|math|sympy|sp|fractions)\.")
_NODES = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Attribute, ast.keyword),
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.List, ast.Tuple, ast.Set, ast.Dict),
)
_ATTRIBUTES = {"S": {"Reals", "EmptySet", "Integers", "Infinity"}, "Interval": {"open", "Lopen", "Ropen"}}


def is_printed(text: str) -> bool:
    """Whether a text has writing that only programs use."""
    return len(text) <= MAX_CHARACTERS and _OWN.search(text) is not None


@lru_cache(maxsize=4096)
def read_printed(text: str) -> str | None:
    """LaTeX of what SymPy printed; None if SymPy cannot read it in time, or if it is no plain expression."""
    text = re.sub(r"\barray\(", "Matrix(", _MODULE.sub("", text)).replace("Fraction(", "Rational(")
    return _worker.ask(text, WAIT) if is_expression(text) else None


def is_expression(text: str) -> bool:
    """Whether a text is a Python expression of listed names, short variables, numbers and operators."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_allowed(node) for node in ast.walk(tree))


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _NAMES.split() or re.fullmatch(r"[A-Za-z]\d?|[a-z]_\d", node.id) is not None
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.attr in _ATTRIBUTES.get(node.value.id, ())
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) or (
            isinstance(node.func, ast.Name) and node.func.id in _NAMES
        )
    if isinstance(node, ast.Constant):
        texts = isinstance(node.value, str) and re.fullmatch(r"-?[\d.]{1,40}|[ZQR]{2}", node.value)
        return isinstance(node.value, int | float | complex) or bool(texts)
    return isinstance(node, _NODES)


_worker = HelperProcess(
    [sys.executable, "-I", sympy_worker.__file__],
    first=("0", WAIT),
    stderr=subprocess.DEVNULL,
    env={},
)
