"""The pages that a classifier learns from: the seed against a general sample (paper section 2.1, step 1).

Negatives are the background pages and those that reviewers rejected. Without a background they are a random
sample of the pool, as in the paper, without pages of the seed and pages that the previous iteration kept.
Either class may also have texts of other origin (`texts.py`).

A million pages are 5 GB of text, so texts of the pool stay on disk. Of a sample of the pool a shard gives
only pages that are likely to be in it: those with a low hash. Of a large pool jobs of `read` have found the
pages that `wanted` names, each in a part of the pool.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.lists import LEARNT_FROM, Survivors, current_urls
from pipeline.corpus.normalise import normalise
from pipeline.crawl.urls import normalise_url
from pipeline.data.shards import read_batches, read_documents, rows_of, shard_paths
from pipeline.protocol.identity import published, read_manifest
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import InputError, Stage, label

SPARE = 1.5  # times the pages of a sample are read
TRAINING = "training"  # what training pages are wanted for
NOTES, TABLE = "wanted.json", "examples.parquet"  # of `wanted`, of `read`
ROWS = 1024  # texts of such a table in memory


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
    grade: float | None = None

    @property
    def target(self) -> float:
        """What the second stage learns of the page, from -1 to 1: its grade, else the verdict."""
        return (1.0 if self.math else -1.0) if self.grade is None else self.grade

    @property
    def text(self) -> str:
        """The normalised text."""
        if isinstance(self.content, str):
            return self.content
        with self.content.file.open("rb") as file:
            file.seek(self.content.offset)
            return file.read(self.content.size).decode()


WANTED: "Wanted"  # of this process and of those forked from it
TEXTS: Path  # likewise: where texts are kept


@dataclass(frozen=True)
class Wanted:
    """Which pages of the pool are labelled, by their keys: those of `math` are positives, those of `other`
    negatives, with `everything` all remaining ones, too, except those that the selection in the folder `kept`
    keeps. None is in `without`. At most so many of either class as `most` says: those whose URLs have the
    lowest hashes, of negatives only hashes in the first part `below` of all.
    """

    math: Collection[str]
    other: Collection[str]
    everything: bool = False
    kept: Path | None = None
    without: Collection[str] = ()
    most: tuple[int, int] | None = None  # negatives, positives
    seed: int = 0
    below: float = 1.0

    def place(self, url: str) -> bytes:
        """The hash that orders pages."""
        return hashlib.blake2b(f"{self.seed}:{url}".encode()).digest()

    def may_be(self, url: str, math: bool) -> bool:
        """Whether a page's hash is low enough."""
        return math or self.below == 1 or int.from_bytes(self.place(url)[:8], "big") < self.below * 2**64

    def sampled(self, pages: Iterable[LabelledPage]) -> list[LabelledPage]:
        """The positives, then the negatives, as many as are wanted, in the order of a hash of the URL; all
        pages as they come where no number is given.
        """
        if self.most is None:
            return list(pages)
        classes: dict[bool, list[LabelledPage]] = {True: [], False: []}
        for page in pages:
            classes[page.math].append(page)
            if len(classes[page.math]) > 2 * self.most[page.math]:
                classes[page.math] = self._lowest(classes[page.math], page.math)
        return [page for math, found in classes.items() for page in self._lowest(found, math)]

    def _lowest(self, pages: list[LabelledPage], math: bool) -> list[LabelledPage]:
        return sorted(pages, key=lambda page: self.place(page.url))[: self.most[math]]


def share(wanted: Wanted, texts: Path) -> None:
    """Keep what `of_shard` uses; forked processes share its memory."""
    global WANTED, TEXTS
    WANTED, TEXTS = wanted, texts


def kept_of(select: Path, shard: str) -> set[str]:
    """URLs of the pages of a shard that a selection keeps."""
    return set(rows_of(select, "kept", shard, ["url"])["url"].to_pylist())


def of_shard(shard: Path) -> list[LabelledPage]:
    """The wanted pages of one shard; their texts go to a file."""
    place = TEXTS / shard.name
    kept = kept_of(WANTED.kept, shard.name) if WANTED.kept else set()

    def found() -> Iterator[LabelledPage]:
        for document in read_documents(shard):
            url, host = document.metadata["url"], document.metadata["host"]
            key = normalise_url(url)
            math = key in WANTED.math
            rest = key in WANTED.other or WANTED.everything
            if key in WANTED.without or not (math or (rest and url not in kept)):
                continue
            if WANTED.may_be(url, math):
                text = normalise(document.text).encode()
                content = Stored(place, file.tell(), len(text))
                file.write(text)
                yield LabelledPage(url, host, content, math, document.metadata.get("language"))

    with place.open("wb") as file:
        return WANTED.sampled(found())


def labelled_pages(
    shards: list[Path], wanted: Wanted, processes: int, said: str, texts: Path
) -> list[LabelledPage]:
    """The wanted pages of some shards; `processes` of them are read at a time. `said`: what lines on progress
    say; `texts`: a folder for the texts, which must stay as long as the pages.
    """
    texts.mkdir(parents=True, exist_ok=True)

    def read() -> Iterator[LabelledPage]:
        for pages in workers.map(of_shard, shards):
            yield from pages
            bar.update()

    with (
        ProcessPoolExecutor(processes, get_context("fork"), share, (wanted, texts)) as workers,
        Progress(f"{said}: reads the pool", len(shards), unit="shard") as bar,
    ):
        return wanted.sampled(read())


def pages_of_pool(stage: Stage[CorpusSection], purpose: str, wanted: Wanted) -> list[LabelledPage]:
    """The pages of the pool that are wanted for a purpose: what `read` found, or those that are read here."""
    texts = stage.work / "texts" / purpose
    if "examples" in stage.inputs:
        texts.mkdir(parents=True, exist_ok=True)
        tables = [Path(path) / TABLE for path in stage.inputs["examples"]]
        return wanted.sampled(_found(tables, purpose, texts / TABLE))
    return read_here(stage, purpose, wanted)


def read_here(stage: Stage[CorpusSection], purpose: str, wanted: Wanted) -> list[LabelledPage]:
    """The wanted pages of the whole pool."""
    shards, said = shard_paths(stage.input("pool") / "pool"), f"{label(stage)}: pages for {purpose}"
    return labelled_pages(
        shards, wanted, stage.launch.get("threads", 1), said, stage.work / "texts" / purpose
    )


def _found(tables: list[Path], purpose: str, place: Path) -> Iterator[LabelledPage]:
    """The pages that `read` found for a purpose, in the order of the pool; their texts go to a file."""
    with place.open("wb") as file:
        for path in tables:
            for batch in read_batches(path, ROWS):
                for row in batch.to_pylist():
                    if row["purpose"] == purpose:
                        text = row["text"].encode()
                        content = Stored(place, file.tell(), len(text))
                        file.write(text)
                        yield LabelledPage(row["url"], row["host"], content, row["math"], row["language"])


def wanted_pages(
    stage: Stage[CorpusSection],
    survivors: Survivors,
    unseen: set[str],
    texts: list[LabelledPage],
    learnt: Path,
) -> Wanted:
    """The pages of the pool to train on: `unseen`, keys of others that are not; `texts`, further examples;
    `learnt`, a folder with the lists of a new round of review.
    """
    config = stage.config
    urls = (current_urls(stage, name, learnt) for name in LEARNT_FROM)
    math, background, rejected = map(survivors.keys, urls)
    from_pool = not (stage.inputs.get("background_urls") or stage.inputs.get("background_texts"))
    kept = stage.input("previous") if from_pool and "previous" in stage.inputs else None
    if from_pool:
        unseen = unseen | {normalise_url(text.url) for text in texts if "://" in text.url}
    most = config.negatives, config.positives
    below = _part_of_pool(stage.input("pool"), config.negatives) if from_pool else 1.0
    return Wanted(math, background | rejected, from_pool, kept, unseen, most, config.seed, below)


def training_pages(
    stage: Stage[CorpusSection], wanted: Wanted, texts: list[LabelledPage]
) -> list[LabelledPage]:
    """Positives and negatives, `texts` and the wanted pages of the pool, at most as many as the configuration
    says. Raises InputError if a list has no page in the pool, or a class has no list.
    """
    pages = pages_of_pool(stage, TRAINING, wanted)
    if wanted.below < 1 and sum(not page.math for page in pages) < stage.config.negatives:
        pages = read_here(stage, TRAINING, replace(wanted, below=1.0))
    for name, is_math in (("seed_urls", True), ("background_urls", False)):
        if not any(page.math == is_math for page in [*pages, *texts]):
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    return wanted.sampled([*pages, *texts]) if texts else pages


def _part_of_pool(pool: Path, pages: int) -> float:
    """The part of the pool that holds a sample of so many pages, with some to spare."""
    found = published(pool)
    size = read_manifest(found[1])["counts"].get("kept", 0) if found else 0
    return min(1.0, SPARE * pages / size) if size else 1.0
