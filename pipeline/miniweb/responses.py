"""What servers answer: pages, and the errors, redirects and other files that a crawler also meets."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from pipeline.config.miniweb import MiniwebSection
from pipeline.miniweb.markup import Site
from pipeline.miniweb.pages import Article
from pipeline.miniweb.truth import label
from pipeline.miniweb.warc import Response
from pipeline.miniweb.world import GeneratedPage

START = datetime(2024, 3, 4, 6, 0, tzinfo=UTC)
NETWORKS = ("192.0.2", "198.51.100", "203.0.113")  # reserved for documentation (RFC 5737)
ODD_SHARE = 0.008  # of all pages, for each kind of `_odd`
TRUNCATED_SHARE = 0.002
NOT_FOUND = "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>\n"
SITEMAP = '<?xml version="1.0"?>\n<urlset><url><loc>{url}</loc></url></urlset>\n'
PNG_START = b"\x89PNG\r\n\x1a\n"

Labelled = tuple[Response, dict[str, Any]]  # with the label of the record, but for its payload and position


def crawl(pages: list[GeneratedPage], config: MiniwebSection) -> list[Labelled]:
    """Return all responses of the web in the order of the crawl, with their labels."""
    rng = random.Random(f"{config.seed}/crawl")
    odd_count = max(1, round(ODD_SHARE * len(pages)))
    jobs: list[tuple[str, GeneratedPage]] = [("page", page) for page in pages]
    for kind in ("missing", "moved", "robots", "sitemap", "picture", "empty"):
        jobs += [(kind, page) for page in rng.sample(pages, odd_count)]
    whole = [page for page in pages if not page.extra]
    cut = {page.url for page in rng.sample(whole, max(1, round(TRUNCATED_SHARE * len(pages))))}
    rng.shuffle(jobs)
    found: dict[str, Labelled] = {}
    for number, (kind, page) in enumerate(jobs):
        moment = START + timedelta(seconds=number)
        if kind == "page":
            response, truth = _page(page, moment, rng, page.url in cut)
        else:
            response, truth = _odd(kind, page, moment, rng)
        found.setdefault(response.url, (response, truth))
    return list(found.values())


def _response(
    url: str,
    site: Site,
    moment: datetime,
    rng: random.Random,
    content_type: str,
    payload: bytes,
    status: int = 200,
    location: str | None = None,
    truncated: bool = False,
) -> Response:
    headers = [
        ("Date", moment.strftime("%a, %d %b %Y %H:%M:%S GMT")),
        ("Content-Type", content_type),
        ("Server", site.server),
        ("Connection", "keep-alive"),
    ]
    if rng.random() < 0.5:  # crawlers store the body decoded and keep the original header under this name
        headers.append(("X-Crawler-Content-Encoding", "gzip"))
    if rng.random() < 0.3:
        headers.append(("Cache-Control", rng.choice(("no-cache", "max-age=600", "private, must-revalidate"))))
    if rng.random() < 0.2:
        headers.append(("Set-Cookie", f"sid={rng.getrandbits(48):012x}; path=/; HttpOnly"))
    if location:
        headers.append(("Location", location))
    headers.append(("Content-Length", str(len(payload))))
    date = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    address = f"{NETWORKS[len(site.host) % 3]}.{sum(site.host.encode()) % 254 + 1}"
    return Response(url, status, tuple(headers), payload, date, address, truncated)


def _page(page: GeneratedPage, moment: datetime, rng: random.Random, cut: bool) -> Labelled:
    site, payload = page.site, page.payload
    if cut:
        payload = payload[: len(payload) * 2 // 3]
    content_type = f"text/html; charset={site.charset}" if site.charset_in_header else "text/html"
    response = _response(page.url, site, moment, rng, content_type, payload, truncated=cut)
    return response, label(page) | {
        "http_status": 200,
        "content_type": "text/html",
        "http_charset": site.charset if site.charset_in_header else None,
        "charset": site.charset,
        "meta_charset": site.charset if site.charset_in_page else None,
        "truncated": cut,
    }


def _odd(kind: str, page: GeneratedPage, moment: datetime, rng: random.Random) -> Labelled:
    """Return a record that is no page: an error, a redirect, a file for robots, a picture, an empty body."""
    site, number = page.site, rng.randint(1000, 9999)
    root = f"https://{site.host}"
    path, status, content_type, text = {
        "missing": (f"/old/{number}.html", 404, "text/html", NOT_FOUND),
        "moved": (f"/go/{number}", 301, "text/html", ""),
        "robots": ("/robots.txt", 200, "text/plain", f"User-agent: *\nSitemap: {root}/sitemap.xml\n"),
        "sitemap": ("/sitemap.xml", 200, "application/xml", SITEMAP.format(url=escape(page.url))),
        "picture": (f"/img/{number}.png", 200, "image/png", ""),
        "empty": (f"/empty/{number}", 200, "text/html", ""),
    }[kind]
    payload = PNG_START + rng.randbytes(300) if kind == "picture" else text.encode()
    location = page.url if kind == "moved" else None
    response = _response(root + path, site, moment, rng, content_type, payload, status, location)
    nothing = Article(kind, (), kind, site.language, math=False)
    truth = label(replace(page, url=root + path, article=nothing, extra={})) | {
        "http_charset": None,
        "meta_charset": None,
        "http_status": status,
        "content_type": content_type,
        "charset": "utf-8",
        "truncated": False,
    }
    return response, truth
