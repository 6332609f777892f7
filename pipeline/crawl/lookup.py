"""Look up pages in Common Crawl's columnar index, so that only their records are downloaded.

Inputs: `index`, Parquet files of the index (local, https or s3, of as many dumps as named); what is wanted,
at least one of `urls` (lists, one a line, or Parquet with a column `url`), `hosts` (one a line; a registered
domain such as `stackexchange.com` stands for all its hosts) and `prefixes` (a file of annotations: pages
under `math` prefixes; the longest prefix decides).

Scheme, `www.`, fragment, a trailing slash and the host's case make no difference. Of several copies of a page
the newest counts. Outputs: `ranges/*.parquet` (url, filename, offset, length), which `crawl.warc` reads, all
records of a WARC file in one table; `hosts.parquet`, what was found by host.
"""

import io
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO

from fsspec import AbstractFileSystem

from pipeline.config.crawl import LookupSection
from pipeline.crawl.annotations import MACROS, add_annotations, covered
from pipeline.crawl.sources import DUMP, LISTS, follow, open_source, read_lines
from pipeline.data.database import Database, database, parquet, save
from pipeline.data.shards import table_schema
from pipeline.protocol.addresses import is_remote, public
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

RANGES = table_schema(url=str, filename=str, offset=int, length=int)
HOSTS = table_schema(host=str, pages=int, bytes=int)
COLUMNS = ["url", "url_host_name", "url_host_registered_domain", "fetch_time", "fetch_status"]
COLUMNS += ["content_mime_detected", "content_languages"]
COLUMNS += ["warc_filename", "warc_record_offset", "warc_record_length"]
MEDIA_TYPES = ["text/html", "application/xhtml+xml"]  # detected, of the records that are read
PAGES = "/subset=warc/"  # in the path of a file of pages, not of redirects, errors and robots.txt
KEYS = """
CREATE MACRO without_www(place) AS regexp_replace(place, '^www[.]', '');
CREATE MACRO key(url) AS without_www(place(url));
"""
# Hosts are compared first: they are few, and stand in a column of their own that is quick to read. `near` has
# what the lists name, and all pages of hosts with reviewed prefixes.
WANTED = """
CREATE TABLE reviewed AS SELECT DISTINCT without_www(root) AS host FROM prefixes WHERE verdict = 'math';
CREATE TABLE bare_roots AS
    SELECT root(key) AS host FROM urls UNION SELECT without_www(host) FROM hosts
    UNION SELECT host FROM reviewed;
CREATE TABLE roots AS SELECT host FROM bare_roots UNION ALL SELECT 'www.' || host FROM bare_roots;
CREATE TABLE near AS
SELECT * FROM (
    SELECT url, key(url) AS key, url_host_name AS host, url_host_registered_domain AS domain, fetch_time,
        warc_filename AS filename, warc_record_offset AS "offset", warc_record_length AS length
    FROM index
    WHERE fetch_status = 200 AND {filters} AND (url_host_name IN (SELECT host FROM roots)
        OR url_host_registered_domain IN (SELECT host FROM hosts))
)
WHERE key IN (SELECT key FROM urls) OR domain IN (SELECT host FROM hosts)
    OR without_www(host) IN (SELECT without_www(host) FROM hosts)
    OR without_www(host) IN (SELECT host FROM reviewed);
CREATE TABLE found AS
SELECT * FROM near
WHERE key IN (SELECT key FROM urls) OR domain IN (SELECT host FROM hosts)
    OR without_www(host) IN (SELECT without_www(host) FROM hosts)
    OR url IN (SELECT id FROM ({covered}) WHERE verdict = 'math')
QUALIFY row_number() OVER (PARTITION BY key ORDER BY fetch_time DESC, filename, "offset") = 1;
"""
TABLE = """
SELECT url, filename, "offset", length FROM found
WHERE ('0x' || md5(filename)[:8])::UBIGINT % $tables = $number ORDER BY filename, "offset"
"""


def index_files(sources: str | list[str], base_url: str) -> list[str]:
    """Find the index files that `sources` stand for, in order; a dump stands for its list at `base_url`.

    Raises InputError for a list that cannot be read, or no file.
    """
    found = []
    for source in [sources] if isinstance(sources, str) else sources:
        if DUMP.fullmatch(source):
            source = f"{base_url}crawl-data/{source}/cc-index-table.paths.gz"
        if public(source).endswith(LISTS):  # of all subsets; their files have the same names
            lines = (line.strip() for line in read_lines(source))
            found += [follow(name, source, base_url) for name in lines if PAGES in name]
        elif is_remote(source):
            found.append(source)
        else:
            found += sorted(glob(source, recursive=True))
    if not found:
        raise InputError(f"{sources}: no such file")
    return found


def add_wanted(joins: Database, stage: Stage[LookupSection]) -> None:
    """Create `urls` (key), `hosts` (host) and `prefixes`. Raises InputError if nothing is given."""
    if not any(stage.inputs.get(name) for name in ("urls", "hosts", "prefixes")):
        raise InputError("crawl.lookup: give urls, hosts or prefixes to look up")
    joins.execute(MACROS + KEYS)
    joins.execute("CREATE TABLE urls (key VARCHAR); CREATE TABLE hosts (host VARCHAR)")
    for path in map(Path, stage.inputs.get("urls", [])):
        rows = parquet(path) if path.suffix == ".parquet" else _lines(path, "url")
        joins.execute(f"INSERT INTO urls SELECT DISTINCT key(url) FROM {rows}")
    for path in map(Path, stage.inputs.get("hosts", [])):
        rows = _lines(path, "host")
        joins.execute(f"INSERT INTO hosts SELECT DISTINCT lower(root(place(host))) FROM {rows}")
    add_annotations(joins, "prefixes", *map(Path, stage.inputs.get("prefixes", [])))


def _lines(path: Path, column: str) -> str:
    """Give SQL that reads a list, one entry a line; `#` starts a comment line."""
    name = str(path).replace("'", "''")
    read = f"read_csv('{name}', header = false, delim = '\\x01', quote = '', columns = {{line: 'VARCHAR'}})"
    return f"(SELECT trim(line) AS {column} FROM {read} WHERE trim(line) <> '' AND line NOT LIKE '#%')"


def add_index(joins: Database, files: list[str]) -> set[str]:
    """Create the view `index`; returns its columns. Raises InputError for files that are no such index."""
    for protocol in {file.partition("://")[0] for file in files if is_remote(file)}:
        joins.register_filesystem(Remote(protocol))
    joins.execute(f"CREATE VIEW index AS SELECT * FROM {parquet(*files, hive_partitioning=True)}")
    present = {name for name, *_ in joins.execute("DESCRIBE index").fetchall()}
    if missing := [name for name in COLUMNS if name not in present]:
        raise InputError(f"{public(files[0])}: no columnar index, it has no column {missing[0]}")
    return present


class Remote(AbstractFileSystem):
    """Addresses as DuckDB reads them: in ranges, with the retries of `RemoteFile`."""

    cachable = False

    def __init__(self, protocol: str) -> None:
        super().__init__()
        self.protocol = protocol

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the address itself."""
        return [path]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name and size of a file."""
        with open_source(path) as file:
            return {"name": path, "size": file.seek(0, io.SEEK_END), "type": "file"}

    def modified(self, path: str) -> datetime:
        """DuckDB asks for it; files of an index do not change."""
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> BinaryIO:
        return open_source(path)


def filters(config: LookupSection, columns: set[str]) -> str:
    """Give SQL of what a record must be, by the section and the columns of the index."""
    found = [f"content_mime_detected IN ({_words(MEDIA_TYPES)})"]
    if config.languages:
        found.append(f"list_has_any(string_split(content_languages, ','), [{_words(config.languages)}])")
    if "subset" in columns:
        found.append("subset = 'warc'")
    return " AND ".join(found)


def _words(values: list[str]) -> str:
    return ", ".join("'{}'".format(value.replace("'", "''")) for value in values)


def run(stage: Stage[LookupSection]) -> Counts:
    """Write range tables and host counts; returns pages, hosts and bytes to download."""
    files = stage.inputs.get("index", [])
    if not files:
        raise InputError("crawl.lookup.index: name the Parquet files of an index")
    with database(stage.work / "join", stage.launch) as joins:
        add_wanted(joins, stage)
        columns = add_index(joins, files)
        under = covered("(SELECT DISTINCT url AS id, url FROM near)", "prefixes")
        joins.execute(WANTED.format(filters=filters(stage.config, columns), covered=under))
        for number in range(stage.config.tables):
            rows = joins.execute(TABLE, {"tables": stage.config.tables, "number": number})
            save(stage.partial / f"ranges/{number:04d}.parquet", rows, RANGES)
        counts = "SELECT host, count(*) AS pages, sum(length)::BIGINT AS bytes FROM found GROUP BY host"
        save(stage.partial / "hosts.parquet", joins.execute(f"{counts} ORDER BY pages DESC, host"), HOSTS)
        names = ("pages", "hosts", "bytes")
        total = "SELECT count(*), count(DISTINCT host), coalesce(sum(length), 0)::BIGINT FROM found"
        return dict(zip(names, joins.execute(total).fetchall()[0], strict=True))


if __name__ == "__main__":
    run_stage("crawl", LookupSection, run)
