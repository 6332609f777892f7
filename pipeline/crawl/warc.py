"""Read WARC and WET files record by record, damaged ones too, with lineage and a count of what was lost.

FastWARC parses. This module inflates gzip members one by one and adds recovery: after an error it searches
for the next record, counts every byte that belongs to no readable record, and marks records that end early. A
record that is alone in its member has the member's length, whatever it states. No content of a file is fatal;
a file that is missing or unreachable is.
"""

import io
import re
import zlib
from base64 import b32encode
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from hashlib import sha1
from typing import Any, BinaryIO

from fastwarc.warc import ArchiveIterator, WarcRecord, WarcRecordType

from pipeline.crawl.sources import file_name, open_source

PAGES = WarcRecordType.response | WarcRecordType.conversion
GZIP = b"\x1f\x8b\x08"
CHUNK = 1 << 20
STORED = 1 << 14  # bytes of a member that are read at once
MEMORY = 16 << 20  # bytes of an inflated member that are in memory
SLACK = 2  # bytes by which a record may be longer than it states (a fault of wget)
MAX_FALSE_STARTS = 1000  # in a file; the rest is then skipped, so that noise cannot cost hours
MAX_HEADER = 32 << 10  # of WARC and HTTP headers, as FastWARC has it
INCOMPLETE, WRONG_LENGTH = "incomplete_record", "wrong_length"
GZIP_START = re.compile(re.escape(GZIP) + rb"[\x00-\x1f]")
RECORD_START = re.compile(rb"(?<=\r\n)WARC/1\.[0-9]\r\n")
LENGTH = re.compile(rb"\r\nContent-Length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)


@dataclass(slots=True)
class Page:
    """One response record (or conversion record of a WET file).

    `offset` and `length` locate the record in its file, in stored (compressed) bytes; the length of one of
    several records in a gzip member is unknown: 0. `payload` is the body without HTTP headers, not decoded.
    `flaw` is set when the record cannot be trusted: a reason for rejection.
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


@dataclass
class ReadCounts:
    """Records read, bytes outside of readable ones, and interruptions between them.

    Of a damaged member all bytes count as lost, also where some records were read; within an undamaged member
    bytes are counted as inflated.
    """

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
    """End of a run of readable records: they end at `used`; the next record may begin from `search` on."""

    used: int
    search: int


@dataclass(frozen=True)
class _Member:
    """A gzip member: its content of `size` bytes, where it ends in the file, and whether it is undamaged."""

    content: BinaryIO
    size: int
    end: int
    whole: bool


class _Inflated(io.RawIOBase):
    """The content of a gzip member, inflated as it is read; a seek backwards begins anew."""

    def __init__(self, stream: BinaryIO, start: int, size: int = 0) -> None:
        super().__init__()
        self._stream, self._start, self._size = stream, start, size
        self.whole = False
        self._restart()

    def _restart(self) -> None:
        self._inflater, self._at, self.end, self._waiting = zlib.decompressobj(wbits=31), 0, self._start, b""

    def block(self, most: int) -> bytes:
        """Inflate the next bytes, at most `most`; none at the end of the member, or where it is damaged."""
        block = b""
        while not block and not self._inflater.eof:
            if not (data := self._waiting):
                self._stream.seek(self.end)
                data = self._stream.read(STORED)
                self.end += len(data)
            try:
                block = self._inflater.decompress(data, most)
            except zlib.error:
                return b""
            self._waiting = self._inflater.unconsumed_tail
            if not data:
                return b""
        if self._inflater.eof and not self.whole:
            self.whole, self.end = True, self.end - len(self._inflater.unused_data)
        self._at += len(block)
        return block

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer`; 0 at the end of the member, or where it is damaged."""
        block = self.block(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; the end is where `size` says."""
        target = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        if target < self._at:
            self._restart()
        while self._at < target and self.block(min(CHUNK, target - self._at)):
            pass
        return self._at

    def readable(self) -> bool:
        """Answer yes."""
        return True

    def seekable(self) -> bool:
        """Answer yes."""
        return True


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
    if stream.read(len(GZIP)) != GZIP:
        yield from _read_records(stream, size, name, max_bytes, counts)
        return
    start = used = false_starts = 0
    while start < size and false_starts < MAX_FALSE_STARTS:
        member, before = _inflate(stream, start), counts.records
        yield from _read_member(member, start, name, max_bytes, counts)
        if counts.records == before:
            false_starts += 1
            counts.breaks += start == used
        elif member.whole:
            counts.lost_bytes += start - used
            used = start = member.end
            continue
        else:
            counts.lost_bytes += start - used
            used = start
            counts.breaks += 1
        start = _find(GZIP_START, stream, start + 1, size)
    counts.lost_bytes += size - used


def _inflate(stream: BinaryIO, start: int) -> _Member:
    """Inflate the member at `start`; empty if there is none. A large one is read as a stream."""
    inflated, blocks, size = _Inflated(stream, start), [], 0
    while block := inflated.block(CHUNK):
        size += len(block)
        if size <= MEMORY:
            blocks.append(block)
    if size > MEMORY:
        large = io.BufferedReader(_Inflated(stream, start, size), buffer_size=MEMORY)
        return _Member(large, size, inflated.end, inflated.whole)
    content = b"".join(blocks)
    content = _with_true_length(content) if inflated.whole else content
    return _Member(io.BytesIO(content), len(content), inflated.end, inflated.whole)


def _with_true_length(content: bytes) -> bytes:
    """Give the record of a member its true length, if it states another and is alone there."""
    block = content.find(b"\r\n\r\n", 0, MAX_HEADER) + 4
    stated = LENGTH.search(content, 0, block)
    if (
        stated is None
        or 0 <= len(content) - block - int(stated[1]) <= 4
        or RECORD_START.search(content, block)
    ):
        return content
    true = len(content) - block - 4 * content.endswith(b"\r\n\r\n")
    return content[: stated.start(1)] + str(true).encode() + content[stated.end(1) :]


def _read_member(
    member: _Member, start: int, name: str, max_bytes: int, counts: ReadCounts
) -> Iterator[Page]:
    """Yield the pages of a member, which have its offset. The last one of a damaged member is incomplete."""
    within, last = ReadCounts(), None
    for page in _read_records(member.content, member.size, name, max_bytes, within):
        if last is not None:
            yield last
        last = page
        alone = page.offset == 0 and page.length == member.size
        page.offset, page.length = start, member.end - start if alone else 0
    if last is not None:
        last.flaw = last.flaw or (None if member.whole else INCOMPLETE)
        yield last
    counts.records += within.records
    if within.records and member.whole:
        counts.lost_bytes += within.lost_bytes
        counts.breaks += within.breaks


def _read_records(
    stream: BinaryIO, size: int, name: str, max_bytes: int, counts: ReadCounts
) -> Iterator[Page]:
    """Yield the pages among uncompressed records; bytes that no record holds are lost."""
    start = used = false_starts = 0
    while start < size and false_starts < MAX_FALSE_STARTS:
        run = yield from _read_run(stream, start, size, name, max_bytes, counts)
        if run is None:
            false_starts, search = false_starts + 1, start + 1
        else:
            counts.lost_bytes += start - used
            used, search = run.used, run.search
        counts.breaks += used < size and (run is not None or start == 0)
        start = _find(RECORD_START, stream, search, size) if used < size else size
    counts.lost_bytes += size - used


def _read_run(
    stream: BinaryIO, start: int, size: int, name: str, max_bytes: int, counts: ReadCounts
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
    stream.seek(last)
    header = stream.read(MAX_HEADER).find(b"\r\n\r\n")  # cut off where there is none
    stated = last + header + 4 + claimed if header >= 0 else size + 1
    lost = failed or stated > size
    run = _end_of_record(stream, last, stated, pending) if lost else _RunEnd(size, size)
    if pending is not None:
        end = run.used if run.used > last else run.search
        pending.length = end - pending.offset if end - pending.offset > 1 else 0
        yield pending
    return run


def _end_of_record(stream: BinaryIO, offset: int, stated: int, page: Page | None) -> _RunEnd:
    """Find the end of a record: as `stated`, if the two line ends that close a record are there, or nearly
    there: then the page gets its last bytes. Else it is marked, and what follows its start is searched.
    """
    stream.seek(stated)
    missing = stream.read(4 + SLACK).find(b"\r\n\r\n")
    if missing < 0:
        if page is not None:
            page.flaw = page.flaw or WRONG_LENGTH
        return _RunEnd(offset, offset + 1)
    if missing and page is not None:
        stream.seek(stated)
        page.payload += stream.read(missing)
    return _RunEnd(stated + missing + 4, stated + missing + 4)


def _find(pattern: re.Pattern[bytes], stream: BinaryIO, start: int, size: int) -> int:
    """Find the offset from `start` on where a record may begin; `size` if there is none."""
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
        page.digest = "sha1:" + b32encode(sha1(page.payload, usedforsecurity=False).digest()).decode()
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
