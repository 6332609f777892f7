"""Where pages come from: lists, dumps, indexes, and servers that fail in every way."""

import gzip
import http.server
import json
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crawl_warcs import html, program, record, write_warc

from pipeline.common.shards import read_table
from pipeline.common.stage import InputError
from pipeline.crawl import sources
from pipeline.crawl.index import read_indexed_pages
from pipeline.crawl.warc import ReadCounts, read_pages

URLS = [f"http://a.org/{number}" for number in range(5)]
RECORDS = [record(url, html(f"This is page {url}, all for itself.")) for url in URLS]


def read(path):
    counts = ReadCounts()
    return list(read_pages(str(path), 1_000_000, counts)), counts


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files` by ranges; of every four requests three fail, each in another way."""

    files, requests, patient = {}, 0, True

    def do_GET(self):
        type(self).requests += 1
        fault = self.requests % 4 if self.patient else 1
        if fault in (1, 2):
            self.send_response(503 if fault == 1 else 429)
            self.send_header("Retry-After", "7")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = self.files.get(self.path)
        if data is None:
            return self.send_error(404)
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        body = data[int(first) : int(last or len(data)) + 1]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if fault == 0 else body[: len(body) // 2])  # 3: hangs up in the middle
            self.close_connection = True
        return None

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(monkeypatch):
    """A running server's address; waiting is recorded in `Server.waits`, not done."""
    Server.requests, Server.patient, Server.waits = 0, True, []
    monkeypatch.setattr(sources.time, "sleep", Server.waits.append)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 400)
    monkeypatch.setattr(sources, "BUFFER_BYTES", 400)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_a_remote_file_reads_like_a_local_one_through_failing_requests(tmp_path, address):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {"/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes()}
    assert read(f"{address}a.warc.gz") == read(tmp_path / "a.warc.gz")
    assert len(Server.waits) >= 4 and sum(wait >= 7 for wait in Server.waits) >= 3  # as the server asked


def test_a_server_that_never_answers_and_a_file_that_is_not_there_are_one_line(address):
    Server.patient = False
    with pytest.raises(InputError, match=r"a.warc.gz: cannot be read .* 6 attempts made"):
        read(f"{address}a.warc.gz")
    assert len(Server.waits) == 5 and min(Server.waits) >= 7 and Server.waits[-1] >= 16
    Server.patient, Server.files = True, {}
    with pytest.raises(InputError, match="not found"):
        read(f"{address}a.warc.gz")


def test_path_lists_and_globs_expand_in_order(tmp_path):
    for name in ("b.warc.gz", "a.warc.gz"):
        write_warc(tmp_path / name, RECORDS)
    (tmp_path / "warc.paths.gz").write_bytes(gzip.compress(b"crawl-data/x.warc.gz\ns3://bucket/y.warc.gz\n"))
    local = [str(tmp_path / "a.warc.gz"), str(tmp_path / "b.warc.gz")]
    remote = ["https://host/crawl-data/x.warc.gz", "s3://bucket/y.warc.gz"]
    assert (
        sources.expand([f"{tmp_path}/*.warc.gz", f"{tmp_path}/warc.paths.gz"], "https://host/")
        == local + remote
    )
    assert sources.expand([f"{tmp_path}/*.paths.gz"], "https://host/") == remote
    with pytest.raises(InputError, match="two WARC files of this name"):
        sources.expand([*local, local[0]])


@pytest.mark.parametrize(
    "data", [b"no gzip", gzip.compress(b"x.warc.gz" * 99)[:-12], b"\x1f\x8b\x08" + bytes(40)]
)
def test_a_damaged_list_is_one_line_that_names_it(tmp_path, data):
    (tmp_path / "warc.paths.gz").write_bytes(data)
    with pytest.raises(InputError, match=r"warc.paths.gz: not a readable text or gzip file \([^\n]+$"):
        sources.expand([str(tmp_path / "warc.paths.gz")])


def test_a_common_crawl_dump_means_its_list(address):
    path = "crawl-data/CC-MAIN-2024-10/"
    for kind in ("warc", "wet"):
        Server.files[f"/{path}{kind}.paths.gz"] = gzip.compress(f"{path}{kind}/{kind}-1.gz\n".encode())
    found = sources.expand(["CC-MAIN-2024-10", "CC-MAIN-2024-10/wet"], address)
    assert found == [f"{address}{path}warc/warc-1.gz", f"{address}{path}wet/wet-1.gz"]


def write_index(path, rows):
    if path.suffix == ".parquet":
        names = {"filename": "warc_filename", "offset": "warc_record_offset", "length": "warc_record_length"}
        rows = [{names.get(key, key): value for key, value in row.items()} for row in rows]
        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    lines = [("org,a)/ 20240101000000 " if "cdx" in path.name else "") + json.dumps(row) for row in rows]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize("name", ["i.parquet", "i.cdxj.gz", "i.jsonl.gz"])
def test_an_index_reads_only_the_records_it_lists(tmp_path, name):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    rows = [
        {"url": URLS[i], "filename": "a.warc.gz", "offset": str(start), "length": end - start}
        for i, start, end in ((3, *offsets[3:5]), (1, *offsets[1:3]))
    ]
    rows.append({"url": "http://gone.org/", "filename": "a.warc.gz", "offset": "5", "length": 99})
    write_index(tmp_path / name, rows)
    done = program("extract", "--warc", tmp_path / name, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = read_table(tmp_path / "out" / "records.parquet").to_pylist()
    assert [(row["url"], row["offset"], row["reason"]) for row in found] == [
        ("http://gone.org/", 5, "incomplete_record"),
        (URLS[1], offsets[1], None),
        (URLS[3], offsets[3], None),
    ]
    whole = program("extract", "--warc", tmp_path / "a.warc.gz", "--output", tmp_path / "whole")
    assert whole.returncode == 0
    rows = {row["id"]: row for row in read_table(tmp_path / "whole" / "records.parquet").to_pylist()}
    assert all(rows[row["id"]] == row for row in found[1:])


def test_an_index_of_remote_files_costs_a_range_for_each_record(tmp_path, address):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {"/x/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes()}
    row = {"url": URLS[2], "filename": "x/a.warc.gz", "offset": offsets[2], "length": offsets[3] - offsets[2]}
    write_index(tmp_path / "i.jsonl.gz", [row])
    (page,) = read_indexed_pages(str(tmp_path / "i.jsonl.gz"), address, 1_000_000, ReadCounts())
    assert page.url.decode() == URLS[2] and page.flaw is None


def test_a_bad_index_is_one_line_that_names_its_row(tmp_path):
    write_index(tmp_path / "i.jsonl.gz", [{"url": "http://a.org/", "filename": "a.warc.gz"}])
    done = program("extract", "--warc", tmp_path / "i.jsonl.gz", "--output", tmp_path / "out")
    assert done.returncode == 2 and "i.jsonl.gz: row 1: needs url, filename" in done.stderr


def test_excluded_urls_are_rejected_unread(tmp_path):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    config = ["--config", json.dumps({"url_exclude": ["a.org/3", "b.org"]})]
    done = program("extract", "--warc", tmp_path / "a.warc.gz", "--output", tmp_path / "o", *config)
    assert done.returncode == 0, done.stderr
    rows = read_table(tmp_path / "o" / "records.parquet").to_pylist()
    assert [row["reason"] for row in rows] == [None, None, None, "url_excluded", None]
