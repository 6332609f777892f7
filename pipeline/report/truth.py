"""The corpus loop measured against pages whose label is known (paper section 2.1).

Only the generated web and labelled test pages have such a truth; a real crawl does not. Pages labelled
`unsure` are left out. A page and its copies count once, as kept if any of them is, so that removing a
duplicate costs no recall.

The measure that counts is on pages that no classifier of any iteration was trained on (`never_trained`, and
by language), and on hosts of which none learned a page (`unseen_hosts`). `unseen` are the pages outside the
first lists: with `corpus.reviewed: all` later classifiers have learned many of them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import read_table
from pipeline.core.stage import InputError
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.urls import normalise_url
from pipeline.intervals import ranking_intervals, share_interval, wilson
from pipeline.report.collect import Run

PRECISION = 0.9  # at which recall is reported
LANGUAGE_PAGES = 10  # mathematical pages of a language from which it is measured alone


@dataclass(frozen=True)
class LabelledPage:
    """A page, with its copies, that the truth labels; `url` is the original's."""

    url: str
    urls: frozenset[str]
    is_math: bool
    is_listed: bool  # a copy of it is in the first seed or in the background list
    language: str | None = None

    @cached_property
    def host(self) -> str:
        return _host(self.url)


def read_truth(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Return the rows of the truth files by URL. Raises InputError."""
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
        LabelledPage(
            origin,
            frozenset(urls),
            labels[origin]["label"] == "math",
            not listed.isdisjoint(urls),
            labels[origin].get("language"),
        )
        for origin, urls in groups.items()
        if labels[origin]["label"] != "unsure"
    ]


def _host(url: str) -> str:
    return normalise_url(url).partition("/")[0]


def _trained(run: Run) -> set[str] | None:
    """URLs of the pages that any iteration's classifier was trained on; None where a result does not say."""
    found: set[str] = set()
    for iteration in run.iterations:
        if not iteration.metrics.get("passed_through"):
            train = run.finished.get(f"{iteration.name.rpartition('/')[0]}/train")
            if train is None or not (train.data / "trained.parquet").exists():
                return None
            found |= set(read_table(train.data / "trained.parquet", ["url"])["url"].to_pylist())
    return found


def pages_by_scope(run: Run) -> dict[str, list[LabelledPage]]:
    """`all` labelled pages; those `unseen`: in neither the seed nor the background list; `never_trained`, by
    language, too, and `unseen_hosts`. Empty without a truth file.
    """
    if not run.files.get("truth"):
        return {}
    lists = [*run.files.get("seed_urls", []), *run.files.get("background_urls", [])]
    pages = labelled_pages(read_truth(run.files["truth"]), {url for path in lists for url in read_urls(path)})
    found = {"unseen": [page for page in pages if not page.is_listed], "all": pages}
    if (trained := _trained(run)) is None:
        return found
    never = [page for page in found["unseen"] if trained.isdisjoint(page.urls)]
    trained |= {url for page in pages if page.is_listed for url in page.urls}
    hosts = set(map(_host, trained))
    math = Counter(page.language for page in never if page.is_math)
    languages = [name for name, count in math.most_common() if name and count >= LANGUAGE_PAGES]
    return found | {
        "never_trained": never,
        "unseen_hosts": [page for page in never if hosts.isdisjoint(map(_host, page.urls))],
        **{f"never_trained, {name}": [page for page in never if page.language == name] for name in languages},
    }


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


def by_hosts(pages: list[LabelledPage], kept: set[str]) -> dict[str, Any]:
    """`measure` with intervals over hosts, whose pages are alike, instead of over single pages."""
    found = [page for page in pages if not kept.isdisjoint(page.urls)]
    math = [page for page in pages if page.is_math]
    precision = share_interval([page.is_math for page in found], [page.host for page in found])
    recall = share_interval([not kept.isdisjoint(page.urls) for page in math], [page.host for page in math])
    own = {"pages": len(pages), "hosts": len({page.host for page in pages})}
    return own | measure(pages, kept) | {"precision_ci95": precision, "recall_ci95": recall}


def ranking(pages: list[LabelledPage], scores: dict[str, float]) -> dict[str, Any]:
    """Average precision and recall at `PRECISION` of a ranking, with 95 % intervals over hosts."""
    curve = precision_recall_curve(pages, scores)
    names = ("average_precision", f"recall_at_precision_{PRECISION}")
    if curve is None:
        return dict.fromkeys(names) | dict.fromkeys(f"{name}_ci95" for name in names)
    best = {
        page.url: max((scores[url] for url in page.urls if url in scores), default=None) for page in pages
    }
    ranked = [page for page in pages if best[page.url] is not None]
    intervals = ranking_intervals(
        [page.is_math for page in ranked],
        [best[page.url] for page in ranked],
        [page.host for page in ranked],
        PRECISION,
        [page.host for page in pages if page.is_math and best[page.url] is None],
    )
    values = average_precision(curve), max((r for r, p in curve if p >= PRECISION), default=0.0)
    return dict(zip(names, values, strict=True)) | {
        f"{name}_ci95": interval for name, interval in zip(names, intervals, strict=True)
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


def _named(path: Path, columns: list[str], urls: set[str]) -> list[dict[str, Any]]:
    """Columns of those rows of a table of pages, of which it may have billions, whose URL is in `urls`."""
    return parquet.read_table(path, columns=columns, filters=[("url", "in", urls)]).to_pylist()


def urls_of(pages: Path, urls: set[str]) -> set[str]:
    """Find those of `urls` that are in a table of pages."""
    return {row["url"] for row in _named(pages, ["url"], urls)}


def urls_in(pages: Iterable[LabelledPage]) -> set[str]:
    """Return the URLs of labelled pages and of their copies."""
    return {url for page in pages for url in page.urls}


def _scores(run: Run, iteration: int, urls: set[str]) -> dict[str, float]:
    """Scores by URL of the pages with these URLs, excluded ones too."""
    found: dict[str, float] = {}
    for result in run.of("corpus"):
        if result.instance.startswith(f"iteration-{iteration}/score-"):
            for path in sorted(result.data.glob("*.parquet")):
                found |= {row["url"]: row["score"] for row in _named(path, ["url", "score"], urls)}
    return found


def iterations(run: Run) -> list[dict[str, Any]]:
    """Each iteration's metrics; with a truth file also `truth` (scope -> `measure` and average precision) and
    the `curve` of the pages that no classifier was trained on.
    """
    pages, found = pages_by_scope(run), []
    urls = urls_in(pages.get("all", ()))
    for result in run.iterations:
        row = result.metrics
        if pages:
            kept, scores = urls_of(result.data / "kept.parquet", urls), _scores(run, row["iteration"], urls)
            for url in urls_of(result.data / "excluded.parquet", urls):
                scores.pop(url, None)
            row["truth"] = {}
            for scope in ("unseen", "all"):
                curve = precision_recall_curve(pages[scope], scores)
                area = average_precision(curve) if curve else None
                row["truth"][scope] = measure(pages[scope], kept) | {"average_precision": area}
            for scope in list(pages)[2:]:
                row["truth"][scope] = by_hosts(pages[scope], kept) | ranking(pages[scope], scores)
            row["curve"] = precision_recall_curve(pages[headline(row["truth"])], scores)
        found.append(row)
    return found


def headline(scopes: dict[str, Any]) -> str:
    """Get the scope whose measures count: pages never trained on, where the results say which these are."""
    return "never_trained" if "never_trained" in scopes else "unseen"
