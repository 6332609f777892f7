"""Generated pages both as WARC files and as Parquet rows of exactly the text that extraction gives them.

A page is a function of the seed and its number alone, so a copy of an earlier page needs no page in memory.
Its paragraphs are those of two articles of the generated web's genres, its formulas are written as its host
writes them (MathJax 2 and 3, KaTeX, images), and a reader sees them as TeX between `$`. A few hosts have most
pages, a long tail of others a few each. Some pages repeat the URL of an earlier one (mostly as a link with a
tracking mark), some its text, some most of its text, and some mathematical ones hold a benchmark's question.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.data.shards import table_schema
from pipeline.miniweb.datasets import write_benchmark
from pipeline.miniweb.genres import MATH_GENRES, write_article
from pipeline.miniweb.markup import formula
from pipeline.miniweb.pages import FORMULA, Article, Display, Items, Paragraph, Post
from pipeline.miniweb.phrases import books
from pipeline.miniweb.problems import distinct_problems
from pipeline.miniweb.warc import Response, write_warc
from pipeline.protocol.atomic import atomic_write

SAME_URL, SAME_TEXT, NEAR, LEAKED = 0.03, 0.05, 0.05, 0.01  # shares of pages, the last of mathematical ones
HOSTS, TAIL = 20_000, 0.7  # most hosts; exponent of the tail of their sizes
MATH, MIXED, CHINESE = 5, 6, 7  # each so many hosts: all its pages are mathematics, some are; its language
LONG = 250  # characters after which an article gives no further paragraph
MARKUPS = ("mathjax2", "mathjax3", "katex", "img-latex")
QUESTIONS = 500
LISTS = ("seed_urls.txt", "background_urls.txt", "annotations.tsv")
LISTED, REVIEWED = 20, 9  # each so many pages are looked at for the lists; each so many hosts have a verdict
DATE = "2024-03-04T06:00:00Z"
FRAME = "<!doctype html><html><head><title>{host}</title></head><body><main>\n{body}\n</main></body></html>\n"
BATCH = 10_000  # rows written at once
ROWS = table_schema(url=str, text=str)


@dataclass(frozen=True)
class RowPage:
    """A page; formulas in its paragraphs are TeX between ⟦ and ⟧."""

    url: str
    host: int
    math: bool
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """What extraction finds."""
        return "\n\n".join(FORMULA.sub(lambda found: f"${found[1]}$", one) for one in self.paragraphs)

    @property
    def html(self) -> str:
        """The page's source, formulas in the markup of its host."""
        kind = MARKUPS[self.host % len(MARKUPS)]
        body = "\n".join(f"<p>{_rich(one, kind)}</p>" for one in self.paragraphs)
        return FRAME.format(host=self.host, body=body)


def _rich(text: str, kind: str) -> str:
    pieces = FORMULA.split(text)  # text and TeX alternate
    return "".join(
        formula(piece, kind) if odd % 2 else escape(piece, quote=False) for odd, piece in enumerate(pieces)
    )


@cache
def _genres(math: bool, chinese: bool) -> list[str]:
    """Name the genres of a kind and language, in order."""
    names = (name for name, book in books().items() if "title" in book and not name.startswith("shared"))
    return [name for name in names if (name in MATH_GENRES, name.endswith("_zh")) == (math, chinese)]


@cache
def questions(seed: int) -> list[str]:
    """Return the questions that no page may keep."""
    return [problem.question for problem in distinct_problems(seed, "test", QUESTIONS, 0.25)]


def _paragraphs(article: Article) -> Iterator[str]:
    for block in article.blocks:
        match block:
            case Paragraph(text) | Post(_, text):
                yield from text.split("\n")
            case Display(tex):
                yield f"⟦{tex}⟧"
            case Items(entries):
                yield from entries


def _cut(paragraphs: Iterator[str]) -> Iterator[str]:
    """Yield paragraphs until there are enough characters."""
    size = 0
    for one in paragraphs:
        yield one
        size += len(one)
        if size >= LONG:
            return


def _own_page(number: int, seed: int) -> tuple[RowPage, random.Random]:
    """Write a page as if it were no copy, and go on drawing."""
    rng = random.Random(f"{seed}/{number}")
    host = int(rng.paretovariate(TAIL) * 10) % HOSTS
    chinese = host % CHINESE == 3
    math = host % MATH == 0 or host % MIXED == 1 and rng.random() < 0.3
    genre, other = rng.choices(_genres(math, chinese), k=2)
    found = [one for name in (genre, other) for one in _cut(_paragraphs(write_article(rng, name)))]
    if math and rng.random() < LEAKED:
        found.insert(1, rng.choice(questions(seed)))
    return RowPage(f"https://h{host}.example/{genre}/{number}.html", host, math, tuple(found)), rng


def row_page(number: int, seed: int) -> RowPage:
    """Write a page, which may be a copy of one with a smaller number."""
    page, rng = _own_page(number, seed)
    kind = rng.random()
    if not number or kind >= SAME_URL + SAME_TEXT + NEAR:
        return page
    before, _ = _own_page(rng.randrange(number), seed)
    if kind < SAME_URL:
        return replace(page, url=before.url + rng.choice(("", "?utm_source=feed", "#top")), host=before.host)
    copied = (*before.paragraphs, *([f"Copied on day {number}."] if kind >= SAME_URL + SAME_TEXT else []))
    return replace(page, paragraphs=copied, math=before.math)


def write_part(warc: Path, parquet: Path, numbers: range, seed: int) -> None:
    """Write some pages in both forms. Neither file appears before it is complete; `parquet` is the last."""
    if parquet.exists():
        return
    rows: list[dict[str, str]] = []
    with atomic_write(parquet) as table, pq.ParquetWriter(table, ROWS, compression="zstd") as writer:

        def responses() -> Iterator[Response]:
            for number in numbers:
                page = row_page(number, seed)
                rows.append({"url": page.url, "text": page.text})
                if len(rows) == BATCH or number == numbers[-1]:
                    writer.write_table(pa.Table.from_pylist(rows, ROWS))
                    rows.clear()
                headers = (("Content-Type", "text/html; charset=utf-8"),)
                yield Response(page.url, 200, headers, page.html.encode(), DATE, "192.0.2.1")

        partial = warc.parent / "partial" / warc.name  # the file says its own name
        partial.parent.mkdir(parents=True, exist_ok=True)
        write_warc(partial, responses(), DATE, neighbours=False)
        partial.replace(warc)


def write_lists(folder: Path, rows: int, seed: int) -> None:
    """Write the lists that the loop starts from, the review and the benchmark."""
    pages = [row_page(number, seed) for number in range(0, rows, LISTED)]
    seeds = [page.url for page in pages if page.math and page.host % (2 * MATH) == 0]
    background = [page.url for page in pages[::2] if not page.math]
    for name, urls in (("seed_urls.txt", seeds), ("background_urls.txt", background)):
        (folder / name).write_text("".join(f"{url}\n" for url in urls))
    reviewed = [host for host in range(0, HOSTS, REVIEWED) if host % MIXED != 1]
    lines = [
        f"h{host}.example\t{'not_math' if host % MATH else 'math'}\tfrom truth\t2024-04-02\tgenerated\n"
        for host in reviewed
    ]
    (folder / "annotations.tsv").write_text("".join(["prefix\tverdict\tannotator\tdate\tevidence\n", *lines]))
    write_benchmark(folder / "questions.jsonl", distinct_problems(seed, "test", QUESTIONS, 0.25))
