"""Files of texts enter the crawl as pages, the same ones as from WARC files; other rows have a reason."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crawl_warcs import FILLER
from deduplication import deduplicate_into, run_program
from given.corpora import run
from given.instances import graph_of
from given.texts import Row, counted, write
from given.webs import generate

from pipeline.config.root import ConfigError
from pipeline.core.data.shards import read_documents, read_table
from pipeline.crawl import extract
from pipeline.examples.recipes import real

GOOD = {"text": FILLER * 2, "url": "https://a.example/1"}


def kept(folder: Path, name: str, lists: Path, extracted: list[Path]) -> list[tuple[Any, ...]]:
    """What an iteration of the loop keeps of extracted pages: (URL, host, score, tokens), by URL."""
    pool = deduplicate_into(folder / f"{name}-pool", extracted, min_similarity=0.5)
    urls = {"seed_urls": lists / "seed_urls.txt", "background_urls": lists / "background_urls.txt"}
    trained = run(folder / name, "train", 1, {"pool": pool} | urls, folds=0)
    scored = run(folder / name, "score", 1, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"})
    selected = run(folder / name, "select", 1, {"train": trained, "score": scored, "pool": pool} | urls)
    rows = read_table(selected / "kept.parquet").to_pylist()
    return sorted(tuple(row[column] for column in ("url", "host", "score", "tokens")) for row in rows)


def test_the_same_texts_by_warc_and_by_file_keep_the_same_pages(tmp_path: Path) -> None:
    web = generate(tmp_path / "web", scale=0.1)
    files = sorted((web / "warc").iterdir())
    warc = [
        run_program(extract.run, tmp_path / f"extract-{number}", {}, warc=files[number::2])
        for number in range(2)
    ]
    texts = []
    for number, (one, suffix) in enumerate(zip(warc, ("parquet", "jsonl.zst"), strict=True)):
        pages = list(read_documents(one / "pages.jsonl.zst"))
        rows = [{"text": page.text, "url": page.metadata["url"], "key": page.id} for page in pages]
        path = write(tmp_path / f"{number}.{suffix}", rows)
        fields = {"fields": {"id": "key"}}
        texts.append(run_program(extract.run, tmp_path / f"texts-{number}", fields, texts=[path]))
        assert counted(texts[-1])["pages"] == len(pages) == counted(texts[-1])["records"] > 100
    found = kept(tmp_path, "warc", web, warc)
    assert found == kept(tmp_path, "texts", web, texts) and len(found) > 30


ROWS: dict[str | None, Row] = {
    "no_text": GOOD | {"text": None},
    "bad_type": GOOD | {"text": 5},
    "repeated_id": GOOD | {"id": "0"},
    "not_http_url": GOOD | {"url": 5},
    "too_short": GOOD | {"text": "A ring."},
    "empty": GOOD | {"text": " \n"},
}


def test_each_row_that_is_no_page_has_a_reason_and_a_place_in_the_table(tmp_path: Path) -> None:
    rows = [{"id": str(number)} | row for number, row in enumerate([GOOD, *ROWS.values()])]
    rows.append(GOOD | {"id": 8, "language": "xx"})
    path = write(tmp_path / "rows.jsonl", [{"language": None} | row for row in rows])
    config = {"fields": {"id": "id", "language": "language"}}
    done = run_program(extract.run, tmp_path / "out", config, texts=[path])
    table = read_table(done / "records.parquet").to_pylist()
    assert [row["reason"] for row in table] == [None, *ROWS, None]
    assert [(row["warc_file"], row["offset"]) for row in table] == [(path.name, n) for n in range(len(table))]
    pages = list(read_documents(done / "pages.jsonl.zst"))
    assert [page.metadata["language"] for page in pages] == ["en", "xx"] and pages[0].text == GOOD[
        "text"
    ].strip()
    counts = counted(done)
    assert {name: counts[f"rejected_{name}"] for name in ROWS} == dict.fromkeys(ROWS, 1)
    (line,) = map(json.loads, (done / "ledger.jsonl").read_text().splitlines())
    assert (line["file"], line["records"], line["pages"]) == (path.name, 8, 2)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_only_rows_without_a_url_get_an_address_of_their_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    rows = [
        {"text": f"{FILLER * 2} {number}"} | ({"url": GOOD["url"]} if number else {}) for number in (0, 1)
    ]
    rows = [*rows, rows[1] | {"url": None}, rows[1] | {"url": ""}]
    if name.endswith("parquet"):
        rows[0]["url"] = None
    done = run_program(extract.run, tmp_path / "mixed", {}, texts=[write(tmp_path / name, rows)])
    hosts = [page.metadata["host"] for page in read_documents(done / "pages.jsonl.zst")]
    assert hosts[1] == "a.example" and len(set(hosts)) == 4
    assert [host.endswith(".invalid") for host in hosts] == [True, False, True, True]
    assert "no column url" not in capfd.readouterr().err
    path = write(tmp_path / f"none-{name}", [{"text": FILLER * 2, "link": GOOD["url"]}])
    run_program(extract.run, tmp_path / "none", {}, texts=[path])
    assert f"{path}: no column url: its pages have no domain; it has text, link" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
def test_a_column_that_is_missing_is_named_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = write(tmp_path / name, [{"content": "a", "url": "https://a.example/"}])
    with pytest.raises(SystemExit):
        run_program(extract.run, tmp_path / "out", texts=[path])
    said = capsys.readouterr().err
    assert f"{path}: " in said and "no column 'text' (crawl.fields.text); it has content, url" in said


def test_a_file_that_fails_leaves_the_others_for_the_next_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = write(tmp_path / "a.jsonl", [GOOD]), tmp_path / "b.parquet"
    second.write_bytes(b"PAR1 cut")
    with pytest.raises(SystemExit):
        run_program(extract.run, tmp_path / "out", texts=[first, second])
    assert f"1 of 2 files failed, the others are kept for the next run: {second}" in capsys.readouterr().err
    write(second, [GOOD | {"url": "https://a.example/2"}])
    done = run_program(extract.run, tmp_path / "out", texts=[first, second])
    assert counted(done)["pages"] == 2


def test_make_real_takes_a_folder_of_texts_and_lists(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.jsonl.zst", "labels.jsonl", "seed_urls.txt", "background_urls.txt"):
        (tmp_path / name).touch()
    folder = real.Folder(tmp_path, [])
    files = [f"{tmp_path}/a.parquet", f"{tmp_path}/b.jsonl.zst"]
    assert real.pages(folder, "texts")["crawl"] == {"texts": files}
    assert folder.problems == [
        f"{tmp_path}/annotations.tsv: not found; `make real` reads it beside the pages"
    ]


def test_files_of_texts_are_jobs_of_extraction_beside_those_of_warc_files(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").touch()
    for name in ("1.parquet", "2.parquet", "3.jsonl.gz"):
        (tmp_path / name).touch()
    given = {"warc": f"{tmp_path}/a.warc.gz", "texts": [f"{tmp_path}/*.parquet", f"{tmp_path}/3.jsonl.gz"]}
    for order, sizes in (("paper", {"crawl/exact": 4}), ("math_first", {})):
        found = graph_of(crawl=given | {"order": order})
        nodes = [node for name, node in found.nodes.items() if name.startswith("crawl/extract-")]
        read = Counter((role, Path(source).name) for node in nodes for role, source in node.inputs)
        assert read == Counter(
            [("warc", "a.warc.gz"), *(("texts", n) for n in ("1.parquet", "2.parquet", "3.jsonl.gz"))]
        )
        for name, number in sizes.items():
            assert len(found.nodes[name].inputs) == number


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["a/1.csv"], "1.csv: unknown kind of file; known: .jsonl"),
        (["a/1.parquet", "b/1.parquet"], "1.parquet: two files of this name"),
        (["https://a.example/1.parquet"], "only crawl.warc reads addresses"),
        (["a/none.parquet"], "none.parquet: no such file"),
    ],
)
def test_a_file_that_cannot_be_read_as_texts_is_refused_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a/1.csv", "a/1.parquet", "b/1.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=f"config key crawl.texts: .*{message}"):
        graph_of(crawl={"texts": sources})
