"""The answers of servers: pages, and the errors, redirects and other files that a crawler also meets."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.examples.miniweb.pages import Article
from pipeline.examples.miniweb.truth import label
from pipeline.examples.miniweb.warc import Response
from pipeline.examples.miniweb.world import GeneratedPage

START = datetime(2024, 3, 4, 6, 0, tzinfo=UTC)
ODD_SHARE = 0.008  # share of all pages, for each kind of `ODD`
TRUNCATED_SHARE = 0.002
NOT_FOUND = b"<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>\n"
SITEMAP = b'<?xml version="1.0"?>\n<urlset></urlset>\n'
# By kind: path of the URL, status, type, content. A number takes the place of the braces.
ODD = {
    "missing": ("/old/{}.html", 404, "text/html", NOT_FOUND),
    "moved": ("/go/{}", 301, "text/html", b""),
    "robots": ("/robots.txt", 200, "text/plain", b"User-agent: *\nDisallow:\n"),
    "sitemap": ("/sitemap.xml", 200, "application/xml", SITEMAP),
    "picture": ("/img/{}.png", 200, "image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "empty": ("/empty/{}", 200, "text/html", b""),
}

Labelled = tuple[Response, dict[str, Any]]  # with the label of the record, but for its payload and position


def crawl(pages: list[GeneratedPage], seed: int) -> list[Labelled]:
    """Return all responses of the web in the order of the crawl, with their labels."""
    rng = random.Random(f"{seed}/crawl")
    odd_count = max(1, round(ODD_SHARE * len(pages)))
    jobs: list[tuple[str, GeneratedPage]] = [("page", page) for page in pages]
    for kind in ODD:
        jobs += [(kind, page) for page in rng.sample(pages, odd_count)]
    whole = [page for page in pages if not page.extra]
    cut = {page.url for page in rng.sample(whole, max(1, round(TRUNCATED_SHARE * len(pages))))}
    rng.shuffle(jobs)
    found: dict[str, Labelled] = {}
    for number, (kind, page) in enumerate(jobs):
        moment = START + timedelta(seconds=number)
        if kind == "page":
            response, truth = _page(page, moment, page.url in cut)
        else:
            response, truth = _odd(kind, page, moment, rng.randint(1000, 9999))
        found.setdefault(response.url, (response, truth))
    return list(found.values())


def _page(page: GeneratedPage, moment: datetime, cut: bool) -> Labelled:
    site, payload = page.site, page.payload
    if cut:
        payload = payload[: len(payload) * 2 // 3]
    in_header = site.charset if site.charset_in_header else None
    content_type = f"text/html; charset={in_header}" if in_header else "text/html"
    in_page = site.charset if site.charset_in_page else None
    truth = {"http_charset": in_header, "charset": site.charset, "meta_charset": in_page}
    return _labelled(page, moment, 200, content_type, payload, truth, truncated=cut)


def _odd(kind: str, page: GeneratedPage, moment: datetime, number: int) -> Labelled:
    """Return a record that is no page: an error, a redirect, a file for robots, a picture, an empty body."""
    path, status, content_type, payload = ODD[kind]
    nothing = Article(kind, (), kind, page.site.language, math=False)
    url = f"https://{page.site.host}{path.format(number)}"
    truth = {"http_charset": None, "charset": "utf-8", "meta_charset": None}
    record = replace(page, url=url, article=nothing, extra={})
    location = page.url if kind == "moved" else None
    return _labelled(record, moment, status, content_type, payload, truth, location=location)


def _labelled(
    page: GeneratedPage,
    moment: datetime,
    status: int,
    content_type: str,
    payload: bytes,
    truth: dict[str, Any],
    location: str | None = None,
    truncated: bool = False,
) -> Labelled:
    headers = [
        ("Date", moment.strftime("%a, %d %b %Y %H:%M:%S GMT")),
        ("Content-Type", content_type),
        ("Server", page.site.server),
        ("X-Crawler-Content-Encoding", "gzip"),  # crawlers store the body decoded
        ("Content-Length", str(len(payload))),
    ]
    if location:
        headers.append(("Location", location))
    address = f"192.0.2.{sum(page.site.host.encode()) % 254 + 1}"  # reserved for documentation (RFC 5737)
    date = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    response = Response(page.url, status, tuple(headers), payload, date, address, truncated)
    kind = content_type.partition(";")[0]
    return response, label(page) | truth | {
        "http_status": status,
        "content_type": kind,
        "truncated": truncated,
    }
