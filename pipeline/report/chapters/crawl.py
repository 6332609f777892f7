"""The crawl: records rejected by reason, pages by language, duplicates by kind (paper section 2.1)."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from pipeline.report.collect import Run
from pipeline.report.material import Material

COPIES = "duplicates_"  # before a kind in the counts of deduplication


@dataclass(frozen=True)
class Crawl:
    """Records rejected by reason, pages by language, duplicates by kind."""

    reasons: Counter[str]
    languages: Counter[str]
    duplicates: Counter[str]
    kinds: set[str] = field(default_factory=set)  # of what was read, in the singular

    @property
    def records(self) -> int:
        """Response records and rows of texts read."""
        return self.languages.total() + self.reasons.total()

    @property
    def pool(self) -> int:
        """Pages left without duplicates."""
        return self.languages.total() - self.duplicates.total()


def _counts(path: Path, *columns: str) -> Counter[tuple[str | None, ...]]:
    """How often each combination of values occurs; empty if there is no such file."""
    if not path.exists():
        return Counter()
    rows = (
        parquet.read_table(path, columns=list(columns)).group_by(list(columns)).aggregate([([], "count_all")])
    )
    return Counter({tuple(row[name] for name in columns): row["count_all"] for row in rows.to_pylist()})


def crawl(run: Run) -> Crawl:
    """Return counts over all crawl results."""
    found = Crawl(Counter(), Counter(), Counter())
    for result in run.of("crawl"):
        outcomes = _counts(result.data / "records.parquet", "status", "reason", "language")
        if outcomes:
            found.kinds.add("row of texts" if "texts" in result.run.get("inputs", {}) else "response record")
        for (status, reason, language), number in outcomes.items():
            if status == "extracted":
                found.languages[language or "unknown"] += number
            else:
                found.reasons[reason or "unknown"] += number
        if result.name == "crawl/dedup":
            for name, number in result.manifest["counts"].items():
                if number and name.startswith(COPIES):
                    found.duplicates[name.removeprefix(COPIES)] += number
    return found


def chapter(material: Material) -> dict[str, Any]:
    """Return counts of all crawl results."""
    return {"crawl": crawl(material.run)}
