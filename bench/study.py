"""`make bench-study`: which loop to ship, by nested cross-validation over hosts, on two labelled sets.

A way is a set of keys. For each fold of hosts the loop (train, score and select as in a run, with the keys of
`configs/real.yaml`) goes without any review of the fold's hosts, and the way is chosen by the pages of the
other hosts: the best sum of average precision and F1 at the cut. Then the fold's own pages, by which nothing
was chosen and none of which was reviewed, measure it. Pages of the first lists never count. Intervals draw
whole hosts.

    study.py --sets FOLDER FOLDER [--page docs/corpus.md]

Each folder is one that `make real WEB=folder` reads, with `labels.jsonl`.
"""

import argparse
import hashlib
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from table import ROOT, start_with

from pipeline.config.corpus import CorpusSection
from pipeline.config.crawl import CrawlSection
from pipeline.corpus import score, select, train
from pipeline.corpus.classifier import ZEROED_MEMORY
from pipeline.corpus.convergence import read_notes
from pipeline.corpus.held_out import divide
from pipeline.corpus.training_set import LabelledPage
from pipeline.corpus.url_lists import GROWN
from pipeline.crawl.extract import make_document
from pipeline.crawl.http_decoding import Unusable
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.page_limits import MAX_PAGE_BYTES
from pipeline.crawl.urls import normalise_url
from pipeline.crawl.warc import ReadCounts, read_pages
from pipeline.data.rows import read_rows
from pipeline.data.shards import DocumentWriter, read_table, table_schema, write_table
from pipeline.intervals import in_percent
from pipeline.protocol.stage import Stage
from pipeline.report import scores as report
from pipeline.report.truth import LabelledPage as Truth
from pipeline.report.truth import (
    average_precision,
    by_hosts,
    labelled_pages,
    measure,
    precision_recall_curve,
    ranking,
)

FOLDS, ITERATIONS = 3, 4
MARKS = ("<!-- study -->", "<!-- end of study -->")
PAPER = "the paper's rule"
WAYS: dict[str, dict[str, Any]] = {
    PAPER: {},
    "and a second stage": {"second_stage": {"enabled": True}},
    "and a bound of 0.95": {"domain_confidence": 0.95},
    "second stage, bound": {"second_stage": {"enabled": True}, "domain_confidence": 0.95},
    "and a cut at precision 90": {"cut": "precision", "precision": 0.9},
    "second stage, that cut": {"second_stage": {"enabled": True}, "cut": "precision", "precision": 0.9},
}
BASE = yaml.safe_load((ROOT / "configs/real.yaml").read_text())["corpus"]
CHOSEN = "chosen on the other hosts"
DUPLICATES = table_schema(id=str, url=str, duplicate_of=str, duplicate_of_url=str, kind=str)


@dataclass(frozen=True)
class Found:
    """What a loop makes of the pages: scores by URL, and the URLs that it keeps or was trained on."""

    scores: dict[str, float]
    kept: set[str]
    trained: set[str]


class Loops:
    """The loops of a labelled set. Training and scoring that two loops have in common are done once."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder, self.work = folder, work
        self.rows = {row["url"]: row for _, row in read_rows(str(folder / "labels.jsonl"))}
        listed = [*read_urls(folder / "seed_urls.txt"), *read_urls(folder / "background_urls.txt")]
        pool = self._write_pool()
        truth = labelled_pages(self.rows, set(listed))
        self.pages = [page for page in truth if page.url in pool and not page.is_listed]
        texts = [LabelledPage(page.url, page.host, "", page.is_math) for page in self.pages]
        folds = divide(texts, FOLDS)
        if not (folds.math_by_host and folds.other_by_host):
            sys.exit(f"error: {folder}: nearly all pages of a class are on one host")
        self.fold = dict(zip([page.url for page in self.pages], folds.of, strict=True))

    def _write_pool(self) -> set[str]:
        """Write the pool, copies left out, as deduplication leaves it; returns the URLs of its pages."""
        found: set[str] = set()
        (self.work / "dedup/pool").mkdir(parents=True)
        with DocumentWriter(self.work / "dedup/pool/0000.jsonl.zst") as writer:
            for path in sorted(self.folder.glob("*.warc.gz")):
                for page in read_pages(str(path), MAX_PAGE_BYTES, ReadCounts()):
                    url = (page.url or b"").decode()
                    if url in found or url not in self.rows or self.rows[url].get("duplicate_of"):
                        continue
                    try:
                        writer.write(make_document(f"w:{len(found):05d}", page, CrawlSection(), Counter()))
                    except Unusable:
                        continue
                    found.add(url)
        copies = [
            {"id": url, "url": url, "duplicate_of": of, "duplicate_of_url": of, "kind": "text"}
            for url, row in self.rows.items()
            if (of := row.get("duplicate_of"))
        ]
        write_table(self.work / "dedup/duplicates.parquet", copies, DUPLICATES)
        return found

    def _run(self, program: Any, name: str, config: CorpusSection, inputs: dict[str, Path], key: str) -> Path:
        """Run a program of the loop in `key`, unless it has been; returns its outputs."""
        work, given = self.work / key, {kind: [str(path)] for kind, path in inputs.items()}
        stage = Stage("corpus", name, config, key, given, work, work, work, {"threads": 1})
        if not (work / "done").exists():
            stage.partial.mkdir(parents=True)
            program.run(stage)
            (work / "done").touch()
        return stage.partial

    def _reviewed_without(self, fold: int) -> Path:
        """The review without any prefix on the hosts of a fold."""
        path, hosts = self.work / f"annotations-{fold}.tsv", {page.host for page in self.of(fold)}
        head, *lines = (self.folder / "annotations.tsv").read_text().splitlines()
        kept = [line for line in lines if normalise_url(f"https://{line}").partition("/")[0] not in hosts]
        path.write_text("".join(f"{line}\n" for line in [head, *kept]))
        return path

    def of(self, fold: int) -> list[Truth]:
        """The pages that a fold measures by."""
        return [page for page in self.pages if self.fold[page.url] == fold]

    def loop(self, way: str, fold: int) -> Found:
        """Run the loop in a way, without what reviewers said of a fold."""
        config = CorpusSection(**(BASE | WAYS[way]))
        lists = {name: self.folder / f"{name}.txt" for name in ("seed_urls", "background_urls")}
        given = lists | {"pool": self.work / "dedup"}
        before: dict[str, Path] = {}
        trained: set[str] = set()
        for iteration in range(1, ITERATIONS + 1):
            grown = [before["previous"] / f"{name}.txt" for name in GROWN] if before else []
            texts = [path.read_bytes() for path in grown or [lists["seed_urls"]]]
            same = hashlib.sha256(repr((config.second_stage, texts)).encode()).hexdigest()[:16]
            name = f"iteration-{iteration}"
            made = self._run(train, f"{name}/train", config, given | before, f"train-{same}")
            inputs = {"train": made, "shard": self.work / "dedup/pool/0000.jsonl.zst"}
            scored = self._run(score, f"{name}/score", config, inputs, f"score-{same}")
            inputs = given | before | {"train": made, "score": scored}
            inputs["annotations"] = self._reviewed_without(fold)
            chosen = f"select-{list(WAYS).index(way)}-{fold}-{iteration}"
            before = {"previous": self._run(select, f"{name}/select", config, inputs, chosen)}
            trained |= set(read_table(made / "trained.parquet", ["url"])["url"].to_pylist())
            if read_notes(before["previous"] / "metrics.json", "stopped")["stopped"]:
                break
        table = read_table(scored / "scores.parquet", ["url", "score"])
        kept = read_table(before["previous"] / "kept.parquet", ["url"])
        scores = dict(zip(table["url"].to_pylist(), table["score"].to_pylist(), strict=True))
        return Found(scores, set(kept["url"].to_pylist()), trained)


def goodness(pages: list[Truth], found: Found) -> float:
    """What a way is chosen by: average precision plus F1 at the cut."""
    at_cut = measure(pages, found.kept)
    precision, recall = at_cut["precision"] or 0.0, at_cut["recall"] or 0.0
    curve = precision_recall_curve(pages, found.scores) or []
    return average_precision(curve) + 2 * precision * recall / max(precision + recall, 1e-9)


def choose(loops: Loops, found: dict[tuple[str, int], Found], fold: int) -> str:
    """The best way by the pages outside a fold that no way's classifier was trained on."""
    seen = set().union(*(found[way, fold].trained for way in WAYS))
    others = [page for page in loops.pages if loops.fold[page.url] != fold and seen.isdisjoint(page.urls)]
    return max(WAYS, key=lambda way: goodness(others, found[way, fold]))


def rows(loops: Loops) -> dict[str, dict[str, Any]]:
    """The measures of each way, and of the way chosen, each page by a loop without its host's review."""
    found = {(way, fold): loops.loop(way, fold) for way in WAYS for fold in range(FOLDS)}
    chosen = {fold: choose(loops, found, fold) for fold in range(FOLDS)}
    print(f"{loops.folder}: chosen {', '.join(chosen.values())}")
    table = {}
    for way in [*WAYS, CHOSEN]:
        scores: dict[str, float] = {}
        kept: set[str] = set()
        for fold in range(FOLDS):
            own = found[chosen[fold] if way == CHOSEN else way, fold]
            urls = {url for page in loops.of(fold) for url in page.urls}
            # The scale that loops of different ways share: how many pages of the pool score less.
            pool = np.sort(list(own.scores.values()))
            scores |= {url: np.searchsorted(pool, own.scores[url]) for url in urls & own.scores.keys()}
            kept |= urls & own.kept
        table[way] = ranking(loops.pages, scores) | by_hosts(loops.pages, kept)
    return table


def lines(loops: Loops, table: dict[str, dict[str, Any]]) -> list[str]:
    """The rows of a set as Markdown."""
    size = table[PAPER]
    head = f"{size['pages']} pages ({size['math']}) of {size['hosts']} hosts"
    found = [f"| **{loops.folder.name}**: {head} | | | | |"]
    for way, row in table.items():
        cells = [
            "" if row[name] is None else in_percent(row[name], row[f"{name}_ci95"])
            for name in report.MEASURES
        ]
        found.append(f"| {way} | {' | '.join(cells)} |")
    return found


def main() -> None:
    start_with(ZEROED_MEMORY)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=Path, nargs="+", required=True, help="folders of labelled pages")
    parser.add_argument("--page", type=Path, help="write the table into this page, too")
    words = parser.parse_args()
    table = f"| way | {' | '.join(report.MEASURES.values())} |\n|---|---|---|---|---|\n"
    for folder in words.sets:
        with tempfile.TemporaryDirectory() as work:
            loops = Loops(folder, Path(work))
            table += "".join(f"{line}\n" for line in lines(loops, rows(loops)))
        print(table, flush=True)
    if words.page:
        report.write_table(words.page, table, MARKS)


if __name__ == "__main__":
    main()
