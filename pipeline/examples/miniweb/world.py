"""The generated web: hosts by the families of `sites.yaml`, and page by page articles at URLs, duplicates of
pages, planted benchmark questions.

Every random choice about a page comes from a generator seeded with its host, so that a change to one host
leaves the others as they are.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic.dataclasses import dataclass as checked

from pipeline.examples.miniweb.datasets import BENCHMARK
from pipeline.examples.miniweb.genres import write_article
from pipeline.examples.miniweb.markup import LAYOUTS, Site, encode, render
from pipeline.examples.miniweb.pages import Article
from pipeline.examples.miniweb.phrases import NO_OTHER_KEYS, load_yaml
from pipeline.examples.miniweb.problems import Problem

TLD = "example"  # reserved (RFC 2606): no host of this web can exist
EXACT_SHARE = 0.025  # share of the pages that are repeated byte for byte under a variant of their URL
NEAR_SHARE = 0.016  # share that is repeated with edits on a mirror in another layout
# Changes of an URL that sites and links make without changing the page
URL_VARIANTS: tuple[Callable[[str], str], ...] = (
    lambda url: url.replace("://", "://www.", 1),
    lambda url: url.replace("https://", "http://", 1),
    lambda url: url[:-1] if url.endswith("/") else f"{url}/",
    lambda url: f"{url}index.html" if url.endswith("/") else f"{url}/index.html",
    lambda url: f"{url}{'&' if '?' in url else '?'}utm_source=newsletter&utm_medium=email",
    lambda url: f"{url}{'&' if '?' in url else '?'}PHPSESSID=5f2c9e71a0b84d36",
)


@checked(frozen=True, config=NO_OTHER_KEYS)
class SitePart:
    """Pages (least, most) of one genre under a path; `plain`: without the site's formula markup."""

    path: str
    genre: str
    pages: tuple[int, int]
    style: Literal["html", "folder", "dated", "numbered", "query"]
    plain: bool = False


@checked(frozen=True, config=NO_OTHER_KEYS)
class Family:
    """A kind of site; `suffixes` end host names, `markups` are assigned to its `hosts` in turn."""

    name: str
    hosts: int
    language: str
    suffixes: tuple[str, ...]
    parts: tuple[SitePart, ...]
    markups: tuple[str, ...] = ("plain",)


@checked(frozen=True, config=NO_OTHER_KEYS)
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
    return load_yaml("sites.yaml", Sites)


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


@dataclass
class GeneratedPage:
    """A page of the web with its truth; `extra` are further fields of its label."""

    url: str
    host: Host
    part: SitePart
    site: Site
    article: Article
    related: list[tuple[str, str]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Path and query of the URL."""
        return self.url.split(self.site.host, 1)[1]

    @property
    def payload(self) -> bytes:
        return encode(render(self.article, self.site, self.related), self.site.charset)


@dataclass(frozen=True)
class Leak:
    """A benchmark item that is planted on a page."""

    identifier: str
    problem: Problem


def build_pages(seed: int, scale: float, leaks: list[Leak]) -> list[GeneratedPage]:
    """Return all HTML pages: originals host by host, some with planted `leaks`, then duplicates."""
    pages: list[GeneratedPage] = []
    for host in plan_hosts(seed, scale):
        pages += _host_pages(host, seed, scale)
    _plant(pages, leaks, random.Random(f"{seed}/leaks"))
    exact = _exact_duplicates(pages, random.Random(f"{seed}/exact"))
    near = _near_duplicates(pages, random.Random(f"{seed}/near"))
    return [*pages, *exact, *near]


def _host_pages(host: Host, seed: int, scale: float) -> list[GeneratedPage]:
    rng = random.Random(f"{seed}/{host.site.host}")
    pages = []
    for part in host.family.parts:
        count = rng.randint(*part.pages)
        if host.family.name == "seed" and part.genre == "lecture":
            count = max(20, round(count * scale))
        for number in range(count):
            article = write_article(rng, part.genre)
            url = f"https://{host.site.host}{_path(rng, part, article, number)}"
            site = replace(host.site, markup="plain") if part.plain else host.site
            pages.append(GeneratedPage(url, host, part, site, article))
    for page in pages:
        others = rng.sample(pages, min(4, len(pages)))
        page.related = [(other.path, other.article.plain_title) for other in others]
    return pages


def _path(rng: random.Random, part: SitePart, article: Article, number: int) -> str:
    """Return path and query of a page; `number` makes it unique in its part."""
    words = re.findall("[a-z0-9]+", article.plain_title.lower())[:7]
    slug = "-".join(words) if article.language == "en" and words else part.genre.split("_")[0]
    identity = 1000 + 37 * number + rng.randint(0, 36)
    match part.style:
        case "html":
            return f"{part.path}{slug}-{number + 1}.html"
        case "folder":
            return f"{part.path}{slug}-{number + 1}/"
        case "dated":
            day = f"{rng.randint(2012, 2023)}/{rng.randint(1, 12):02d}/{rng.randint(1, 28):02d}"
            return f"{part.path}{day}/{slug}-{identity}"
        case "numbered":
            return f"{part.path}{identity}/{slug}"
    return f"{part.path}?id={identity}{part.genre[0]}"


def _plant(pages: list[GeneratedPage], leaks: list[Leak], rng: random.Random) -> None:
    """Insert each leak, verbatim, between the blocks of a page of its language: most among word problems."""
    places: dict[tuple[str, bool], list[GeneratedPage]] = {}
    for page in pages:
        if page.article.math and page.host.family.name != "seed":
            key = page.article.language, page.part.genre.startswith("word_problems")
            places.setdefault(key, []).append(page)
    for leak in leaks:
        candidates = places[leak.problem.lang, rng.random() < 0.7]
        page = candidates.pop(rng.randrange(len(candidates)))
        blocks = list(page.article.blocks)
        position = rng.randint(1, len(blocks))
        while position < len(blocks) and blocks[position - 1].startswith("# "):
            position += 1  # not between a heading and its text
        solution = "\n".join([*leak.problem.steps, leak.problem.conclusion])
        blocks[position:position] = [leak.problem.question, solution]
        page.article = replace(page.article, blocks=tuple(blocks))
        page.extra["contaminated_by"] = {"benchmark": BENCHMARK, "id": leak.identifier}


def _copy(page: GeneratedPage, kind: str, **changes: Any) -> GeneratedPage:
    """Return a duplicate of `page` with `changes`, labelled as such."""
    truth = {"duplicate_of": page.url, "duplicate_kind": kind}
    return replace(page, extra=page.extra | truth, **changes)


def _exact_duplicates(pages: list[GeneratedPage], rng: random.Random) -> list[GeneratedPage]:
    known = {page.url for page in pages}
    copies = []
    for number, page in enumerate(rng.sample(pages, round(EXACT_SHARE * len(pages)))):
        url = URL_VARIANTS[number % len(URL_VARIANTS)](page.url)
        if url not in known:
            known.add(url)
            copies.append(_copy(page, "exact", url=url))
    return copies


def _near_duplicates(pages: list[GeneratedPage], rng: random.Random) -> list[GeneratedPage]:
    """Make copies on mirror hosts, with a note in front, in another layout; none of short pages."""
    notes = {"en": "Copy of an older page, checked in {}.", "zh": "本页转载于{}年。"}
    long = [page for page in pages if len(page.article.blocks) >= 8]
    copies = []
    for page in rng.sample(long, round(NEAR_SHARE * len(pages))):
        host = f"mirror-{page.site.host}"
        layout = rng.choice([layout for layout in LAYOUTS if layout != page.site.layout])
        site = replace(page.site, host=host, name=f"{page.site.name} Mirror", layout=layout)
        blocks = page.article.blocks[1:] if rng.random() < 0.3 else page.article.blocks
        note = notes[page.article.language].format(rng.randint(2015, 2023))
        article = replace(page.article, blocks=(note, *blocks))
        url = f"https://{host}{page.path}"
        copies.append(_copy(page, "near", url=url, site=site, article=article))
    return copies
