"""What a page's HTML says about its licence and to robots: kept with the page, so that a released corpus can
tell it, and never decided here.
"""

import html
import re
from itertools import islice

from webformulas.signs import Source

TAG = re.compile(r"<(?:a|link|meta)\b[^<>]{0,2000}>", re.IGNORECASE)
META, LICENCE = re.compile(r"<meta\b", re.IGNORECASE), re.compile(b"icen[cs]e")
ATTRIBUTE = re.compile(r"([a-z:-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
LICENCES = ("dc.rights", "dcterms.license", "dcterms.rights", "license")
ROBOTS = ("robots", "ccbot", "gptbot", "google-extended", "tdm-reservation")
REACH, LONGEST = 2000, 200  # characters before a word in which its tag may begin; of a note
MOST = 50  # meta tags, and places of the word, that are looked at
WIDEST = 4  # bytes of a character


def rights(source: Source) -> dict[str, str]:
    """`licence` (of `rel=license` or a meta tag) and `robots` (of meta tags), where the page has them."""
    tags = ((place, _tag(source.letters, place)) for place in source.places("<met"))
    found = dict(islice(((place, tag) for place, tag in tags if META.match(tag) and _is_named(tag)), MOST))
    words = (place for place in source.places("icen") if LICENCE.match(source.letters, place))
    for place in islice(words, MOST):
        start = source.letters.rfind(b"<", max(0, place - WIDEST * REACH), place)
        if start >= 0 and len(source.letters[start:place].decode("utf-8", "replace")) <= REACH:
            found[start] = _tag(source.letters, start)
    notes: dict[str, str] = {}
    for _, tag in sorted(found.items()):
        for name, note in _notes(tag):
            notes.setdefault(name, note)
    return notes


def _tag(letters: bytes, start: int) -> str:
    """Find the link or meta tag at `start`; empty if there is none."""
    end = letters.find(b">", start, start + WIDEST * (REACH + 10)) + 1
    tag = letters[start:end].decode("utf-8", "replace")
    return tag if TAG.fullmatch(tag) else ""


def _is_named(tag: str) -> bool:
    text = tag.lower()
    return any(name in text for name in (*LICENCES, *ROBOTS))


def _notes(tag: str) -> list[tuple[str, str]]:
    values = {
        name.lower(): html.unescape(next(filter(None, rest), "")).strip()
        for name, *rest in ATTRIBUTE.findall(tag)
    }
    name, content = values.get("name", values.get("property", "")).lower(), values.get("content", "")
    if {"license", "licence"} & set(values.get("rel", "").lower().split()) and values.get("href"):
        return [("licence", values["href"][:LONGEST])]
    if name in LICENCES and content:
        return [("licence", content[:LONGEST])]
    if name in ROBOTS and content:
        return [("robots", (content if name == "robots" else f"{name}: {content}")[:LONGEST])]
    return []
