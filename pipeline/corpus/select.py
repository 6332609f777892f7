"""Keep the top of all pages, find domains, grow the seed, decide whether to stop (paper section 2.1, steps 2
to 4).

Inputs: `train`, `pool`, `seed_urls`, `annotations`, `opt_out`, `blocklists`, `previous`, and `score` (all
shards). The corpus is what an iteration keeps. Seed pages are not kept automatically; they must score above
the cut like any other page, since a reviewed prefix also covers thin pages such as indexes.

Outputs: `kept.parquet`, by shard and id; `excluded.parquet`, the pages that are never kept, and why;
`seed_urls.txt` and `not_math_urls.txt`, which the next iteration learns from; `domains.parquet`, the domains
with a kept page; `review.tsv`, the prefixes of mathematical domains that nobody has reviewed, and their pages
in `queue.parquet`; `metrics.json`. All queries run in DuckDB, which goes on in the work folder where
`launch.join_memory` does not suffice.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import Database, database, parquet, save
from pipeline.core.data.shards import write_table
from pipeline.core.ending import say
from pipeline.core.manifest import write_json
from pipeline.core.stage import Counts, InputError, Stage, label, run_stage
from pipeline.corpus.candidates import EXCLUDED, add_pages, unmatched
from pipeline.corpus.convergence import (
    KEPT,
    converged_before,
    iteration_of,
    pass_through,
    read_notes,
    seed_grew,
)
from pipeline.corpus.cut import Cut, find_cut, is_kept, promise
from pipeline.corpus.domains import DOMAINS, Domain, Growth, growth, judge, learn, write_grown
from pipeline.corpus.review_queue import review_queue, save_queue, write_review
from pipeline.corpus.url_lists import GROWN, Survivors, current_urls
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.urls import NO_HOST

TRAINED = ("positives", "negatives", "settings", "held_out")  # of train.json
MEASURED = "tokens"  # the same, where a tokenizer counts
COUNTED = ("kept_pages", "kept_tokens", "seed_growth", "converged")  # of metrics.json
TABLES = ("kept", "excluded", "queue", "domains")
PASSED_ON = (*(f"{name}.parquet" for name in TABLES), "review.tsv", *(f"{name}.txt" for name in GROWN))
LISTED = 10_000  # domains in metrics.json, those with most kept pages
NOTHING = "SELECT NULL::VARCHAR AS id, NULL::VARCHAR AS host, NULL::BIGINT AS iteration WHERE false"
# A page's `iteration` is the first of the consecutive iterations that kept it.
KEEP = """
CREATE TABLE kept AS
SELECT id, url, pages.host, shard, key, score, tokens, coalesce(iteration, $iteration) AS iteration
FROM candidates AS pages LEFT JOIN (SELECT id, iteration FROM previous) USING (id) WHERE {kept}
"""
CHANGES = f"""
SELECT coalesce(sum(tokens), 0)::BIGINT, min(score) + 0.0, count(*) FILTER (iteration = $iteration),
    coalesce(sum(tokens) FILTER (iteration = $iteration), 0)::BIGINT,
    count(DISTINCT host) FILTER (host NOT IN (SELECT host FROM previous) AND NOT ends_with(host, '{NO_HOST}'))
FROM kept
"""


def keep(joins: Database, stage: Stage[CorpusSection], previous: Path | None) -> tuple[Cut, dict[str, int]]:
    """Create `kept`, and write it and the pages that are never kept; returns the cut, and the number of those
    never kept by reason.
    """
    scores = [Path(path) / "scores.parquet" for path in stage.inputs.get("score", [])]
    if not scores:
        raise InputError("no scores given: use --input score=FOLDER, for each folder that score wrote")
    annotations = [Path(path) for path in stage.inputs.get("annotations", [])]
    add_pages(joins, scores, annotations, current_urls(stage, "opt_out"), stage.inputs.get("blocklists", []))
    unmatched(joins)
    before = f"SELECT id, host, iteration FROM {parquet(previous / 'kept.parquet')}" if previous else NOTHING
    joins.execute(f"CREATE VIEW previous AS {before}")
    iteration = iteration_of(stage)
    say(f"{label(stage)}: looks at the scores of {len(scores)} shards")
    cut = find_cut(joins, stage.config, iteration)
    joins.execute(KEEP.format(kept=is_kept(cut)), {"iteration": iteration})
    kept = joins.execute("SELECT * EXCLUDE (key) FROM kept ORDER BY shard, id")
    save(stage.partial / "kept.parquet", kept, KEPT)
    never = joins.execute("SELECT id, url, reason FROM excluded JOIN pages USING (id) ORDER BY id")
    save(stage.partial / "excluded.parquet", never, EXCLUDED)
    reasons = joins.execute("SELECT reason, count(*) FROM excluded GROUP BY reason ORDER BY reason")
    return cut, dict(reasons.fetchall())


def changes(joins: Database, pages: int, previous: Path | None, iteration: int) -> dict[str, Any]:
    """Compare the kept pages with `previous`, the folder of the previous selection."""
    ((tokens, least, new, new_tokens, hosts),) = joins.execute(CHANGES, {"iteration": iteration}).fetchall()
    return {
        "kept_tokens": tokens,
        "threshold": least,
        "overlap_with_previous": round(1 - new / pages, 6) if previous is not None and pages else None,
        "marginal_pages": new,
        "marginal_tokens": new_tokens,
        "new_hosts": hosts,
    }


def look_at_domains(
    joins: Database, stage: Stage[CorpusSection], known: Sequence[set[str]]
) -> tuple[Sequence[Domain], Growth]:
    """Write the domains of the kept pages and the review queue; returns the domains, and what reviewed
    prefixes change in the lists, of whose pages the keys are `known`.
    """
    query = f"SELECT count(*) FROM pages WHERE ends_with(host, '{NO_HOST}')"
    ((without,),) = joins.execute(query).fetchall()
    if without:
        say(f"{label(stage)}: {without:,} pages have no URL; for them the domain step is off")
    domains = judge(joins, stage.config.domain_share)
    write_table(stage.partial / "domains.parquet", map(vars, domains), DOMAINS)
    learn(joins, stage.config.reviewed == "all")
    write_review(stage.partial / "review.tsv", review_queue(joins))
    save_queue(stage.partial / "queue.parquet", joins)
    return domains, growth(joins, *known)


def check_size(joins: Database, stage: Stage[CorpusSection], cut: Cut, seed: set[str]) -> None:
    """Raise InputError where a selection is empty, or smaller than the seed, whose pages have these keys."""
    joins.register("seed", pa.table([pa.array(seed, pa.string())], ["key"]))
    ((pages,),) = joins.execute("SELECT count(*) FROM candidates WHERE key IN (FROM seed)").fetchall()
    joins.unregister("seed")
    if cut.kept < max(1, pages):
        remedy = "raise corpus.budget_tokens"
        if stage.config.cut == "score":
            remedy = (
                "give a seed of more sites, a background without mathematics, or a lower corpus.threshold"
            )
        counts = f"{cut.kept:,} of {cut.pages:,} pages are kept, the seed alone has {pages:,}"
        raise InputError(f"corpus: {counts}: {remedy}")


def select(stage: Stage[CorpusSection], iteration: int) -> dict[str, Any]:
    """Write kept pages, lists and review queue; returns the metrics."""
    config, train = stage.config, stage.input("train")
    lists = {name: current_urls(stage, name, train) for name in GROWN}
    survivors = Survivors.of(stage)
    seed_urls = read_urls(stage.input("seed_urls")) if stage.inputs.get("seed_urls") else []
    survivors.keys(chain(seed_urls, *lists.values()))  # all at once
    known = [survivors.keys(urls) for urls in lists.values()]
    previous = stage.input("previous") if "previous" in stage.inputs else None
    with database(stage.work / "join", stage.launch) as joins:
        cut, never = keep(joins, stage, previous)
        check_size(joins, stage, cut, survivors.keys(seed_urls))
        say(f"{label(stage)}: keeps {cut.kept:,} pages, looks at their domains")
        changed = changes(joins, cut.kept, previous, iteration)
        domains, grown = look_at_domains(joins, stage, known)
    write_grown(stage.partial, lists, grown, survivors)
    trained = read_notes(train / "train.json", *TRAINED)
    grew = seed_grew(len(lists["seed_urls"]), previous)
    stopped = (changed["overlap_with_previous"] or 0) >= config.converged
    return changed | {
        "iteration": iteration,
        "seed_pages": len(lists["seed_urls"]),
        "seed_grew": grew,
        "seed_growth": len(grown.seed),
        "not_math_growth": len(grown.not_math),
        "pool_pages": cut.pages + sum(never.values()),
        "excluded_pages": never,
        "kept_pages": cut.kept,
        "promise": promise(train, cut),
        **{name: trained[name] for name in (*TRAINED, MEASURED) if name in trained},
        "domains": list(map(vars, domains[:LISTED])),
        "prefixes_used": [
            {"prefix": prefix, "pages": count} for prefix, count in sorted(grown.prefixes.items())
        ],
        "stopped": stopped,
        "converged": stopped and grew,
        "passed_through": False,
    }


def run(stage: Stage[CorpusSection]) -> Counts:
    """Write the iteration's selection; after convergence the previous one's."""
    iteration = iteration_of(stage)
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
