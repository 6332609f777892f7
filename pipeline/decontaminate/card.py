"""The data card of the corpus: contents, origin and limits, from its pages and the manifests."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datatrove.data import Document
from jinja2 import Environment, StrictUndefined

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.rows import FORMATS
from pipeline.core.stage import Stage
from pipeline.crawl.urls import NO_HOST, source_of

ROWS = 15
FILE_OF_TEXTS = "file of texts"
MAX_FILES = 20
TEMPLATE = Path(__file__).with_name("card.md.j2")


@dataclass
class Composition:
    """Counts of a corpus' pages by their properties."""

    pages: int = 0
    characters: int = 0
    tokens: int = 0
    cut: int = 0  # pages that lost paragraphs
    by: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in COLUMNS})
    of_source: Counter[str] = field(default_factory=Counter)  # tokens, by named source of texts

    def add(self, page: Document) -> None:
        self.pages += 1
        self.characters += len(page.text)
        self.tokens += page.metadata.get("tokens") or 0
        self.cut += bool(page.metadata.get("segments_removed"))
        if source := source_of(page.id):
            self.by["source"][source] += 1
            self.of_source[source] += page.metadata.get("tokens") or 0
        for name, counts in self.by.items():
            value = page.metadata.get(name)
            if value is not None and not (name == "host" and value.endswith(NO_HOST)):
                counts[str(value)] += 1

    def __iadd__(self, other: "Composition") -> "Composition":
        for name in ("pages", "characters", "tokens", "cut", "of_source"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, counts in other.by.items():
            self.by[name] += counts
        return self


COLUMNS = {
    "language": "language",
    "host": "host",
    "iteration": "found in iteration",
    "source": "source of texts",
    "warc_file": "WARC file",  # or FILE_OF_TEXTS
    "charset": "character set of the page",
    "licence": "licence that the page names",
    "robots": "wishes that the page tells robots",
}


def _rows(counts: Counter[str]) -> tuple[list[tuple[str, int]], list[int]]:
    """Return the values with most pages, and the numbers of pages of all others."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ordered[:ROWS], [count for _, count in ordered[ROWS:]]


def _titles(composition: Composition) -> dict[str, str]:
    """Return the titles of the columns; pages may be rows of files of texts and not records of WARC files."""
    of_texts = {name.endswith(FORMATS) for name in composition.by["warc_file"]}
    kinds = [kind for texts, kind in ((False, "WARC file"), (True, FILE_OF_TEXTS)) if texts in of_texts]
    return COLUMNS | ({"warc_file": " or ".join(kinds)} if kinds else {})


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def data_card(
    stage: Stage[DecontaminateSection], composition: Composition, counts: dict[str, Any], folder: Path
) -> str:
    """Fill `card.md.j2`; `folder` holds the shards."""
    selected = "select" in stage.inputs
    manifest = _read(stage.input("pool").parent / "manifest.json") if selected else {}
    removed = [(name.partition(".")[2], number) for name, number in counts.items() if "contaminated." in name]
    titles = _titles(composition)
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["n"] = "{:,}".format
    environment.filters["sha256"] = lambda path: hashlib.sha256(path.read_bytes()).hexdigest()
    template = environment.from_string(TEMPLATE.read_text())
    return (
        template.render(
            of=composition,
            total=max(composition.pages, 1),
            tables=[(title, *_rows(by)) for name, title in titles.items() if (by := composition.by[name])],
            file=titles["warc_file"],
            place="row" if titles["warc_file"] == FILE_OF_TEXTS else "offset",
            selected=selected,
            pool=manifest.get("counts"),
            metrics=_read(stage.input("select") / "metrics.json") if selected else {},
            config=stage.config,
            counts=counts,
            removed=removed,
            files=sorted(folder.iterdir()),
            most_files=MAX_FILES,
        )
        + "\n"
    )
