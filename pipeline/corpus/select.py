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
from shutil import rmtree
from typing import Any

from pipeline.common.manifest import write_json
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.annotations import Annotations, read_annotations
from pipeline.corpus.candidates import candidates, pool_pages, rank_pool, top, write_excluded
from pipeline.corpus.convergence import converged_before, pass_through, write_kept
from pipeline.corpus.cut import cut
from pipeline.corpus.domains import judge, learn, review_queue, write_review
from pipeline.corpus.lists import GROWN, Survivors, current_urls, write_urls

TRAINED = ("positives", "negatives", "settings", "held_out", "out_of_distribution")  # of train.json
PASSED_ON = ("kept.parquet", "excluded.parquet", "review.tsv", *(f"{name}.txt" for name in GROWN))


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, survivors, train = stage.config, Survivors(stage.input("pool")), stage.input("train")
    annotations = Annotations({})
    if stage.inputs.get("annotations"):
        annotations = read_annotations(stage.input("annotations"))
    ranking = rank_pool(stage, survivors, annotations)
    excluded = write_excluded(stage.partial / "excluded.parquet", ranking)
    size = cut(ranking, train, config, iteration)
    previous = stage.input("previous") if "previous" in stage.inputs else None
    kept, changes = write_kept(
        stage.partial / "kept.parquet", top(candidates(ranking), size), previous, iteration
    )
    domains = judge(pool_pages(ranking, size), config)
    lists = {name: current_urls(stage, name) for name in GROWN}
    known = {key for urls in lists.values() for key in survivors.keys(urls)}
    growth = learn(pool_pages(ranking, size), domains, annotations, known, config)
    for (name, urls), added in zip(lists.items(), (growth.seed, growth.not_math), strict=True):
        write_urls(stage.partial, name, [*urls, *sorted(added)])
    queue = review_queue(pool_pages(ranking, size), domains, annotations, config.domain_depth)
    write_review(stage.partial / "review.tsv", queue)
    rmtree(stage.work / "ranking")
    trained = json.loads((train / "train.json").read_text())
    return changes | {
        "iteration": iteration,
        "seed_pages": len(lists["seed_urls"]),
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
    number = stage.instance.split("/")[0].removeprefix("iteration-")
    if not (number.isascii() and number.isdigit()):
        raise InputError(f"--instance {stage.instance}: expected iteration-<number>/select")
    iteration = int(number)
    if converged_before(stage):
        source = stage.input("previous")
        pass_through(source, stage.partial, PASSED_ON)
        metrics = json.loads((source / "metrics.json").read_text())
        metrics |= {"iteration": iteration, "passed_through": True}
    else:
        metrics = select(stage, iteration)
    write_json(stage.partial / "metrics.json", metrics)
    return {name: metrics[name] for name in ("kept_pages", "kept_tokens", "seed_growth", "converged")}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
