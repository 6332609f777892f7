"""Where two expressions are compared: fixed real and integer points, and when symbols stand for integers."""

import zlib
from threading import local
from typing import Any

from mpmath import MPContext

from .tree import Expression, symbols, walk

DIGITS = 60
WHOLE_NAMES = frozenset("nNkKmMpqrstabcdij")  # letters that may stand for integers


class _Context(local, MPContext):
    """A context of mpmath for each thread: some of its functions change the precision while they run."""

    def __init__(self) -> None:
        MPContext.__init__(self)
        self.dps = DIGITS


context = _Context()
with context.workprec(4000):  # mpmath computes its constants once, not safely while other threads read them
    _ = +context.pi, +context.e, +context.ln2, +context.ln10, +context.euler


_WHOLE = {  # each name's values: both parities, small and large, usually n > d > m > k
    "n": (9, 10, 15, 28, 101, 1120),
    "d": (8, 9, 13, 21, 90, 1007),
    "m": (6, 8, 9, 13, 37, 412),
    "k": (4, 6, 7, 10, 18, 205),
    "r": (3, 5, 5, 7, 11, 104),
    "j": (2, 3, 4, 4, 9, 51),
}
_WHOLE |= {"N": _WHOLE["n"], "p": _WHOLE["m"], "i": _WHOLE["j"]}
_REAL = ((0, 1), (1, 3), (-2, 0), (0, 1), (-3, 3), (2, 9), (0, 1), (150, 950))


def points(names: frozenset[str], whole: bool) -> list[dict[str, Any]]:
    """Return the points of a comparison, by symbol: reals or, with `whole`, integers."""
    if whole:
        return [{name: context.mpf(_whole(name)[turn]) for name in names} for turn in range(len(_WHOLE["n"]))]
    return [
        {name: low + (high - low) * irregular(f"{name}|{turn}") for name in names}
        for turn, (low, high) in enumerate(_REAL)
    ]


def _whole(name: str) -> tuple[int, ...]:
    """Return the integers of a name; those outside the table get rows that differ from each other."""
    if name in _WHOLE:
        return _WHOLE[name]
    shift = zlib.crc32(name.encode())
    return tuple(low + shift % (7 + place) for place, low in enumerate(_WHOLE["mkr"[shift % 3]]))


def irregular(name: str) -> Any:
    """Return a pseudo-random number in (0, 1), fixed for each name."""
    return context.mpf(zlib.crc32(name.encode()) * 2654435761 % 2**32 + 1) / (2**32 + 7)


def is_whole(node: Expression) -> bool:
    """Whether the symbols stand for integers: factorials, binomials, floors, sums, powers of -1."""
    for part in walk(node):
        if part.kind == "sum" or (
            part.kind == "call" and part.value in ("factorial", "binom", "floor", "ceil")
        ):
            return True
        if part.kind == "pow" and symbols(part.args[1]) and part.args[0].kind == "neg":
            return True
    return False
