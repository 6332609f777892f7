"""Rank all pages, keep the top, find domains, grow the seed, decide whether to stop (paper section 2.1, steps 2-4).

Inputs: `train`, `score` (all shards), `pool`, `seed_urls`, `annotations`, `previous`. The corpus is what an iteration keeps;
seed pages have to rank for themselves. Outputs: `kept.parquet`, `seed_urls.txt` for the next iteration, `metrics.json`.
"""

import json
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.common.manifest import write_json
from pipeline.common.shards import read_table, write_table
from pipeline.common.stage import Counts, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.domains import Page, grown, judge
from pipeline.corpus.lists import Survivors, read_annotations, read_urls
from pipeline.corpus.passing import converged_before, pass_through

KEPT = pa.schema(
    [
        ("id", pa.string()),
        ("url", pa.string()),
        ("host", pa.string()),
        ("score", pa.float64()),
        ("rank", pa.int64()),
        ("tokens", pa.int64()),
        ("iteration", pa.int64()),
    ]
)


def ranked(paths: list[Path]) -> list[Page]:
    """All scored pages, best first; equal scores in the order of a hash of their ids."""
    pages = [page for path in paths for page in read_table(path / "scores.parquet").to_pylist()]
    return sorted(
        pages, key=lambda page: (-page["score"], blake2b(page["id"].encode(), digest_size=8).digest())
    )


def cut(pages: list[Page], config: CorpusSection, iteration: int) -> list[Page]:
    """The top of the ranking, as `corpus.cut` says."""
    if config.cut == "score":
        return [page for page in pages if page["score"] >= config.threshold]
    budget = config.budget_tokens[min(iteration, len(config.budget_tokens)) - 1]
    sums = accumulate(page["tokens"] for page in pages)
    return [page for page, tokens in zip(pages, sums, strict=True) if tokens <= budget]


def compare(kept: list[Page], before: dict[str, int]) -> dict[str, Any]:
    """What this iteration's pages share with the last one's and what they add."""
    new = [page for page in kept if page["id"] not in before]
    return {
        "overlap_with_previous": round(1 - len(new) / len(kept), 6) if kept and before else None,
        "marginal_pages": len(new),
        "marginal_tokens": sum(page["tokens"] for page in new),
    }


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages and the grown seed; returns the metrics."""
    config, survivors = stage.config, Survivors(stage.input("pool") / "duplicates.parquet")
    pages = ranked([Path(path) for path in stage.inputs["score"]])
    kept = cut(pages, config, iteration)
    previous = (
        read_table(stage.input("previous") / "kept.parquet").to_pylist() if "previous" in stage.inputs else []
    )
    before = {page["id"]: page["iteration"] for page in previous}
    rows = [
        page | {"rank": rank, "iteration": before.get(page["id"], iteration)}
        for rank, page in enumerate(kept, 1)
    ]
    write_table(stage.partial / "kept.parquet", rows, KEPT)

    ids = {page["id"] for page in kept}
    domains = judge(pages, ids, config.domain_share, config.domain_pages)
    added = grown(pages, ids, domains, read_annotations(stage.input("annotations")), survivors)
    seed_file = stage.input("previous") / "seed_urls.txt" if previous else stage.input("seed_urls")
    seed = read_urls(seed_file)
    known = {survivors.key(url) for url in seed}
    fresh = sorted({url for urls in added.values() for url in urls if survivors.key(url) not in known})
    (stage.partial / "seed_urls.txt").write_text("".join(f"{url}\n" for url in [*seed, *fresh]))
    changes = compare(kept, before)
    hosts = {page["host"] for page in previous}
    return changes | {
        "iteration": iteration,
        "seed_pages": len(seed),
        "seed_growth": len(fresh),
        "pool_pages": len(pages),
        "kept_pages": len(kept),
        "kept_tokens": sum(page["tokens"] for page in kept),
        "new_hosts": len({page["host"] for page in kept} - hosts),
        "threshold": kept[-1]["score"] if kept else None,
        "domains": [domain.row() for domain in domains],
        "prefixes_used": [{"prefix": prefix, "pages": len(urls)} for prefix, urls in sorted(added.items())],
        "converged": (changes["overlap_with_previous"] or 0) >= config.converged,
        "passed_through": False,
    }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the iteration's selection; after convergence the previous one's."""
    iteration = int(stage.instance.split("/")[0].removeprefix("iteration-"))
    if converged_before(stage):
        source = stage.input("previous")
        pass_through(source, stage.partial, ["kept.parquet", "seed_urls.txt"])
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
