"""The corpus loop measured against the truth, and the counts of crawling and decontamination (paper section
2.1).

No real crawl knows which of its pages are mathematical; the generated web and the labelled test pages do.
Pages labelled `unsure` are left out. Duplicates are folded: pages that the truth calls copies of one
another are one item, kept if any of them is, so that removing a duplicate costs no recall.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from pipeline.decontaminate.ngrams import CONTEXT
from pipeline.evaluate.metrics import wilson
from pipeline.report.collect import Run, read_json, read_lines, read_truth, read_urls

SCOPES = {"unseen": "pages in neither the seed nor the background list", "all": "all labelled pages"}


@dataclass(frozen=True)
class LabelledPage:
    """A page, with its copies, that the truth labels; `url` is the original's."""

    url: str
    urls: frozenset[str]
    is_math: bool
    is_listed: bool  # a copy of it is in the first seed or in the background list


def labelled_pages(truth: dict[str, dict[str, Any]], listed: set[str]) -> list[LabelledPage]:
    """Labelled pages with duplicates folded into their originals, in the order of the truth file."""
    groups: dict[str, list[str]] = {}
    for url in truth:
        origin, seen = url, {url}
        while (parent := truth[origin].get("duplicate_of")) in truth and parent not in seen:
            origin = parent
            seen.add(origin)
        groups.setdefault(origin, []).append(url)
    return [
        LabelledPage(origin, frozenset(urls), truth[origin]["label"] == "math", not listed.isdisjoint(urls))
        for origin, urls in groups.items()
        if truth[origin]["label"] != "unsure"
    ]


def measure(items: list[LabelledPage], kept: set[str]) -> dict[str, Any]:
    """Precision and recall, with intervals, of a set of kept URLs over truth items."""
    kept_math = sum(1 for item in items if item.is_math and not kept.isdisjoint(item.urls))
    kept_other = sum(1 for item in items if not item.is_math and not kept.isdisjoint(item.urls))
    math, kept_labelled = sum(1 for item in items if item.is_math), kept_math + kept_other
    return {
        "math": math,
        "kept_math": kept_math,
        "kept_not_math": kept_other,
        "precision": kept_math / kept_labelled if kept_labelled else None,
        "precision_ci95": wilson(kept_math, kept_labelled),
        "recall": kept_math / math if math else None,
        "recall_ci95": wilson(kept_math, math),
    }


def precision_recall_curve(
    items: list[LabelledPage], scores: dict[str, float]
) -> list[tuple[float, float]] | None:
    """(recall, precision) at every cut of the scores, best first; an item scores as its best copy."""
    scored = [
        (max(scores[url] for url in item.urls if url in scores), item.is_math)
        for item in items
        if item.urls & scores.keys()
    ]
    math = sum(1 for item in items if item.is_math)
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


def _scores(run: Run, iteration: int) -> dict[str, float]:
    """Scores by URL of all pages, excluded ones too."""
    found: dict[str, float] = {}
    for node in run.of("corpus"):
        if node.instance.startswith(f"iteration-{iteration}/score-"):
            for path in sorted(node.data.glob("*.parquet")):
                table = parquet.read_table(path, columns=["url", "score"])
                found.update(zip(table["url"].to_pylist(), table["score"].to_pylist(), strict=True))
    return found


def urls_of(pages: Path) -> set[str]:
    """The URLs of a table of pages."""
    return set(parquet.read_table(pages, columns=["url"])["url"].to_pylist())


def pages_by_scope(run: Run) -> dict[str, list[LabelledPage]]:
    """Truth items by scope (`SCOPES`); empty without a truth file."""
    if not run.files.get("truth"):
        return {}
    listed = read_urls([*run.files.get("seed_urls", []), *run.files.get("background_urls", [])])
    items = labelled_pages(read_truth(run.files["truth"]), listed)
    return {"unseen": [item for item in items if not item.is_listed], "all": items}


def iterations(run: Run) -> list[dict[str, Any]]:
    """Each iteration's metrics; given a truth file also `truth`: scope -> `measure`, average precision."""
    items = pages_by_scope(run)
    found = []
    for node in run.iterations:
        row = read_json(node.data / "metrics.json")
        if items:
            excluded = urls_of(node.data / "excluded.parquet")
            scores = {
                url: score for url, score in _scores(run, row["iteration"]).items() if url not in excluded
            }
            kept = urls_of(node.data / "kept.parquet")
            row["truth"] = {}
            for scope, members in items.items():
                curve = precision_recall_curve(members, scores)
                row["truth"][scope] = measure(members, kept) | {
                    "average_precision": average_precision(curve) if curve else None
                }
                if scope == "unseen":
                    row["curve"] = curve
        found.append(row)
    return found


@dataclass(frozen=True)
class Crawl:
    """Records rejected by reason, pages by language, duplicates by kind."""

    reasons: Counter[str]
    languages: Counter[str]
    duplicates: Counter[str]

    @property
    def records(self) -> int:
        """Response records read."""
        return self.languages.total() + self.reasons.total()

    @property
    def pool(self) -> int:
        """Pages left when duplicates are gone."""
        return self.languages.total() - self.duplicates.total()


def _counts(path: Path, *columns: str) -> Counter[tuple[str | None, ...]]:
    """How often each combination of values occurs; nothing if there is no such file."""
    if not path.exists():
        return Counter()
    rows = (
        parquet.read_table(path, columns=list(columns)).group_by(list(columns)).aggregate([([], "count_all")])
    )
    return Counter({tuple(row[name] for name in columns): row["count_all"] for row in rows.to_pylist()})


def crawl(run: Run) -> Crawl | None:
    """Counts over all crawl results; None where crawling did not run."""
    if not run.of("crawl"):
        return None
    found = Crawl(Counter(), Counter(), Counter())
    for node in run.of("crawl"):
        outcomes = _counts(node.data / "records.parquet", "status", "reason", "language")
        for (status, reason, language), number in outcomes.items():
            if status == "extracted":
                found.languages[language or "unknown"] += number
            else:
                found.reasons[reason or "unknown"] += number
        for (kind,), number in _counts(node.data / "duplicates.parquet", "kind").items():
            found.duplicates[kind or "unknown"] += number
    return found


def review(run: Run) -> list[dict[str, Any]]:
    """The last iteration's review queue: prefix, what is known of it, URLs of sample pages."""
    with (run.iterations[-1].data / "review.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    parts = [(row["prefix"], *row["evidence"].partition(": ")) for row in rows]
    return [{"prefix": prefix, "known": known, "pages": urls.split()} for prefix, known, _, urls in parts]


def card(run: Run) -> str | None:
    """The corpus' data card, as Markdown; None before decontamination."""
    cards = [node.data / "card.md" for node in run.of("decontaminate")]
    return next((path.read_text() for path in cards if path.exists()), None)


@dataclass(frozen=True)
class Removals:
    """Matches found by decontamination: counts of matches and pages, pages by benchmark and matches by rule,
    and a sample to judge by eye.
    """

    total: int
    pages: int
    by_benchmark: Counter[str]
    by_rule: Counter[str]
    sample: list[dict[str, Any]]


def around(row: dict[str, Any]) -> tuple[str, str, str]:
    """The page's text before, within and after the run of words that it shares with an item."""
    low, high = row["run"]
    begin = low - max(0, low - CONTEXT)
    end = begin + high - low
    return row["context"][:begin], row["context"][begin:end], row["context"][end:]


def removals(run: Run, limit: int) -> Removals | None:
    """Counts and at most `limit` matches, one a page, taken from the benchmarks in turn in the order of a
    hash; None where decontamination did not run.
    """
    logs = [node.data / "removals.jsonl" for node in run.of("decontaminate")]
    if not any(log.exists() for log in logs):
        return None
    rows = [row for log in logs for row in read_lines(log)]
    rows.sort(key=lambda row: blake2b(f"{row['id']} {row['item']} {row['gram']}".encode()).digest())
    firsts = {(row["benchmark"], row["id"]): row for row in reversed(rows)}
    queues: dict[str, list[dict[str, Any]]] = {}
    for row in reversed(firsts.values()):
        queues.setdefault(row["benchmark"], []).append(row | {"context": around(row)})
    turns = max((len(queue) for queue in queues.values()), default=0)
    sample = [queue[turn] for turn in range(turns) for queue in queues.values() if turn < len(queue)]
    return Removals(
        len(rows),
        len({row["id"] for row in rows}),
        Counter(benchmark for benchmark, _ in firsts),
        Counter(row["rule"] for row in rows),
        sample[:limit],
    )
