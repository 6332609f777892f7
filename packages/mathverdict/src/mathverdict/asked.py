"""The form of answer that a question asks for: percent, radians, a number base, rounding, a list."""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from .vocabulary import DECIMAL_COMMA, NUMBER_WORDS, PLACES

_ROUNDED = re.compile(
    rf"nearest\s+({'|'.join(sorted(PLACES, key=len, reverse=True))})"
    r"|(?:to|correct to|rounded? to)\s+(one|two|three|four|\d)\s+decimal|保留([一两二三四\d])位小数"
    r"|精确到(0\.0*1|个位|十分位|百分位)",
    re.I,
)
_PERCENT = re.compile(r"percent|\\?%|百分", re.I)
_BLANK = r"(?:\(\s*(?:\\q?quad)?\s*\)|_{2,})"
_BLANKS = re.compile(
    rf"{_BLANK}(?![\s$,，;；、和]*{_BLANK})(?:(?!{_BLANK}).)*\w(?:(?!{_BLANK}).)*{_BLANK}", re.DOTALL
)
_MEASURED = re.compile(r"\bSubproblem \d+:|significant (?:figure|digit)", re.I)  # the first as in OCWCourses
_CHOICE = re.compile(
    r"(?:\\textbf\s*\{\s*)?(?:\\text\s*\{\s*)?\(([A-F])\)\s*\}?\s*\}?|(?<![A-Za-z\\])([A-F])[.．、:：)](?!\w*\()"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """`known`: a question is given; `decimals`: places to round to; `choices`: (letter, text) pairs.

    `blanks`: it has several blanks to fill, which fix the order of the values.
    `comma`: it is in a language that writes 0,5 for 0.5.
    `measured`: its answer is a physical quantity, known to some digits only.
    `strict`: the reward's rules; a sentence that states a value is undecided.
    `names`: the question's letters that stand alone, which may be variables.
    """

    known: bool = False
    text: str = ""
    strict: bool = False
    percent: bool = False
    blanks: bool = False
    measured: bool = False
    comma: bool = False
    radians: bool = False
    bases: frozenset[Fraction] = frozenset()
    listed: bool = False
    decimals: int | None = None
    choices: tuple[tuple[str, str], ...] = ()
    names: frozenset[str] = frozenset()


def _request(question: str) -> str:
    """Return the sentences of a question that ask or tell what to do."""
    sentences = re.split(r"(?<=[.?!。？！])\s*(?=[A-Z\u4e00-\u9fff$\\])", question.strip())
    asking = (part for part in sentences if re.search(r"[?？]|\b(?:express|give|find|what)\b", part, re.I))
    return " ".join(asking) or sentences[-1]


def _decimals(question: str) -> int | None:
    """Return the decimal places to which a question wants its answer rounded: 2 for "to the nearest cent"."""
    match = _ROUNDED.search(question)
    if match is None:
        return None
    word = next(filter(None, match.groups())).lower()
    return PLACES[word] if word in PLACES else int(word) if word.isdigit() else len(word) - 2  # 0.01


def _bases(question: str) -> frozenset[Fraction]:
    """Get the number bases in which a question wants its answer, else those that it names: base 7, 12_7."""
    found = {"binary": 2, "octal": 8, "hexadecimal": 16, "二进制": 2, "八进制": 8, "十六进制": 16}
    bases = [base for word, base in found.items() if word in question.lower()]
    named = re.findall(r"(?i)\bbases?[ -]*\$?(\d+|[a-z]+)|_\{?(\d+)|(\d+)\s*进制", question)
    wanted = re.findall(r"(?i)\b(?:in|to|into|as an?)\s+base[ -]*\$?(\d+|[a-z]+)", question)
    for word in wanted or [
        "".join(parts) for parts in named if bases or "ase" in question or "进制" in question
    ]:
        bases.append(int(word[:9]) if word.isdecimal() else NUMBER_WORDS.get(word.lower(), 0))
    return frozenset(map(Fraction, bases))


def _choices(question: str) -> tuple[tuple[str, str], ...]:
    """Return the choices that a question lists as (A) ... (B) ... or A. ... B. ..., in order from A."""
    marks = list(_CHOICE.finditer(question))
    letters = [match[1] or match[2] for match in marks]
    for start in range(len(marks) - 1, -1, -1):
        run = letters[start:]
        if letters[start] == "A" and len(run) >= 3 and run == [chr(65 + place) for place in range(len(run))]:
            ends = [mark.start() for mark in marks[start + 1 :]] + [len(question)]
            texts = (question[mark.end() : end] for mark, end in zip(marks[start:], ends, strict=True))
            return tuple(
                zip(run, (text.partition("\n\n")[0].strip(" ;；。}") for text in texts), strict=True)
            )
    return ()


@lru_cache(maxsize=4096)
def asked(question: str | None) -> Asked:
    """Return the form that `question` asks for."""
    if not question:
        return Asked()
    question = unicodedata.normalize("NFC", question)
    return Asked(
        known=True,
        text=question,
        percent=_PERCENT.search(_request(question)) is not None,
        comma=not DECIMAL_COMMA.isdisjoint(re.findall(r"\w+", question.casefold())),
        measured=_MEASURED.search(question) is not None,
        blanks=_BLANKS.search(question) is not None,
        radians=re.search(r"\bradians?\b|弧度", question, re.I) is not None,
        listed=re.search(
            r"separated by (?:a )?commas?|comma[- ]separated|list (?:all|the)|逗号", question, re.I
        )
        is not None,
        decimals=_decimals(question),
        choices=_choices(question[-3000:]),
        bases=_bases(_request(question)),
        names=frozenset(re.findall(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])", question)),
    )
