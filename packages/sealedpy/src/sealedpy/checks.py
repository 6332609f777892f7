"""A program and its tests in two processes that share nothing but a channel.

The process of the tests asks that of the program for names and calls, and compares what comes back. Values
pass as plain data, so that no object of the program's own takes part in a comparison, and the program has
neither tests nor expected results in its memory. What is no plain data stays where it is; the tests hold a
`Remote` that leads to it and is equal only to itself.
"""

import ast
import builtins
import importlib
import json
import operator
import symtable
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from numbers import Integral
from typing import Any

CHANNEL = 3  # its descriptor in both processes
# Plain data by its tag: type, how it is written, how it is read. Subclasses pass as their base.
PLAIN: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "int": (Integral, lambda value: hex(int(value)), lambda text: int(text, 16)),
    "float": (float, float.hex, float.fromhex),
    "str": (str, str.__str__, str),
    "complex": (
        complex,
        lambda value: [value.real.hex(), value.imag.hex()],
        lambda pair: complex(*map(float.fromhex, pair)),
    ),
    "Decimal": (Decimal, str, Decimal),
    "Fraction": (Fraction, str, Fraction),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
}
SEVERAL: dict[str, tuple[type, Callable[[list], Any]]] = {
    "list": (list, list),
    "tuple": (tuple, tuple),
    "set": (set, set),
    "frozenset": (frozenset, frozenset),
    "iterator": (Iterator, iter),
}
TYPES = {kind.__name__: kind for kind in vars(builtins).values() if isinstance(kind, type)}
CHANGED = (list, dict, set, bytearray)  # what a call may change in place


class ProgramError(Exception):
    """The program ended, or raised what is no builtin exception."""


class Remote:
    """Leads to an object in the program's process."""

    def __init__(self, program: "Program", number: int) -> None:
        self.__dict__.update(_program=program, _number=number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._program.ask("call", self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._program.ask("attribute", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.ask("set attribute", self, name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._program.ask("item", self, key)

    def __len__(self) -> int:
        return self._program.ask("length", self)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._program.ask("all", self))

    def __bool__(self) -> bool:
        return True


def encode(value: Any, number: Callable[[Any], int]) -> Any:
    """Return data for JSON; `number` gives the number of what is no plain data."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    for tag, (kind, write, _) in PLAIN.items():
        if isinstance(value, kind):
            return [tag, write(value)]
    if isinstance(value, type) and TYPES.get(value.__name__) is value:
        return ["type", value.__name__]
    if isinstance(value, dict):
        return ["dict", [[encode(key, number), encode(entry, number)] for key, entry in value.items()]]
    for tag, (kind, _) in SEVERAL.items():
        if isinstance(value, kind):
            return [tag, [encode(entry, number) for entry in value]]
    return ["remote", number(value)]


def decode(data: Any, find: Callable[[int], Any]) -> Any:
    """Return what `encode` was given; `find` gives the object of a number. Raises any exception for other
    data.
    """
    if data is None or isinstance(data, bool):
        return data
    tag, content = data
    if tag in PLAIN:
        return PLAIN[tag][2](content)
    if tag == "remote":
        return find(content)
    if tag == "type":
        return TYPES[content]
    if tag == "dict":
        return {decode(key, find): decode(entry, find) for key, entry in content}
    return SEVERAL[tag][1]([decode(entry, find) for entry in content])


def run(code: str, name: str = "<program>", scope: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a program as `__main__`; returns its names."""
    scope = {} if scope is None else scope
    scope |= {"__name__": "__main__", "__builtins__": builtins}
    exec(compile(code, name, "exec"), scope)
    return scope


def offer(code: str) -> None:
    """Run a program, then answer what the tests ask, until they end."""
    scope = run(code)
    objects: list[Any] = []  # which keeps them, so that none has another's id
    numbers: dict[int, int] = {}

    def number(value: Any) -> int:
        if id(value) not in numbers:
            numbers[id(value)] = len(objects)
            objects.append(value)
        return numbers[id(value)]

    does = {
        "name": lambda _, name: scope[name],
        "call": lambda function, args, kwargs: function(*args, **kwargs),
        "attribute": getattr,
        "set attribute": setattr,
        "item": operator.getitem,
        "length": len,
        "all": list,
    }
    with open(CHANNEL, "rb") as questions, open(CHANNEL, "wb", closefd=False) as answers:
        for line in questions:
            changed: list[Any] = []
            try:
                what, *values = [decode(value, objects.__getitem__) for value in json.loads(line)]
                found = encode(does[what](*values), number)
                if what == "call":
                    changed = [encode(arg, number) if type(arg) in CHANGED else None for arg in values[1]]
                answer = [found, changed, None]
            except BaseException as error:
                answer = [None, [], [type(error).__name__, str(error)]]
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


class Program:
    """The program's process, as the tests see it."""

    def __init__(self) -> None:
        self.questions, self.answers = open(CHANNEL, "wb", closefd=False), open(CHANNEL, "rb")  # noqa: SIM115
        self.known: dict[int, Remote] = {}

    def _remote(self, number: int) -> Remote:
        return self.known.setdefault(number, Remote(self, number))

    def ask(self, what: str, *values: Any) -> Any:
        """Return the answer to a question. Raises what the program raised, or ProgramError."""
        words = [encode(value, self._number) for value in (what, *values)]
        with suppress(OSError):
            self.questions.write(json.dumps(words).encode() + b"\n")
            self.questions.flush()
        line = self.answers.readline()
        if not line:
            raise ProgramError("the program ended")
        found, changed, error = json.loads(line)
        if error is not None:
            raise self._exception(*map(str, error))
        for arg, new in zip(values[1], changed, strict=True) if what == "call" else ():
            if new is not None and type(arg) in CHANGED:
                _become(arg, decode(new, self._remote))
        return decode(found, self._remote)

    @staticmethod
    def _number(value: Any) -> int:
        if not isinstance(value, Remote):
            raise TypeError(f"tests cannot give the program a {type(value).__name__}, only data")
        return value._number

    @staticmethod
    def _exception(name: str, text: str) -> Exception:
        kind = getattr(builtins, name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            with suppress(TypeError):  # some want more than a text
                return kind(text)
        return ProgramError(f"{name}: {text}")


def _become(old: Any, new: Any) -> None:
    """Give a list, dictionary, set or bytearray the content of another."""
    if old == new or type(old) is not type(new):
        return
    old.clear()
    (old.extend if isinstance(old, list | bytearray) else old.update)(new)


def run_tests(code: str) -> None:
    """Run tests of the program that the other process offers, and raise what they raise. `code`, as JSON: the
    tests, and what the program begins with.
    """
    tests, start = json.loads(code)
    program, scope = Program(), {}
    _define_helpers(start, scope)
    outside = _names_outside(tests, scope)
    for name in outside & sys.stdlib_module_names:
        with suppress(ImportError):
            scope[name] = importlib.import_module(name)
    for name in outside & _entry_points(tests, start) - scope.keys():
        with suppress(NameError, KeyError):
            scope[name] = program.ask("name", None, name)
    run(tests, "<tests>", scope)


def _entry_points(tests: str, start: str) -> set[str]:
    """Return what tests may take from the program: the name that its beginning defines last; without a
    beginning every name but those of modules, of which tests use attributes.
    """
    with suppress(SyntaxError, ValueError):
        if last := getattr((ast.parse(start).body or [None])[-1], "name", None):
            return {last}
    nodes = list(ast.walk(ast.parse(tests)))
    modules = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return {node.id for node in nodes if isinstance(node, ast.Name)} - modules


def _define_helpers(start: str, scope: dict[str, Any]) -> None:
    """Run the beginning of a program without its last statement, which the program completes: tests take what
    it defines from there, not from the program.
    """
    with suppress(SyntaxError, ValueError):
        for statement in ast.parse(start).body[:-1]:
            with suppress(Exception):
                exec(compile(ast.Module([statement], []), "<start>", "exec"), scope)


def _names_outside(tests: str, scope: dict[str, Any]) -> set[str]:
    """Names that tests use and that neither they nor Python define; without any, the builtins that they use,
    because the program is then one of these.
    """
    tables = [top := symtable.symtable(tests, "<tests>", "exec")]
    for table in tables:
        tables += table.get_children()
    used = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (table is top or symbol.is_global())
    }
    own = {
        symbol.get_name()
        for symbol in top.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    names = used - own - scope.keys()
    return names - vars(builtins).keys() or names
