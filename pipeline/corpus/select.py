"""Rank all pages, keep the top, find domains, grow the seed, decide whether to stop (paper section 2.1,
steps 2-4).

Inputs: `train`, `pool`, `seed_urls`, `annotations`, `opt_out`, `blocklists`, `previous`, and `score` (all
shards). The programs `rank`, `cut`, `order`, `keep` and `hosts` do the work, and are run here one after
another, in `corpus.select_jobs` parts. In a workflow with several parts they have run before, as jobs of
their own: their results are given instead of `score`, and are only put together here; `wanted`, which found
what listed URLs mean, is given instead of `pool`. The corpus is what an iteration keeps: pages of the seed
have to rank for themselves, since a reviewed prefix also covers thin pages such as indexes.

Outputs: `kept.parquet`; `excluded.parquet`, the pages that are never kept, and why; `seed_urls.txt` and
`not_math_urls.txt`, which the next iteration learns from; `domains.parquet`, the domains with a kept page;
`review.tsv`, the prefixes of mathematical domains that nobody has reviewed, and their pages in
`queue.parquet`; `metrics.json`. Of several parts the tables that have a row for each page are folders:
`kept/0000.parquet` and so on.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from shutil import rmtree
from typing import Any

from pipeline.config.corpus import CorpusSection
from pipeline.corpus import cut, hosts, keep, order, rank
from pipeline.corpus.candidates import unmatched
from pipeline.corpus.convergence import (
    converged_before,
    iteration_of,
    pass_through,
    read_notes,
    seed_grew,
)
from pipeline.corpus.domains import DOMAINS, growth
from pipeline.corpus.lists import GROWN, Survivors, current_urls, write_urls
from pipeline.corpus.out_of_distribution import recall_at
from pipeline.corpus.review_queue import write_review
from pipeline.data.database import Database, database, parquet, save
from pipeline.data.shards import put_table, tables
from pipeline.protocol.ending import say
from pipeline.protocol.manifest import write_json
from pipeline.protocol.stage import Counts, InputError, Stage, label, run_stage

TRAINED = ("positives", "negatives", "settings", "held_out", "out_of_distribution")  # of train.json
COUNTED = ("kept_pages", "kept_tokens", "seed_growth", "converged")  # of metrics.json
TABLES = ("kept", "excluded", "queue")  # with a row for each page
PASSED_ON = ("domains.parquet", "review.tsv", *(f"{name}.txt" for name in GROWN))
LISTED = 10_000  # domains in metrics.json, those with most kept pages
PARTS = ("rank", "cut", "order", "keep", "hosts")  # programs, and inputs with their results
CHANGES = """
SELECT coalesce(sum(tokens), 0)::BIGINT, min(score), count(*) FILTER (iteration = $iteration),
    coalesce(sum(tokens) FILTER (iteration = $iteration), 0)::BIGINT
FROM {kept}
"""
Parts = Mapping[str, list[Path]]


def run_all(stage: Stage[CorpusSection]) -> Parts:
    """Run all programs before this one on the score tables, in `stage.work`; returns their results."""

    def made(name: str, program: Callable[[Stage[CorpusSection]], Counts], **given: list[Path]) -> Path:
        inputs = stage.inputs | {key: list(map(str, paths)) for key, paths in given.items()}
        instance = f"{stage.instance.partition('/')[0]}/{name}"
        part = replace(stage, instance=instance, inputs=inputs, work=stage.work / name, config=config)
        rmtree(part.work, ignore_errors=True)
        part.partial.mkdir(parents=True)
        program(part)
        return part.partial

    scores = [Path(path) for path in stage.inputs.get("score", [])]
    if not scores:
        raise InputError("no scores given: use --input score=FOLDER, for each folder that score wrote")
    shards = stage.config.select_parts(len(scores))
    config, parts = stage.config.model_copy(update={"select_jobs": len(shards)}), range(len(shards))
    ranks = [
        made(f"rank-{number:04d}", rank.run, score=[scores[shard] for shard in part])
        for number, part in enumerate(shards)
    ]
    found = {"rank": ranks, "cut": [made("cut", cut.run, rank=ranks)]}
    found["order"] = [made(f"order-{number:04d}", order.run, **found) for number in parts]
    found["keep"] = [made(f"keep-{number:04d}", keep.run, **found) for number in parts]
    found["hosts"] = [made(f"hosts-{number:04d}", hosts.run, **found) for number in parts]
    return found


def changes(joins: Database, parts: Parts, previous: Path | None, iteration: int) -> dict[str, Any]:
    """What is kept, and how it differs from `previous`, the folder of the previous selection. A page's
    `iteration` is the first of the consecutive iterations that kept it.
    """
    kept = parquet(*(path / "kept.parquet" for path in parts["keep"]))
    rows = joins.execute(CHANGES.format(kept=kept), {"iteration": iteration}).fetchall()
    ((tokens, least, new, new_tokens),) = rows
    pages = read_notes(parts["cut"][0] / cut.CUT, *cut.NOTES)["size"]
    hosts = [read_notes(path / "hosts.json", "new_hosts")["new_hosts"] for path in parts["hosts"]]
    return {
        "kept_tokens": tokens,
        "threshold": least,
        "overlap_with_previous": round(1 - new / pages, 6) if previous is not None and pages else None,
        "marginal_pages": new,
        "marginal_tokens": new_tokens,
        "new_hosts": sum(hosts),
    }


def judged(joins: Database, parts: Parts, path: Path) -> list[dict[str, Any]]:
    """Write the domains of all parts to `path`, most kept pages first; returns the first `LISTED` of them."""
    domains = parquet(*(folder / "domains.parquet" for folder in parts["hosts"]))
    save(path, joins.execute(f"SELECT * FROM {domains} ORDER BY kept DESC, domain"), DOMAINS)
    first = joins.execute(f"SELECT * FROM {domains} ORDER BY kept DESC, domain LIMIT {LISTED}")
    return [dict(zip(DOMAINS.names, row, strict=True)) for row in first.fetchall()]


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, train = stage.config, stage.input("train")
    lists = {name: current_urls(stage, name, train) for name in GROWN}
    known = Survivors.of(stage).keys(chain(*lists.values()))
    previous = stage.input("previous") if "previous" in stage.inputs else None
    given = {name: [Path(path) for path in stage.inputs.get(name, [])] for name in PARTS}
    parts = given if given["rank"] else run_all(stage)
    notes = read_notes(parts["cut"][0] / cut.CUT, *cut.NOTES)
    say(f"{label(stage)}: keeps {notes['size']:,} pages, looks at their domains")
    for name, program in zip(TABLES, ("keep", "rank", "hosts"), strict=True):
        put_table(stage.partial, name, [path / f"{name}.parquet" for path in parts[program]])
    with database(stage.work / "join", stage.launch) as joins:
        unmatched(joins, parquet(*(path / "prefixes.parquet" for path in parts["rank"])))
        excluded = parquet(*tables(stage.partial, "excluded"))
        counts = f"SELECT reason, count(*) FROM {excluded} GROUP BY reason ORDER BY reason"
        never = dict(joins.execute(counts).fetchall())
        changed = changes(joins, parts, previous, iteration)
        domains = judged(joins, parts, stage.partial / "domains.parquet")
        learnt = parquet(*(path / "learnt.parquet" for path in parts["hosts"]))
        joins.execute(f"CREATE VIEW learnt AS SELECT * FROM {learnt}")
        grown = growth(joins, known)
        reviews = [path / "review.parquet" for path in parts["hosts"]]
        write_review(stage.partial / "review.tsv", joins, reviews)
    for (name, urls), added in zip(lists.items(), (grown.seed, grown.not_math), strict=True):
        write_urls(stage.partial, name, [*urls, *added])
    by_language = (
        {own["language"]: own["least"] for own in notes["cuts"]} if config.cut_language_pages else {}
    )
    trained = read_notes(train / "train.json", *TRAINED)
    grew = seed_grew(len(lists["seed_urls"]), previous)
    stopped = (changed["overlap_with_previous"] or 0) >= config.converged
    return changed | {
        "iteration": iteration,
        "seed_pages": len(lists["seed_urls"]),
        "seed_grew": grew,
        "seed_growth": len(grown.seed),
        "not_math_growth": len(grown.not_math),
        "pool_pages": notes["pages"] + sum(never.values()),
        "excluded_pages": never,
        "kept_pages": notes["size"],
        "promise": notes["promise"],
        **{name: trained[name] for name in TRAINED},
        "domains": domains,
        "prefixes_used": [
            {"prefix": prefix, "pages": count} for prefix, count in sorted(grown.prefixes.items())
        ],
        "independent_recall": recall_at(train, changed["threshold"], by_language),
        "stopped": stopped,
        "converged": stopped and grew,
        "passed_through": False,
    }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the iteration's selection; after convergence the previous one's."""
    iteration = iteration_of(stage)
    if converged_before(stage):
        source = stage.input("previous")
        for name in TABLES:
            put_table(stage.partial, name, tables(source, name))
        pass_through(source, stage.partial, PASSED_ON)
        metrics = read_notes(source / "metrics.json", *COUNTED)
        metrics |= {"iteration": iteration, "passed_through": True}
    else:
        metrics = select(stage, iteration)
    write_json(stage.partial / "metrics.json", metrics)
    return {name: metrics[name] for name in COUNTED}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
