"""Rank all pages, keep the top, find domains, grow the seed, decide whether to stop (paper section 2.1,
steps 2-4).

Inputs: `train`, `score` (all shards), `pool`, `seed_urls`, `annotations`, `opt_out`, `previous`. The corpus
is what an iteration keeps: pages of the seed have to rank for themselves, since a reviewed prefix also covers
thin pages such as indexes.

Outputs: `kept.parquet`; `excluded.parquet`, the pages that are never kept, and why; `seed_urls.txt` and
`not_math_urls.txt`, which the next iteration learns from; `review.tsv`, the mathematical domains that nobody
has reviewed; `metrics.json`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_table, write_table
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.cut import at_precision, within_budget
from pipeline.corpus.domains import Growth, Page, judge, learn, review_queue
from pipeline.corpus.exclusion import NOT_MATH, OPT_OUT, Exclusion
from pipeline.corpus.lists import Annotations, Survivors, read_annotations, read_urls
from pipeline.corpus.passing import converged_before, pass_through
from pipeline.corpus.ranking import Ranking, rank

KEPT = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("shard", pa.string()),
        ("score", pa.float64()),
        ("rank", pa.int64()),
        ("tokens", pa.int64()),
        ("iteration", pa.int64()),
    ]
)
EXCLUDED = pa.schema([("id", pa.string()), ("url", pa.string()), ("reason", pa.string())])
PLACED = ("url", "key", "excluded")
TRAINED = ("positives", "negatives", "settings", "held_out", "out_of_distribution")  # of train.json
LISTS = ("seed_urls", "not_math_urls")


def ranking_of(stage: Stage[CorpusSection], survivors: Survivors, annotations: Annotations) -> Ranking:
    """All pages, with the key that stands for each, and why it is never kept (null: nothing speaks against
    it).
    """
    opted_out = read_urls(stage.input("opt_out")) if stage.inputs.get("opt_out") else []
    exclusion = Exclusion(opted_out, annotations)

    def prepare(pages: pa.Table) -> pa.Table:
        urls = pages["url"].to_pylist()
        keys = pa.array(map(survivors.key, urls), pa.string())
        reasons = pa.array(map(exclusion.reason, urls), pa.string())
        return pages.append_column("key", keys).append_column("excluded", reasons)

    scores = [Path(path) / "scores.parquet" for path in stage.inputs["score"]]
    return rank(scores, stage.work / "ranking", prepare)


def candidates(ranking: Ranking) -> Iterator[pa.RecordBatch]:
    """The pages that may be kept, in rank order."""
    return (batch.filter(pc.is_null(batch["excluded"])) for batch in ranking)


def top(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The first `size` pages."""
    for batch in batches:
        if size <= 0:
            return
        yield batch.slice(0, size)
        size -= len(batch)


def write_excluded(path: Path, ranking: Ranking) -> dict[str, int]:
    """Write the pages that are never kept; returns their number by reason."""
    counts: Counter[str] = Counter()

    def rows() -> Iterator[dict[str, Any]]:
        for batch in ranking:
            for row in batch.filter(pc.is_valid(batch["excluded"])).to_pylist():
                counts[row["excluded"]] += 1
                yield {"id": row["id"], "url": row["url"], "reason": row["excluded"]}

    write_table(path, rows(), EXCLUDED)
    return dict(sorted(counts.items()))


def cut(ranking: Ranking, other: np.ndarray | None, config: CorpusSection, iteration: int) -> int:
    """How many of the candidates are kept, as `corpus.cut` says; `other`: held-out scores of negatives."""
    scores = (batch["score"].to_numpy() for batch in candidates(ranking))
    match config.cut:
        case "tokens":
            return within_budget(
                (batch["tokens"].to_numpy() for batch in candidates(ranking)), config, iteration
            )
        case "score":
            return sum(int((part >= config.threshold).sum()) for part in scores)
    if other is None:
        raise InputError(
            "corpus.cut: `precision` is estimated on held-out pages: set corpus.folds to 2 or more"
        )
    return at_precision(scores, other, config.precision)


def held_out_negatives(train: Path) -> np.ndarray | None:
    """Scores of the held-out negatives; None where nothing was held out."""
    if not (train / "held_out.parquet").exists():
        return None
    table = read_table(train / "held_out.parquet", ["math", "score"])
    return table.filter(pc.invert(table["math"]))["score"].to_numpy()


@dataclass
class Kept:
    """What an iteration keeps and what of it the one before did not."""

    pages: int = 0
    tokens: int = 0
    threshold: float | None = None
    new_pages: int = 0
    new_tokens: int = 0
    hosts: set[str] = field(default_factory=set)

    def add(self, row: dict[str, Any], is_new: bool) -> None:
        self.pages += 1
        self.tokens += row["tokens"]
        self.threshold = row["score"]
        self.new_pages += is_new
        self.new_tokens += row["tokens"] * is_new
        self.hosts.add(row["host"])


def write_kept(
    path: Path, pages: Iterable[pa.RecordBatch], previous: pa.Table | None, iteration: int
) -> Kept:
    """Write kept pages in rank order; `iteration` is the first one of an unbroken row that kept the page.

    Memory grows with the pages that the last iteration kept, not with the pool.
    """
    before: dict[str, int] = {}
    if previous is not None:
        before = dict(zip(previous["id"].to_pylist(), previous["iteration"].to_pylist(), strict=True))
    kept = Kept()

    def rows() -> Iterator[dict[str, Any]]:
        for batch in pages:
            for row in batch.to_pylist():
                kept.add(row, row["id"] not in before)
                columns = {name: row[name] for name in KEPT.names if name in row}
                yield columns | {"rank": kept.pages, "iteration": before.get(row["id"], iteration)}

    write_table(path, rows(), KEPT)
    return kept


def compare(kept: Kept, previous: pa.Table | None) -> dict[str, Any]:
    """What this iteration's pages share with the last one's and what they add."""
    overlap = None
    if previous is not None and kept.pages:
        overlap = round(1 - kept.new_pages / kept.pages, 6)
    hosts = set() if previous is None else set(previous["host"].to_pylist())
    return {
        "overlap_with_previous": overlap,
        "marginal_pages": kept.new_pages,
        "marginal_tokens": kept.new_tokens,
        "new_hosts": len(kept.hosts - hosts),
    }


def grow_lists(stage: Stage[CorpusSection], growth: Growth) -> None:
    """Write the lists that the next iteration learns from."""
    for name, added in zip(LISTS, (growth.seed, growth.not_math), strict=True):
        urls = [*current_list(stage, name), *sorted(added)]
        (stage.partial / f"{name}.txt").write_text("".join(f"{url}\n" for url in urls))


def current_list(stage: Stage[CorpusSection], name: str) -> list[str]:
    """The list that this iteration learnt from; empty if there is none."""
    if "previous" in stage.inputs:
        return read_urls(stage.input("previous") / f"{name}.txt")
    return read_urls(stage.input(name)) if stage.inputs.get(name) else []


def write_review(path: Path, queue: list[dict[str, str | int]]) -> None:
    """The queue in the form of an annotation file, verdicts to be filled in."""
    lines = ["prefix\tverdict\tannotator\tdate\tevidence\n"]
    for row in queue:
        evidence = (
            f"{row['kept']} of {row['pages']} pages kept, expect {row['expected']} more: {row['samples']}"
        )
        lines.append(f"{row['prefix']}\t\t\t\t{evidence}\n")
    path.write_text("".join(lines))


def pages_of(ranking: Ranking, size: int) -> Iterator[Page]:
    """All pages in rank order but those opted out; the first `size` candidates are kept."""
    place = 0
    for batch in ranking:
        for url, key, reason in zip(*(batch[name].to_pylist() for name in PLACED), strict=True):
            if reason != OPT_OUT:
                yield Page(url, key, reason is None and place < size, reason == NOT_MATH)
            place += reason is None


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, survivors = stage.config, Survivors(stage.input("pool") / "duplicates.parquet")
    annotations = (
        read_annotations(stage.input("annotations")) if stage.inputs.get("annotations") else Annotations({})
    )
    ranking = ranking_of(stage, survivors, annotations)
    excluded = write_excluded(stage.partial / "excluded.parquet", ranking)
    size = cut(ranking, held_out_negatives(stage.input("train")), config, iteration)
    previous = None
    if "previous" in stage.inputs:
        previous = read_table(stage.input("previous") / "kept.parquet", ["id", "host", "iteration"])
    kept = write_kept(stage.partial / "kept.parquet", top(candidates(ranking), size), previous, iteration)
    domains = judge(pages_of(ranking, size), config)
    listed = {name: current_list(stage, name) for name in LISTS}
    known = {survivors.key(url) for urls in listed.values() for url in urls}
    growth = learn(pages_of(ranking, size), domains, annotations, known, config)
    grow_lists(stage, growth)
    queue = review_queue(pages_of(ranking, size), domains, annotations, config.domain_depth)
    write_review(stage.partial / "review.tsv", queue)
    rmtree(stage.work / "ranking")
    changes = compare(kept, previous)
    trained = json.loads((stage.input("train") / "train.json").read_text())
    return changes | {
        "iteration": iteration,
        "seed_pages": len(listed["seed_urls"]),
        "seed_growth": len(growth.seed),
        "not_math_growth": len(growth.not_math),
        "pool_pages": ranking.pages,
        "excluded_pages": excluded,
        "kept_pages": size,
        "kept_tokens": kept.tokens,
        "threshold": kept.threshold,
        **{name: trained[name] for name in TRAINED},
        "domains": [domain.row() for domain in domains],
        "prefixes_used": [
            {"prefix": prefix, "pages": count} for prefix, count in sorted(growth.prefixes.items())
        ],
        "converged": (changes["overlap_with_previous"] or 0) >= config.converged,
        "passed_through": False,
    }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the iteration's selection; after convergence the previous one's."""
    iteration = int(stage.instance.split("/")[0].removeprefix("iteration-"))
    if converged_before(stage):
        source = stage.input("previous")
        pass_through(
            source,
            stage.partial,
            ["kept.parquet", "excluded.parquet", "review.tsv", *(f"{name}.txt" for name in LISTS)],
        )
        metrics = json.loads((source / "metrics.json").read_text()) | {
            "iteration": iteration,
            "passed_through": True,
        }
    else:
        metrics = select(stage, iteration)
    write_json(stage.partial / "metrics.json", metrics)
    return {name: metrics[name] for name in ("kept_pages", "kept_tokens", "seed_growth", "converged")}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
