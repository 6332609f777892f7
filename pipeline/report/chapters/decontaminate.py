"""Decontamination: what was removed, by benchmark and rule, with matches to judge (paper section 2.1)."""

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pipeline.decontaminate.ngrams import CONTEXT
from pipeline.report.collect import Run, read_lines
from pipeline.report.material import Material

MOST_LISTED = 60  # removals, taken from the benchmarks in turn


@dataclass(frozen=True)
class Removals:
    """Number of matches and of pages, pages by benchmark, matches by rule, and a sample of matches."""

    total: int
    pages: int
    by_benchmark: Counter[str]
    by_rule: Counter[str]
    sample: list[dict[str, Any]]


def around(row: dict[str, Any]) -> tuple[str, str, str]:
    """Return the page's text before, in and after the words that it shares with an item."""
    low, high = row["run"]
    begin = low - max(0, low - CONTEXT)
    end = begin + high - low
    return row["context"][:begin], row["context"][begin:end], row["context"][end:]


def removals(run: Run, limit: int) -> Removals | None:
    """Return counts, and at most `limit` matches in the order of a hash, one per page, benchmarks in turn;
    None without a log.
    """
    own = [
        result for result in run.of("decontaminate") if "/" not in result.instance
    ]  # of the last iteration
    logs = [result.data / "removals.jsonl" for result in own]
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


def chapter(material: Material) -> dict[str, Any] | None:
    """Return counts and a sample of matches; None without a log."""
    found = removals(material.run, MOST_LISTED)
    return {"removals": found} if found else None
