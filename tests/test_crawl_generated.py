"""Crawl and decontamination of the demo's generated web, compared with the truth about every page.

Checks in a plain clone what the tests with real pages check where those are at hand.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crawl_warcs import extract_into
from deduplication import deduplicate_into
from given.lines import read_lines

from pipeline.core.data.shards import read_table

ROOT = Path(__file__).parents[1]
SIZES = {"scale": 0.05, "sft": 100, "rl": 100, "test": 100}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated web in `web`, its pages in `pages` and its pool in `deduplicated/dedup`."""
    folder = tmp_path_factory.mktemp("generated")
    command = [sys.executable, "-m", "pipeline.examples.miniweb", "--config", json.dumps(SIZES)]
    subprocess.run([*command, "--output", str(folder / "web")], cwd=ROOT, check=True, capture_output=True)
    pages = extract_into(folder / "pages", folder / "web/warc/*.warc.gz")
    deduplicate_into(folder / "deduplicated", [pages], min_similarity=0.5)  # as in the demo
    return folder


@pytest.fixture(scope="module")
def truth(web: Path) -> dict[str, dict]:
    """The label of each URL."""
    return {label["url"]: label for label in read_lines(web / "web/labels.jsonl")}


CODECS = {"windows-1252": "cp1252", "iso-8859-1": "cp1252", "gbk": "gb18030"}  # as browsers decode them


def test_lineage_character_set_and_language_are_those_of_the_label(web: Path, truth: dict[str, dict]) -> None:
    rows = read_table(web / "pages/records.parquet").to_pylist()
    assert len(rows) == len(truth) and {row["url"] for row in rows} == truth.keys()
    names = {"offset": "warc_offset", "length": "warc_length", "digest": "payload_digest"}
    languages = []
    for row in rows:
        label = truth[row["url"]]
        for name in ("warc_file", "http_status", *names):
            assert row[name] == label[names.get(name, name)], (row["url"], name)
        if row["status"] == "extracted":
            one, other = (CODECS.get(known["charset"], known["charset"]) for known in (row, label))
            assert one == other
            languages.append(row["language"] == label["language"])
    assert sum(languages) >= 0.99 * len(languages) > 0.9 * len(rows)


def test_known_duplicates_are_grouped_and_hardly_any_other_page(web: Path, truth: dict[str, dict]) -> None:
    found = read_table(web / "deduplicated/dedup/duplicates.parquet").to_pylist()
    original = {row["url"]: row["duplicate_of_url"] for row in found}
    grouped: dict[str, list[bool]] = {"exact": [], "near": []}
    for url, label in truth.items():
        if twin := label["duplicate_of"]:
            grouped[label["duplicate_kind"]].append(original.get(url, url) == original.get(twin, twin))
    exact, near = grouped.values()
    assert sum(exact) == len(exact) > 20 and sum(near) >= 0.95 * len(near) > 15
    pairs = [(truth[url], truth[survivor]) for url, survivor in original.items()]
    assert sum(not any(label["duplicate_of"] for label in pair) for pair in pairs) <= 0.01 * len(truth)


def test_planted_benchmark_items_are_found_and_hardly_any_other(web: Path, truth: dict[str, dict]) -> None:
    command = [sys.executable, "-m", "pipeline.decontaminate", "--output", str(web / "clean")]
    sources = [f"pool={web / 'deduplicated/dedup'}"]
    sources += [f"benchmark.{name}={web / 'web'}/{name}.jsonl" for name in ("test", "heldout", "drill")]
    command += [part for source in sources for part in ("--input", source)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    found = {(row["url"], row["item"]) for row in read_lines(web / "clean/removals.jsonl")}
    gone = set(read_table(web / "deduplicated/dedup/duplicates.parquet", ["url"])["url"].to_pylist())
    planted = {
        (url, label["contaminated_by"]["id"])
        for url, label in truth.items()
        if label["contaminated_by"] and url not in gone
    }
    assert planted <= found and len(planted) >= 15
    pages, with_leaks = ({url for url, _ in pairs} for pairs in (found, planted))
    assert len(pages - with_leaks) <= 0.002 * len(truth)
