"""Rank all pages, keep the top, find domains, grow the seed, decide whether to stop (paper section 2.1,
steps 2-4).

Inputs: `train`, `score` (all shards), `pool`, `seed_urls`, `annotations`, `opt_out`, `blocklists`,
`previous`. The corpus is what an iteration keeps: pages of the seed have to rank for themselves, since a
reviewed prefix also covers thin pages such as indexes.

Outputs: `kept.parquet`; `excluded.parquet`, the pages that are never kept, and why; `seed_urls.txt` and
`not_math_urls.txt`, which the next iteration learns from; `review.tsv`, the prefixes of mathematical domains
that nobody has reviewed, and their pages in `queue.parquet`; `metrics.json`.
"""

from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.common.database import database
from pipeline.common.ending import say
from pipeline.common.manifest import write_json
from pipeline.common.stage import Counts, InputError, Stage, label, run_stage
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.blocklists import files_of
from pipeline.corpus.candidates import add_pages, write_excluded
from pipeline.corpus.convergence import (
    converged_before,
    keep,
    pass_through,
    read_notes,
    seed_grew,
    write_kept,
)
from pipeline.corpus.cut import cut, cuts, promise
from pipeline.corpus.domains import judge, learn
from pipeline.corpus.lists import GROWN, Survivors, current_urls, write_urls
from pipeline.corpus.out_of_distribution import recall_at
from pipeline.corpus.review_queue import review_queue, write_review

TRAINED = ("positives", "negatives", "settings", "held_out", "out_of_distribution")  # of train.json
COUNTED = ("kept_pages", "kept_tokens", "seed_growth", "converged")  # of metrics.json
PASSED_ON = (
    *("kept.parquet", "excluded.parquet", "queue.parquet", "review.tsv"),
    *(f"{name}.txt" for name in GROWN),
)


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, train = stage.config, stage.input("train")
    lists = {name: current_urls(stage, name, train) for name in GROWN}
    known = Survivors(stage.input("pool"), stage.work, stage.launch).keys(chain(*lists.values()))
    previous = stage.input("previous") if "previous" in stage.inputs else None
    scores = [Path(path) / "scores.parquet" for path in stage.inputs["score"]]
    annotations = [Path(path) for path in stage.inputs.get("annotations", [])]
    opted_out = current_urls(stage, "opt_out")
    with database(stage.work / "join", stage.launch) as joins:
        add_pages(joins, scores, annotations, opted_out, files_of(stage))
        excluded = write_excluded(stage.partial / "excluded.parquet", joins)
        say(f"{label(stage)}: ranks the pages of {len(scores)} shards")
        size = cut(joins, train, config, iteration)
        promised = promise(joins, train, size)
        by_language = {own.language: own.least for own in cuts(joins)}
        keep(joins, size)
        changes = write_kept(stage.partial / "kept.parquet", joins, previous, iteration)
        say(f"{label(stage)}: keeps {size:,} pages, looks at their domains")
        domains = judge(joins, config)
        growth = learn(joins, known, config)
        write_review(stage.partial, joins, review_queue(joins, config))
        ((pages,),) = joins.execute("SELECT count(*) FROM pages").fetchall()
    for (name, urls), added in zip(lists.items(), (growth.seed, growth.not_math), strict=True):
        write_urls(stage.partial, name, [*urls, *added])
    trained = read_notes(train / "train.json", *TRAINED)
    grew = seed_grew(len(lists["seed_urls"]), previous)
    stopped = (changes["overlap_with_previous"] or 0) >= config.converged
    return changes | {
        "iteration": iteration,
        "seed_pages": len(lists["seed_urls"]),
        "seed_grew": grew,
        "seed_growth": len(growth.seed),
        "not_math_growth": len(growth.not_math),
        "pool_pages": pages,
        "excluded_pages": excluded,
        "kept_pages": size,
        "promise": promised,
        **{name: trained[name] for name in TRAINED},
        "domains": [domain.row() for domain in domains],
        "prefixes_used": [
            {"prefix": prefix, "pages": count} for prefix, count in sorted(growth.prefixes.items())
        ],
        "independent_recall": recall_at(train, changes["threshold"], by_language),
        "stopped": stopped,
        "converged": stopped and grew,
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
        metrics = read_notes(source / "metrics.json", *COUNTED)
        metrics |= {"iteration": iteration, "passed_through": True}
    else:
        metrics = select(stage, iteration)
    write_json(stage.partial / "metrics.json", metrics)
    return {name: metrics[name] for name in COUNTED}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
