"""What is known about the generated web: labels, seed and background lists, reviewed URL prefixes."""

import random
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pipeline.config.miniweb import MiniwebSection
from pipeline.data.rows import write_lines
from pipeline.miniweb.genres import MATH_GENRES
from pipeline.miniweb.pages import has_formulas
from pipeline.miniweb.warc import Position, Response
from pipeline.miniweb.world import GeneratedPage
from pipeline.protocol.stage import InputError

SEED_SHARE = 0.6  # of the one seed site's pages that `seed_urls.txt` lists
MATH_SHARE = 0.01  # of a general sample, as a random crawl has some mathematics
REVIEW_DATE = "2024-04-02"


def label(page: GeneratedPage) -> dict[str, Any]:
    """Return the truth about a page, in the fields of `labels.jsonl` that do not depend on its record."""
    article = page.article
    markup = page.site.markup if has_formulas(article) else "plain" if article.math else "none"
    return {
        "url": page.url,
        "label": "math" if article.math else "not_math",
        "label_basis": "generated",
        "language": article.language,
        "genre": article.genre,
        "markup": markup,
        "markups": [markup],
        "source": "miniweb",
        "host": urlsplit(page.url).hostname,
        "title": article.plain_title,
        "duplicate_of": None,
        "duplicate_kind": None,
        "similarity": None,
        "url_variant": None,
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


def write_lists(folder: Path, pages: list[GeneratedPage], config: MiniwebSection) -> dict[str, int]:
    """Write `seed_urls.txt`, `background_urls.txt` and `annotations.tsv`; returns their sizes."""
    rng = random.Random(f"{config.seed}/lists")
    originals = [
        page for page in pages if "duplicate_of" not in page.extra and "contaminated_by" not in page.extra
    ]
    seeds = [page.url for page in originals if page.host.family.name == "seed" and page.article.math]
    seeds = rng.sample(seeds, max(1, round(SEED_SHARE * len(seeds))))
    mathematics = round(MATH_SHARE * config.background)
    listed = set(seeds)
    known = [page.url for page in originals if page.article.math and page.url not in listed]
    others = [page.url for page in originals if not page.article.math]
    if config.background - mathematics > len(others):
        raise InputError(
            f"config key miniweb.background: {config.background} pages, but the web has only {len(others)} "
            "that are no mathematics; lower it or raise miniweb.scale"
        )
    background = rng.sample(known, mathematics) + rng.sample(others, config.background - mathematics)
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
    parts: dict[str, list[GeneratedPage]] = {}
    for page in pages:
        if page.host.reviewed and "duplicate_of" not in page.extra:
            parts.setdefault(page.site.host + page.part.path, []).append(page)
    rows = []
    for prefix, found in parts.items():
        good = sum(page.part.genre in MATH_GENRES for page in found)
        if good in (0, len(found)):
            verdict = "math" if good else "not_math"
            rows.append((prefix, verdict, "from truth", REVIEW_DATE, f"{good} of {len(found)} pages read"))
    return sorted(rows)
