"""Choose the pages that a classifier learns from: the seed against a general sample (paper section 2.1, step
1).

Negatives are the background pages and those that reviewers rejected. Without a background they are a random
sample of the pool, as in the paper, without pages of the seed and pages that the previous iteration kept. A
pool may be full of mathematics, so `held_out.py` leaves no more of the sample than there are positives, those
that a first classifier finds least like the seed. Fewer than `LEAST_POOL` pages are no general sample at all.
Either class may also have texts of other origin: the paper's seed is OpenWebMath's texts, not pages of the
crawl. Another extractor wrote these, and the classifier must not learn to tell extractors apart. So their
formulas first get the delimiters that pages of the pool have; the normaliser drops what else differs most
(numbers, punctuation, layout).

A million pages are 5 GB of text, so texts of the pool stay on disk. Of a sample of the pool a shard gives
only pages that are likely to be in it: those with a low hash.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from webformulas.delimiters import convert, page_delimiters
from webformulas.signs import Source

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import read_documents, rows_of, shard_paths
from pipeline.core.data.workers import map_forked
from pipeline.core.identity import published, read_manifest
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError, Stage, label
from pipeline.corpus.normalise import normalise
from pipeline.corpus.url_lists import LEARNT_FROM, Survivors, current_urls
from pipeline.crawl.opted_out import NOTHING, OptedOut
from pipeline.crawl.urls import normalise_url

LEAST_POOL = 100_000  # pages from which the negatives may be drawn
DRAWN = 2  # times the negatives are drawn from the pool: a first classifier chooses among them
SPARE = 1.5  # times the pages of a sample are read
TEXT_LISTS = {"seed_texts": True, "background_texts": False}  # whether their texts are mathematical


@dataclass(frozen=True)
class Stored:
    """A text in a file: where it begins, and its bytes."""

    file: Path
    offset: int
    size: int


@dataclass(frozen=True)
class LabelledPage:
    """A page to learn from or to measure on, and its normalised text."""

    url: str
    host: str
    content: str | Stored
    math: bool
    language: str | None = None

    @property
    def text(self) -> str:
        """The normalised text."""
        if isinstance(self.content, str):
            return self.content
        with self.content.file.open("rb") as file:
            file.seek(self.content.offset)
            return file.read(self.content.size).decode()


@dataclass(frozen=True)
class Wanted:
    """Selects pages of the pool to label. `math`, `other`: keys of positives and negatives; `everything`:
    all other pages are negatives, too, except those that the selection in the folder `kept` keeps; `without`:
    keys of pages that are neither; `most`: so many of each class, those whose URLs have the lowest hashes;
    `below`: only negatives with a hash in this first part of all; `opted_out`: pages that are neither.
    """

    math: Collection[str]
    other: Collection[str]
    most: tuple[int, int]  # negatives, positives
    everything: bool = False
    kept: Path | None = None
    without: Collection[str] = ()
    seed: int = 0
    below: float = 1.0
    opted_out: OptedOut = NOTHING

    def place(self, url: str) -> bytes:
        """Return the hash that orders pages."""
        return hashlib.blake2b(f"{self.seed}:{url}".encode()).digest()

    def may_be(self, url: str, math: bool) -> bool:
        """Whether a page's hash is low enough."""
        return math or self.below == 1 or int.from_bytes(self.place(url)[:8], "big") < self.below * 2**64

    def sampled(self, pages: Iterable[LabelledPage]) -> list[LabelledPage]:
        """Return the positives, then the negatives, as many as are wanted, in the order of a hash of the
        URL.
        """
        classes: dict[bool, list[LabelledPage]] = {True: [], False: []}
        for page in pages:
            classes[page.math].append(page)
            if len(classes[page.math]) > 2 * self.most[page.math]:
                classes[page.math] = self._lowest(classes[page.math], page.math)
        return [page for math, found in classes.items() for page in self._lowest(found, math)]

    def _lowest(self, pages: list[LabelledPage], math: bool) -> list[LabelledPage]:
        return sorted(pages, key=lambda page: self.place(page.url))[: self.most[math]]


def pages_of_shard(shard: Path, wanted: Wanted, texts: Path) -> list[LabelledPage]:
    """Return the wanted pages of one shard; their texts go to a file in the folder `texts`."""
    place, kept = texts / shard.name, set[str]()
    if wanted.kept:
        kept.update(rows_of(wanted.kept / "kept.parquet", shard.name, ["url"])["url"].to_pylist())

    def chosen() -> Iterator[LabelledPage]:
        for document in read_documents(shard):
            url, host = document.metadata["url"], document.metadata["host"]
            key = normalise_url(url)
            math = key in wanted.math
            rest = key in wanted.other or wanted.everything
            if key in wanted.without or not (math or (rest and url not in kept)):
                continue
            if wanted.may_be(url, math) and not wanted.opted_out.covers(url):
                text = normalise(document.text).encode()
                content = Stored(place, file.tell(), len(text))
                file.write(text)
                yield LabelledPage(url, host, content, math, document.metadata.get("language"))

    with place.open("wb") as file:
        return wanted.sampled(chosen())


def pages_of_pool(stage: Stage[CorpusSection], wanted: Wanted) -> list[LabelledPage]:
    """Read the wanted pages of the pool, each thread a shard; their texts stay in the work folder."""
    texts = stage.work / "texts"
    texts.mkdir(parents=True, exist_ok=True)
    shards = shard_paths(stage.input("pool") / "pool")

    def read() -> Iterator[LabelledPage]:
        by_shard = partial(pages_of_shard, wanted=wanted, texts=texts)
        for pages in map_forked(by_shard, shards, stage.launch.get("threads", 1)):
            yield from pages
            bar.update()

    with Progress(f"{label(stage)}: reads the pool", len(shards), unit="shard") as bar:
        return wanted.sampled(read())


def example_texts(inputs: dict[str, list[str]], config: CorpusSection) -> list[LabelledPage]:
    """Draw texts of the inputs `seed_texts` and `background_texts`, as many as a class may have, by a hash of
    the URL or, without one, of the row's number; only they are normalised. Raises InputError.
    """
    wanted = Wanted((), (), (config.negatives, config.positives), seed=config.seed)
    rows = (row for key in TEXT_LISTS for row in read_examples(inputs, key))
    opted_out = OptedOut.of(inputs)
    drawn = wanted.sampled(row for row in rows if not opted_out.covers(row.url))
    return [replace(page, content=like_a_page(page.text)) for page in drawn]


def like_a_page(text: str) -> str:
    """Bring a text of any extractor into the form in which the classifier sees a page of the pool."""
    return normalise(convert(text, page_delimiters(Source(""))))


def read_examples(inputs: dict[str, list[str]], key: str) -> Iterator[LabelledPage]:
    """Read the texts of an input. Where a row has no URL, its number stands for one, so that a result is the
    same wherever its files lie.
    """
    for number, source in enumerate(inputs.get(key, [])):
        for count, (place, row) in enumerate(read_rows(source), start=1):
            texts = row.get("text"), row.get("url") or "", row.get("language") or ""
            if not all(isinstance(text, str) for text in texts):
                raise InputError(
                    f"{place}: corpus.{key} needs rows with `text`, perhaps `url` and `language`"
                )
            url = row.get("url") or f"{key}-{number}/{count}"
            host = normalise_url(url).partition("/")[0]
            yield LabelledPage(url, host, row["text"], TEXT_LISTS[key], row.get("language"))


def wanted_pages(
    stage: Stage[CorpusSection], survivors: Survivors, texts: list[LabelledPage], learnt: Path
) -> Wanted:
    """Choose the pages of the pool to train on: `texts`, further examples; `learnt`, a folder with the lists
    of a new round of review. Raises InputError for a pool that is no general sample.
    """
    config, size = stage.config, _pages_in(stage.input("pool"))
    urls = (current_urls(stage, name, learnt) for name in LEARNT_FROM)
    math, background, rejected = map(survivors.keys, urls)
    from_pool = not (stage.inputs.get("background_urls") or stage.inputs.get("background_texts"))
    if from_pool and 0 < size < LEAST_POOL:
        raise InputError(
            f"corpus.background_urls: none, and a pool of {size:,} pages is no general sample, as one of"
            f" {LEAST_POOL:,} is: list other pages there, or name background_texts"
        )
    kept = stage.input("previous") if from_pool and "previous" in stage.inputs else None
    unseen = {normalise_url(text.url) for text in texts if "://" in text.url} if from_pool else set[str]()
    most = (config.negatives * (DRAWN if from_pool else 1), config.positives)
    below = min(1.0, SPARE * most[0] / size) if from_pool and size else 1.0
    others, opted_out = background | rejected, OptedOut.of(stage.inputs)
    return Wanted(math, others, most, from_pool, kept, unseen, config.seed, below, opted_out)


def training_pages(
    stage: Stage[CorpusSection], wanted: Wanted, texts: list[LabelledPage]
) -> list[LabelledPage]:
    """Positives and negatives, `texts` and the wanted pages of the pool, at most as many as the configuration
    says. Raises InputError if a list has no page in the pool, or a class has no list.
    """
    pages = pages_of_pool(stage, wanted)
    if wanted.below < 1 and sum(not page.math for page in pages) < wanted.most[False]:
        pages = pages_of_pool(stage, replace(wanted, below=1.0))
    for name, is_math in (("seed_urls", True), ("background_urls", False)):
        if not any(page.math == is_math for page in [*pages, *texts]):
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    return wanted.sampled([*pages, *texts]) if texts else pages


def _pages_in(pool: Path) -> int:
    """Return the number of pages of the pool; 0 where it is not known."""
    result = published(pool)
    return read_manifest(result[1])["counts"].get("kept", 0) if result else 0
