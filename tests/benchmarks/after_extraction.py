"""Signatures, decontamination and later iterations beside their peers: the other rows of `make bench-corpus`.

The same pages for all, one core, CPU seconds. Peers are datatrove's MinhashDedupSignature with as many
hashes, and its NGramsDecontFilter with 10-grams and an index built by its own hashing; both read documents
from memory. The verdicts of both sides on known pairs are printed with the speeds.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from extraction import RUNS, seconds, speed
from sources import Sources
from stock_minhash import minhash_config
from table import ROOT, Row, row_of

from pipeline.config.crawl import CrawlSection
from pipeline.corpus.classifier import MATH, OTHER, PageScorer
from pipeline.corpus.normalise import normalise
from pipeline.crawl.extract import extract_file
from pipeline.crawl.signatures import SHINGLE, MinHasher
from pipeline.crawl.warc import ReadCounts
from pipeline.data.shards import DocumentWriter, read_documents
from pipeline.decontaminate.ngrams import BenchmarkIndex

PEER_PAGES = 60  # the peers are slow, and their speed does not depend on how many pages there are
PAPER_MODEL = {"dim": 256, "wordNgrams": 3, "bucket": 2_000_000, "minCount": 1, "epoch": 1, "thread": 1}
WORKERS = 3


@dataclass
class Page:
    """What datatrove's blocks need of a document."""

    text: str
    id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def page_texts(path: Path, without: Collection[str] = ()) -> list[str]:
    """The texts of the pages of a WARC file but for those of some URLs."""
    found = (document for _, document in extract_file(str(path), CrawlSection(), ReadCounts()))
    return [page.text for page in found if page is not None and page.metadata["url"] not in without]


def variants(text: str) -> list[tuple[str, bool]]:
    """(changed text, whether most of it is the same) of a page."""
    words = text.split(" ")
    every = range(len(words))
    few = " ".join("changed" if number % 40 == 7 else words[number] for number in every)
    many = " ".join("changed" if number % 2 else words[number] for number in every)
    return [(f"Skip to content\n{text}", True), (few, True), (many, False)]


def grouped(one: np.ndarray, other: np.ndarray, buckets: int) -> bool:
    """Whether two signatures share a whole band."""
    return bool((one.reshape(buckets, -1) == other.reshape(buckets, -1)).all(axis=1).any())


def signature_rows(texts: list[str], folder: Path) -> list[Row]:
    """Pages a second, files included, and verdicts on pages changed a little or a lot."""
    from datatrove.pipeline.dedup.minhash import MinhashDedupSignature

    config = CrawlSection()
    hasher = MinHasher(SHINGLE, config.buckets * config.hashes_per_bucket, config.seed)
    peer = MinhashDedupSignature(str(folder / "signatures"), minhash_config(config))
    peer._hash_func = lambda text: xxhash.xxh32_intdigest(text.encode())  # its own call fails: str given
    peer.get_shingles("loads the tokeniser")
    some = texts[:: max(1, len(texts) // PEER_PAGES)]
    hasher.signature(texts[0])
    ours = cpu(lambda: [hasher.signature(text) for text in texts]) / len(texts)
    theirs = cpu(lambda: [peer.get_signature(peer.get_shingles(text)) for text in some]) / len(some)
    right = {"ours": 0, "datatrove": 0}
    pairs = [(text, *change) for text in some[::3] for change in variants(text)]
    for text, changed, same in pairs:
        signatures = [hasher.signature(text), hasher.signature(changed)]
        verdict = grouped(*signatures, config.buckets)
        similar = (signatures[0] == signatures[1]).mean() >= config.min_similarity
        right["ours"] += (verdict and similar) == same
        both = [
            np.array(peer.get_signature(peer.get_shingles(content))).ravel() for content in (text, changed)
        ]
        right["datatrove"] += grouped(*both, config.buckets) == same
    print(
        f"verdicts on {len(pairs)} pairs of pages, right: " + ", ".join(f"{k} {v}" for k, v in right.items())
    )
    name, shares = "datatrove MinhashDedupSignature", [100 * count / len(pairs) for count in right.values()]
    return [
        speed(f"MinHash signatures, {len(hasher.factors)} hashes", 1, ours, theirs, name),
        row_of("near-duplicate verdicts that are right", "% of pairs", *shares, name, rate=True),
    ]


def stock_decontamination(items: list[tuple[str, str, str]]) -> Any:
    """datatrove's filter with an index of all items; its check for lighteval, unused here, is passed by."""
    from datatrove.pipeline.decont import n_grams as module

    config = module.NGramsDecontConfig(n_grams=10, find_query_ngrams=True)
    for block in (module.NGramsDecontIndexer, module.NGramsDecontFilter):
        block._requires_dependencies = []
    indexer = module.NGramsDecontIndexer("memory://index", config=config)
    block = module.NGramsDecontFilter("memory://index", config=config)
    for part in (indexer, block):
        part.hash_func = lambda text: xxhash.xxh64_intdigest(text.encode())  # its own call fails: str given
    hashes = (value for _, question, answer in items for value in indexer.compute_hashes(answer, question))
    block._index_hashes = dict.fromkeys(hashes, "all")
    return block


def decontamination_rows(texts: list[str], items: list[tuple[str, str, str]]) -> list[Row]:
    """Pages a second, and verdicts on pages with a question put in."""
    index = BenchmarkIndex(10, 3)
    for number, (name, question, answer) in enumerate(items):
        index.add(name, str(number), question)
        index.add(name, str(number), answer, is_question=False)
    index.build()
    peer = stock_decontamination(items)
    some = texts[:: max(1, len(texts) // PEER_PAGES)]
    index.matches(texts[0])
    ours = cpu(lambda: [index.matches(text) for text in texts]) / len(texts)
    theirs = cpu(lambda: [peer.filter(Page(text)) for text in some]) / len(some)
    planted = [item[1] for item in items[:: max(1, len(items) // 200)]]
    leaks = [f"{some[number % len(some)][:2000]}\n{text}\nThe end." for number, text in enumerate(planted)]
    found = {
        "ours": sum(bool(index.matches(page)) for page in leaks),
        "datatrove": sum(peer.filter(Page(page)) is not True for page in leaks),
    }
    print(f"{len(leaks)} planted questions, found: " + ", ".join(f"{k} {v}" for k, v in found.items()))
    flagged = [
        sum(bool(index.matches(text)) for text in some),
        sum(peer.filter(Page(text)) is not True for text in some),
    ]
    print(f"{len(some)} pages as they are, flagged: ours {flagged[0]}, datatrove {flagged[1]}")
    name, shares = "datatrove NGramsDecontFilter", [100 * number / len(leaks) for number in found.values()]
    return [
        speed("decontamination, 10-grams", 1, ours, theirs, name),
        row_of("planted questions found", "%", *shares, name, rate=True),
    ]


def iteration_rows(path: Path, texts: list[str], folder: Path) -> list[Row]:
    """CPU time of a later iteration, which scores the pool's cached text with the paper's classifier, as a
    share of the first one's, which also reads the WARC file, extracts, and computes signatures.

    Of each part the best of several runs; the classifier starts each with no word looked up. Left out are
    what both do alike whatever the number of pages: starting, training and loading. What the share consists
    of is printed.
    """
    import fasttext

    model = fasttext.load_model(str(paper_model(texts, folder)))
    config, shard = CrawlSection(), folder / "pages.jsonl.zst"
    hasher = MinHasher(SHINGLE, config.buckets * config.hashes_per_bucket, config.seed)

    def extract() -> None:
        with DocumentWriter(shard) as writer:
            for _, document in extract_file(str(path), config, ReadCounts()):
                if document is not None:
                    writer.write(document)

    def once() -> list[float]:
        scorer = PageScorer(model)
        lines: list[str] = []
        works: list[Callable[[], object]] = [
            extract,
            lambda: [hasher.signature(document.text) for document in read_documents(shard)],
            lambda: list(read_documents(shard)),
            lambda: lines.extend(normalise(document.text) for document in read_documents(shard)),
            lambda: [scorer(line) for line in lines],
        ]
        return [seconds(work) for work in works]  # extraction works in children

    parts = [min(times) for times in zip(*(once() for _ in range(RUNS)), strict=True)]
    names = (
        "read, extract and write",
        "signatures",
        "(of the next: read the pool)",
        "read and normalise",
        "score",
    )
    print("first iteration, CPU s: " + ", ".join(f"{n} {p:.2f}" for n, p in zip(names, parts, strict=True)))
    again = parts[3] + parts[4]
    share = 100 * again / (parts[0] + parts[1] + again)
    what = "a later iteration, share of the first one's time"
    return [row_of(what, "% of CPU time", share, 15, "limit", rate=False)]


def paper_model(texts: list[str], folder: Path) -> Path:
    """A classifier of the paper's shape (256 dimensions, 2,000,000 buckets: 2 GB) of these pages."""
    import fasttext

    path = folder / "train/classifier.bin"
    if not path.exists():
        path.parent.mkdir()
        lines = (
            f"{MATH if number % 2 else OTHER} {normalise(text)[:2000]}\n" for number, text in enumerate(texts)
        )
        (folder / "lines").write_text("".join(lines))
        fasttext.train_supervised(str(folder / "lines"), verbose=0, **PAPER_MODEL).save_model(str(path))
    return path


def memory_rows(texts: list[str], folder: Path) -> list[Row]:
    """Memory that each further worker of a machine has for itself with the paper's classifier; MB."""
    model = paper_model(texts, folder)
    done = subprocess.run(
        [sys.executable, __file__, "--workers", str(model)],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    private = float(done.stdout.split()[-1])
    size = model.stat().st_size / 1e6
    what, name = "memory of each further scoring worker", "a model for each worker"
    return [row_of(what, "MB", max(private, 1), size, name, rate=False)]


def measure_workers(model: Path) -> None:
    """Print how much memory of its own a worker has that scores with the parent's model."""
    import fasttext

    from pipeline.data.workers import map_forked

    scorer = PageScorer(fasttext.load_model(str(model)))

    def own_memory(number: int) -> float:
        for place in range(200):
            scorer(f"let x {number} be a prime number {place}")
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1000

    print(max(map_forked(own_memory, range(WORKERS * 2), WORKERS)))


def rows(sources: Sources, folder: Path) -> list[Row]:
    """All rows of this part."""
    os.environ["OMP_NUM_THREADS"] = "1"
    texts = page_texts(sources.warc)
    found = signature_rows(texts, folder) + iteration_rows(sources.warc, texts, folder)
    found += memory_rows(texts, folder)
    searched = f"{sources.pages}, {sources.questions}"
    leaks = [row | {"data": searched} for row in decontamination_rows(texts, sources.items)]
    return [row | {"data": sources.pages} for row in found] + leaks


if __name__ == "__main__" and sys.argv[1:2] == ["--workers"]:
    measure_workers(Path(sys.argv[2]))
