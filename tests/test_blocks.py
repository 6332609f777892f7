"""Blocks for datatrove's pipelines do what the stages do, in a folder outside of the project; and filters of
the user's own, or of datatrove, are part of extraction."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crawl_warcs import FILLER
from datatrove.data import Document
from deduplication import run_program
from given.cases import cases
from given.corpora import corpus_of, rows_of, train_classifier
from given.instances import graph_of
from given.lines import write_lines
from given.texts import write
from webformulas.signs import Source

from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import read_documents, read_table
from pipeline.corpus.blocks import HtmlExtractor, MathFilter
from pipeline.crawl import extract
from pipeline.crawl.text import extract as extract_text

TABLES = cases("filters")
ROOT = Path(__file__).resolve().parents[1]
PIPELINE = """
import sys
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from pipeline.corpus.blocks import BenchmarkFilter, ClassifierFilter, HtmlExtractor, MathFilter, Signatures

settings = MinhashConfig(n_grams=5, num_buckets=10, hashes_per_bucket=4, hash_config=HashConfig(precision=32))
first = [
    JsonlReader("in"),
    HtmlExtractor(),
    BenchmarkFilter({"heldout": ["heldout.jsonl"]}, exclusion_writer=JsonlWriter("leaks", compression=None)),
    ClassifierFilter(sys.argv[1], exclusion_writer=JsonlWriter("dropped", compression=None)),
    JsonlWriter("kept", compression=None),
    Signatures("signatures", settings),
]
pairs = [MinhashDedupBuckets("signatures", "pairs", config=settings)]
clusters = [MinhashDedupCluster("pairs", "clusters", config=settings)]
last = [JsonlReader("kept"), MinhashDedupFilter("clusters"), JsonlWriter("alone", compression=None)]
for steps, tasks in ((first, 2), (pairs, 10), (clusters, 1), (last, 2)):
    LocalPipelineExecutor(steps, tasks=tasks, workers=1).run()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_classifier(tmp_path_factory.mktemp("trained"))


def ids_of(folder: Path) -> Counter[str]:
    return Counter(row["id"] for _, row in read_rows(str(folder)))


@pytest.mark.slow
def test_the_blocks_run_in_a_pipeline_of_datatrove_outside_of_the_project(
    tmp_path: Path,
    trained: Path,
) -> None:
    rows = rows_of(trained.parents[1] / "dedup")
    leak = "the city film was about music and a minister who said nothing about rain at goal"
    pages = [{"id": row["id"], "text": f"<html><body><p>{row['text']}</p></body></html>"} for row in rows]
    pages.append({"id": "leak", "text": f"<html><body><p>{leak}. {rows[0]['text']}</p></body></html>"})
    pages += [dict(page, id=f"{page['id']}-copy") for page in pages[:3]]
    (tmp_path / "in").mkdir()
    for number in range(2):
        write_lines(tmp_path / f"in/{number}.jsonl", pages[number::2])
    write_lines(tmp_path / "heldout.jsonl", [{"id": "1", "question": leak}])
    (tmp_path / "run.py").write_text(PIPELINE)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "run.py", str(trained)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    scores, kept = corpus_of(trained)
    by_id = {row["id"]: score for row, score in zip(rows, scores, strict=True)}
    assert ids_of(tmp_path / "leaks") == Counter(["leak"])
    copies = {f"{page['id']}-copy" for page in pages[:3]}
    assert ids_of(tmp_path / "kept") == Counter(kept | copies)
    assert ids_of(tmp_path / "dropped") == Counter(set(by_id) - kept)
    assert len(ids_of(tmp_path / "alone")) == len(kept)
    for folder in ("kept", "dropped"):
        for _, row in read_rows(str(tmp_path / folder)):
            assert row["metadata"]["math_score"] == by_id[row["id"].removesuffix("-copy")]


def test_blocks_extract_and_filter_as_the_crawl_does() -> None:
    html = f"<html><title>T</title><body><p>{FILLER}</p><p>x<sup>2</sup> = 4</p></body></html>"
    assert HtmlExtractor().extract(html) == extract_text(Source(html), 100)[1] != ""
    assert HtmlExtractor().extract("<math>" * 100_000) == HtmlExtractor().extract("") == ""
    assert MathFilter().filter(Document("Let $x^2 = 4$.", "a")) is True
    assert MathFilter().filter(Document("A goal in the rain.", "b")) == (False, "no_mathematics")


FILTERS = '''
from datatrove.pipeline.filters import LambdaFilter


def odd(document):
    """Every other page, which says why."""
    return True if int(document.metadata["url"][-1]) % 2 else (False, "even")


few = LambdaFilter(lambda document: not document.metadata["url"].endswith("3"))


def broken(document):
    raise ValueError("no such thing")
'''


def extracted(folder: Path, filters: list[str], text: str = FILLER * 3) -> Path:
    rows = [{"text": f"{text} {number}", "url": f"https://a.example/{number}"} for number in range(6)]
    rows[1]["text"] = "\n".join([text] * 3)
    (folder / "own.py").write_text(FILTERS)
    path = write(folder / "rows.jsonl", rows)
    return run_program(extract.run, folder / "out", {"filters": filters}, texts=[path])


def test_filters_of_the_users_own_and_of_datatrove_reject_pages_by_a_reason(tmp_path: Path) -> None:
    own = [f"{tmp_path}/own.py:odd", f"{tmp_path}/own.py:few"]
    done = extracted(tmp_path, [*own, "datatrove.pipeline.filters.C4ParagraphFilter"])
    table = read_table(done / "records.parquet").to_pylist()
    even, three, short = "filter_even", "filter_few", "filter_< 3 paragraphs"
    assert [row["reason"] for row in table] == [even, None, even, three, even, short]
    assert [page.metadata["url"][-1] for page in read_documents(done / "pages.jsonl.zst")] == ["1"]
    counts = json.loads((done / "manifest.json").read_text())["counts"]
    assert (counts["rejected_filter_even"], counts["rejected_filter_few"], counts["pages"]) == (3, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "message"), TABLES["mistaken"])
def test_a_filter_that_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    with pytest.raises(SystemExit):
        extracted(tmp_path, [name.format(folder=tmp_path)])
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1 and message.format(folder=tmp_path) in said[0]


def test_the_file_of_a_filter_is_an_input_of_extraction(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FILTERS)
    write(tmp_path / "rows.jsonl", [{"text": FILLER, "url": "https://a.example/1"}])
    given: dict[str, Any] = {"texts": f"{tmp_path}/rows.jsonl"}
    given["filters"] = [f"{tmp_path}/own.py:odd", "datatrove.pipeline.filters.SamplerFilter"]
    nodes = graph_of(crawl=given).nodes
    (node,) = (node for name, node in nodes.items() if name.startswith("crawl/extract-"))
    assert ("filter", f"{tmp_path}/own.py") in node.inputs and node.section["filters"] == given["filters"]
