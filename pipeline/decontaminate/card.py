"""The data card of the corpus: contents, origin and limits, from its pages and the manifests."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datatrove.data import Document

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.protocol.stage import Stage

ROWS = 15
MAX_FILES = 20


@dataclass
class Composition:
    """Counts of a corpus' pages by their properties."""

    pages: int = 0
    characters: int = 0
    tokens: int = 0
    cut: int = 0  # pages that lost paragraphs
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in COLUMNS})
    replaced: Counter[str] = field(default_factory=Counter)  # personal data, by kind

    @classmethod
    def read(cls, fields: dict[str, Any]) -> "Composition":
        """The counts that `fields` gave."""
        by = {name: Counter(counts) for name, counts in fields["by"].items()}
        return cls(**(fields | {"by": by, "replaced": Counter(fields["replaced"])}))

    def fields(self) -> dict[str, Any]:
        """The counts for JSON."""
        return vars(self) | {"by": {name: dict(counts) for name, counts in self.by.items()}}

    def add(self, page: Document, replaced: Counter[str]) -> None:
        self.replaced += replaced
        self.pages += 1
        self.characters += len(page.text)
        self.tokens += page.metadata.get("tokens") or 0
        self.cut += bool(page.metadata.get("segments_removed"))
        for name, counts in self.by.items():
            if (value := page.metadata.get(name)) is not None:
                counts[str(value)] += 1

    def __iadd__(self, other: "Composition") -> "Composition":
        self.pages += other.pages
        self.characters += other.characters
        self.tokens += other.tokens
        self.cut += other.cut
        self.replaced += other.replaced
        for name, counts in other.by.items():
            self.by[name] += counts
        return self


COLUMNS = {
    "language": "language",
    "host": "host",
    "iteration": "found in iteration",
    "warc_file": "WARC file",
    "charset": "character set of the page",
    "licence": "licence that the page names",
    "robots": "wishes that the page tells robots",
}


def _table(title: str, counts: Counter[str], total: int) -> list[str]:
    if not counts:
        return []
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:ROWS]
    rows = [f"| {name} | {count:,} | {100 * count / total:.1f} % |" for name, count in shown]
    if len(counts) > ROWS:
        rest = sum(counts.values()) - sum(count for _, count in shown)
        rows.append(f"| {len(counts) - ROWS:,} others | {rest:,} | {100 * rest / total:.1f} % |")
    return [f"| {title} | pages | share |", "|---|---:|---:|", *rows, ""]


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _selection(stage: Stage[DecontaminateSection]) -> list[str]:
    """How the pages were found, from the last iteration's metrics and the manifests."""
    if "select" not in stage.inputs:
        return ["All pages of the given shards were taken; no classifier selected them.", ""]
    folder = stage.input("select")
    metrics = _read(folder / "metrics.json")
    pool = _read(stage.input("pool").parent / "manifest.json").get("counts", {})
    lines = []
    if pool:
        duplicates = ", ".join(
            f"{pool[f'duplicates_{kind}']:,} {what}"
            for kind, what in (("url", "same URL"), ("exact", "same text"), ("near", "near-duplicate"))
        )
        lines.append(
            f"- {pool['pages']:,} pages were extracted, {pool['kept']:,} of them unique ({duplicates})."
        )
    if metrics:
        lines.append(
            f"- {metrics['iteration']} iterations of a fastText classifier; the last one learnt from"
            f" {metrics['seed_pages']:,} seed pages and kept {metrics['kept_pages']:,} of"
            f" {metrics['pool_pages']:,} pages: log-odds of at least {metrics['threshold'] or 0:.3f}."
        )
        overlap = metrics["overlap_with_previous"]
        if overlap is not None:
            lines.append(f"- {100 * overlap:.1f} % of them had been kept by the iteration before.")
        settings = ", ".join(f"{name} {value}" for name, value in metrics["settings"].items())
        lines.append(
            f"- It was trained on {metrics['positives']:,} pages of mathematics and"
            f" {metrics['negatives']:,} others: {settings}."
        )
        if held_out := metrics.get("held_out"):
            lines.append(
                f"- On held-out sites of its own lists it reaches average precision"
                f" {held_out['average_precision']:.3f},"
                f" calibration error {held_out['calibration_error']:.3f}."
            )
    return [*lines, ""]


def _decontamination(
    config: DecontaminateSection, composition: Composition, counts: dict[str, Any]
) -> list[str]:
    removed = [
        f"| {name.partition('.')[2]} | {number:,} |"
        for name, number in counts.items()
        if name.startswith("contaminated.")
    ]
    rule = (
        f"{counts['contaminated']:,} of {counts['kept']:,} pages share {config.ngram} words (or CJK"
        f" characters) in a row with a benchmark item, or hold a whole one of {config.shortest}"
        f" to {config.ngram - 1}{', or have a question in other words' if config.fuzzy == 'remove' else ''}."
    )
    what = (
        "They were removed."
        if config.remove == "page"
        else f"The paragraphs concerned were removed; {composition.cut:,} pages stay without them."
    )
    if config.fuzzy == "flag":
        what += f" {counts['flagged']:,} other pages hold a question in other words and stay (rule `fuzzy`)."
    table = ["| benchmark | pages |", "|---|---:|", *removed, ""] if removed else []
    return [f"{rule} {what} `removals.jsonl` names page, item, words and place of each.", "", *table]


def _files(folder: Path) -> list[str]:
    paths = sorted(folder.iterdir())
    rows = [
        f"| {path.name} | {path.stat().st_size:,} | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |"
        for path in paths[:MAX_FILES]
    ]
    more = [f"| {len(paths) - MAX_FILES:,} others | | |"] if len(paths) > MAX_FILES else []
    return ["| file | bytes | SHA-256 |", "|---|---:|---|", *rows, *more, ""]


def _personal(config: DecontaminateSection, composition: Composition) -> str:
    if not config.redact:
        return "- No personal data was removed."
    names = {"email": "e-mail addresses", "ip": "IP addresses", "phone": "telephone numbers"}
    counts = ", ".join(f"{composition.replaced[kind]:,} {names[kind]}" for kind in config.redact)
    return f"- Replaced outside of formulas: {counts}. Names and other personal data were not looked for."


def data_card(
    stage: Stage[DecontaminateSection], composition: Composition, counts: dict[str, Any], folder: Path
) -> str:
    """Markdown; `folder` holds the shards."""
    total = max(composition.pages, 1)
    hosts = len(composition.by["host"])
    size = f", {composition.tokens:,} words and CJK characters" if composition.tokens else ""
    tables = [line for name, title in COLUMNS.items() for line in _table(title, composition.by[name], total)]
    lines = [
        "# Data card",
        "",
        f"{composition.pages:,} web pages of {hosts:,} hosts: {composition.characters:,} characters{size}.",
        "",
        "## What is in it",
        "",
        *tables,
        "## How it was made",
        "",
        *_selection(stage),
        "## Decontamination",
        "",
        *_decontamination(stage.config, composition, counts),
        "## Form",
        "",
        "Zstandard-compressed JSON lines: `text`, `id`, and `metadata` with the page's `url`, `host`,"
        " `title`, `language`, the WARC file, offset, length and digest that it was read from (`warc_file`,"
        " `offset`, `length`, `digest`), whether the crawl had cut it (`truncated`), its `score` and the"
        " `iteration` that found it.",
        "",
        *_files(folder),
        "## Limits and rights",
        "",
        "- A classifier chose the pages: some are not mathematical; mathematics unlike its seed is missing.",
        "- Near-duplicates below the configured similarity remain, and so do benchmark items that were"
        " reworded, translated or given other numbers.",
        "- Languages other than English and Chinese are neither excluded nor looked for.",
        _personal(stage.config, composition),
        "- The texts belong to the authors of the pages. Check each source, and the wishes its host has"
        " stated for crawlers (`corpus.opt_out`), before publishing or training.",
        "",
    ]
    return "\n".join(lines)
