"""The corpus' data card: what is in it, generated from the pages themselves."""

from collections import Counter
from typing import Any

from pipeline.config.decontaminate import DecontaminateSection

HOSTS = 15


def _table(title: str, counts: Counter[str], total: int) -> list[str]:
    rows = [
        f"| {name} | {count:,} | {100 * count / total:.1f} % |" for name, count in counts.most_common(HOSTS)
    ]
    return [f"| {title} | pages | share |", "|---|---|---|", *rows, ""]


def data_card(pages: list[dict[str, Any]], counts: dict[str, int], config: DecontaminateSection) -> str:
    """Markdown; `pages` holds the metadata of each page of the clean corpus."""
    total = max(len(pages), 1)
    tokens = sum(page["tokens"] for page in pages)
    hosts = len({page["host"] for page in pages})
    removed = [
        f"- {name.partition('.')[2]}: {number:,}"
        for name, number in counts.items()
        if name.startswith("contaminated.")
    ]
    lines = [
        "# Data card",
        "",
        f"{len(pages):,} mathematical web pages, {tokens:,} words and CJK characters, {hosts:,} hosts.",
        "Each record names the WARC file, offset and digest that it was read from, its score, its rank",
        "and the iteration that found it.",
        "",
        *_table("language", Counter(str(page["language"]) for page in pages), total),
        *_table("host", Counter(page["host"] for page in pages), total),
        *_table("found in iteration", Counter(str(page["iteration"]) for page in pages), total),
        "## Decontamination",
        "",
        f"{counts['contaminated']:,} of {counts['kept']:,} kept pages were removed: they share",
        f"{config.ngram} words in a row with a benchmark item, or hold a whole one of {config.shortest} to",
        f"{config.ngram - 1} words.",
        "`removals.jsonl` names each. By benchmark:",
        "",
        *(removed or ["- none"]),
        "",
        "## Rights",
        "",
        "The texts belong to the authors of the pages. No personal data was removed. Check each source",
        "before publishing.",
        "",
    ]
    return "\n".join(lines)
