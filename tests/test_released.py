"""What a released corpus needs: compositions, pages that opted out, what pages say of their rights."""

from pathlib import Path

import pytest
from datatrove.data import Document
from given.cases import cases
from webformulas.signs import Source

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.shards import DocumentWriter, read_documents
from pipeline.crawl.opted_out import OptedOut
from pipeline.crawl.rights import rights
from pipeline.decontaminate.clean import PAGES, Cleaned, clean_shard
from pipeline.decontaminate.ngrams import BenchmarkIndex

TABLES = cases("released")


def test_compositions_of_clean_shards_add_up(tmp_path: Path) -> None:
    with DocumentWriter(tmp_path / "0000.jsonl.zst") as writer:
        for number in range(3):
            licence = {"licence": "https://creativecommons.org/licenses/by/4.0/"} if number else {}
            writer.write(Document(f"Proof {number}.", f"p{number}", metadata={"host": "h"} | licence))
    index, config = BenchmarkIndex(10, 3), DecontaminateSection()
    found = clean_shard(tmp_path / "0000.jsonl.zst", None, tmp_path / "out", index, config)
    again = Cleaned.read(tmp_path / "out").composition
    again += found.composition
    assert again.pages == 6 and again.by["licence"].total() == 4


def test_the_pages_of_a_whole_pool_are_clean_of_those_that_opted_out(tmp_path: Path) -> None:
    with DocumentWriter(tmp_path / "0000.jsonl.zst") as writer:
        for host in ("a.example", "b.example"):
            writer.write(Document("A proof.", host, metadata={"url": f"https://{host}/1", "host": host}))
    index, opted_out = BenchmarkIndex(10, 3), OptedOut(domains=["a.example"])
    clean_shard(tmp_path / "0000.jsonl.zst", None, tmp_path, index, DecontaminateSection(), opted_out)
    assert [page.id for page in read_documents(tmp_path / PAGES)] == ["b.example"]


@pytest.mark.parametrize(("html", "notes"), TABLES["rights"])
def test_what_a_page_says_of_its_licence_and_to_robots_is_noted(html: str, notes: str | None) -> None:
    assert list(rights(Source(f"<html><head>{html}</head></html>"))) == ([notes] if notes else [])


def test_hostile_html_takes_no_time_in_the_search_for_rights() -> None:
    assert rights(Source("<meta license " * 20000)) == rights(Source("<" * 100_000 + "license")) == {}
