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

from pipeline.config.miniweb import MiniwebSection
from pipeline.miniweb.datasets import BENCHMARK
from pipeline.miniweb.genres import write_article
from pipeline.miniweb.markup import LAYOUTS, Site, encode, render
from pipeline.miniweb.pages import Article, Block, Heading, Paragraph, article_text
from pipeline.miniweb.phrases import NO_OTHER_KEYS, books, load_yaml
from pipeline.miniweb.problems import Problem
from pipeline.protocol.stage import InputError

TLD = "example"  # reserved (RFC 2606): no host of this web can exist
# (kind, change of an URL) as sites and links change them without changing the page
URL_VARIANTS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("www", lambda url: url.replace("://", "://www.", 1)),
    ("scheme", lambda url: url.replace("https://", "http://", 1)),
    ("slash", lambda url: url[:-1] if url.endswith("/") else f"{url}/"),
    ("index", lambda url: f"{url}index.html" if url.endswith("/") else f"{url}/index.html"),
    ("tracking", lambda url: f"{url}{'&' if '?' in url else '?'}utm_source=newsletter&utm_medium=email"),
    ("session", lambda url: f"{url}{'&' if '?' in url else '?'}PHPSESSID=5f2c9e71a0b84d36"),
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


def build_pages(config: MiniwebSection, leaks: list[Leak]) -> list[GeneratedPage]:
    """Return all HTML pages: originals host by host, some with planted `leaks`, then duplicates."""
    pages: list[GeneratedPage] = []
    for host in plan_hosts(config.seed, config.scale):
        pages += _host_pages(host, config)
    _plant(pages, leaks, random.Random(f"{config.seed}/leaks"))
    exact = _exact_duplicates(pages, config)
    near = _near_duplicates(pages, config)
    return [*pages, *exact, *near]


def _host_pages(host: Host, config: MiniwebSection) -> list[GeneratedPage]:
    rng = random.Random(f"{config.seed}/{host.site.host}")
    pages = []
    for part in host.family.parts:
        count = rng.randint(*part.pages)
        if host.family.name == "seed":
            count = max(20, round(count * config.scale)) if part.genre == "lecture" else count
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
        if not candidates:
            raise InputError(
                f"config key miniweb.leaks: {len(leaks)} leaks are more than the web has room for; "
                "lower it or raise miniweb.scale"
            )
        page = candidates.pop(rng.randrange(len(candidates)))
        blocks = list(page.article.blocks)
        position = rng.randint(1, len(blocks))
        while position < len(blocks) and isinstance(blocks[position - 1], Heading):
            position += 1  # not between a heading and its text
        solution = "\n".join([*leak.problem.steps, leak.problem.conclusion])
        blocks[position:position] = [Paragraph(leak.problem.question), Paragraph(solution)]
        page.article = replace(page.article, blocks=tuple(blocks))
        page.extra["contaminated_by"] = {"benchmark": BENCHMARK, "id": leak.identifier}


def _copy(page: GeneratedPage, kind: str, similarity: float, **changes: Any) -> GeneratedPage:
    """Return a duplicate of `page` with `changes`, labelled as such."""
    truth = {"duplicate_of": page.url, "duplicate_kind": kind, "similarity": similarity}
    return replace(page, extra=page.extra | truth, **changes)


def _exact_duplicates(pages: list[GeneratedPage], config: MiniwebSection) -> list[GeneratedPage]:
    rng = random.Random(f"{config.seed}/exact")
    known = {page.url for page in pages}
    copies = []
    for number, page in enumerate(rng.sample(pages, min(config.exact_duplicates, len(pages)))):
        kind, change = URL_VARIANTS[number % len(URL_VARIANTS)]
        url = change(page.url)
        if url not in known:
            known.add(url)
            copy = _copy(page, "exact", 1.0, url=url)
            copy.extra["url_variant"] = kind
            copies.append(copy)
    return copies


def _near_duplicates(pages: list[GeneratedPage], config: MiniwebSection) -> list[GeneratedPage]:
    """Make edited copies on mirror hosts, in another layout; short pages would change too much."""
    rng = random.Random(f"{config.seed}/near")
    long = [page for page in pages if len(page.article.blocks) >= 6]
    copies = []
    for page in rng.sample(long, min(config.near_duplicates, len(long))):
        host = f"mirror-{page.site.host}"
        layout = rng.choice([layout for layout in LAYOUTS if layout != page.site.layout])
        site = replace(page.site, host=host, name=f"{page.site.name} Mirror", layout=layout)
        article = replace(page.article, blocks=_edited(page.article, rng))
        similarity = round(shingle_similarity(article_text(page.article), article_text(article)), 3)
        url = f"https://{host}{page.path}"
        copies.append(_copy(page, "near", similarity, url=url, site=site, article=article))
    return copies


def _edited(article: Article, rng: random.Random) -> tuple[Block, ...]:
    """Return a note in front, and in a third of the longer pages the first block left out."""
    note = (
        f"Copy of an older page, checked in {rng.randint(2015, 2023)}."
        if article.language == "en"
        else f"本页转载于{rng.randint(2015, 2023)}年。"
    )
    blocks = article.blocks[1:] if rng.random() < 0.3 and len(article.blocks) > 12 else article.blocks
    return (Paragraph(note), *blocks)


def shingle_similarity(left: str, right: str) -> float:
    """Return the Jaccard similarity of word 6-grams; a CJK character counts as a word."""
    sets = []
    for text in (left, right):
        words = re.findall(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+", text.lower())
        sets.append({tuple(words[i : i + 6]) for i in range(len(words) - 5)})
    return len(sets[0] & sets[1]) / max(1, len(sets[0] | sets[1]))
