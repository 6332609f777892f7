"""The generated rows of `make bench-rows` hold what extraction finds in the same pages as WARC files."""

import sys
from pathlib import Path

import pyarrow.parquet as pq
from conftest import ROOT
from deduplication import run_program

from pipeline.crawl import extract
from pipeline.data.shards import read_documents

sys.path.insert(0, str(ROOT / "tests/benchmarks"))
import row_pages

NUMBERS = range(5000, 5200)


def test_a_generated_row_is_the_text_that_extraction_gives_its_page(tmp_path: Path) -> None:
    warc, parquet = tmp_path / "warc/0.warc.gz", tmp_path / "texts/0.parquet"
    row_pages.write_part(warc, parquet, NUMBERS, 0)
    rows = pq.read_table(parquet).to_pylist()
    pages = list(read_documents(run_program(extract.run, tmp_path / "out", warc=[warc]) / "pages.jsonl.zst"))
    assert [(page.metadata["url"], page.text) for page in pages] == [
        (row["url"], row["text"]) for row in rows
    ]
    assert len(rows) == 200 and {page.metadata["language"] for page in pages} == {"en", "zh"}
    markups = [row_pages.MARKUPS[row_pages.row_page(number, 0).host % 4] for number in NUMBERS]
    formulas = {kind for kind, page in zip(markups, pages, strict=True) if "$" in page.text}
    assert formulas == set(row_pages.MARKUPS)
    repeating = sum(f"/{number}.html" not in row["url"] for number, row in zip(NUMBERS, rows, strict=True))
    assert 0 < repeating < 20, "some pages have the address of an earlier one"
