"""One row for every response record of the crawl: its final status, and why.

Inputs: `extract` (all shards), `dedup`, `score` (the last iteration's), `select` (the last), `decontaminate`.
"""

from pathlib import Path

import pyarrow as pa

from pipeline.common.database import Database, database, parquet, save
from pipeline.common.shards import tables
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.config.decontaminate import DecontaminateSection

PAGES = pa.schema(
    [
        ("url", pa.string()),
        ("warc_file", pa.string()),
        ("offset", pa.int64()),
        ("digest", pa.string()),
        ("language", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("score", pa.float64()),
        ("iteration", pa.int64()),
        ("duplicate_of", pa.string()),
        ("contaminated_by", pa.string()),
    ]
)
# The first line of each page counts; the columns are named, because an empty file has none.
REMOVED = """
SELECT id, min_by({{'rule': rule, 'removed': removed, 'item': benchmark || '/' || item}}, line) AS match
FROM (SELECT *, row_number() OVER () AS line
    FROM read_json('{path}', format = 'newline_delimited', columns = {{
        id: 'VARCHAR', benchmark: 'VARCHAR', item: 'VARCHAR', rule: 'VARCHAR', removed: 'VARCHAR'}}))
GROUP BY id
"""
FATES = """
CREATE VIEW fates AS
SELECT records.* EXCLUDE (status, reason), scores.score AS found, kept.iteration, duplicates.duplicate_of_url,
    match, records.reason AS rejected, duplicates.kind, excluded.reason AS excluded,
    CASE WHEN records.status = 'rejected' THEN 'rejected'
        WHEN kind IS NOT NULL THEN 'duplicate'
        WHEN excluded.reason IS NOT NULL THEN 'excluded'
        WHEN kept.id IS NULL THEN 'below_cut'
        WHEN match.removed = 'page' THEN 'contaminated'
        ELSE 'kept' END AS status
FROM records LEFT JOIN duplicates USING (id) LEFT JOIN excluded USING (id) LEFT JOIN kept USING (id)
    LEFT JOIN scores USING (id) LEFT JOIN removed USING (id)
"""
ROWS = """
SELECT url, warc_file, "offset", digest, language, status,
    CASE status WHEN 'rejected' THEN rejected WHEN 'duplicate' THEN kind WHEN 'excluded' THEN excluded
        WHEN 'below_cut' THEN 'score' WHEN 'contaminated' THEN match.rule
        ELSE CASE match.removed WHEN 'segment' THEN 'segments removed' WHEN 'nothing' THEN 'fuzzy' END
        END AS reason,
    CASE WHEN status IN ('below_cut', 'contaminated', 'kept') THEN found END AS score,
    CASE WHEN status IN ('contaminated', 'kept') THEN iteration END AS iteration,
    CASE status WHEN 'duplicate' THEN duplicate_of_url END AS duplicate_of,
    CASE WHEN status IN ('contaminated', 'kept') THEN match.item END AS contaminated_by
FROM fates JOIN shards USING (filename) ORDER BY shard, file_row_number
"""


def add_tables(joins: Database, stage: Stage[DecontaminateSection]) -> None:
    """Create a view of each input, and `shards`, the order of the extraction shards."""
    select, records = stage.input("select"), [f"{path}/records.parquet" for path in stage.inputs["extract"]]
    scores = [Path(path) / "scores.parquet" for path in stage.inputs["score"]]
    removals = str(stage.input("decontaminate") / "removals.jsonl").replace("'", "''")
    order = pa.table([records, range(len(records))], ["filename", "shard"])
    joins.register("shards", order)
    for name, source in {
        "records": f"SELECT * FROM {parquet(*map(Path, records), filename=True, file_row_number=True)}",
        "duplicates": f"SELECT * FROM {parquet(stage.input('dedup') / 'duplicates.parquet')}",
        "excluded": f"SELECT * FROM {parquet(*tables(select, 'excluded'))}",
        "kept": f"SELECT * FROM {parquet(*tables(select, 'kept'))}",
        "scores": f"SELECT id, score FROM {parquet(*scores)}",
        "removed": REMOVED.format(path=removals),
    }.items():
        joins.execute(f"CREATE VIEW {name} AS {source}")
    joins.execute(FATES)


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Write `pages.parquet`; returns pages by status."""
    path = stage.partial / "pages.parquet"
    with database(stage.work / "join", stage.launch) as joins:
        add_tables(joins, stage)
        total = save(path, joins.execute(ROWS), PAGES)
        joins.execute(f"CREATE VIEW pages AS SELECT * FROM {parquet(path)}")
        unscored = (
            "SELECT url FROM pages WHERE status IN ('below_cut', 'kept', 'contaminated') AND score IS NULL"
        )
        if found := joins.execute(f"{unscored} LIMIT 1").fetchall():
            raise InputError(
                f"--input score: has no score of {found[0][0]}; give all shards of the last iteration"
            )
        counts = "SELECT status, count(*) FROM pages GROUP BY status ORDER BY status"
        return {"pages": total} | dict(joins.execute(counts).fetchall())


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
