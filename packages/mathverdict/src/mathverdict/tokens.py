r"""Split cleaned text into tokens: numbers, symbols, functions, words and signs.

A run of letters is a function (sqrt, tan), a word (cups) or a product of one-letter symbols (abc). LaTeX does
not distinguish them; vocabulary and length decide.
"""

import re
from fractions import Fraction
from typing import Any, NamedTuple

from .tree import Unreadable
from .vocabulary import (
    ACCENTS,
    COMBINING,
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    MARKS,
    OPERATORS,
    RELATIONS,
    SHORT_WORDS,
    SILENT,
)

MAX_TOKENS = 2000
MAX_DIGITS = 4000  # Python converts at most 4,300
MAX_DECIMAL_EXPONENT = 400

_TEXT = re.compile(
    r"\\(?:text|mathrm|mbox|textbf|textit|textrm|textnormal|texttt|textsf|mathit|mathsf|mathtt|mathnormal|hbox|emph|operatorname\*?|rm)"
    r"\s*(?=\{)"
)
_TOKEN = re.compile(
    r"\s+"
    r"|(?P<repeating>\d*\.\d*\\(?:overline|bar|dot)\s*\{?\s*\d+\s*\}?|\d*\.\d*\(\d+\)"
    r"|\d*\.\d*?(?P<period>\d{1,6}?)(?P=period){2,}\s*(?:\.\.\.|\\[lc]?dots[cb]?(?![A-Za-z])))"
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+(?:\.\d+|\.(?=\s*[-+*/)]))?|\.\d+)(?:[eE][-+]?\d{1,4}(?![\d.a-zA-Z]))?)"
    r"|\\(?P<command>[A-Za-z]+)\*?"
    r"|\\(?P<escape>[^A-Za-z])"
    rf"|(?P<word>(?=[A-Za-z]*[^\x00-\x7f\W\d_\u4e00-\u9fff])(?:(?![\u4e00-\u9fff])[^\W\d_][{COMBINING}]*)+)"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<chinese>[\u4e00-\u9fff]+)"
    r"|(?P<sign><=|>=|=<|=>|!=|==|:=|\*\*|\.\.\.+|[-+*/^_=<>!%|(){}\[\],;:&'$])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_COMMAND = re.compile(r"\\[A-Za-z]")
_NAME = re.compile(r"\\[A-Za-z]+|")
_JOINED = re.compile(
    r"^\s*(?P<before>and|or|和|或)?\b(?P<middle>.*?)\b(?P<after>and|or|和|或)?\s*$", re.DOTALL
)


class Token(NamedTuple):
    """kind: number, decimal, symbol, constant, function, command, relation, space, text, or the sign."""

    kind: str
    value: Any = None


def _number(text: str, separate: bool) -> list[Token]:
    """Return a numeral; with `separate`, 1,000 is the two numbers 1 and 000."""
    if len(text) > MAX_DIGITS:
        raise Unreadable(f"a number of more than {MAX_DIGITS} digits")
    if "," in text and separate:
        parts = [_number(part, separate)[0] for part in text.split(",")]
        return [token for part in parts for token in (Token(","), part)][1:]
    mantissa, _, exponent = text.lower().replace(",", "").partition("e")
    power = int(exponent or 0)
    if abs(power) > MAX_DECIMAL_EXPONENT:
        raise Unreadable("a decimal exponent out of bounds")
    whole, _, decimals = mantissa.partition(".")
    value = Fraction(int((whole or "0") + decimals), 10 ** len(decimals)) * Fraction(10) ** power
    return [Token("decimal" if decimals or exponent else "number", value)]


def _repeating(text: str, period: str | None) -> Token:
    r"""Return a repeating decimal: 0.1\overline{6}, 0.1(6), or 0.1666..., whose period stands three times."""
    head, _, tail = re.sub(r"[({]|\\[a-z]+|\.\.\.", "\\\\", text).partition("\\")
    if period:
        head, tail = head.strip().removesuffix(period), period
    digits = re.sub(r"\D", "", tail)
    whole, _, decimals = head.partition(".")
    scale = 10 ** len(decimals)
    repeated = Fraction(int(digits), scale * (10 ** len(digits) - 1))
    return Token("number", Fraction(int((whole or "0") + decimals), scale) + repeated)


def _group(text: str, start: int) -> tuple[str, int]:
    """Content of the braces that open at `start`, and the index after them."""
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return text[start + 1 : position], position + 1
    raise Unreadable("braces that do not close")


def _words(content: str, depth: int) -> list[Token]:
    r"""Tokens of the content of \text{}: words, with connectives split off, or mathematics."""
    if _COMMAND.search(content):
        return list(tokenize(content, depth=depth + 1))
    content = (content if "{" in content else content.replace("\\", " ")).strip()
    if content in FUNCTIONS:
        return [Token("function", FUNCTIONS[content])]
    if not re.search(r"[A-Za-z]{2}|[^\x00-\x7f]|^[A-Za-z]/[A-Za-z]$", content):
        return list(tokenize(content, depth=depth + 1))
    if re.match(r"[-+]?\d", content):
        return list(tokenize(content, depth=depth + 1))
    match = _JOINED.match(content)
    if match is None or not (match["before"] or match["after"]):
        return [Token("text", content.rstrip(","))] + ([Token(",")] if content.endswith(",") else [])
    tokens = [Token(_connective(match["before"]))] if match["before"] else []
    if middle := match["middle"].strip(" ,"):
        tokens += [Token("text", middle)]
    return tokens + ([Token(_connective(match["after"]))] if match["after"] else [])


def _connective(word: str) -> str:
    return {"和": "and", "或": "or"}.get(word, word)


def _letters(run: str, last: Token | None) -> list[Token]:
    """Tokens of a run of letters: a function, constant, connective, word, or product of symbols."""
    if run in FUNCTIONS:
        if run in ("min", "max") and last is not None and last.kind in ("number", "decimal"):
            return [Token("text", run)]
        return [Token("function", FUNCTIONS[run])]
    if run in CONSTANTS:
        return [Token("constant", CONSTANTS[run])]
    lower = run.casefold()
    if lower in ("and", "or"):
        return [Token(lower)]
    if lower in ("mod", "frac", "cup", "times"):
        return [Token("command", "frac") if lower == "frac" else Token(OPERATORS[lower])]
    if len(run) == 1:
        return [Token("symbol", run)]
    if lower in SHORT_WORDS and not (run.isupper() and run not in ("YES", "DNE")):
        return [Token("text", run)]
    if match := re.fullmatch("(.?)pi(.?)", run):  # kpi, pir
        pi = [Token("symbol", match[1]), Token("constant", "pi"), Token("symbol", match[2])]
        return [token for token in pi if token.value]
    if len(run) > 2 and run[0].isupper() and run[1:].islower():  # a name
        return [Token("text", run)]
    ordered = list(run) == sorted(set(run))
    if len(run) <= 3 or (ordered and len(run) <= 6) or (run.isupper() and len(run) <= 5):
        return [Token("symbol", letter) for letter in run]
    return [Token("text", run)]


def _command(name: str) -> list[Token]:
    if name in FUNCTIONS:
        return [Token("function", FUNCTIONS[name])]
    if name in CONSTANTS:
        return [Token("constant", CONSTANTS[name])]
    if name in RELATIONS:
        return [Token("relation", RELATIONS[name])]
    if name in OPERATORS:
        return [Token(OPERATORS[name])]
    if name in GREEK:
        return [Token("symbol", name)]
    if name in ("emptyset", "varnothing"):
        return [Token("empty")]
    if name in SILENT:
        return []
    return [Token("command", name)]


def tokenize(text: str, separate: bool = False, depth: int = 0) -> list[Token]:
    """Tokens of cleaned text. Raises Unreadable beyond the bounds. `separate`: see `_number`."""
    if depth > 4:
        raise Unreadable("texts nested too deep")
    tokens: list[Token] = []
    position = level = 0
    while position < len(text):
        if len(tokens) > MAX_TOKENS:
            raise Unreadable(f"more than {MAX_TOKENS} signs")
        if match := _TEXT.match(text, position):
            content, position = _group(text, match.end())
            tokens += _words(content, depth)
            continue
        match = _TOKEN.match(text, position)
        position = match.end()
        kind = "repeating" if match["repeating"] else match.lastgroup
        if kind is None:
            continue
        part = match[kind]
        if kind == "number":
            tokens += _number(part, separate or level > 0)
        elif kind == "repeating":
            tokens.append(_repeating(part, match["period"]))
        elif kind == "command" and part in ACCENTS:
            named, position = _accented(part, text, position)
            tokens.append(named)
        elif kind == "command" and part in ("mathbb", "R", "Z"):
            named, position = _accented(part, text, position)
            tokens.append(Token("space", named.value[-1]))
        elif kind == "command":
            tokens += _command(part)
        elif kind == "letters":
            tokens += _letters(part, tokens[-1] if tokens else None)
        elif kind == "escape":
            tokens += _escape(part)
        elif kind == "sign":
            level += (part in "([") - (part in ")]")
            tokens.append(_sign(part))
        elif kind in ("chinese", "word"):
            tokens.append(Token("text", part))
        else:
            raise Unreadable(f"the sign {part!r}")
    return tokens


def _escape(part: str) -> list[Token]:
    if part in "{}\\|$":
        return [Token("$" if part == "$" else f"\\{part}")]
    if part not in " /,;:!>.&":
        raise Unreadable(f"the sign \\{part}")
    return []


def _sign(part: str) -> Token:
    if part in RELATIONS:
        return Token("relation", RELATIONS[part])
    if part.startswith("..."):
        return Token("...")
    return Token("^" if part == "**" else part)


def _accented(name: str, text: str, position: int) -> tuple[Token, int]:
    r"""Return the symbol under an accent or in bold, e.g. \overline{AB}, and the index after it."""
    while position < len(text) and text[position] == " ":
        position += 1
    if position < len(text) and text[position] == "{":
        content, position = _group(text, position)
    elif position < len(text) and text[position] != "\\":
        content, position = text[position], position + 1
    else:
        match = _NAME.match(text, position)
        content, position = match[0], match.end()
    kind = "mark" if name in MARKS else "bold"
    return Token("symbol", f"{kind} {' '.join(content.split())}"), position
