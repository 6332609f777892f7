"""Pages looked up in a columnar index: those asked for, each once, and nothing else."""

import datetime
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crawl_server import Server, address  # noqa: F401  (a fixture)
from crawl_warcs import html, record, write_warc
from given.instances import graph_of

from pipeline.config.crawl import LookupSection
from pipeline.crawl import extract, lookup
from pipeline.crawl.index import read_index
from pipeline.data.shards import read_documents, read_table
from pipeline.protocol.stage import run_stage
from workflow.graph import Result

HTML = "text/html"
DAY = datetime.datetime(2024, 3, 1)


def row(url: str, day: int = 0, offset: int = 0, file: str = "a.warc.gz", **changed: Any) -> dict[str, Any]:
    """A row of the index, in the columns of Common Crawl's."""
    host = url.split("/")[2].lower()
    return {
        "url_surtkey": url,
        "url": url,
        "url_host_name": host,
        "url_host_registered_domain": ".".join(host.split(".")[-2:]),
        "fetch_time": DAY + datetime.timedelta(days=day),
        "fetch_status": 200,
        "content_mime_detected": HTML,
        "content_languages": "eng",
        "warc_filename": f"crawl-data/{file}",
        "warc_record_offset": offset,
        "warc_record_length": 100,
    } | changed


def write_index(folder: Path, rows: list[dict[str, Any]], crawl: str, subset: str = "warc") -> Path:
    path = folder / f"crawl={crawl}/subset={subset}/part-00000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def look_up(folder: Path, index: list[Any], tables: int = 1, **more: Any) -> list[list[tuple[str, int]]]:
    """(file, offset) of each record found, by range table."""
    settings = {name: more.pop(name) for name in ("languages",) if name in more}
    words = ["--output", str(folder / "out"), "--config", json.dumps(settings | {"tables": tables})]
    for name, lines in more.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
        words += ["--input", f"{name}={folder / name}"]
    for path in index:
        words += ["--input", f"index={path}"]
    run_stage("crawl", LookupSection, lookup.run, words)
    found = [read_index(str(path)) for path in sorted((folder / "out/ranges").iterdir())]
    return [[(one.filename.removeprefix("crawl-data/"), one.offset) for one in table] for table in found]


@pytest.fixture
def index(tmp_path: Path) -> list[Path]:
    """Two dumps, and what crawls hold besides pages."""
    first = [
        row("https://www.a.org/one", offset=1),
        row("https://a.org/two", offset=2),
        row("https://a.org/three?x=1", offset=3),
        row("https://b.net/notes/rings", offset=4),
        row("https://b.net/notes/shop/cart", offset=5),
        row("https://b.net/notesbook", offset=6),
        row("https://math.c.com/x", offset=7),
        row("https://c.com/y", offset=8, content_languages="deu,zho"),
        row("https://notc.com/z", offset=9),
        row("https://math.c.com/gone", offset=10, fetch_status=404),
        row("https://math.c.com/paper.pdf", offset=11, content_mime_detected="application/pdf"),
    ]
    again = [row("http://a.org/one/", day=30, offset=1, file="b.warc.gz"), row("https://a.org/other", day=30)]
    again.append(row("https://a.org/two", day=-5, offset=9, file="b.warc.gz"))
    return [
        write_index(tmp_path, first, "CC-MAIN-2024-10"),
        write_index(tmp_path, again, "CC-MAIN-2024-18"),
        write_index(tmp_path, [row("https://a.org/two", day=60)], "CC-MAIN-2024-18", "robotstxt"),
    ]


def test_of_all_dumps_the_newest_copy_of_each_url_asked_for_is_found(
    tmp_path: Path, index: list[Path]
) -> None:
    urls = [
        "# list",
        "http://A.org/one#top",
        "https://www.a.org/two",
        "https://a.org/three",
        "https://d.org/",
    ]
    assert look_up(tmp_path, index, urls=urls) == [[("a.warc.gz", 2), ("b.warc.gz", 1)]]
    counts = json.loads((tmp_path / "out/manifest.json").read_text())["counts"]
    assert counts == {"pages": 2, "hosts": 1, "bytes": 200}


def test_a_host_stands_for_itself_and_a_registered_domain_for_all_its_hosts(
    tmp_path: Path, index: list[Path]
) -> None:
    assert look_up(tmp_path, index, hosts=["www.b.net"]) == [[("a.warc.gz", n) for n in (4, 5, 6)]]
    assert look_up(tmp_path, index, hosts=["c.com"]) == [[("a.warc.gz", n) for n in (7, 8)]]
    assert look_up(tmp_path, index, hosts=["math.c.com"]) == [[("a.warc.gz", 7)]]
    assert look_up(tmp_path, index, hosts=["c.com"], languages=["zho", "fra"]) == [[("a.warc.gz", 8)]]
    assert read_table(tmp_path / "out/hosts.parquet").to_pylist() == [
        {"host": "c.com", "pages": 1, "bytes": 100}
    ]


def test_the_longest_reviewed_prefix_decides(tmp_path: Path, index: list[Path]) -> None:
    notes = ["prefix\tverdict", "b.net/notes\tmath", "b.net/notes/shop/\tnot_math", "a.org\tnot_math"]
    assert look_up(tmp_path, index, prefixes=notes) == [[("a.warc.gz", 4)]]


def test_all_records_of_a_warc_file_are_in_one_table_whatever_the_order_of_the_index(
    tmp_path: Path, index: list[Path]
) -> None:
    rows = [row(f"https://e.org/{n}", offset=n, file=f"{n % 7}.warc.gz") for n in range(70)]
    (tmp_path / "more").mkdir()
    more = write_index(tmp_path / "more", rows, "CC-MAIN-2024-22")
    tables = look_up(tmp_path, [*index, more], 3, hosts=["e.org"])
    assert sorted(sum(tables, [])) == sorted((f"{n % 7}.warc.gz", n) for n in range(70))
    files = [{file for file, _ in table} for table in tables]
    assert len(set.union(*files)) == sum(map(len, files)) == 7
    before = [path.read_bytes() for path in sorted((tmp_path / "out/ranges").iterdir())]
    look_up(tmp_path, [more, *reversed(index)], 3, hosts=["e.org"])
    assert [path.read_bytes() for path in sorted((tmp_path / "out/ranges").iterdir())] == before


def test_extraction_reads_what_was_found_and_nothing_else(tmp_path: Path) -> None:
    pages = [record(f"http://a.org/{n}", html(f"This is page {n}, all for itself." * 9)) for n in range(5)]
    path = tmp_path / "crawl-data/a.warc.gz"
    path.parent.mkdir()
    offsets = write_warc(path, pages)
    rows = [
        row(f"http://a.org/{n}", offset=offsets[n], warc_record_length=offsets[n + 1] - offsets[n])
        for n in range(5)
    ]
    look_up(tmp_path, [write_index(tmp_path, rows, "CC-MAIN-2024-10")], urls=["a.org/1", "a.org/4"])
    given = ["--warc", str(tmp_path / "out/ranges/0000.parquet"), "--output", str(tmp_path / "pages")]
    extract.main([*given, "--config", json.dumps({"base_url": f"{tmp_path}/"})])
    found = [page.metadata["url"] for page in read_documents(tmp_path / "pages/pages.jsonl.zst")]
    assert found == ["http://a.org/1", "http://a.org/4"]


def test_the_index_of_a_dump_is_read_from_its_server_through_failing_requests(
    tmp_path: Path,
    index: list[Path],
    address: str,  # noqa: F811
    capfd: pytest.CaptureFixture[str],
) -> None:
    dump, part = "CC-MAIN-2024-10", "cc-index/table/subset={}/part-0.gz.parquet"
    listed = "".join(f"{part.format(subset)}\n" for subset in ("robotstxt", "warc"))
    Server.files = {f"/crawl-data/{dump}/cc-index-table.paths.gz": gzip.compress(listed.encode())}
    Server.files[f"/{part.format('warc')}"] = index[0].read_bytes()
    files = lookup.index_files([dump], address)
    assert files == [f"{address}{part.format('warc')}"]
    assert look_up(tmp_path, files, hosts=["b.net"]) == [[("a.warc.gz", n) for n in (4, 5, 6)]]
    assert len(Server.waits) > 5
    Server.patient = False
    with pytest.raises(SystemExit):
        look_up(tmp_path, files, hosts=["b.net"], tables=2)
    assert re.search(
        "^error: .*part-0.gz.parquet: cannot be read.* attempts made", capfd.readouterr().err, re.M
    )


def test_each_table_of_the_key_is_read_by_a_job_of_its_own(tmp_path: Path, index: list[Path]) -> None:
    (tmp_path / "hosts").write_text("a.org\n")
    keys = {"index": str(tmp_path / "crawl=*/*/*.parquet"), "hosts": str(tmp_path / "hosts"), "tables": 2}
    nodes = graph_of(crawl={"lookup": keys}).nodes
    assert [source for key, source in nodes["crawl/lookup"].inputs if key == "index"] == sorted(
        map(str, index)
    )
    read = [node.inputs for name, node in nodes.items() if name.startswith("crawl/extract")]
    assert read == [(("warc", Result("crawl/lookup", f"ranges/000{number}.parquet")),) for number in (0, 1)]


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "give urls, hosts or prefixes"), ({"hosts": ["a.org"]}, "no columnar index, it has no column url")],
)
def test_what_cannot_be_looked_up_is_one_line(
    tmp_path: Path, given: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(SystemExit) as ended:
        look_up(tmp_path, [path], **given)
    assert ended.value.code == 2 and message in capfd.readouterr().err
