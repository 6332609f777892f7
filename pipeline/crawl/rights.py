"""What a page's HTML says about its licence and to robots: kept with the page, so that a released corpus can
tell it, and never decided here.
"""

import html
import re
from itertools import islice

TAG = re.compile(r"<(?:a|link|meta)\b[^<>]{0,2000}>", re.IGNORECASE)
# Both begin with a literal: a search without would take as long as the extraction of the page.
META, LICENCE = re.compile(r"<[Mm][Ee][Tt][Aa]\b[^<>]{0,2000}>"), re.compile("icen[cs]e")
ATTRIBUTE = re.compile(r"([a-z:-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
LICENCES = ("dc.rights", "dcterms.license", "dcterms.rights", "license")
ROBOTS = ("robots", "ccbot", "gptbot", "google-extended", "tdm-reservation")
REACH, LONGEST = 2000, 200  # characters before a word in which its tag may begin; of a note
MOST = 50  # meta tags, and places of the word, that are looked at


def rights(source: str) -> dict[str, str]:
    """`licence` (of `rel=license` or a meta tag) and `robots` (of meta tags), where the page has them."""
    starts = {tag.start() for tag in islice(filter(_is_named, META.finditer(source)), MOST)}
    for word in islice(LICENCE.finditer(source), MOST):
        starts.add(source.rfind("<", max(0, word.start() - REACH), word.start()))
    found: dict[str, str] = {}
    for start in sorted(starts - {-1}):
        if tag := TAG.match(source, start):
            for name, note in _notes(tag[0]):
                found.setdefault(name, note)
    return found


def _is_named(tag: re.Match[str]) -> bool:
    text = tag[0].lower()
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
