"""An earlier version of this project beside today's, in `make bench-dump BASE=<a checkout of it>`.

Its programs `dedup` and `select`, each run alone, read the same pages and scores, and do all that several
programs share today: signatures, exact rules, near-duplicates, pool and table of duplicates; ranking, cut,
domains and lists. Both have the same settings.
"""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
from programs import Measured, measured
from table import Row

from pipeline.config.crawl import CrawlSection

COLUMNS = "from pipeline.corpus.score import SCORES; print(*SCORES.names)"
Cost = tuple[float, float]  # CPU seconds, peak MB of a job


def readable_scores(base: Path, folder: Path, scores: list[Path]) -> list[Path]:
    """Tables of scores with the columns that `base` knows."""
    command = [sys.executable, "-c", COLUMNS]
    names = subprocess.run(command, cwd=base, env={}, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = []
    for path in scores:
        found.append(folder / "earlier" / path.name)
        found[-1].mkdir(parents=True)
        pq.write_table(
            pq.read_table(path / "scores.parquet", columns=names.split()), found[-1] / "scores.parquet"
        )
    return found


def earlier(base: Path, folder: Path, keys: dict[str, object]) -> tuple[list[Measured], str]:
    """Deduplicate and select what `bench-dump` generated in `folder`; `keys`: those of selection. Returns
    both programs' measures, and what they found.
    """
    shards, scores = sorted(folder.glob("pages-????")), sorted(folder.glob("iteration-1/score-????"))
    same = {"pool_shards": len(shards), "min_similarity": CrawlSection().min_similarity}
    pool = measured(folder, "dedup", "earlier-dedup", keys=same, root=base, extract=shards)
    given = {"score": readable_scores(base, folder, scores), "pool": [pool[0]]}
    given |= {"train": [folder / "iteration-1/train"], "seed_urls": [folder / "seed_urls.txt"]}
    chosen = measured(folder, "select", "iteration-1/earlier-select", "corpus", keys, base, **given)
    near, kept = (
        json.loads((path / "manifest.json").read_text())["counts"][name]
        for path, name in ((pool[0], "duplicates_near"), (chosen[0], "kept_pages"))
    )
    return [pool, chosen], f"{near:,} near-duplicates, {kept:,} pages selected"


def together(costs: Iterable[Cost]) -> Cost:
    """The cost of several programs."""
    seconds, memory = zip(*costs, strict=True)
    return sum(seconds), max(memory)


def rows_beside(pages: int, ours: list[Iterable[Cost]], before: list[Measured], found: str) -> list[Row]:
    """Speed and memory of deduplication, of selection, and of both; `ours`: of today's programs of either."""
    costs = [together(some) for some in ours]
    olds = [old[1:] for old in before]
    rows = []
    for what, our, old in (
        ("deduplication", costs[0], olds[0]),
        ("selection", costs[1], olds[1]),
        ("deduplication and selection", together(costs), together(olds)),
    ):
        speed = ("speed", "pages/s of CPU", pages / our[0], pages / old[0], old[0] / our[0])
        memory = ("memory", "MB", our[1], old[1], old[1] / our[1])
        for measure, unit, one, other, ratio in (speed, memory):
            rows.append(
                {"what": f"{what}, {measure}", "unit": unit, "ours": one, "peer": other, "ratio": ratio}
                | {"peer_name": "an earlier version", "data": f"{pages:,} pages; it found {found}"}
            )
    return rows
