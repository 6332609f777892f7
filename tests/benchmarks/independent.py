"""Fragments written from the names of page families by somebody who had not seen the extractor.

`tests/extraction/independent.jsonl` has `id`, `family`, `html` and `expected`, the text that a reader sees,
with formulas as TeX. A fragment is right if its text comes out, whatever the spelling: spaces, delimiters,
braces around one character, `\\frac` or a slash, a sign or its command make no difference. It is lost if all
that is not right is formulas of which nothing comes out, and wrong otherwise.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawl_warcs import FILLER
from given.cases import cases

from pipeline.formulas.symbols import SYMBOLS

TABLES = cases("independent")
FRAGMENTS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "extraction/independent.jsonl").read_text().splitlines()
]
OUTCOMES = ("right", "wrong", "lost")
AROUND = re.compile(r"Xbefore\.(.*)Xafter\.", re.DOTALL)
PAGE = """<!DOCTYPE html><html lang="en"><head><title>A page</title></head><body><div class="container">
<div class="content"><div class="post">{body}</div></div></div></body></html>"""
FORMULA = re.compile(r"\$\$.+?\$\$|(?<!\\)\$[^$]+?(?<!\\)\$", re.DOTALL)
RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻", "0123456789n+-", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉ₙ", "0123456789n", strict=True))
RUNS = [(re.compile(f"[{''.join(signs)}]+"), signs, mark) for signs, mark in ((RAISED, "^"), (LOWERED, "_"))]
SIGNS = str.maketrans(
    {sign: f"{name} " for sign, name in SYMBOLS.items() if len(sign) == 1 and ord(sign) > 127}
    | TABLES["signs"]
)
PLAIN = re.compile("[\U0001d400-\U0001d7ff¼-¾⅐-⅞！-～]")  # styled and wide letters, fractions in one sign
SPELLINGS = [(re.compile(pattern), to) for pattern, to in TABLES["spellings"]]  # in this order
NESTED = r"\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}"
FRACTION = re.compile(rf"\\frac(?:{NESTED}|(\w))(?:{NESTED}|(\w|\\[A-Za-z]+))")
SINGLE = re.compile(r"\{([^{}^_]|\\[A-Za-z]+)\}")
SCRIPTS = re.compile(r"\^(\w|\\[A-Za-z]+|\{[^{}]*\})_(\w|\{[^{}]*\})")
ARGUMENT = re.compile(  # before a brace that is not only a group
    r"(?:[\^_}\]]|\\(?:sqrt|math\w+|boldsymbol|(?:over|under)\w+|(?:wide)?(?:hat|tilde)|vec|bar|d?dot|binom|begin|end"
    r"|tag|(?:eq)?ref|stackrel|substack|boxed))$"
)
IGNORED = re.compile(r"[\s$|•\u200b\u2060*\\\ue000\ue001]|\\[()\[\]]")


def canonical_spelling(text: str) -> str:
    """Text in the one spelling that both sides are compared in."""
    for run, signs, mark in RUNS:
        text = run.sub(
            lambda found, signs=signs, mark=mark: mark + f"{{{found[0].translate(str.maketrans(signs))}}}",
            text,
        )
    text = re.sub(r"\^\{(\d+)\}⁄_\{(\d+)\}", r"\1/\2", text)  # ⁴⁄₃
    text = PLAIN.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text).translate(SIGNS)
    for pattern, to in SPELLINGS:
        text = pattern.sub(to, text)
    text = re.sub(r"\s+(?=[^A-Za-z])|(?<=[^A-Za-z])\s+", "", text)
    while (found := FRACTION.search(text)) is not None:
        over = _over(*(found[place] or found[place + 1] or "" for place in (1, 3)))
        text = text[: found.start()] + over + text[found.end() :]
    text = _without_groups(text)
    for _ in range(3):
        text = SCRIPTS.sub(r"_\2^\1", SINGLE.sub(r"\1", text))
    return IGNORED.sub("", text)


def _without_groups(text: str) -> str:
    """Drop braces that only group."""
    kept: list[str] = []
    opened: list[bool] = []
    for place, character in enumerate(text):
        if character == "{" and text[place - 1 : place] != "\\":
            opened.append(ARGUMENT.search(text[:place]) is not None)
        if character not in "{}" or text[place - 1 : place] == "\\" or (opened and opened[-1]):
            kept.append(character)
        if character == "}" and text[place - 1 : place] != "\\" and opened:
            opened.pop()
    return "".join(kept)


def _over(*parts: str) -> str:
    return "/".join(part if re.fullmatch(r"\w+|\\[A-Za-z]+", part.strip()) else f"({part})" for part in parts)


def outcome(extractor: Callable[[str], str], fragment: dict[str, Any]) -> tuple[str, str]:
    """(`right`, `wrong` or `lost`, what comes out) of one fragment in a page of its own."""
    body = f"<p>{FILLER} Xbefore.</p>{fragment['html']}<p>Xafter. {FILLER}</p>"
    html = PAGE.replace("{body}", body)
    found = AROUND.search(extractor(html) or "")
    text = found[1].strip() if found else ""
    given, expected = canonical_spelling(text), fragment["expected"]
    if given == canonical_spelling(expected):
        return "right", text
    words = [re.escape(canonical_spelling(part)) for part in FORMULA.split(expected)]
    formulas = [f"(?:{re.escape(canonical_spelling(part))})?" for part in FORMULA.findall(expected)]
    pattern = "".join(word + formula for word, formula in zip(words, [*formulas, ""], strict=True))
    return "lost" if formulas and re.fullmatch(pattern, given) else "wrong", text


def independent_shares(extractor: Callable[[str], str]) -> dict[str, float]:
    """Shares of right, wrong and lost fragments in %."""
    outcomes = [outcome(extractor, fragment)[0] for fragment in FRAGMENTS]
    return {name: round(100 * outcomes.count(name) / len(outcomes), 1) for name in OUTCOMES}
