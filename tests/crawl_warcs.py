"""Small WARC files for the tests of stage `crawl`, and a way to run its programs."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from webformulas.signs import Source

from pipeline.crawl import extract, text
from pipeline.crawl.warc import Page, ReadCounts, read_pages

WEB = Path(__file__).parents[2] / "shared" / "data" / "web"  # real pages; tests that use them skip without
FILLER = "The rest of this page is plain text about nothing in particular, long enough to count as a page. "


def html(body: str, head: str = "") -> bytes:
    """A page with enough text around `body`."""
    title = f"<head><title>A page</title>{head}</head>"
    return (
        f"<!doctype html><html>{title}<body><main><p>{body}</p><p>{FILLER}</p></main></body></html>".encode()
    )


def record(
    url: str | bytes,
    body: bytes,
    http: str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n",
    kind: str = "response",
    headers: str = "",
    claimed_extra: int = 0,
) -> bytes:
    """One WARC record; its Content-Length is off by `claimed_extra` bytes."""
    block = (http.encode() + b"\r\n" if kind == "response" else b"") + body
    target = url if isinstance(url, bytes) else url.encode()
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n"
        f"WARC-Date: 2024-01-01T00:00:00Z\r\nContent-Type: application/http; msgtype=response\r\n{headers}"
        f"Content-Length: {len(block) + claimed_extra}\r\nWARC-Target-URI: "
    )
    return head.encode() + target + b"\r\n\r\n" + block + b"\r\n\r\n"


def write_warc(path: Path, records: Iterable[bytes]) -> list[int]:
    """Write records as gzip members of their own; returns their offsets and, last, the size."""
    offsets, data = [0], b""
    for one in records:
        data += gzip.compress(one, mtime=0)
        offsets.append(len(data))
    path.write_bytes(data)
    return offsets


def extract_into(output: Path, *sources: str | Path, **config: Any) -> Path:
    """Extract here, as the program does from a command line; returns its output."""
    words = [word for source in sources for word in ("--warc", str(source))]
    extract.main([*words, "--output", str(output), "--config", json.dumps(config)])
    return output


def program(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m pipeline.crawl.<arguments>` and return what it said."""
    module, *rest = map(str, arguments)
    command = [sys.executable, "-m", f"pipeline.crawl.{module}", *rest]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])


def read(path: str | Path) -> tuple[list[Page], ReadCounts]:
    """Read the pages of a WARC file, and what was counted."""
    counts = ReadCounts()
    return list(read_pages(str(path), 1_000_000, counts)), counts


def text_of(body: str, head: str = "", lang: str = "en", removed: Counter[str] | None = None) -> str:
    """Extract the text of a page around `body`."""
    main = f"<main>{body}<p>{FILLER * 2}</p></main>"
    page = f"<html lang={lang}><head><title>A page</title>{head}</head><body>{main}</body></html>"
    return text.extract(Source(page), 50, removed)[1]


URLS = [f"http://a.org/{number}" for number in range(5)]
RECORDS = [record(url, html(f"This is page {url}, all for itself.")) for url in URLS]
