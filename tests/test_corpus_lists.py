"""What is wrong with the lists of the corpus is said before the first job."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import copy_checkout, run
from given.instances import graph_of

from workflow.first_rows import faulty_rows
from workflow.lists import faulty_lists

VERDICTS = "".join(f"h{number}.org/\tmath\n" for number in range(300))
CASES = [
    ({}, "corpus.seed_urls: none, and no seed_texts: name pages or texts"),
    ({"seed_urls": "# none\n"}, r"corpus.seed_urls: .*seed_urls: lists no URL$"),
    ({"seed_urls": "a.org\n", "background_urls": "\n"}, r"corpus.background_urls: .*: lists no URL$"),
    ({"seed_urls": "a.org\n", "opt_out": b"\xff\xfe\x00"}, "corpus.opt_out: .*opt_out: cannot be read"),
    (
        {"annotations": f"prefix\tverdict\n{VERDICTS}a.org\tmaths\n"},
        "annotations: line 302: expected a prefix",
    ),
    (
        {"annotations": f"prefix\tverdict\n{VERDICTS}h7.org\tnot_math\n"},
        "line 302: h7.org has another verdict",
    ),
    ({"annotations": "a.org\tmath\n"}, "annotations: its first line must name the columns"),
    ({"annotations": "prefix\tverdict\n"}, ""),
    ({"seed_urls": "a.org\n", "opt_out": "", "blocklists": ""}, ""),
]


def files(folder: Path, lists: dict[str, str | bytes]) -> dict[str, Any]:
    """Write a crawl of one file and these lists, with a seed where only reviews are given."""
    (folder / "a.warc.gz").write_bytes(b"")
    lists = lists if set(lists) != {"annotations"} else lists | {"seed_urls": "a.org\n"}
    for name, content in lists.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    corpus = {name: str(folder / name) for name in lists}
    return {"crawl": {"warc": [str(folder / "a.warc.gz")]}, "corpus": corpus | {"iterations": 2}}


@pytest.mark.parametrize(("lists", "message"), CASES)
def test_a_fault_in_a_list_names_key_file_and_line(
    tmp_path: Path, lists: dict[str, str | bytes], message: str
) -> None:
    graph = graph_of(**files(tmp_path, lists))
    faults = list(faulty_lists(graph, graph.nodes))
    assert len(faults) == bool(message) and all(re.search(message, fault) for fault in faults)
    assert not list(faulty_lists(graph, graph.names("crawl")))


@pytest.mark.parametrize(
    ("role", "rows", "message"),
    [
        (
            "corpus.seed_texts",
            '{"body": "a"}',
            "config key corpus.seed_texts: .*line 1: .* needs rows with `text`",
        ),
        ("corpus.background_texts", "", "config key corpus.background_texts: .*: it has no rows"),
        ("report.truth", '{"url": "a", "label": "maths"}', "config key report.truth: .*line 1: label of 'a'"),
        ("report.truth", '{"url": "a", "label": "math"}', ""),
    ],
)
def test_rows_to_learn_from_and_to_measure_by_are_read_too(
    tmp_path: Path, role: str, rows: str, message: str
) -> None:
    section, _, key = role.partition(".")
    (tmp_path / "own.jsonl").write_text(rows)
    (tmp_path / "a.warc.gz").write_bytes(b"")
    given = {"crawl": {"warc": [str(tmp_path / "a.warc.gz")]}}
    graph = graph_of(**given, **{section: {key: [str(tmp_path / "own.jsonl")]}})
    faults = list(faulty_rows(graph, graph.nodes.values()))
    assert len(faults) == bool(message) and all(re.search(message, fault) for fault in faults)


@pytest.mark.slow
def test_status_and_runs_end_with_the_line_before_the_first_job(tmp_path: Path) -> None:
    values = files(tmp_path, {"annotations": "prefix\tverdict\na.org\tmaths\n"})
    (tmp_path / "own.yaml").write_text(json.dumps(values | {"run": "own"}))
    folder = copy_checkout(tmp_path / "checkout").folder
    for words in (["status"], ["run", "-n"], ["run", "decontaminate", "-n"], ["run", "--cores", "1"]):
        command = [sys.executable, "-m", "pipeline", words[0], str(tmp_path / "own.yaml"), *words[1:]]
        done = run(command, folder, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        assert done.returncode, words
        assert "annotations: line 2: expected a prefix" in done.stdout + done.stderr, words
    assert not (folder / "results/own/store/crawl").exists()
