"""The two orders of the crawl: all pages are hashed, or those with a sign of mathematics, dump by dump."""

import json
from collections import Counter
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import pytest
from crawl_warcs import WEB, record, write_warc
from given.cases import cases
from given.instances import graph_of
from killing import survives_loss_and_kills

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import read_documents, read_table, tables
from pipeline.core.stage import run_stage
from pipeline.crawl.extract import extract_page
from pipeline.crawl.mathematics import has_mathematics
from pipeline.crawl.warc import ReadCounts, read_pages
from workflow.instances import Instance, Result

TABLES = cases("mathematics")


@pytest.mark.parametrize("text", TABLES["signs"])
def test_a_sign_of_mathematics_in_any_language(text: str) -> None:
    assert has_mathematics(text)


@pytest.mark.parametrize("text", TABLES["none"])
def test_other_texts_have_none(text: str) -> None:
    assert not has_mathematics(text)


def chosen_on(host: str) -> bool:
    """Whether the words of the filter were chosen on this host's half; hosts of one owner are one."""
    site = ".".join(host.removesuffix(".github.io").split(".")[-2:])
    return blake2b(site.encode()).digest()[0] % 2 == 0


@pytest.mark.skipif(not WEB.exists(), reason="needs the labelled real pages")
def test_hardly_a_mathematical_page_of_sites_that_no_word_was_chosen_on_is_lost() -> None:
    rows = map(json.loads, (WEB / "labels.jsonl").read_text().splitlines())
    math = {row["url"] for row in rows if row["label"] == "math" and not chosen_on(row["host"])}
    pages = [
        page
        for page in read_pages(str(WEB / "pages-00.warc.gz"), 10_000_000, ReadCounts())
        if (page.url or b"").decode() in math
    ]
    tried = [extract_page(str(n), page, CrawlSection(order="math_first"))[0] for n, page in enumerate(pages)]
    outcomes = Counter(row["reason"] for row in tried)
    assert len(pages) > 20 and outcomes["no_mathematics"] <= 0.05 * len(pages), outcomes


TOPICS = ("theorem", "equation", "council", "market")  # two of them are mathematics
# (page, the page whose words it has) of two dumps: copies in a dump, of another dump, and of such a copy
DUMPS = {
    "first": [(0, 0), (1, 0), (2, 2), (3, 3)],
    "second": [(4, 4), (5, 0), (6, 0), (7, 2), (8, 3), (9, 9)],
}


def body(words: int) -> bytes:
    """Text of its own, on a topic."""
    topic = TOPICS[words % len(TOPICS)]
    text = " ".join(f"{topic} number{words} word{chr(97 + n)}{words}" for n in range(26))
    return f"<html><head><title>Page</title></head><body><p>{text}</p></body></html>".encode()


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A list of the WARC file of each dump."""
    folder = tmp_path_factory.mktemp("dumps")
    for name, pages in DUMPS.items():
        records = [record(f"http://{name}.org/{page}", body(words) + b" " * page) for page, words in pages]
        write_warc(folder / f"{name}.warc.gz", records)
        (folder / f"{name}.paths").write_text(f"{folder / name}.warc.gz\n")
    return [str(folder / f"{name}.paths") for name in DUMPS]


def crawl_of(order: str, warc: list[str]) -> dict[str, Instance]:
    """The instances of stage crawl."""
    crawl = {"warc": warc, "order": order, "buckets": 4, "pool_shards": 2}
    return {name: node for name, node in graph_of(crawl=crawl).nodes.items() if node.stage == "crawl"}


def make(node: Instance, folder: Path) -> None:
    """Run an instance here, among the results in `folder`."""
    words = ["--instance", node.instance, "--config", json.dumps(node.section)]
    for key, source in node.inputs:
        path = folder / source.node / source.path if isinstance(source, Result) else source
        words += ["--input", f"{key}={path}"]
    words += ["--output", str(folder / node.name)]
    run_stage("crawl", node.kind, import_module(node.module).run, words)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, lists: list[str]):
    """Runs an order's instances; returns the folder of their results."""

    @cache
    def run(order: str) -> Path:
        folder = tmp_path_factory.mktemp(order)
        for node in crawl_of(order, lists).values():
            make(node, folder)
        return folder

    return run


def counts_of(folder: Path, program: str) -> Counter[str]:
    """Sums of the counts of a program's results."""
    paths = (folder / "crawl").glob(f"{program}*/manifest.json")
    return sum((Counter(json.loads(path.read_text())["counts"]) for path in paths), Counter())


def pool_of(folder: Path) -> set[str]:
    """URLs of the pages in the pool."""
    shards = sorted((folder / "crawl/dedup/pool").iterdir())
    return {document.metadata["url"] for shard in shards for document in read_documents(shard)}


def test_each_dump_is_a_part_of_the_graph_of_its_own_in_math_first_alone(lists: list[str]) -> None:
    paper, math, one = (
        crawl_of("paper", lists),
        crawl_of("math_first", lists),
        crawl_of("math_first", lists[:1]),
    )
    assert [name for name in paper if name.startswith("crawl/exact")] == ["crawl/exact"]
    exact = [name for name in math if name.startswith("crawl/exact")]
    assert len(exact) == 3 and exact[-1] == "crawl/exact"
    assert [len(math[name].inputs) for name in exact] == [1, 1, 2]
    read = [key for key, _ in math["crawl/dedup"].inputs]
    assert read == ["dump.0000", "dump.0001", "filter", "filter"]
    assert [key for key, _ in one["crawl/dedup"].inputs] == ["filter"] and "crawl/exact" not in one
    earlier = one.keys() - {"crawl/dedup"}
    assert len(earlier) == 6 and all(math[name] == one[name] for name in earlier), "a dump added later"


def test_math_first_hashes_only_pages_with_a_sign_of_mathematics_and_keeps_the_same_of_them(made) -> None:
    paper, math = made("paper"), made("math_first")
    records = sum(map(len, DUMPS.values()))
    assert counts_of(paper, "extract")["pages"] == counts_of(paper, "sign")["pages"] == records
    dropped = counts_of(math, "extract")["rejected_no_mathematics"]
    topics = [TOPICS[words % len(TOPICS)] for pages in DUMPS.values() for _, words in pages]
    assert dropped == sum(topic in TOPICS[2:] for topic in topics) > 0
    extracts = [path.name.partition("-")[2] for path in (math / "crawl").glob("extract-*")]
    signed = [counts_of(math, f"sign-{shard}")["pages"] for shard in extracts]
    assert sum(signed) == counts_of(math, "extract")["pages"] == records - dropped
    kept = {url for url in pool_of(paper) if TOPICS.index(topic_of(url)) < 2}
    assert pool_of(math) == kept and len(kept) == 3


def topic_of(url: str) -> str:
    """The topic of a page by its URL."""
    name, _, page = url.removeprefix("http://").partition(".org/")
    return TOPICS[dict(DUMPS[name])[int(page)] % len(TOPICS)]


def test_a_page_removed_in_its_dump_names_the_page_that_stays_of_all_dumps(made) -> None:
    folder, pool = made("math_first"), pool_of(made("math_first"))
    parts = [read_table(part).to_pylist() for part in tables(folder / "crawl/dedup", "duplicates")]
    rows = [row for part in parts for row in part]
    assert [len(part) for part in parts] == [0, 1, 1, 1], "of two shards, and of each dump"
    stays = {row["url"]: row["duplicate_of_url"] for row in rows}
    first = "http://first.org/0"
    assert stays == {"http://first.org/1": first} | {f"http://second.org/{page}": first for page in (5, 6)}
    assert set(stays.values()) <= pool and not pool & stays.keys()
    counts = json.loads((folder / "crawl/dedup/manifest.json").read_text())["counts"]
    assert counts["pages"] == counts["kept"] + len(rows) and counts["kept"] == len(pool)


def test_a_pool_of_dumps_that_is_lost_or_killed_is_made_again(made, lists: list[str]) -> None:
    folder, node = made("math_first"), crawl_of("math_first", lists)["crawl/dedup"]
    survives_loss_and_kills(partial(make, node, folder), folder / node.name, numbers=range(1, 5))
