"""The hosts of the generated web: names, layouts and character sets for the families of `sites.yaml`."""

import random
from functools import cache
from typing import Literal

from pydantic.dataclasses import dataclass

from pipeline.miniweb.markup import LAYOUTS, Site
from pipeline.miniweb.phrases import NO_OTHER_KEYS, books, load_yaml
from pipeline.protocol.stage import InputError

TLD = "example"  # reserved (RFC 2606): no host of this web can exist


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class SitePart:
    """Pages (least, most) of one genre under a path; `plain`: without the site's formula markup."""

    path: str
    genre: str
    pages: tuple[int, int]
    style: Literal["html", "folder", "dated", "numbered", "query"]
    plain: bool = False


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class Family:
    """A kind of site; `suffixes` end host names, `markups` are assigned to its `hosts` in turn."""

    name: str
    hosts: int
    language: str
    suffixes: tuple[str, ...]
    parts: tuple[SitePart, ...]
    markups: tuple[str, ...] = ("plain",)


@dataclass(frozen=True, config=NO_OTHER_KEYS)
class Sites:
    """The content of `sites.yaml`: what hosts draw from, families with mathematics and families without."""

    host_words: dict[str, tuple[str, ...]]
    charsets: dict[str, tuple[str, ...]]
    servers: tuple[str, ...]
    mathematics: tuple[Family, ...]
    elsewhere: tuple[Family, ...]


@dataclass(frozen=True)
class Host:
    """A site of a family; `reviewed`: whether `annotations.tsv` speaks about it."""

    site: Site
    family: Family
    reviewed: bool


@cache
def sites() -> Sites:
    found = load_yaml("sites.yaml", Sites)
    for family in (*found.mathematics, *found.elsewhere):
        for part in family.parts:
            if part.genre not in books():
                raise InputError(f"sites.yaml: {family.name}: there is no phrase book {part.genre!r}")
    return found


def plan_hosts(seed: int, scale: float) -> list[Host]:
    """Return all hosts; a larger `scale` gives more of every family but the single seed site."""
    rng = random.Random(f"{seed}/hosts")
    taken: set[str] = set()
    hosts = []
    for family in (*sites().mathematics, *sites().elsewhere):
        count = 1 if family.name == "seed" else max(2, round(family.hosts * scale))
        for index in range(count):
            site = _site(rng, family, index, taken)
            reviewed = (
                family in sites().mathematics and index % 4 != 3 or family.name == "tutors" and index % 4 == 0
            )
            hosts.append(Host(site, family, reviewed))
    return hosts


def _site(rng: random.Random, family: Family, index: int, taken: set[str]) -> Site:
    words = sites().host_words[family.language]
    word, number = rng.choice(words), ""
    while (host := f"{word}{number}{rng.choice(family.suffixes)}.{TLD}") in taken:
        word = rng.choice(words)
        number = str(rng.randint(2, 99)) if rng.random() < 0.3 else ""
    taken.add(host)
    charset = rng.choice(sites().charsets[family.language])
    return Site(
        host=host,
        name=host.removesuffix(f".{TLD}").replace("-", " ").title(),
        language=family.language,
        markup=family.markups[index % len(family.markups)],
        layout=rng.choice(LAYOUTS),
        charset=charset,
        charset_in_header=rng.random() < 0.55,
        charset_in_page=rng.random() < 0.8,
        server=rng.choice(sites().servers),
        sections=tuple(dict.fromkeys(part.path for part in family.parts if part.path != "/")),
    )
