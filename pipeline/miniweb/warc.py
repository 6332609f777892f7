"""WARC/1.0 files as crawlers write them: one gzip member per record, HTTP headers, SHA-1 digests.

Written here rather than by a library so that equal records give equal bytes: ids come from the content, times
from the seed.
"""

import base64
import gzip
import hashlib
import io
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122, URLs
HTTP, FIELDS = "application/http", "application/warc-fields"
METADATA = b"fetchTimeMs: 120\r\n"
INFO = {
    "software": "miniweb/1.0",
    "format": "WARC File Format 1.0",
    "isPartOf": "MINIWEB",
    "description": "Generated pages, not a crawl",
}
REASONS = {200: "OK", 301: "Moved Permanently", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Response:
    """What a server answered. `date` is ISO 8601 in UTC; `truncated`: payload cut by the crawler."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    payload: bytes
    date: str
    address: str
    truncated: bool = False


@dataclass(frozen=True)
class Position:
    """Where a response record lies in its file, and the digest of its payload."""

    file: str
    offset: int
    length: int
    digest: str


def sha1(data: bytes) -> str:
    """Write a digest as WARC headers do."""
    return f"sha1:{base64.b32encode(hashlib.sha1(data).digest()).decode()}"


def write_warc(path: Path, responses: Iterable[Response], date: str, neighbours: bool) -> list[Position]:
    """Write a file; returns where its responses lie. `neighbours`: with request and metadata records."""
    positions = []
    with path.open("wb") as file:
        info = _record_id(f"warcinfo:{path.name}")
        body = "".join(f"{name}: {value}\r\n" for name, value in INFO.items()).encode()
        file.write(_record("warcinfo", info, date, FIELDS, body, [("WARC-Filename", path.name)]))
        for response in responses:
            before, record, after = _records(response, info, neighbours)
            file.write(before)
            positions.append(Position(path.name, file.tell(), len(record), sha1(response.payload)))
            file.write(record + after)
    return positions


def _records(response: Response, info: str, neighbours: bool) -> tuple[bytes, bytes, bytes]:
    """Return request, response and metadata records, the first and last empty without `neighbours`."""
    url, date = response.url, response.date
    request_id, response_id, metadata_id = (
        _record_id(f"{kind}:{url}") for kind in ("request", "response", "metadata")
    )
    about = [("WARC-Warcinfo-ID", info), ("WARC-IP-Address", response.address), ("WARC-Target-URI", url)]
    if not neighbours:
        return b"", _response_record(response, response_id, about), b""
    return (
        _record("request", request_id, date, f"{HTTP}; msgtype=request", _request(url), about),
        _response_record(response, response_id, [*about, ("WARC-Concurrent-To", request_id)]),
        _record("metadata", metadata_id, date, FIELDS, METADATA, [*about, ("WARC-Refers-To", response_id)]),
    )


def _record_id(name: str) -> str:
    return f"<urn:uuid:{uuid.uuid5(NAMESPACE, name)}>"


def _request(url: str) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return (
        f"GET {target} HTTP/1.1\r\nUser-Agent: miniweb/1.0\r\nAccept: text/html,application/xhtml+xml\r\n"
        f"Host: {parts.netloc}\r\nConnection: Keep-Alive\r\n\r\n"
    ).encode()


def _response_record(response: Response, record_id: str, common: list[tuple[str, str]]) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    block = "\r\n".join([*lines, "", ""]).encode() + response.payload
    extra = [*common, ("WARC-Payload-Digest", sha1(response.payload)), ("WARC-Block-Digest", sha1(block))]
    if response.truncated:
        extra.append(("WARC-Truncated", "length"))
    return _record("response", record_id, response.date, f"{HTTP}; msgtype=response", block, extra)


def _record(
    kind: str, record_id: str, date: str, content_type: str, block: bytes, extra: list[tuple[str, str]]
) -> bytes:
    """Write one record as a gzip member of its own."""
    headers = [
        ("WARC-Type", kind),
        ("WARC-Date", date),
        ("WARC-Record-ID", record_id),
        ("Content-Length", str(len(block))),
        ("Content-Type", content_type),
        *extra,
    ]
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers) + "\r\n"
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=6, mtime=0, filename="") as member:
        member.write(head.encode() + block + b"\r\n\r\n")
    return buffer.getvalue()
