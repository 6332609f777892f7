"""The pages that a classifier learns from: the seed against a general sample (paper section 2.1, step 1).

Negatives are the background pages and those that reviewers rejected. Without a background list they are a
random sample of the pool, as in the paper, without pages of the seed and pages that the previous iteration
kept.
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.shards import read_documents, read_table, shard_paths
from pipeline.common.stage import InputError, Stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.lists import Survivors, current_urls
from pipeline.corpus.normalise import normalise


@dataclass(frozen=True)
class LabelledPage:
    """A page to learn from or to measure on; `text` is normalised."""

    url: str
    host: str
    text: str
    math: bool
    language: str | None = None


def labelled_pages(
    pool: Path,
    survivors: Survivors,
    math: set[str],
    other: set[str],
    everything: bool = False,
    without: Collection[str] = (),
) -> Iterator[LabelledPage]:
    """The pages of the pool whose keys are in `math` (positives) or `other` (negatives); with `everything`,
    all remaining pages as negatives, too; no page whose key is in `without`.
    """
    for shard in shard_paths(pool / "pool"):
        for document in read_documents(shard):
            url, host = document.metadata["url"], document.metadata["host"]
            key = survivors.key(url)
            if key not in without and (everything or key in math or key in other):
                language = document.metadata.get("language")
                yield LabelledPage(url, host, normalise(document.text), key in math, language)


def sampled(pages: list[LabelledPage], most: int, seed: int) -> list[LabelledPage]:
    """At most `most` pages: those whose URLs have the lowest hashes."""
    return sorted(pages, key=lambda page: hashlib.blake2b(f"{seed}:{page.url}".encode()).digest())[:most]


def training_pages(stage: Stage[CorpusSection], survivors: Survivors, unseen: set[str]) -> list[LabelledPage]:
    """Positives and negatives, at most as many as the configuration says, without the pages whose keys are
    in `unseen`. At most twice as many are in memory. Raises InputError if a list has no page in the pool.
    """
    config = stage.config
    lists = ("seed_urls", "background_urls", "not_math_urls")
    math, background, rejected = (survivors.keys(current_urls(stage, name)) for name in lists)
    from_pool = not stage.inputs.get("background_urls")
    kept: set[str] = set()
    if from_pool and "previous" in stage.inputs:
        kept = set(read_table(stage.input("previous") / "kept.parquet", ["url"])["url"].to_pylist())
    most = {True: config.positives, False: config.negatives}
    chosen: dict[bool, list[LabelledPage]] = {True: [], False: []}
    pool, other = stage.input("pool"), background | rejected
    for page in labelled_pages(pool, survivors, math, other, from_pool, unseen):
        if page.math or page.url not in kept:
            chosen[page.math].append(page)
        if len(chosen[page.math]) > 2 * most[page.math]:
            chosen[page.math] = sampled(chosen[page.math], most[page.math], config.seed)
    for name, is_math in (("seed_urls", True), ("background_urls", False)):
        if not chosen[is_math]:
            raise InputError(f"corpus.{name}: none of its URLs is a page of the pool")
    return [page for is_math in chosen for page in sampled(chosen[is_math], most[is_math], config.seed)]
