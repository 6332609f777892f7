"""Sort the pages of a part of the pool: the first of the programs that share selection (paper section 2.1,
step 2).

`rank-<number>` has one of at most `corpus.select_jobs` parts of the score tables, whose pages it marks as
`candidates.py` says. Writes `pages.parquet`, all these pages by `part`, a hash of their host, and best first:
a later program reads the pages of some hosts, or the best of all, without the others. All pages of a domain
have the same `part`, with or without `www.` and port. Also writes `histogram.parquet`, how many candidates
have which scores; `excluded.parquet`, the pages that are never kept, and why; `prefixes.parquet`, which
reviewed prefixes have pages here.
"""

from pathlib import Path

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.blocklists import files_of
from pipeline.corpus.candidates import EXCLUDED, RANKED, add_pages, matched
from pipeline.corpus.convergence import converged_before
from pipeline.corpus.cut import LANGUAGE, steps_of
from pipeline.corpus.lists import current_urls
from pipeline.crawl.signed import number_of
from pipeline.data.database import Database, database, parquet, save
from pipeline.data.shards import tables
from pipeline.protocol.ending import say
from pipeline.protocol.stage import Counts, InputError, Stage, label, run_stage

GROUP = 8192  # rows of a row group: of those of a host's part the best are few
PAGES = pa.schema(
    [
        *((name, pa.int32()) for name in ("part", "source")),
        *((name, pa.string()) for name in ("id", "url", "host", "shard", "key")),
        ("score", pa.float64()),
        ("tie", pa.uint64()),
        ("tokens", pa.int64()),
        *((name, pa.string()) for name in ("reason", "prefix", "verdict")),
        ("before", pa.int64()),
        LANGUAGE,
    ]
)
# `source`: number of this part; `reason`: why a page is never kept; `prefix`, `verdict`: the review of it;
# `before`: since which iteration it has been kept.
SORTED = f"""
SELECT md5_number_lower(regexp_extract(coalesce(key, ''), '^[^/?:]*')) % $parts AS part, $number AS source,
    id, url, host, shard, key, score, tie, tokens, reason, prefix, verdict, iteration AS before,
    {{language}} AS language
FROM pages LEFT JOIN excluded USING (id) LEFT JOIN reviewed USING (id) LEFT JOIN previous USING (id)
ORDER BY part, {RANKED.removeprefix("ORDER BY ")}
"""
HISTOGRAM = pa.schema(
    [
        LANGUAGE,
        ("bin", pa.int64()),
        ("above", pa.int64()),
        *((name, pa.int64()) for name in ("pages", "tokens")),
    ]
    + [("least", pa.float64())]
)
# Scores in bins of 1/256, which `steps` (`cut.steps_of`) divide further, by language where each has a cut.
COUNTED = """
WITH own AS (SELECT DISTINCT language FROM steps WHERE language <> ''),
parted AS (
    SELECT score, tokens, coalesce(own.language, '') AS language
    FROM sorted LEFT JOIN own USING (language) WHERE reason IS NULL)
SELECT parted.language, floor(greatest(-1e6, least(1e6, parted.score)) * 256)::BIGINT AS bin,
    coalesce(above, 0) AS above, count(*) AS pages, sum(tokens)::BIGINT AS tokens, min(parted.score) AS least
FROM parted ASOF LEFT JOIN steps ON parted.language = steps.language AND parted.score <= steps.score
GROUP BY ALL ORDER BY bin DESC, above, parted.language
"""
PREFIXES = pa.schema([("prefix", pa.string()), ("name", pa.string())])


def add_previous(joins: Database, previous: Path | None) -> None:
    """Create `previous` (id, iteration): the pages of these shards that the previous iteration kept."""
    if previous is None:
        joins.execute("CREATE TABLE previous (id VARCHAR, iteration BIGINT)")
        return
    shards = [shard for (shard,) in joins.execute("SELECT DISTINCT shard FROM pages").fetchall()]
    joins.register("shards", pa.table([pa.array(shards, pa.string())], ["shard"]))
    kept = parquet(*tables(previous, "kept"))
    joins.execute(
        f"CREATE VIEW previous AS SELECT id, iteration FROM {kept} WHERE shard IN (SELECT shard FROM shards)"
    )


def run(stage: Stage[CorpusSection]) -> Counts:
    """Sort and count the pages of a part; returns their numbers."""
    if converged_before(stage):
        return {"converged": 1}
    parts = stage.config.select_jobs
    number = number_of(stage, parts)
    scores = [Path(path) / "scores.parquet" for path in stage.inputs.get("score", [])]
    if not scores:
        raise InputError("no scores given: use --input score=FOLDER, for each folder that score wrote")
    steps = steps_of(stage.config, stage.input("train"))
    path = stage.partial / "pages.parquet"
    with database(stage.work / "join", stage.launch) as joins:
        annotations = [Path(path) for path in stage.inputs.get("annotations", [])]
        add_pages(joins, scores, annotations, current_urls(stage, "opt_out"), files_of(stage))
        add_previous(joins, stage.input("previous") if "previous" in stage.inputs else None)
        say(f"{label(stage)}: ranks the pages of {len(scores)} shards")
        language = "language" if stage.config.cut_language_pages else "NULL::VARCHAR"
        query = joins.execute(SORTED.format(language=language), {"parts": parts, "number": number})
        pages = save(path, query, PAGES, GROUP)
        save(stage.partial / "prefixes.parquet", joins.execute(matched(joins)), PREFIXES)
        joins.register("steps", steps)
        joins.execute(f"CREATE VIEW sorted AS SELECT * FROM {parquet(path)}")
        save(stage.partial / "histogram.parquet", joins.execute(COUNTED), HISTOGRAM)
        never = joins.execute(f"SELECT id, url, reason FROM sorted WHERE reason IS NOT NULL {RANKED}")
        excluded = save(stage.partial / "excluded.parquet", never, EXCLUDED)
    return {"pages": pages, "excluded": excluded}


if __name__ == "__main__":
    run_stage("corpus", CorpusSection, run)
