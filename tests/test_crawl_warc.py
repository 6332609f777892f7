"""Reading WARC files: lineage, damage, lengths that lie, and disks that fail."""

import errno
import gzip
import io
import json
from pathlib import Path

import pytest
from crawl_warcs import RECORDS, URLS, extract_into, html, read, record, write_warc

from pipeline.core.stage import InputError
from pipeline.crawl import warc
from pipeline.crawl.warc import ReadCounts, digest_of


def sound(pages):
    return [page.url.decode() for page in pages if page.flaw is None]


def test_lineage_leads_back_to_the_record(tmp_path):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    pages, counts = read(tmp_path / "a.warc.gz")
    assert [page.offset for page in pages] == offsets[:-1]
    data = (tmp_path / "a.warc.gz").read_bytes()
    for page, original in zip(pages, RECORDS, strict=True):
        assert gzip.decompress(data[page.offset : page.offset + page.length]) == original
        assert page.digest.startswith("sha1:") and len(page.digest) == 37
    assert counts == ReadCounts(records=5)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("cut", [1, 3, 10, 60, 150, 300])
def test_a_file_cut_anywhere_gives_all_whole_records_and_counts_the_rest(tmp_path, compressed, cut):
    path = tmp_path / "a.warc"
    members = [gzip.compress(one) if compressed else one for one in RECORDS]
    whole = sum(map(len, members[:3]))
    path.write_bytes(b"".join(members)[: whole + cut])
    pages, counts = read(path)
    assert sound(pages) == URLS[:3]
    if compressed:
        assert counts.lost_bytes == cut
    else:  # FastWARC takes what is left of a plain header for a record
        assert counts.lost_bytes == cut or len(pages) == 4 and pages[3].flaw or counts.records == 4


def test_damage_in_the_middle_costs_only_the_record_it_hits(tmp_path):
    offsets = write_warc(tmp_path / "a.warc.gz", RECORDS)
    good = (tmp_path / "a.warc.gz").read_bytes()
    for at in (offsets[2], offsets[2] + 20, offsets[3] - 60, offsets[3] - 5):
        data = bytearray(good)
        data[at : at + 4] = b"\0\xff\0\xff"
        (tmp_path / "a.warc.gz").write_bytes(data)
        pages, counts = read(tmp_path / "a.warc.gz")
        assert sound(pages) == URLS[:2] + URLS[3:]
        assert counts.lost_bytes == offsets[3] - offsets[2]


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("extra", [1000, -60])
def test_a_record_that_lies_about_its_length_is_marked_and_hides_no_other(tmp_path, compressed, extra):
    lying = record("http://liar.org/", html("one"), claimed_extra=extra)
    members = [gzip.compress(one) if compressed else one for one in (RECORDS[0], lying, *RECORDS[1:])]
    (tmp_path / "a.warc").write_bytes(b"".join(members))
    pages, _ = read(tmp_path / "a.warc")
    assert sound(pages) == URLS
    assert [page.flaw for page in pages if page.flaw] == ["wrong_length"]


@pytest.mark.parametrize("compressed", [True, False])
def test_records_that_state_one_byte_too_few_are_whole(tmp_path, compressed):
    short = [record(url, html(f"This is page {url}."), claimed_extra=-1) for url in URLS]
    (tmp_path / "a.warc").write_bytes(b"".join(gzip.compress(one) if compressed else one for one in short))
    pages, counts = read(tmp_path / "a.warc")
    assert sound(pages) == URLS and all(page.payload.endswith(b"</html>") for page in pages)
    assert all(page.digest == digest_of(page.payload) for page in pages) and counts.lost_bytes == 0


def test_a_missing_byte_needs_the_end_of_the_record_after_it(tmp_path):
    rest = b"x\r\n\r\nThis text goes on, so it is no missing byte."
    lying = record("http://liar.org/", html("one") + rest, claimed_extra=-len(rest))
    (tmp_path / "a.warc").write_bytes(b"".join((RECORDS[0], lying, *RECORDS[1:])))
    pages, _ = read(tmp_path / "a.warc")
    assert sound(pages) == URLS
    assert [page.flaw for page in pages if page.flaw] == ["wrong_length"]


def test_records_of_one_member_that_were_not_reached_are_a_loss(tmp_path):
    lying = record("http://liar.org/", html("one"), claimed_extra=-60)
    (tmp_path / "a.warc.gz").write_bytes(gzip.compress(b"".join([*RECORDS[:2], lying, *RECORDS[2:]])))
    pages, counts = read(tmp_path / "a.warc.gz")
    assert sound(pages)[:2] == URLS[:2] and len(pages) < 6
    assert counts.lost_bytes > 0 and counts.breaks == 1


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("extra", [10**6, 2**63 - 1000, 2**64])
def test_a_length_beyond_the_file_ends_nothing(tmp_path, compressed, extra):
    lying = record("http://liar.org/", html("one"), claimed_extra=extra)
    members = [gzip.compress(one) if compressed else one for one in (*RECORDS, lying)]
    (tmp_path / "a.warc").write_bytes(b"".join(members))
    pages, _ = read(tmp_path / "a.warc")
    assert sound(pages) == URLS


def test_a_file_that_is_no_warc_is_all_loss(tmp_path):
    (tmp_path / "a.warc.gz").write_bytes(b"\x1f\x8b\x08\0" * 5000 + bytes(5000))
    assert read(tmp_path / "a.warc.gz") == ([], ReadCounts(lost_bytes=25_000, breaks=1))


class FailingFile(io.BytesIO):
    """A file whose second half cannot be read."""

    error = InputError("http://a.org/a.warc.gz: cannot be read")

    def read(self, size=-1):
        if self.tell() >= 700:
            raise self.error
        return super().read(min(size, 700))


@pytest.mark.parametrize("error", [FailingFile.error, OSError(errno.EIO, "Input/output error")])
def test_a_disk_or_network_that_fails_is_not_taken_for_a_damaged_file(tmp_path, monkeypatch, error):
    write_warc(tmp_path / "a.warc.gz", RECORDS)
    monkeypatch.setattr(FailingFile, "error", error)
    monkeypatch.setattr(
        warc, "open_source", lambda path, forward: FailingFile((tmp_path / "a.warc.gz").read_bytes())
    )
    with pytest.raises(type(error)):
        read(tmp_path / "a.warc.gz")


@pytest.mark.slow
@pytest.mark.parametrize("error", [FailingFile.error, OSError(errno.EIO, "Input/output error")])
def test_a_file_that_fails_is_named_and_read_again_alone(tmp_path, monkeypatch, capsys, error):
    """In a job of three files; the others are kept, and the bytes are those of a run without a fault."""
    files = [tmp_path / f"{name}.warc.gz" for name in "abc"]
    for file in files:
        write_warc(file, [record(f"http://{file.name}/{n}", html(f"Page {n}.")) for n in range(20)])
    extract_into(tmp_path / "whole", *files)
    monkeypatch.setattr(FailingFile, "error", error)

    def failing(path, forward):
        data = Path(path).read_bytes()
        return FailingFile(data) if path == str(files[1]) else io.BytesIO(data)

    with monkeypatch.context() as broken, pytest.raises(SystemExit) as end:
        broken.setattr(warc, "open_source", failing)
        extract_into(tmp_path / "out", *files)
    last = capsys.readouterr().err.splitlines()[-1]
    assert end.value.code == 2 and not (tmp_path / "out").exists()
    assert last.startswith("error: 1 of 3 files failed") and last.count("warc.gz") == 1
    extract_into(tmp_path / "out", *files)
    for name in ("pages.jsonl.zst", "records.parquet", "ledger.jsonl"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    counters = json.loads((tmp_path / "out/run.json").read_text())["counters"]
    assert counters == {"fastwarc.records": 20, "resiliparse.pages": 20}, "the third of the pages was left"
    assert not (tmp_path / ".out.work").exists()
    ledger = [json.loads(line) for line in (tmp_path / "out/ledger.jsonl").read_text().splitlines()]
    assert [(line["file"], line["pages"]) for line in ledger] == [(file.name, 20) for file in files]
