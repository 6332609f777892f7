"""WARC/1.0 files as crawlers write them: one gzip member per record, HTTP headers, SHA-1 digests.

Written here rather than by a library so that equal records give equal bytes: ids come from the content, times
from the seed.
"""

import base64
import gzip
import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122, URLs
INFO = (
    "software: miniweb/1.0\r\nformat: WARC File Format 1.0\r\ndescription: Generated pages, not a crawl\r\n"
)
REASONS = {200: "OK", 301: "Moved Permanently", 404: "Not Found"}
Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Response:
    """The answer of a server. `date` is ISO 8601 in UTC; `truncated`: payload cut by the crawler."""

    url: str
    status: int
    headers: tuple[tuple[str, str], ...]
    payload: bytes
    date: str
    address: str
    truncated: bool = False


@dataclass(frozen=True)
class Position:
    """The place of a response record in its file, and the digest of its payload."""

    file: str
    offset: int
    length: int
    digest: str


def sha1(data: bytes) -> str:
    """Write a digest as WARC headers do."""
    return f"sha1:{base64.b32encode(hashlib.sha1(data).digest()).decode()}"


def write_warc(path: Path, responses: Iterable[Response], date: str) -> list[Position]:
    """Write a file; returns the positions of its responses."""
    positions = []
    with path.open("wb") as file:
        described = [("WARC-Filename", path.name), ("Content-Type", "application/warc-fields")]
        file.write(_record("warcinfo", path.name, date, described, INFO.encode()))
        for response in responses:
            record = _response_record(response)
            positions.append(Position(path.name, file.tell(), len(record), sha1(response.payload)))
            file.write(record)
    return positions


def _response_record(response: Response) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    block = "\r\n".join([*lines, "", ""]).encode() + response.payload
    headers = [
        ("WARC-IP-Address", response.address),
        ("WARC-Target-URI", response.url),
        ("WARC-Payload-Digest", sha1(response.payload)),
        ("WARC-Block-Digest", sha1(block)),
        ("Content-Type", "application/http; msgtype=response"),
    ]
    if response.truncated:
        headers.append(("WARC-Truncated", "length"))
    return _record("response", response.url, response.date, headers, block)


def _record(kind: str, name: str, date: str, headers: Headers, block: bytes) -> bytes:
    """Write one record as a gzip member of its own."""
    identity = f"<urn:uuid:{uuid.uuid5(NAMESPACE, f'{kind}:{name}')}>"
    first = [("WARC-Type", kind), ("WARC-Date", date), ("WARC-Record-ID", identity)]
    lines = [*first, ("Content-Length", str(len(block))), *headers]
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines) + "\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n", compresslevel=6, mtime=0)
