"""Where pages come from: lists, dumps and indexes."""
# ruff: noqa: F401, F811  (fixtures are imported)

import gzip
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from crawl_server import Server, address, server_of_files
from crawl_warcs import RECORDS, URLS, extract_into, write_warc
from given.cases import cases
from given.instances import graph_of

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import read_table
from pipeline.core.stage import InputError
from pipeline.crawl import extract, sources
from pipeline.crawl.index import read_index, read_indexed_pages
from pipeline.crawl.warc import ReadCounts
from workflow.keys import Keys

TABLES = cases("list_entries")


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i.parquet", "i.cdxj.gz", "i.jsonl.gz"])
def test_an_index_reads_only_the_records_it_lists(tmp_path, name):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    rows = [
        {"url": URLS[i], "filename": "a.warc.gz", "offset": str(start), "length": end - start}
        for i, start, end in ((3, *offsets[3:5]), (1, *offsets[1:3]))
    ]
    rows.append({"url": "http://gone.org/", "filename": "a.warc.gz", "offset": "5", "length": 99})
    write_index(tmp_path / name, rows)
    found = read_table(extract_into(tmp_path / "out", tmp_path / name) / "records.parquet").to_pylist()
    assert [(row["url"], row["offset"], row["reason"]) for row in found] == [
        ("http://gone.org/", 5, "incomplete_record"),
        (URLS[1], offsets[1], None),
        (URLS[3], offsets[3], None),
    ]
    whole = extract_into(tmp_path / "whole", tmp_path / "a.warc.gz")
    rows = {row["id"]: row for row in read_table(whole / "records.parquet").to_pylist()}
    assert all(rows[row["id"]] == row for row in found[1:])


def test_an_index_of_remote_files_costs_a_range_for_each_record(tmp_path, address):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    Server.files = {"/x/a.warc.gz": (tmp_path / "a.warc.gz").read_bytes()}
    row = {"url": URLS[2], "filename": "x/a.warc.gz", "offset": offsets[2], "length": offsets[3] - offsets[2]}
    write_index(tmp_path / "i.jsonl.gz", [row])
    (page,) = read_indexed_pages(read_index(str(tmp_path / "i.jsonl.gz")), address, 1_000_000, ReadCounts())
    assert page.url.decode() == URLS[2] and page.flaw is None


def test_a_bad_index_is_one_line_that_names_its_row(tmp_path, capsys):
    write_index(tmp_path / "i.jsonl.gz", [{"url": "http://a.org/", "filename": "a.warc.gz"}])
    with pytest.raises(SystemExit, match="2"):
        extract_into(tmp_path / "out", tmp_path / "i.jsonl.gz")
    assert "i.jsonl.gz: row 1: needs url, filename" in capsys.readouterr().err


@pytest.mark.parametrize("part", [b"PAR1", b"http"])  # before a page's header, in a text
def test_a_damaged_table_is_one_line_that_names_it(tmp_path, part):
    row = {"url": "http://a.org/", "filename": "a.warc.gz", "offset": 1, "length": 2}
    write_index(tmp_path / "i.parquet", [row])
    data = (tmp_path / "i.parquet").read_bytes()
    at = data.index(part) + len(part)
    (tmp_path / "i.parquet").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(InputError, match="i.parquet: not a readable Parquet file"):
        read_index(str(tmp_path / "i.parquet"))


def test_an_index_may_take_more_memory_than_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(extract, "PAGE_MEMORY", 24_000_000)
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    urls = [f"http://a.org/{number}" for number in range(60_000)]
    columns = {"url": urls, "filename": ["a.warc.gz"] * 60_000, "offset": range(60_000, 0, -1)}
    pq.write_table(pa.table(columns | {"length": [9] * 60_000}), tmp_path / "i.parquet")
    row, document = next(extract.extract_file(str(tmp_path / "i.parquet"), CrawlSection(), ReadCounts()))
    assert (row["offset"], row["reason"], document) == (1, "incomplete_record", None)


@pytest.mark.parametrize("entry", TABLES["outside"])
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
            lambda base=base: list(
                read_indexed_pages(read_index(f"{address}x.jsonl"), base, 10**6, ReadCounts())
            ),
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


@pytest.mark.slow
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


def test_two_files_never_share_the_name_of_a_job() -> None:
    """The names of these two, of one dump, begin with the same 32 bits."""
    place = "https://data.commoncrawl.org/crawl-data/CC-MAIN-2023-50/segments"
    files = [
        f"{place}/1707947{segment}/warc/CC-MAIN-20240220211055-20240221001055-00{number}.warc.gz"
        for segment, number in (("200000.0", "682"), ("200075.75", "203"))
    ]
    nodes = graph_of(crawl={"warc": files}).nodes
    assert sorted(dict(nodes[name].inputs)["warc"] for name in nodes if "/extract-" in name) == sorted(files)


def test_columns_of_texts_are_no_part_of_what_warc_files_give(tmp_path):
    (path := tmp_path / "rows.jsonl").write_text('{"body": "A text."}\n')
    found = []
    for fields in ({}, {"text": "body"}):
        crawl = {"warc": ["https://host/x.warc.gz"], "texts": str(path), "fields": fields}
        keys = Keys(graph_of(crawl=crawl))
        names = sorted(name for name in keys.graph.nodes if "/extract-" in name)
        found.append({dict(keys.graph.nodes[name].inputs).get("texts"): keys.key(name) for name in names})
    assert found[0][None] == found[1][None] and found[0][str(path)] != found[1][str(path)]
