"""Remote files: servers that fail in every way, redirects, and addresses that hold secrets."""
# ruff: noqa: F401, F811  (fixtures are imported)

import http.server
import json
import socket
import ssl
import subprocess
import threading

import aiohttp
import pytest
from conftest import copy_checkout
from crawl_server import CREDENTIALS, Server, address, server_of_files, with_user
from crawl_warcs import RECORDS, extract_into, read, write_warc
from given.instances import graph_of

from pipeline.core.data.shards import read_table
from pipeline.core.identity import Digests, digest_of
from pipeline.core.stage import InputError
from pipeline.crawl import remote, sources
from pipeline.crawl.index import read_index
from pipeline.crawl.warc import ReadCounts
from workflow.crawl import is_downloading


def test_a_remote_file_reads_like_a_local_one_through_failing_requests(tmp_path, address):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {"/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes()}
    assert read(f"{address}a.warc.gz") == read(tmp_path / "a.warc.gz")
    assert Server.requests == 4, "two refused, one broken off, and the rest of it"
    assert len(Server.waits) == 3 and sum(wait >= 7 for wait in Server.waits) == 2  # as the server asked


def test_the_pause_that_a_server_asks_one_job_for_holds_for_all(tmp_path, address, monkeypatch):
    monkeypatch.setattr(remote, "HOLDS", tmp_path / "servers")
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {"/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes()}
    read(f"{address}a.warc.gz")
    Server.requests, waits = 3, []
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    assert len(read(f"{address}a.warc.gz")[0]) == 5
    assert len(waits) >= 1 and all(4 < wait <= 8.75 for wait in waits), waits
    remote._wait_for("https://another.org/a.warc.gz")
    assert Server.requests == 4 and len(list((tmp_path / "servers").iterdir())) == 1


def test_a_file_and_a_record_of_it_are_read_from_s3(tmp_path, monkeypatch, server_of_files):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    server_of_files["/bucket/crawl/a.warc.gz"] = data = (tmp_path / "a.warc.gz").read_bytes()
    for name, value in {"ENDPOINT_URL": server_of_files["address"], "REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "SECRET")
    monkeypatch.setattr(remote, "BLOCK_BYTES", 400)
    monkeypatch.setattr(remote, "HOLDS", tmp_path / "absent" / "servers")
    assert read("s3://bucket/crawl/a.warc.gz") == read(tmp_path / "a.warc.gz")
    file, (start, end) = remote.RemoteFile("s3://bucket/crawl/a.warc.gz"), offsets[2:4]
    assert file.read_range(start, end - start) == data[start:end]
    with pytest.raises(InputError, match="s3://bucket/crawl/b.warc.gz: not found"):
        read("s3://bucket/crawl/b.warc.gz")


def test_a_server_that_never_answers_and_a_file_that_is_not_there_are_one_line(address):
    Server.patient = False
    with pytest.raises(InputError, match=r"a.warc.gz: cannot be read .* 6 attempts made"):
        read(f"{address}a.warc.gz")
    assert len(Server.waits) == 5 and min(Server.waits) >= 7 and Server.waits[-1] >= 16
    Server.patient, Server.files = True, {}
    with pytest.raises(InputError, match="not found"):
        read(f"{address}a.warc.gz")


def test_neither_rows_nor_messages_nor_manifests_hold_credentials(tmp_path, address):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {f"/a.warc.gz{CREDENTIALS}": (tmp_path / "a.warc.gz").read_bytes()}
    Server.requests = 3
    found = read(f"{with_user(address)}a.warc.gz{CREDENTIALS}")[0]
    assert len(found) == 5 and {page.warc_file for page in found} == {"a.warc.gz"}
    for path in (f"b.warc.gz{CREDENTIALS}", f"list.paths.gz{CREDENTIALS}", f"i.parquet{CREDENTIALS}"):
        with pytest.raises(InputError) as error:
            expanded = sources.expand([f"{with_user(address)}{path}"], "https://host/")
            read_index(expanded[0])
        assert "SECRET" not in str(error.value) and "user" not in str(error.value)
    Server.patient = False
    with pytest.raises(InputError, match="6 attempts made") as error:
        read(f"{with_user(address)}c.warc.gz{CREDENTIALS}")
    assert "SECRET" not in str(error.value)
    with pytest.raises(InputError, match="crawl.base_url") as error:
        sources.expand([], "https://user:SECRET@host/")
    assert "SECRET" not in str(error.value)


def test_a_result_made_from_a_signed_address_does_not_show_the_signature(tmp_path, server_of_files, capfd):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    server_of_files[f"/a.warc.gz{CREDENTIALS}"] = (tmp_path / "a.warc.gz").read_bytes()
    url = f"{with_user(server_of_files['address'])}a.warc.gz{CREDENTIALS}"
    extract_into(tmp_path / "out", url)
    assert "SECRET" not in "".join(capfd.readouterr())
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
    assert "missing.warc.gz: not found" in done.stdout and "--input @@work/inputs/" in done.stdout
    assert "downloads=1" in done.stdout and 'Resource("downloads", 8)' in done.stdout, "one of the profile's"
    assert "SECRET" not in done.stdout
    made = [path for name in (".snakemake", "results", "work") for path in (tmp_path / name).rglob("*")]
    (kept,) = [path for path in made if path.is_file() and b"SECRET" in path.read_bytes()]
    assert kept.parent == tmp_path / "work/inputs" and kept.stat().st_mode & 0o077 == 0
    (tmp_path / "signed.yaml").write_text(json.dumps({"crawl": {"warc": {url: 1}}}))
    done = checkout.snakemake("--dry-run", overlays=overlays)
    assert "config key crawl.warc" in done.stdout and "SECRET" not in done.stdout


def test_a_job_that_reads_from_a_server_is_one_of_the_downloads_that_a_profile_counts(tmp_path):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    (tmp_path / "index.jsonl").write_text("")
    sources = {f"{tmp_path}/a.warc.gz": False, "https://a.org/b.warc.gz": True, "s3://c/c.warc.gz": True}
    sources[f"{tmp_path}/index.jsonl"] = True  # its records are below the base
    crawl = {"warc": list(sources)}

    def found(**keys):
        graph = graph_of(run="none", crawl=crawl | keys)
        nodes = [node for node in graph.nodes.values() if node.stage == "crawl"]
        read = {node.inputs[0][1]: is_downloading(node) for node in nodes if "extract" in node.name}
        assert sum(map(is_downloading, nodes)) == sum(read.values()), "extraction alone"
        return read

    assert found() == sources
    assert found(base_url=f"{tmp_path}/") == sources | {f"{tmp_path}/index.jsonl": False}


def test_the_query_of_an_address_counts_for_what_a_result_is():
    one, other = (digest_of(f"https://host/get?file={name}", Digests()) for name in "ab")
    assert one != other and "file=" not in one + other


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
    monkeypatch.setattr(remote, "_is_public", lambda address: address == "127.0.0.1")
    assert len(read(f"{secure_server}far")[0]) == 5


def test_internal_addresses_are_not_public():
    internal = ["10.1.2.3", "100.64.0.1", "fd00::1", "::ffff:10.0.0.1", "169.254.169.254", "::1"]
    assert not any(map(remote._is_public, internal)) and remote._is_public("93.184.215.14")
