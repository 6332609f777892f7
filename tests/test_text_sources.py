"""Named sources of texts: data sets of the hub at a revision, files without URLs, what each source loses."""

import http.server
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawl_warcs import FILLER
from datatrove.data import Document
from deduplication import deduplicate_into, run_program
from given.corpora import MATH, NEWS, metrics, run
from given.instances import graph_of, open_stage
from given.texts import counted, write

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.root import ConfigError
from pipeline.core.data.shards import DocumentWriter, read_documents, read_table
from pipeline.core.stage import run_stage
from pipeline.crawl import extract
from pipeline.crawl.text_files import is_pinned
from pipeline.decontaminate import __main__ as decontaminate
from pipeline.decontaminate.card import Composition, data_card
from workflow.preflight import held_back, unpinned

ROOT = Path(__file__).resolve().parents[1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SOURCE = f"hub:someone/web:2024-10@{COMMIT}"


class Hub(http.server.BaseHTTPRequestHandler):
    """The hub's answers about one data set, whose files are those of a folder; the first body of each breaks
    off.
    """

    folder, requests = Path(), list[str]()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        part = self.headers.get("Range", "")
        type(self).requests.append(f"{self.command} {path} {part}")
        if path.startswith(f"/api/datasets/someone/web/tree/{COMMIT}"):
            files = sorted(file for file in self.folder.rglob("*") if file.is_file())
            rows = [
                {
                    "type": "file",
                    "oid": "0",
                    "size": file.stat().st_size,
                    "path": str(file.relative_to(self.folder)),
                }
                for file in files
            ]
            return self.answer(json.dumps(rows).encode(), {"Content-Type": "application/json"})
        name = path.removeprefix(f"/datasets/someone/web/resolve/{COMMIT}/")
        if not (self.folder / name).is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body = (self.folder / name).read_bytes()
        headers = {"ETag": f'"{len(body):040x}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        first = int(part.removeprefix("bytes=").partition("-")[0] or 0)
        if part:
            headers["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
        before = sum(path in one for one in self.requests if one.startswith("GET"))
        return self.answer(body[first:], headers, cut=before == 1)

    do_HEAD = do_GET

    def answer(self, body: bytes, headers: dict[str, str], cut: bool = False) -> None:
        self.send_response(206 if "Content-Range" in headers else 200)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which the hub is this server, with two files of texts below one folder."""
    Hub.folder, Hub.requests = tmp_path / "web", []
    for number, place in enumerate(
        ("data/2024-10/0.parquet", "data/2024-10/sub/0.parquet", "data/2023/0.parquet")
    ):
        path = Hub.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "content": f"{FILLER * 3} {number} {row} {os.urandom(40).hex()}",
                "url": f"https://a.example/{number}/{row}",
            }
            for row in range(300)
        ]
        write(path, rows)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    named = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
    yield {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | named
    server.shutdown()


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_its_files_at_a_revision_downloaded_although_it_breaks_off(
    tmp_path: Path, hub: dict[str, str]
) -> None:
    program = """
import json, sys
from given.instances import graph_of
web = {"data": sys.argv[1], "fields": {"text": "content"}, "licence": "odc-by"}
nodes = graph_of(crawl={"texts": {"web": web}}).nodes
found = [node for name, node in nodes.items() if name.startswith("crawl/extract-")]
files = [[source for role, source in node.inputs if role == "texts"] for node in found]
print(json.dumps([files, [node.section for node in found]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, SOURCE], cwd=tmp_path, env=hub, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    files, sections = json.loads(listed := done.stdout)
    names = [f"hub:someone/web@{COMMIT}:data/2024-10/{name}0.parquet" for name in ("", "sub/")]
    assert files == [[name] for name in names]
    words = [
        sys.executable,
        "-m",
        "pipeline.crawl.extract",
        "--instance",
        "extract",
        "--output",
        str(tmp_path / "out"),
        "--work",
        str(tmp_path / "work"),
    ]
    words += [f"--input=texts={name}" for name in names] + ["--config", json.dumps(sections[0])]
    done = subprocess.run(words, cwd=tmp_path, env=hub, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    bodies = [one for one in Hub.requests if one.startswith("GET /datasets/")]
    assert len(bodies) == 4, "each of both files broke off once"
    pages = list(read_documents(tmp_path / "out/pages.jsonl.zst"))
    assert [page.id for page in pages][::300] == [
        "web/data_2024-10_0.parquet:0",
        "web/data_2024-10_sub_0.parquet:0",
    ]
    assert len(pages) == 600 and {page.metadata["licence"] for page in pages} == {"odc-by"}
    assert (tmp_path / "work/hub").is_dir() and not list((tmp_path / "work/hub").rglob("*.parquet"))
    again = subprocess.run(
        [sys.executable, "-c", program, SOURCE],
        cwd=tmp_path,
        env=hub | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert again.stdout == listed, "the files of a commit are asked for once"


@pytest.mark.slow
def test_a_file_that_the_hub_lacks_is_bad_input_and_a_hub_out_of_reach_passes(
    tmp_path: Path, hub: dict[str, str]
) -> None:
    program = """
import sys
from pathlib import Path
from pipeline.crawl.text_files import brought
from pipeline.core.errors import InputError
try:
    with brought(sys.argv[1], Path("hub")):
        pass
except InputError as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", program, f"hub:someone/web@{COMMIT}:data/none.parquet"]
    for changed, kind in (({}, "InputError"), ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "Passing")):
        done = subprocess.run(command, cwd=tmp_path, env=hub | changed, capture_output=True, text=True)
        assert done.stdout.strip() == kind, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("hub:someone/web:2024-10", "crawl.texts.web: .* expected hub:<owner>/<name>.:<folder>.@<revision>"),
        ("none.parquet", "crawl.texts.web: none.parquet: no such file"),
    ],
)
def test_a_source_that_cannot_be_found_is_refused_by_its_name(data: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        graph_of(crawl={"texts": {"web": {"data": data}}})


def test_a_data_set_of_the_hub_without_a_name_is_told_to_have_one() -> None:
    with pytest.raises(ConfigError, match=f"crawl.texts: {SOURCE}: give a source of the hub a name"):
        graph_of(crawl={"texts": SOURCE})


def test_two_sources_that_read_one_file_are_extracted_each_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [{"title": "a", "text": "b"}])
    sources = {name: {"data": str(path), "fields": {"text": name}} for name in ("title", "text")}
    nodes = graph_of(crawl={"texts": sources}).nodes
    found = [node for name, node in nodes.items() if name.startswith("crawl/extract-")]
    assert sorted(name for node in found for name in node.section["texts"]) == ["text", "title"]
    assert len(nodes["crawl/exact"].inputs) == 2


def test_a_revision_that_may_change_is_told_before_the_first_job() -> None:
    sources = {"old": f"hub:a/old:train@{COMMIT}", "new": "hub:a/new/en:train@main", "any": "hub:a/any:train"}
    named = {name: {"data": data} for name, data in sources.items()}
    graph = graph_of(mixtures={"web": {"tokenizer": "a/b", "sources": named}})
    told = [line.partition(": no commit is named")[0] for line in unpinned(graph, graph.nodes)]
    assert told == ["hub:a/any:train", "hub:a/new/en:train@main"]
    assert is_pinned(SOURCE) and not is_pinned("hub:someone/web@main:data/0.parquet")


def test_a_source_that_is_not_for_training_is_not_read_and_refused_where_a_model_learns(
    tmp_path: Path,
) -> None:
    own, test, other = (str(write(tmp_path / f"{name}.jsonl", [{"text": "a"}])) for name in "abc")
    texts = {
        "own": {"data": own},
        "test": {"data": f"{tmp_path}/[bc].jsonl", "use": "evaluate"},
        "bad": {"data": f"hub:a/bad@{COMMIT}", "use": "blocked"},
    }
    graph = graph_of(crawl={"texts": texts}, benchmarks={"unseen": {"source": test}})
    read = [source for node in graph.nodes.values() for role, source in node.inputs if role == "texts"]
    assert read == [own]
    assert held_back(graph) == [
        "crawl.texts.test: 2 files or data sets are left out (use: evaluate)",
        "crawl.texts.bad: 1 files or data sets are left out (use: blocked)",
    ]
    mixture = {"tokenizer": "a/b", "sources": {"s": {"data": other}}}
    for keys, told in (
        ({"corpus": {"seed_texts": f"{tmp_path}/./b.jsonl"}}, "corpus.seed_texts: .*b.jsonl: .*test.use"),
        ({"mixtures": {"m": mixture}}, "mixtures.m.sources.s: .*c.jsonl: crawl.texts.test.use says evaluate"),
        (
            {"benchmarks": {"x": {"source": "hub:a/bad/en:train"}}},
            "x.source: hub:a/bad/en:train: crawl.texts.bad.use says blocked",
        ),
    ):
        with pytest.raises(ConfigError, match=told):
            graph_of(crawl={"texts": texts}, **keys)


def texts_of(folder: Path, name: str, rows: list[dict[str, Any]], **source: Any) -> Path:
    """Extract rows as a named source."""
    (folder / name).mkdir()
    path = write(folder / name / "rows.parquet", rows)
    config = {"texts": {name: {"data": "", **source}}}
    return run_program(extract.run, folder / f"extract-{name}", config, texts=[path])


@pytest.mark.slow
def test_what_each_source_keeps_is_counted(tmp_path: Path) -> None:
    rows = [{"text": f"{FILLER * 2} {number}", "url": f"https://a.example/{number}"} for number in range(10)]
    first = texts_of(tmp_path, "first", rows)
    second = texts_of(tmp_path, "second", [*rows[:8], {"text": "short", "url": "https://b.example/1"}])
    pool = deduplicate_into(tmp_path / "dedup", [first, second], min_similarity=1.0)
    found = counted(pool)
    assert {name: found[name] for name in found if "." in name} == {
        "rows.first": 10, "pages.first": 10, "rows.second": 9, "pages.second": 8, "duplicates.second": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["a.warc.gz"], ["| WARC file | pages", "the WARC file, offset, length"]),
        (
            ["web/a.parquet", "b.jsonl.zst"],
            [
                "| file of texts | pages",
                "the file of texts, row, length",
                "by source of texts: web 12.\n\n## How",
            ],
        ),
        (["a.warc.gz", "web/a.parquet"], ["| WARC file or file of texts | pages"]),
    ],
)
def test_the_card_names_files_of_texts_and_counts_the_tokens_of_each_source(
    tmp_path: Path, files: list[str], said: list[str]
) -> None:
    bench = write(tmp_path / "bench.jsonl", [{"question": "How far is it from here to the sea?"}])
    with DocumentWriter(tmp_path / "pages/0000.jsonl.zst") as writer:
        for name in files:
            writer.write(Document(FILLER, name, metadata={"warc_file": name, "tokens": 12}))
    words = [f"--input=pool={tmp_path / 'pages'}", f"--input=benchmark.bench={bench}"]
    words += ["--output", str(tmp_path / "out")]
    run_stage("decontaminate", DecontaminateSection, decontaminate.run, words)
    card = (tmp_path / "out/card.md").read_text()
    assert all(words in card for words in said) and ("WARC" in card) == ("a.warc.gz" in files)


@pytest.mark.parametrize(("told", "unit"), [({}, "words and CJK characters"), ({"tokens": {}}, "tokens")])
def test_the_card_says_in_what_selection_counted(tmp_path: Path, told: dict[str, Any], unit: str) -> None:
    numbers = ("iteration", "seed_pages", "kept_pages", "pool_pages", "threshold", "positives", "negatives")
    notes = dict.fromkeys(numbers, 1) | {"overlap_with_previous": None, "settings": {}} | told
    (tmp_path / "metrics.json").write_text(json.dumps(notes))
    stage = open_stage(tmp_path / "work", DecontaminateSection(), {"pool": tmp_path, "select": tmp_path})
    found = Composition(pages=1, tokens=12, of_source=Counter(web=12))
    card = data_card(stage, found, {"kept": 1, "contaminated": 0}, stage.partial)
    assert f"12 {unit}.\n" in card and f"{unit.capitalize()[0]}{unit[1:]} by source of texts: web 12." in card


@pytest.mark.slow
def test_texts_without_urls_make_a_corpus_and_the_domain_step_says_that_it_is_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)

    def rows(words: list[str], number: int) -> list[dict[str, Any]]:
        return [{"text": " ".join(rng.choices(words, k=60))} for _ in range(number)]

    pool = deduplicate_into(
        tmp_path / "dedup",
        [texts_of(tmp_path, "own", [*rows(MATH, 40), *rows(NEWS, 60)])],
        min_similarity=1.0,
    )
    seed = write(tmp_path / "seed.jsonl", rows(MATH, 20))
    background = write(tmp_path / "background.jsonl", rows(NEWS, 20))
    texts = {"seed_texts": seed, "background_texts": background}
    trained = run(tmp_path, "train", 1, {"pool": pool} | texts, folds=0)
    scored = run(tmp_path, "score", 1, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"})
    selected = run(tmp_path, "select", 1, {"train": trained, "score": scored, "pool": pool})
    assert "100 pages have no URL; for them the domain step is off" in capsys.readouterr().err
    kept = read_table(selected / "kept.parquet")["id"].to_pylist()
    assert sorted(kept) == sorted(f"own/rows.parquet:{number}" for number in range(40))
    assert metrics(selected)["domains"] == [] and metrics(selected)["new_hosts"] == 0
