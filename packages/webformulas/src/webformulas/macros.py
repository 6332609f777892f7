"""A page's own TeX macros, found in its text and in the configuration of MathJax and KaTeX, and expanded.

Readers of the corpus do not see where a macro was defined, so formulas are written with standard commands
only. Macros of common use that no page of a site defines in its source are in `macros.toml`.
"""

import re
from functools import lru_cache
from html import unescape

from .signs import Source
from .tables import read_table

Macro = tuple[int, str | None, str]  # number of arguments, default of the first, replacement

DEFINITION = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|DeclareMathOperator|DeclareRobustCommand|def|"
    r"let)(?![A-Za-z])\*?\s*"
)
DEFINED = re.compile(r"\\(?:newcommand|def\\|DeclareMathOperator)")  # the page may have definitions
NAME = re.compile(r"\{?\s*\\([A-Za-z]+|[^A-Za-z\s])\s*\}?\s*")
ARGUMENTS = re.compile(r"\s*\[(\d)\]\s*(?:\[([^\]]*)\])?|((?:#\d)+)")
CONFIGURED = re.compile(r"acros[\"']?\s*:\s*\{")
STRING = r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|String\.raw`([^`]*)`"
ENTRY = re.compile(
    rf"[\"']?(?:\\\\)?([A-Za-z]+)[\"']?\s*:\s*(?:{STRING}|\[\s*(?:{STRING})\s*(?:,\s*(\d)\s*(?:,"
    rf"\s*(?:{STRING}))?)?\s*\])"
)
COMMAND = re.compile(r"\\([A-Za-z]+)\*?")
ALPHABET = re.compile(r"(bf|cal|bb|frak|scr)([A-Z])")
ALPHABETS = {"bf": "mathbf", "cal": "mathcal", "bb": "mathbb", "frak": "mathfrak", "scr": "mathscr"}
TABLE = read_table("macros")
COMMON: dict[str, Macro] = {
    **{name: (0, None, rf"\mathbb{{{name[0].upper()}}}") for name in TABLE["blackboard"].split()},
    **{name: (int("#1" in body), None, body) for name, body in TABLE["replacements"].items()},
}
MAX_DEFINITIONS = 1000
MAX_BODY = 500  # characters of a replacement
MAX_EXPANSIONS = 20_000  # of a page; macros can double at each level
MAX_FORMULA = 20_000
MAX_LEVELS = 8


class Macros:
    """The macros that hold on one page."""

    def __init__(self, source: Source) -> None:
        self.own: dict[str, Macro] = {}
        self.left = MAX_EXPANSIONS
        html = source.html
        if source.holds("acros"):
            self._read_configuration(html)
        if DEFINED.search(html):
            for start in list(DEFINITION.finditer(html))[:MAX_DEFINITIONS]:
                text = unescape(html[start.start() : start.start() + MAX_BODY])
                if (match := DEFINITION.match(text)) and (found := _definition(text, match)):
                    self._add(found[0], found[1])

    def _read_configuration(self, html: str) -> None:
        for start in list(CONFIGURED.finditer(html))[:5]:
            block = html[start.end() : _end_of_braces(html, start.end())]
            for match in ENTRY.finditer(block):
                strings = (match.groups()[n : n + 3] for n in (1, 4, 8))
                plain, listed, default = (next(filter(None, one), None) for one in strings)
                body, count = plain or listed or "", int(match[8] or 0)
                raw = match[4] or match[7]
                body = raw or re.sub(r"\\(.)", r"\1", body)
                if not count and "#1" in body:
                    count = max(int(number) for number in re.findall(r"#(\d)", body))
                self._add(match[1], (count, default, body))

    def read(self, text: str) -> str:
        """Add the definitions of a text; returns the text without them."""
        pieces, done = [], 0
        for start in DEFINITION.finditer(text):
            if start.start() < done or len(self.own) >= MAX_DEFINITIONS:
                continue
            if (found := _definition(text, start)) is not None:
                name, macro, end = found
                self._add(name, macro)
                pieces.append(text[done : start.start()])
                done = end
        return "".join([*pieces, text[done:]]) if done else text

    def _add(self, name: str, macro: Macro) -> None:
        if name.isalpha() and len(macro[2]) <= MAX_BODY and f"\\{name}" not in COMMAND.findall(macro[2]):
            self.own[name] = macro

    def expand(self, tex: str) -> str:
        """TeX with definitions removed and macros replaced; unchanged where it has neither."""
        if "\\" not in tex or len(tex) > MAX_FORMULA:
            return tex
        if DEFINITION.search(tex):
            tex = self.read(tex).strip()
        for _ in range(MAX_LEVELS):
            expanded = self._expand_once(tex)
            if expanded == tex or len(expanded) > MAX_FORMULA:
                break
            tex = expanded
        return tex

    def _expand_once(self, tex: str) -> str:
        pieces, done = [], 0
        for match in COMMAND.finditer(tex):
            macro = self.own.get(match[1]) or COMMON.get(match[1]) or _alphabet(match[1])
            if macro is None or match.start() < done or self.left <= 0:
                continue
            end = match.end() - (match[0][-1] == "*")
            arguments, end = _arguments(tex, end, macro)
            if arguments is None:
                continue
            self.left -= 1
            body = re.sub(r"#(\d)", lambda number: _nth(arguments, int(number[1])), macro[2])  # noqa: B023
            joined = body[-1:].isalpha() and COMMAND.search(body) and tex[end : end + 1].isalpha()
            space = " " if joined and re.search(r"\\[A-Za-z]+$", body) else ""
            pieces += [tex[done : match.start()], body, space]
            done = end
        return "".join([*pieces, tex[done:]]) if done else tex


def _nth(arguments: list[str], number: int) -> str:
    return arguments[number - 1] if 0 < number <= len(arguments) else ""


@lru_cache(maxsize=1024)
def _alphabet(name: str) -> Macro | None:
    """`\\bfG` and its like, a letter of an alphabet."""
    match = ALPHABET.fullmatch(name)
    return (0, None, f"\\{ALPHABETS[match[1]]}{{{match[2]}}}") if match else None


def _arguments(tex: str, position: int, macro: Macro) -> tuple[list[str] | None, int]:
    """(arguments of a macro's call, index after it); None where they are missing."""
    count, default, _ = macro
    found: list[str] = []
    if default is not None:
        optional = re.compile(r"\s*\[([^\[\]]*)\]").match(tex, position)
        found.append(optional[1] if optional else default)
        position = optional.end() if optional else position
    while len(found) < count:
        while tex[position : position + 1].isspace():
            position += 1
        if position >= len(tex) or tex[position] in "}&^_":
            return None, position
        if tex[position] == "{":
            end = _end_of_braces(tex, position + 1)
            found.append(tex[position + 1 : end])
            position = end + 1
        else:
            token = COMMAND.match(tex, position)
            end = token.end() if token else position + 1
            found.append(tex[position:end])
            position = end
    return found, position


def _definition(text: str, start: re.Match[str]) -> tuple[str, Macro, int] | None:
    """(name, macro, end) of the definition at `start`."""
    name = NAME.match(text, start.end())
    if name is None:
        return None
    position, count, default = name.end(), 0, None
    if "let" in start[0]:
        other = re.compile(r"=?\s*(\\[A-Za-z]+|\S)").match(text, position)
        return (name[1], (0, None, other[1]), other.end()) if other else None
    if match := ARGUMENTS.match(text, position):
        count, default = (int(match[1]), match[2]) if match[1] else (len(match[3]) // 2, None)
        position = match.end()
    while text[position : position + 1].isspace():
        position += 1
    if text[position : position + 1] != "{":
        return None
    end = _end_of_braces(text, position + 1)
    if end - position > MAX_BODY + 2:
        return None
    body = text[position + 1 : end].strip()
    if "DeclareMathOperator" in start[0]:
        body = f"\\operatorname{'*' if start[0].rstrip().endswith('*') else ''}{{{body}}}"
    return name[1], (count, default, body), end + 1


def _end_of_braces(text: str, start: int) -> int:
    """Index of the brace that closes the one before `start`, or where the search ends."""
    depth, limit = 1, min(len(text), start + MAX_FORMULA)
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start, limit):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            return match.start()
    return limit
