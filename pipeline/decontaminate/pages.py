"""One row for every response record of the crawl: its final status, and why.

Inputs: `extract` (results of extraction), `duplicates` (tables), `score` (results of the last iteration),
`kept` and `excluded` (tables of the last selection), `removals` (logs of decontamination). A large pool has
several jobs, `pages-<number>`, each for some shards. Extraction, duplicates, scores and decontamination have
tables of these already, so all jobs together read each row once. Of selection, and of what was removed within
a dump, they read the row groups between their first and their last page.

Output: `pages.parquet`. With `part` (what these jobs wrote) instead, the folder `pages` of their tables.
"""

from pathlib import Path

import pyarrow as pa

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.database import Database, database, parquet, quoted, save
from pipeline.core.data.shards import put_table, table_schema, tables
from pipeline.core.stage import Counts, InputError, Stage, run_stage

PAGES = table_schema(
    url=str,
    warc_file=str,
    offset=int,
    digest=str,
    language=str,
    status=str,
    reason=str,
    score=float,
    iteration=int,
    duplicate_of=str,
    contaminated_by=str,
)
INPUTS = ("extract", "duplicates", "score", "kept", "excluded", "removals")
OWN = "id BETWEEN getvariable('first') AND getvariable('last')"  # DuckDB passes over other row groups
RANKED = "status IN ('below_cut', 'kept', 'contaminated')"
# The first line of each page counts; the columns are named, because an empty file has none.
REMOVED = """
SELECT id, min_by({{'rule': rule, 'removed': removed, 'item': benchmark || '/' || item}}, line) AS match
FROM (SELECT *, row_number() OVER () AS line
    FROM read_json({paths}, format = 'newline_delimited', columns = {{
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
ROWS = f"""
SELECT url, warc_file, "offset", digest, language, status,
    CASE status WHEN 'rejected' THEN rejected WHEN 'duplicate' THEN kind WHEN 'excluded' THEN excluded
        WHEN 'below_cut' THEN 'score' WHEN 'contaminated' THEN match.rule
        ELSE CASE match.removed WHEN 'segment' THEN 'segments removed' END
        END AS reason,
    CASE WHEN {RANKED} THEN found END AS score,
    CASE WHEN status IN ('contaminated', 'kept') THEN iteration END AS iteration,
    CASE status WHEN 'duplicate' THEN duplicate_of_url END AS duplicate_of,
    CASE WHEN status IN ('contaminated', 'kept') THEN match.item END AS contaminated_by
FROM fates JOIN shards USING (filename) ORDER BY shard, file_row_number
"""

OF_SOURCE = """
SELECT status || '.' || regexp_extract(warc_file, '^(.*)/', 1) AS name, count(*) FROM {pages}
WHERE contains(warc_file, '/') GROUP BY name ORDER BY name
"""


def add_tables(joins: Database, stage: Stage[DecontaminateSection]) -> None:
    """Create a view of each input, and `shards`, the order of the extraction shards."""
    given = {name: list(map(Path, stage.inputs.get(name, []))) for name in INPUTS}
    if missing := [name for name, paths in given.items() if not paths]:
        raise InputError(f"--input {missing[0]}: none given")
    records = [path / "records.parquet" for path in given["extract"]]
    joins.register("shards", pa.table([list(map(str, records)), range(len(records))], ["filename", "shard"]))
    every = parquet(*records, filename=True, file_row_number=True)
    joins.execute(f"CREATE VIEW records AS SELECT * FROM {every}")
    joins.execute("SET VARIABLE first = (SELECT min(id) FROM records)")
    joins.execute("SET VARIABLE last = (SELECT max(id) FROM records)")
    for name, source in {
        "duplicates": f"{parquet(*given['duplicates'])} WHERE {OWN}",
        "excluded": f"{parquet(*given['excluded'])} WHERE {OWN}",
        "kept": f"{parquet(*given['kept'])} WHERE {OWN}",
        "scores": parquet(*(path / "scores.parquet" for path in given["score"])),
    }.items():
        joins.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")
    joins.execute(f"CREATE VIEW removed AS {REMOVED.format(paths=quoted(given['removals']))}")
    joins.execute(FATES)


def write_pages(stage: Stage[DecontaminateSection], joins: Database) -> None:
    """Write `pages.parquet`. Raises InputError if a page that was ranked has no score."""
    add_tables(joins, stage)
    path = stage.partial / "pages.parquet"
    save(path, joins.execute(ROWS), PAGES)
    unscored = f"SELECT url FROM {parquet(path)} WHERE {RANKED} AND score IS NULL LIMIT 1"
    if found := joins.execute(unscored).fetchall():
        raise InputError(
            f"--input score: has no score of {found[0][0]}; give all shards of the last iteration"
        )


def run(stage: Stage[DecontaminateSection]) -> Counts:
    """Say what became of each page, or put the tables of all parts together; returns pages by status."""
    parts = [Path(path) / "pages.parquet" for path in stage.inputs.get("part", [])]
    with database(stage.work / "join", stage.launch) as joins:
        if parts:
            put_table(stage.partial, "pages", parts)
        else:
            write_pages(stage, joins)
        pages = parquet(*tables(stage.partial, "pages"))
        counts = f"SELECT status, count(*) FROM {pages} GROUP BY status ORDER BY status"
        found = dict(joins.execute(counts).fetchall())
        of_source = dict(joins.execute(OF_SOURCE.format(pages=pages)).fetchall())
    return {"pages": sum(found.values())} | found | of_source


if __name__ == "__main__":
    run_stage("decontaminate", DecontaminateSection, run)
