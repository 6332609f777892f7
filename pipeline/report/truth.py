"""The corpus loop measured against pages whose label is known (paper section 2.1).

Only the generated web and labelled test pages have such a truth; a real crawl does not. Pages labelled
`unsure` are left out. A page and its copies count once, as kept if any of them is, so that removing a
duplicate costs no recall.
"""

from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.corpus.lists import read_urls
from pipeline.evaluate.metrics import wilson
from pipeline.report.collect import Run


@dataclass(frozen=True)
class LabelledPage:
    """A page, with its copies, that the truth labels; `url` is the original's."""

    url: str
    urls: frozenset[str]
    is_math: bool
    is_listed: bool  # a copy of it is in the first seed or in the background list


def _labels(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Rows of the truth files by URL."""
    found: dict[str, dict[str, Any]] = {}
    for place, row in (pair for path in paths for pair in read_rows(str(path))):
        if row.get("label") not in ("math", "not_math", "unsure"):
            raise InputError(
                f"{place}: label of {row.get('url')!r} is {row.get('label')!r}; see report.truth"
            )
        if not isinstance(row.get("url"), str) or not isinstance(row.get("duplicate_of"), str | None):
            raise InputError(f"{place}: `url` and `duplicate_of` must be texts")
        found[row["url"]] = row
    return found


def labelled_pages(labels: dict[str, dict[str, Any]], listed: set[str]) -> list[LabelledPage]:
    """Labelled pages but the unsure ones, copies folded into their originals, in the order of `labels`."""
    groups: dict[str, list[str]] = {}
    for url in labels:
        origin, seen = url, {url}
        while (parent := labels[origin].get("duplicate_of")) in labels and parent not in seen:
            origin = parent
            seen.add(origin)
        groups.setdefault(origin, []).append(url)
    return [
        LabelledPage(origin, frozenset(urls), labels[origin]["label"] == "math", not listed.isdisjoint(urls))
        for origin, urls in groups.items()
        if labels[origin]["label"] != "unsure"
    ]


def pages_by_scope(run: Run) -> dict[str, list[LabelledPage]]:
    """`all` labelled pages, and those `unseen`: in neither the seed nor the background list; empty without a
    truth file.
    """
    if not run.files.get("truth"):
        return {}
    lists = [*run.files.get("seed_urls", []), *run.files.get("background_urls", [])]
    pages = labelled_pages(_labels(run.files["truth"]), {url for path in lists for url in read_urls(path)})
    return {"unseen": [page for page in pages if not page.is_listed], "all": pages}


def measure(pages: list[LabelledPage], kept: set[str]) -> dict[str, Any]:
    """Precision and recall, with 95 % intervals, of a set of kept URLs."""
    math = sum(page.is_math for page in pages)
    found = [page.is_math for page in pages if not kept.isdisjoint(page.urls)]
    kept_math, kept_labelled = sum(found), len(found)
    return {
        "math": math,
        "kept_math": kept_math,
        "kept_not_math": kept_labelled - kept_math,
        "precision": kept_math / kept_labelled if kept_labelled else None,
        "precision_ci95": wilson(kept_math, kept_labelled),
        "recall": kept_math / math if math else None,
        "recall_ci95": wilson(kept_math, math),
    }


def precision_recall_curve(
    pages: list[LabelledPage], scores: dict[str, float]
) -> list[tuple[float, float]] | None:
    """(recall, precision) at every cut of the scores, best first; a page scores as its best copy.

    Recall counts all mathematical pages, those without a score too.
    """
    scored = [
        (max(scores[url] for url in page.urls if url in scores), page.is_math)
        for page in pages
        if page.urls & scores.keys()
    ]
    math = sum(page.is_math for page in pages)
    if not scored or not math:
        return None
    order = sorted(scored, key=lambda pair: -pair[0])
    right = accumulate(int(is_math) for _, is_math in order)
    return [(hit / math, hit / rank) for rank, hit in enumerate(right, 1)]


def average_precision(curve: list[tuple[float, float]]) -> float:
    """Area under a precision-recall curve by its steps."""
    area, last = 0.0, 0.0
    for recall, precision in curve:
        area, last = area + (recall - last) * precision, recall
    return area


def urls_of(pages: Path) -> set[str]:
    """The URLs of a table of pages."""
    return set(parquet.read_table(pages, columns=["url"])["url"].to_pylist())


def _scores(run: Run, iteration: int) -> dict[str, float]:
    """Scores by URL of all pages, excluded ones too."""
    found: dict[str, float] = {}
    for result in run.of("corpus"):
        if result.instance.startswith(f"iteration-{iteration}/score-"):
            for path in sorted(result.data.glob("*.parquet")):
                table = parquet.read_table(path, columns=["url", "score"])
                found.update(zip(table["url"].to_pylist(), table["score"].to_pylist(), strict=True))
    return found


def iterations(run: Run) -> list[dict[str, Any]]:
    """Each iteration's metrics; with a truth file also `truth` (scope -> `measure` and average precision) and
    the `curve` of unseen pages.
    """
    pages, found = pages_by_scope(run), []
    for result in run.iterations:
        row = result.metrics
        if pages:
            kept, scores = urls_of(result.data / "kept.parquet"), _scores(run, row["iteration"])
            for url in urls_of(result.data / "excluded.parquet"):
                scores.pop(url, None)
            curves = {scope: precision_recall_curve(members, scores) for scope, members in pages.items()}
            row["curve"] = curves["unseen"]
            row["truth"] = {
                scope: measure(members, kept)
                | {"average_precision": average_precision(curves[scope]) if curves[scope] else None}
                for scope, members in pages.items()
            }
        found.append(row)
    return found
