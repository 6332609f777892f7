"""The truth about the generated web: labels, seed and background lists, reviewed URL prefixes."""

import random
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.core.data.rows import write_lines
from pipeline.examples.miniweb.genres import is_mathematics
from pipeline.examples.miniweb.pages import has_formulas
from pipeline.examples.miniweb.warc import Position, Response
from pipeline.examples.miniweb.world import GeneratedPage

SEED_SHARE = 0.6  # share of the one seed site's pages that `seed_urls.txt` lists
BACKGROUND_SHARE = 0.2  # share of the pages without mathematics that `background_urls.txt` lists
MATH_SHARE = 0.01  # share of mathematics in that list, as a random crawl has some
REVIEW_DATE = "2024-04-02"


def label(page: GeneratedPage) -> dict[str, Any]:
    """Return the truth about a page, in the fields of `labels.jsonl` that do not depend on its record."""
    article = page.article
    markup = page.site.markup if has_formulas(article) else "plain" if article.math else "none"
    return {
        "url": page.url,
        "label": "math" if article.math else "not_math",
        "language": article.language,
        "genre": article.genre,
        "markup": markup,
        "host": urlsplit(page.url).hostname,
        "title": article.plain_title,
        "duplicate_of": None,
        "duplicate_kind": None,
        "contaminated_by": None,
        **page.extra,
    }


def write_labels(
    path: Path, crawled: list[tuple[Response, dict[str, Any]]], positions: list[Position]
) -> None:
    """Write one line per response record, in the order of the files."""
    rows = (
        truth
        | {"payload_digest": position.digest, "payload_bytes": len(response.payload)}
        | {"warc_file": position.file, "warc_offset": position.offset, "warc_length": position.length}
        for (response, truth), position in zip(crawled, positions, strict=True)
    )
    write_lines(path, rows)


def write_lists(folder: Path, pages: list[GeneratedPage], seed: int) -> dict[str, int]:
    """Write `seed_urls.txt`, `background_urls.txt` and `annotations.tsv`; returns their sizes."""
    rng = random.Random(f"{seed}/lists")
    originals = [page for page in pages if not page.extra]
    seeds = [page.url for page in originals if page.host.family.name == "seed" and page.article.math]
    seeds = rng.sample(seeds, max(1, round(SEED_SHARE * len(seeds))))
    others = [page.url for page in originals if not page.article.math]
    known = sorted({page.url for page in originals if page.article.math} - set(seeds))
    size = round(BACKGROUND_SHARE * len(others))
    background = rng.sample(others, size) + rng.sample(known, max(1, round(MATH_SHARE * size)))
    for name, urls in (("seed_urls.txt", seeds), ("background_urls.txt", background)):
        (folder / name).write_text("".join(f"{url}\n" for url in sorted(urls)))
    rows = annotations(pages)
    lines = ["prefix\tverdict\tannotator\tdate\tevidence", *("\t".join(row) for row in rows)]
    (folder / "annotations.tsv").write_text("\n".join(lines) + "\n")
    return {"seed_urls": len(seeds), "background_urls": len(background), "annotations": len(rows)}


def annotations(pages: list[GeneratedPage]) -> list[tuple[str, str, str, str, str]]:
    """Return sorted verdicts on the parts of reviewed hosts: (prefix, verdict, annotator, date, evidence).

    A reviewer accepts paths that hold only mathematics and rejects paths that hold none. Mixed paths get no
    verdict: the classifier must tell their pages apart.
    """
    parts: dict[str, list[bool]] = {}
    for page in pages:
        if page.host.reviewed and "duplicate_of" not in page.extra:
            prefix = page.site.host + page.part.path
            parts.setdefault(prefix, []).append(is_mathematics(page.part.genre))
    return sorted(
        (prefix, "math" if any(math) else "not_math", "from truth", REVIEW_DATE, f"{len(math)} pages read")
        for prefix, math in parts.items()
        if len(set(math)) == 1
    )
