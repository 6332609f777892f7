"""What servers answer: pages with headers, and errors, redirects and files that a crawler also meets."""

import random
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

from pipeline.config.miniweb import MiniwebSection
from pipeline.miniweb.markup import Site
from pipeline.miniweb.warc import Response, sha1
from pipeline.miniweb.world import GeneratedPage, label

START = datetime(2024, 3, 4, 6, 0, tzinfo=UTC)
NETWORKS = ("192.0.2", "198.51.100", "203.0.113")  # reserved for documentation (RFC 5737)
ODD_SHARE = 0.008  # of all pages, for each kind of `_odd`
TRUNCATED_SHARE = 0.002
NOT_FOUND = "<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1></body></html>\n"
SITEMAP = '<?xml version="1.0"?>\n<urlset><url><loc>{url}</loc></url></urlset>\n'
PNG_START = b"\x89PNG\r\n\x1a\n"

Answer = tuple[Response, dict[str, Any]]  # with the label of the record, but for its position


def answers(pages: list[GeneratedPage], config: MiniwebSection) -> list[Answer]:
    """All responses of the web in the order of the crawl, with their labels."""
    rng = random.Random(f"{config.seed}/crawl")
    odd_count = max(1, round(ODD_SHARE * len(pages)))
    jobs: list[tuple[str, GeneratedPage]] = [("page", page) for page in pages]
    for kind in ("missing", "moved", "robots", "sitemap", "picture", "empty"):
        jobs += [(kind, page) for page in rng.sample(pages, odd_count)]
    whole = [page for page in pages if not page.extra]
    cut = {page.url for page in rng.sample(whole, max(1, round(TRUNCATED_SHARE * len(pages))))}
    rng.shuffle(jobs)
    result, seen = [], set()
    for number, (kind, page) in enumerate(jobs):
        moment = START + timedelta(seconds=number)
        response, truth = (
            _page(page, moment, rng, page.url in cut) if kind == "page" else _odd(kind, page, moment, rng)
        )
        if response.url not in seen:
            seen.add(response.url)
            result.append((response, truth))
    return result


def _response(
    url: str,
    site: Site,
    moment: datetime,
    rng: random.Random,
    content_type: str,
    payload: bytes,
    status: int = 200,
    extra: tuple[tuple[str, str], ...] = (),
    truncated: bool = False,
) -> Response:
    headers = [
        ("Date", moment.strftime("%a, %d %b %Y %H:%M:%S GMT")),
        ("Content-Type", content_type),
        ("Server", site.server),
        ("Connection", "keep-alive"),
    ]
    if rng.random() < 0.5:  # crawlers store the body decoded and keep what it was under another name
        headers.append(("X-Crawler-Content-Encoding", "gzip"))
    if rng.random() < 0.3:
        headers.append(("Cache-Control", rng.choice(("no-cache", "max-age=600", "private, must-revalidate"))))
    if rng.random() < 0.2:
        headers.append(("Set-Cookie", f"sid={rng.getrandbits(48):012x}; path=/; HttpOnly"))
    headers += [*extra, ("Content-Length", str(len(payload)))]
    address = f"{NETWORKS[len(site.host) % 3]}.{sum(site.host.encode()) % 254 + 1}"
    return Response(
        url, status, tuple(headers), payload, moment.strftime("%Y-%m-%dT%H:%M:%SZ"), address, truncated
    )


def _page(page: GeneratedPage, moment: datetime, rng: random.Random, cut: bool) -> Answer:
    site, payload = page.site, page.payload
    if cut:
        payload = payload[: len(payload) * 2 // 3]
    content_type = f"text/html; charset={site.charset}" if site.charset_in_header else "text/html"
    response = _response(page.url, site, moment, rng, content_type, payload, truncated=cut)
    truth = label(page) | {
        "http_status": 200,
        "content_type": "text/html",
        "http_charset": site.charset if site.charset_in_header else None,
        "charset": site.charset,
        "meta_charset": site.charset if site.charset_in_page else None,
        "truncated": cut,
    }
    return response, _with_payload(truth, payload)


def _odd(kind: str, page: GeneratedPage, moment: datetime, rng: random.Random) -> Answer:
    """A record that is no page: an error, a redirect, a file for robots, a picture, an empty body."""
    root, number = f"https://{page.site.host}", rng.randint(1000, 9999)
    path, status, content_type, text = {
        "missing": (f"/old/{number}.html", 404, "text/html", NOT_FOUND),
        "moved": (f"/go/{number}", 301, "text/html", ""),
        "robots": ("/robots.txt", 200, "text/plain", f"User-agent: *\nSitemap: {root}/sitemap.xml\n"),
        "sitemap": ("/sitemap.xml", 200, "application/xml", SITEMAP.format(url=escape(page.url))),
        "picture": (f"/img/{number}.png", 200, "image/png", ""),
        "empty": (f"/empty/{number}", 200, "text/html", ""),
    }[kind]
    payload = PNG_START + rng.randbytes(300) if kind == "picture" else text.encode()
    extra = (("Location", page.url),) if kind == "moved" else ()
    response = _response(root + path, page.site, moment, rng, content_type, payload, status, extra)
    truth = {
        "url": root + path,
        "label": "not_math",
        "label_basis": "generated",
        "language": page.site.language,
        "genre": kind,
        "markup": "none",
        "markups": ["none"],
        "source": "miniweb",
        "host": page.site.host,
        "title": kind,
        "http_status": status,
        "content_type": content_type,
        "charset": "utf-8",
        "truncated": False,
    }
    unknown = dict.fromkeys((*label(page), "http_charset", "meta_charset"))
    return response, _with_payload(unknown | truth, payload)


def _with_payload(truth: dict[str, Any], payload: bytes) -> dict[str, Any]:
    return truth | {"payload_digest": sha1(payload), "payload_bytes": len(payload)}
