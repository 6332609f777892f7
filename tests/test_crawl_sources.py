"""Where pages come from: lists, dumps, indexes, and servers that fail in every way."""

import gzip
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, copy_checkout
from crawl_warcs import html, program, record, write_warc

from pipeline.common.identity import Digests, digest_of
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
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
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
    "data", [b"no gzip", gzip.compress(b"x.warc.gz" * 99, mtime=0)[:-12], b"\x1f\x8b\x08" + bytes(40)]
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


CREDENTIALS = "?X-Amz-Signature=SECRET&token=SECRET"


def with_user(address):
    return address.replace("http://", "http://user:SECRET@")


def test_neither_rows_nor_messages_nor_manifests_hold_credentials(tmp_path, address):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {f"/a.warc.gz{CREDENTIALS}": (tmp_path / "a.warc.gz").read_bytes()}
    Server.requests = 3
    found = read(f"{with_user(address)}a.warc.gz{CREDENTIALS}")[0]
    assert len(found) == 5 and {page.warc_file for page in found} == {"a.warc.gz"}
    for path in (f"b.warc.gz{CREDENTIALS}", f"list.paths.gz{CREDENTIALS}", f"i.parquet{CREDENTIALS}"):
        with pytest.raises(InputError) as error:
            expanded = sources.expand([f"{with_user(address)}{path}"], "https://host/")
            list(read_indexed_pages(expanded[0], "https://host/", 10**6, ReadCounts()))
        assert "SECRET" not in str(error.value) and "user" not in str(error.value)
    Server.patient = False
    with pytest.raises(InputError, match="6 attempts made") as error:
        read(f"{with_user(address)}c.warc.gz{CREDENTIALS}")
    assert "SECRET" not in str(error.value)
    with pytest.raises(InputError, match="crawl.base_url") as error:
        sources.expand([], "https://user:SECRET@host/")
    assert "SECRET" not in str(error.value)


def test_a_result_made_from_a_signed_address_does_not_show_the_signature(tmp_path, server_of_files):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    server_of_files[f"/a.warc.gz{CREDENTIALS}"] = (tmp_path / "a.warc.gz").read_bytes()
    url = f"{with_user(server_of_files['address'])}a.warc.gz{CREDENTIALS}"
    done = program("extract", "--warc", url, "--output", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "SECRET" not in done.stderr + done.stdout
    for path in (tmp_path / "out").rglob("*.json"):
        assert "SECRET" not in path.read_text(), path
    (found,) = {row["warc_file"] for row in read_table(tmp_path / "out" / "records.parquet").to_pylist()}
    assert found == "a.warc.gz"


@pytest.mark.slow
def test_a_signed_address_is_on_no_command_line_and_in_no_file_for_others(tmp_path, server_of_files):
    checkout = copy_checkout(tmp_path)
    url = f"{with_user(server_of_files['address'])}missing.warc.gz{CREDENTIALS}"
    (tmp_path / "signed.yaml").write_text(json.dumps({"crawl": {"warc": [url]}}))
    overlays = ["configs/demo.yaml", "signed.yaml"]
    done = checkout.snakemake("--printshellcmds", "crawl", overlays=overlays)
    assert "missing.warc.gz: not found" in done.stdout and "--input warc=@work/addresses/" in done.stdout
    assert "SECRET" not in done.stdout
    made = [path for name in (".snakemake", "results", "work") for path in (tmp_path / name).rglob("*")]
    (kept,) = [path for path in made if path.is_file() and b"SECRET" in path.read_bytes()]
    assert kept.parent == tmp_path / "work/addresses" and kept.stat().st_mode & 0o077 == 0
    (tmp_path / "signed.yaml").write_text(json.dumps({"crawl": {"warc": {url: 1}}}))
    done = checkout.snakemake("--dry-run", overlays=overlays)
    assert "config key crawl.warc" in done.stdout and "SECRET" not in done.stdout


def test_the_query_of_an_address_counts_for_what_a_result_is():
    one, other = (digest_of(f"https://host/get?file={name}", Digests()) for name in "ab")
    assert one != other and "file=" not in one + other


@pytest.fixture
def server_of_files(monkeypatch):
    """`files[path] = bytes, or a redirect's target`; `files["address"]`, `files["handler"]`."""
    files = {}

    class Answers(Server):
        def do_GET(self):
            if isinstance(target := files.get(self.path), str):
                self.send_response(302)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            type(self).requests = 3  # the next request is answered
            return super().do_GET()

        do_HEAD = do_GET

    Answers.files, Answers.patient = files, True
    monkeypatch.setattr(sources.time, "sleep", lambda seconds: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        files["address"], files["handler"] = f"http://127.0.0.1:{server.server_port}/", Answers
        yield files
        server.shutdown()


@pytest.mark.parametrize(
    "entry",
    [
        "/etc/passwd",
        "../../../../etc/passwd",
        "file:///etc/passwd",
        "local:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "https://intranet/x.warc.gz",
        "simplecache::file:///etc/passwd",
        "https://host/x::file:///etc/passwd",
        "https://host@intranet/x",
        "https://host\\@intranet/x",
        "https://host.intranet/x",
        "http://host/x",
        "https://host:8080/x",
        "s3://bucket/x",
        "@intranet/x",
        ".intranet/x",
    ],
)
def test_a_remote_list_and_a_remote_index_lead_only_to_their_server_and_the_base(entry, server_of_files):
    row = {"url": "http://a.org/", "filename": entry, "offset": 0, "length": 10}
    server_of_files |= {"/x.paths": f"{entry}\n".encode(), "/x.jsonl": json.dumps(row).encode()}
    address = server_of_files["address"]
    for base in ("https://host", ""):
        if not base and entry[0] in "@.":
            continue
        outside = entry != "/etc/passwd" or not base  # below the base it is only a file that is not there
        for call in (
            lambda base=base: sources.expand([f"{address}x.paths"], base),
            lambda base=base: list(read_indexed_pages(f"{address}x.jsonl", base, 10**6, ReadCounts())),
        ):
            if outside and not (entry.startswith("..") and base):
                with pytest.raises(InputError, match="leads to"):
                    call()
    assert sources.follow("/etc/passwd", f"{address}x.paths", "https://host") == "https://host/etc/passwd"


def test_a_remote_list_stays_inside_a_base_that_is_a_folder(tmp_path, server_of_files):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    server_of_files["/x.paths"] = b"a.warc.gz\n"
    listed = [f"{server_of_files['address']}x.paths"]
    assert sources.expand(listed, f"{tmp_path}/") == [f"{tmp_path}/a.warc.gz"]
    server_of_files["/x.paths"] = b"../../../../../../../etc/passwd\n"
    with pytest.raises(InputError, match="leads to"):
        sources.expand(listed, f"{tmp_path}/")


def test_lists_may_name_files_of_their_own_server_and_of_the_base(server_of_files):
    address = server_of_files["address"]
    server_of_files["/x.paths"] = f"{address}a.gz\nb.gz\nhttps://host/c.gz\n".encode()
    found = sources.expand([f"{address}x.paths"], "https://host/")
    assert found == [f"{address}a.gz", "https://host/b.gz", "https://host/c.gz"]


def test_http_redirects_lead_only_to_their_own_server(tmp_path, server_of_files):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    address = server_of_files["address"]
    server_of_files |= {"/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes(), "/same": "/a.warc.gz"}
    server_of_files |= {"/file": "file:///etc/passwd", "/far": "http://127.0.0.2:1/x?secret=SECRET"}
    server_of_files |= {"/other": address.replace("127.0.0.1", "localhost") + "a.warc.gz", "/two": "/other"}
    assert len(read(f"{address}same")[0]) == 5
    for name in ("file", "far", "other", "two"):
        with pytest.raises(InputError, match="redirects to") as error:
            read(address + name)
        assert "SECRET" not in str(error.value)


@pytest.fixture
def secure_server(tmp_path, monkeypatch, server_of_files):
    """The address by https of a server of files; `hub` and `cdn` are names of this machine."""
    key, pem = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=hub", "-days", "2"]
    make += ["-addext", "subjectAltName=DNS:hub,DNS:cdn", "-keyout", key, "-out", pem]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=pem))
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: real("127.0.0.1", *rest))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), server_of_files["handler"]) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"https://hub:{server.server_port}/"
        server.shutdown()


def test_https_redirects_may_lead_to_another_public_server_and_to_no_internal_one(
    tmp_path, monkeypatch, server_of_files, secure_server
):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    other = secure_server.replace("hub", "cdn") + "a.warc.gz?signature=SECRET"
    server_of_files |= {"/a.warc.gz?signature=SECRET": (tmp_path / "a.warc.gz").read_bytes(), "/far": other}
    server_of_files |= {"/plain": server_of_files["address"], "/file": "file:///etc/passwd"}
    server_of_files["/cloud"] = "https://169.254.169.254/x"
    with pytest.raises(InputError, match="redirects to cdn, which is not a public server") as error:
        read(f"{secure_server}far")
    assert "SECRET" not in str(error.value)
    for name in ("plain", "file", "cloud"):
        with pytest.raises(InputError, match="name that server instead"):
            read(secure_server + name)
    monkeypatch.setattr(sources, "_is_public", lambda address: address == "127.0.0.1")
    assert len(read(f"{secure_server}far")[0]) == 5


def test_internal_addresses_are_not_public():
    internal = ["10.1.2.3", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1", "169.254.169.254", "::1"]
    assert not any(map(sources._is_public, internal)) and sources._is_public("93.184.215.14")


@pytest.mark.parametrize("text, count", [(b"\n", 200 << 20), (b"a", 80 << 20), (b"a\n", 1 << 24)])
def test_a_list_that_unpacks_to_gigabytes_is_refused_in_bounded_memory(tmp_path, text, count):
    path = tmp_path / "warc.paths.gz"
    path.write_bytes(gzip.compress(text * count, 1))
    code = (
        "import resource, sys\nfrom pipeline.crawl import sources\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (700 << 20, 700 << 20))\nsources.expand(sys.argv[1:])"
    )
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True)
    assert "InputError" in done.stderr and "warc.paths.gz: " in done.stderr, done.stderr[-500:]
