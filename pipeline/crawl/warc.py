"""Read WARC and WET files record by record, damaged ones too, with lineage and a count of what was lost.

FastWARC parses. This module adds recovery: after an error it searches for the next record, counts every byte
that belongs to no readable record, and marks records that end early or state a wrong length. No content of a
file is fatal; a file that is missing or unreachable is.
"""

import re
import zlib
from base64 import b32encode
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from hashlib import sha1
from typing import BinaryIO

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from pipeline.crawl.sources import file_name, open_source

PAGES = WarcRecordType.response | WarcRecordType.conversion
GZIP = b"\x1f\x8b\x08"
CHUNK = 1 << 20
MAX_FALSE_STARTS = 1000  # in a file; the rest is then skipped, so that noise cannot cost hours
MAX_HEADER = 32 << 10  # of WARC and HTTP headers, as FastWARC has it
INCOMPLETE, WRONG_LENGTH = "incomplete_record", "wrong_length"
CLOSING, BEGINNING = b"\r\n\r\n", b"WARC/"  # of a record
RECORD_START = {
    True: re.compile(re.escape(GZIP) + rb"[\x00-\x1f]"),
    False: re.compile(rb"(?<=\r\n)WARC/1\.[0-9]\r\n"),
}


@dataclass(slots=True)
class Page:
    """One response record (or conversion record of a WET file).

    `offset` and `length` locate the record in its file, in stored (compressed) bytes; a length of 0 is
    unknown. `payload` is the body without HTTP headers, not decoded. `flaw` is set when the record cannot
    be trusted: a reason for rejection.
    """

    url: bytes | None
    warc_file: str
    offset: int
    length: int
    digest: str
    payload: bytes
    is_text: bool
    http_status: int | None = None
    content_type: str = ""
    identified_type: str = ""
    charset: str | None = None
    content_encoding: str = ""
    transfer_encoding: str = ""
    truncated: str | None = None
    flaw: str | None = None
    language: str | None = None  # where a file of texts says it
    licence: str | None = None  # likewise


@dataclass
class ReadCounts:
    """Records read, bytes outside of readable ones, and interruptions between them."""

    records: int = 0
    lost_bytes: int = 0
    breaks: int = 0

    def add(self, other: "ReadCounts") -> None:
        """Add the counts of another file."""
        self.records += other.records
        self.lost_bytes += other.lost_bytes
        self.breaks += other.breaks


@dataclass(frozen=True)
class _RunEnd:
    """End of a run of readable records: they end at `used`; the next record may begin from `search` on.

    `missing` is the last byte of a record that states one too few, as those of some wgets do.
    """

    used: int
    search: int
    flaw: str | None = None
    missing: bytes = b""


def read_pages(path: str, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """Yield the response and conversion records of a WARC file in order, and fill `counts`.

    At most `max_bytes` + 1 bytes of a payload are read; a longer one is marked `too_large`.
    """
    with open_source(path, forward=True) as stream:
        yield from read_stream(stream, file_name(path), max_bytes, counts)


def read_stream(stream: BinaryIO, name: str, max_bytes: int, counts: ReadCounts) -> Iterator[Page]:
    """`read_pages` of an open file, which lineage calls `name`."""
    size = stream.seek(0, 2)
    stream.seek(0)
    compressed = stream.read(len(GZIP)) == GZIP
    start = used = false_starts = 0
    while start < size and false_starts < MAX_FALSE_STARTS:
        run = yield from _read_run(stream, start, size, compressed, name, max_bytes, counts)
        if run is None:
            false_starts, search = false_starts + 1, start + 1
        else:
            counts.lost_bytes += start - used
            used, search = run.used, run.search
        counts.breaks += used < size and (run is not None or start == 0)
        start = _find_record(stream, search, size, compressed) if used < size else size
    counts.lost_bytes += size - used


def _read_run(
    stream: BinaryIO, start: int, size: int, compressed: bool, name: str, max_bytes: int, counts: ReadCounts
) -> Generator[Page, None, _RunEnd | None]:
    """Yield pages from `start` until the end or an error; returns None if there was no record at all."""
    stream.seek(start)
    pending: Page | None = None
    last = claimed = -1
    failed = False
    try:
        for record in ArchiveIterator(stream, parse_http=False, strict_mode=False):
            if pending is not None:
                pending.length = record.stream_pos - pending.offset
                yield pending
            counts.records += 1
            last, claimed = record.stream_pos, record.content_length
            pending = _read_page(record, name, max_bytes) if record.record_type & PAGES else None
    except OSError as error:  # FastWARC raises this for bytes that are no WARC record
        if error.errno is not None:  # raised by the system: a broken disk
            raise
        failed = True
    if last < 0:
        return None
    if compressed:
        reached = min(stream.tell(), size - 1) if failed else size  # of a member of many records
        run = _end_of_member(stream, last, claimed, size, reached)
    elif failed:
        run = _end_of_plain_record(stream, last, claimed)
    else:
        run = _RunEnd(last if pending is not None and pending.flaw == INCOMPLETE else size, size)
    if pending is not None:
        end = run.used if run.used > last else run.search
        pending.length = end - pending.offset if end - pending.offset > 1 else 0
        pending.flaw = pending.flaw or run.flaw
        if run.missing and not pending.flaw:
            whole = digest_of(pending.payload) == pending.digest  # counted without that byte, or not given
            pending.payload += run.missing
            pending.digest = digest_of(pending.payload) if whole else pending.digest
        yield pending
    return run


def _end_of_member(stream: BinaryIO, offset: int, claimed: int, size: int, reached: int) -> _RunEnd:
    """Inflate the gzip member at `offset` again to see if it is complete and its record as long as stated.

    Of a member with many records all up to `reached` counts as read.
    """
    if offset >= size:  # many records in one member: they have no offsets of their own
        return _RunEnd(reached, size)
    stream.seek(offset)
    inflater = zlib.decompressobj(wbits=31)
    head, tail, inflated, end = b"", b"", 0, offset
    try:
        while not inflater.eof:
            data = inflater.unconsumed_tail or stream.read(CHUNK)
            if not data:
                return _RunEnd(offset, size, INCOMPLETE)
            fresh = not inflater.unconsumed_tail
            block = inflater.decompress(data, CHUNK)
            end += len(data) if fresh else 0
            head += block[: max(0, MAX_HEADER - len(head))]
            tail = (tail + block[-len(CLOSING) - 1 :])[-len(CLOSING) - 1 :]
            inflated += len(block)
    except zlib.error:
        if inflated == 0:  # no member starts here: one member with many records
            return _RunEnd(reached, size)
        return _RunEnd(offset, offset + 1, INCOMPLETE)
    end -= len(inflater.unused_data)
    block_bytes = inflated - (head.find(b"\r\n\r\n") + 4)
    if block_bytes == claimed + 1 + len(CLOSING) and tail.endswith(CLOSING):
        return _RunEnd(end, end, missing=tail[:1])
    wrong = not claimed <= block_bytes <= claimed + 4
    return _RunEnd(end, end, WRONG_LENGTH if wrong else None)


def _end_of_plain_record(stream: BinaryIO, offset: int, claimed: int) -> _RunEnd:
    """Find the stated end of an uncompressed record, if the two line ends that close a record are there."""
    stream.seek(offset)
    header = stream.read(MAX_HEADER).find(b"\r\n\r\n") + 4
    stream.seek(offset + header + claimed)
    after = stream.read(1 + len(CLOSING) + len(BEGINNING))
    end = offset + header + claimed + len(CLOSING)
    if after.startswith(CLOSING):
        return _RunEnd(end, end)
    if after[1:].startswith(CLOSING) and after[1 + len(CLOSING) :] in (b"", BEGINNING):
        return _RunEnd(end + 1, end + 1, missing=after[:1])
    return _RunEnd(offset, offset + 1, WRONG_LENGTH)


def _find_record(stream: BinaryIO, start: int, size: int, compressed: bool) -> int:
    """Find the offset from `start` on where a record may begin; `size` if there is none."""
    pattern = RECORD_START[compressed]
    position = max(start - 2, 0)  # the line end before an uncompressed record
    while position < size:
        stream.seek(position)
        data = stream.read(CHUNK)
        if match := pattern.search(data, max(start - position, 0)):
            return position + match.start()
        if len(data) < CHUNK:
            break
        position += len(data) - 16  # a pattern may lie across the border
    return size


def digest_of(payload: bytes) -> str:
    """Hash a payload as Common Crawl does in WARC-Payload-Digest."""
    return "sha1:" + b32encode(sha1(payload, usedforsecurity=False).digest()).decode()


def _read_page(record: WarcRecord, name: str, max_bytes: int) -> Page:
    """Read one response or conversion record; HTTP headers are parsed, the body stays encoded."""
    headers = record.headers
    page = Page(
        url=headers.get_bytes(b"WARC-Target-URI"),
        warc_file=name,
        offset=record.stream_pos,
        length=0,
        digest=headers.get("WARC-Payload-Digest", ""),
        payload=b"",
        is_text=record.record_type == WarcRecordType.conversion,
        identified_type=headers.get("WARC-Identified-Payload-Type", ""),
        truncated=headers.get("WARC-Truncated"),
    )
    try:
        if not page.is_text:
            _read_http_headers(record, page)
        expected = record.content_length
        page.payload = record.reader.read(max_bytes + 1)
    except OSError as error:  # the compressed stream breaks within this record
        if error.errno is not None:
            raise
        page.flaw = INCOMPLETE
        return page
    if len(page.payload) > max_bytes:
        page.flaw = "too_large"
    elif len(page.payload) < expected:
        page.flaw = INCOMPLETE
    elif not page.digest:
        page.digest = digest_of(page.payload)
    return page


def _read_http_headers(record: WarcRecord, page: Page) -> None:
    record.parse_http(strict_mode=False)
    headers = record.http_headers
    if headers is None or headers.status_code is None:
        page.flaw = "no_http_header"
        return
    page.http_status = headers.status_code
    page.content_type = record.http_content_type or ""
    page.charset = record.http_charset
    page.content_encoding = headers.get("Content-Encoding", "").strip().lower()
    page.transfer_encoding = headers.get("Transfer-Encoding", "").strip().lower()
