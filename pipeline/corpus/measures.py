"""How good a classifier is on labelled pages that it was not trained on: precision-recall curve, average
precision, calibration, and recall by source.

The numbers depend on the mix of pages in the set. A classifier that is good overall may miss a language or
pages without formulas: `sources` shows where.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.corpus.training_set import LabelledPage

BINS = 10
CURVE_POINTS = 50
HOSTS = 20  # hosts listed at most, those with most mathematical pages
PRECISION = 0.9  # at which recall is reported
FORMULA = re.compile(r"\\(?!code\b)[a-z]")  # a TeX command, or what the normaliser makes of a formula


def precision_recall(
    math: Sequence[bool], scores: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(precision, recall) at every cut of the ranking, best first: (N,) each."""
    hits = np.asarray(math, bool)[np.argsort(-np.asarray(scores), kind="stable")]
    found = np.cumsum(hits)
    return found / np.arange(1, len(hits) + 1), found / max(int(found[-1]), 1)


def reliability(math: Sequence[bool], scores: Sequence[float]) -> list[tuple[float, float, int]]:
    """(mean probability, share of math, pages) of each bin of log-odds `scores` that has pages."""
    probabilities, labels = 1 / (1 + np.exp(-np.asarray(scores))), np.asarray(math, float)
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    return [
        (float(probabilities[bins == b].mean()), float(labels[bins == b].mean()), int((bins == b).sum()))
        for b in np.unique(bins)
    ]


def calibration_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Return the expected calibration error: |share of math - mean probability| of bins by their pages."""
    pages = sum(size for _, _, size in bins)
    return sum(abs(share - probability) * size for probability, share, size in bins) / pages


def _names(page: LabelledPage) -> list[tuple[str, str]]:
    """Return the sources that a page belongs to: (kind, name)."""
    markup = "TeX" if FORMULA.search(page.text) else "no TeX"
    return [("host", page.host), ("language", page.language or "unknown"), ("markup", markup)]


def by_source(
    pages: Sequence[LabelledPage], scores: Sequence[float], threshold: float
) -> list[dict[str, Any]]:
    """For each language, each host, pages with and without TeX: how many mathematical and other pages it has
    and which share of each scores at least `threshold`; None without such pages.
    """
    members: dict[tuple[str, str], dict[bool, list[bool]]] = defaultdict(lambda: {True: [], False: []})
    for page, score in zip(pages, scores, strict=True):
        for source in _names(page):
            members[source][page.math].append(score >= threshold)
    rows = []
    for (kind, name), found in members.items():
        recall, false = (round(float(np.mean(found[of])), 4) if found[of] else None for of in (True, False))
        sizes = {"math": len(found[True]), "other": len(found[False])}
        rows.append({"kind": kind, "source": name} | sizes | {"recall": recall, "false_positive_rate": false})
    rows.sort(key=lambda row: (row["kind"], -row["math"], -row["other"], row["source"]))
    hosts = [row for row in rows if row["kind"] == "host"][:HOSTS]
    return [row for row in rows if row["kind"] != "host"] + hosts


def measures(pages: Sequence[LabelledPage], scores: Sequence[float]) -> dict[str, Any]:
    """All measures of pages (N,) and their log-odds (N,).

    Precision, recall and sources are given at the lowest score whose precision here is at least `PRECISION`,
    or (no cut reaches that) at 0.
    """
    math = np.asarray([page.math for page in pages], bool)
    precision, recall = precision_recall(math, scores)
    places = np.unique(np.linspace(0, len(math) - 1, CURVE_POINTS).astype(int))
    good = np.flatnonzero(precision >= PRECISION)
    threshold = float(np.sort(scores)[::-1][good[-1]]) if len(good) else 0.0
    kept, bins = np.asarray(scores) >= threshold, reliability(math, scores)
    hits = int((kept & math).sum())
    return {
        "pages": len(math),
        "math_pages": int(math.sum()),
        "average_precision": round(float(np.diff(recall, prepend=0.0) @ precision), 6),
        f"recall_at_precision_{PRECISION}": round(float(recall[good].max()), 6) if len(good) else 0.0,
        "calibration_error": round(calibration_error(bins), 6),
        "threshold": round(threshold, 6),
        "precision": round(hits / int(kept.sum()), 6) if kept.any() else None,
        "recall": round(hits / int(math.sum()), 6) if math.any() else None,
        "curve": [[round(float(recall[place]), 4), round(float(precision[place]), 4)] for place in places],
        "calibration": [[round(p, 4), round(share, 4), size] for p, share, size in bins],
        "sources": by_source(pages, scores, threshold),
    }
