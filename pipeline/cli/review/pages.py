"""The pages that a selection asks about: counts by path, samples and their texts.

DuckDB reads `queue.parquet`, in which the pages of a prefix lie together, so no more than one prefix is
looked at. Texts lie in the shards of the pool and are found by reading a shard from its start. Samples are
therefore taken from few shards, and those of the next prefixes are read at the same time.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Any

from pipeline.core.data.database import Database, parquet
from pipeline.core.data.shards import read_documents
from pipeline.core.stage import InputError
from pipeline.corpus.review_queue import by_effect
from pipeline.crawl.annotations import MACROS, add_prefixes, covered

SAMPLES = 24  # pages of a prefix that can be read, kept ones and others in turn
SHARDS = 3  # from which they are taken
AHEAD = 12  # prefixes whose texts are read at the same time
TEXTS = 2000  # held at most
CHARACTERS = 20_000  # of a text that are shown
MOST_PATHS = 150  # shown of a prefix
UNDER = "(place = $path OR starts_with(place, $path || '/') OR starts_with(place, $path || '?'))"
OF_PREFIX = "SELECT *, place(url) AS place FROM queue WHERE prefix = $prefix"
PATHS = f"""
WITH own AS ({OF_PREFIX}),
parted AS (SELECT kept, string_split(split_part(place, '?', 1), '/') AS parts FROM own),
longer AS (
    SELECT kept, parts, unnest(range(len(string_split($prefix, '/')) - 1, len(parts) + 1)) AS length
    FROM parted),
counted AS (
    SELECT array_to_string(parts[:length], '/') AS path, count(*) AS pages, count(*) FILTER (kept) AS kept
    FROM longer GROUP BY path HAVING count(*) > 1 ORDER BY pages DESC, path LIMIT {MOST_PATHS})
SELECT path || '/', pages, kept FROM counted ORDER BY path
"""
SAMPLED = f"""
WITH own AS (SELECT * FROM ({OF_PREFIX}) WHERE {UNDER}),
near AS (SELECT * FROM own QUALIFY dense_rank() OVER (ORDER BY shard) <= {SHARDS}),
turns AS (SELECT *, row_number() OVER (PARTITION BY kept ORDER BY md5(id), id) AS turn FROM near)
SELECT id, url, score, shard, kept FROM turns ORDER BY turn, kept, id LIMIT {SAMPLES}
"""
EFFECT = f"""
SELECT root(place(url)), verdict, count(*), count(*) FILTER (kept)
FROM queue JOIN ({covered("(SELECT id, url FROM queue WHERE prefix IN ({names}))", "given")}) USING (id)
WHERE queue.prefix IN ({{names}}) GROUP BY ALL
"""


class Pages:
    """The queue of a selection. `select`: its data folder, `pool`: the folder of the shards."""

    def __init__(self, database: Database, select: Path, pool: Path) -> None:
        self._database, self._pool = database, pool
        self._texts: OrderedDict[str, str] = OrderedDict()
        # host -> its verdicts, and (verdict, pages, kept ones) that they come to
        self._effects: dict[str, tuple[dict[str, str], list[tuple[str, int, int]]]] = {}
        queue = select / "queue.parquet"
        if not queue.is_file():
            raise InputError(f"{select}: has no queue.parquet; run this iteration's selection again")
        database.execute(f"{MACROS}; CREATE VIEW queue AS SELECT * FROM {parquet(queue)}")
        counts = "SELECT prefix, count(*), count(*) FILTER (kept) FROM queue GROUP BY prefix"
        found = {prefix: (pages, kept) for prefix, pages, kept in database.execute(counts).fetchall()}
        order = by_effect(found)
        self.prefixes = {prefix: dict(zip(("pages", "kept"), found[prefix], strict=True)) for prefix in order}
        self._by_host: dict[str, list[str]] = {}
        for prefix in order:
            self._by_host.setdefault(prefix.partition("/")[0], []).append(prefix)

    def paths(self, prefix: str) -> list[dict[str, Any]]:
        """Return the paths below a prefix of the queue that have several pages, the prefix first, each before
        those below it.
        """
        rows = self._database.execute(PATHS, {"prefix": prefix}).fetchall()
        return [{"path": path, "pages": pages, "kept": kept} for path, pages, kept in rows]

    def samples(self, prefix: str, path: str) -> list[dict[str, Any]]:
        """Pages of a prefix of the queue that lie below `path`, others and kept ones in turn."""
        values = {"prefix": prefix, "path": path.rstrip("/")}
        names = ("id", "url", "score", "shard", "kept")
        rows = self._database.execute(SAMPLED, values).fetchall()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def text(self, page: str, prefix: str, path: str) -> str:
        """Return the text of a sample page, cut to CHARACTERS. Raises InputError if it is none."""
        if page not in self._texts:
            self._read(prefix, path)
        if page not in self._texts:
            raise InputError(f"{page}: no sample page of {path}")
        return self._texts[page]

    def _read(self, prefix: str, path: str) -> None:
        """Read the texts of a path's samples, and those of the prefixes that follow in the queue."""
        order = list(self.prefixes)
        at = order.index(prefix)
        wanted = self.samples(prefix, path)
        wanted += [page for name in order[at + 1 : at + AHEAD] for page in self.samples(name, name)]
        ids: dict[str, set[str]] = {}
        for page in wanted:
            if page["id"] not in self._texts:
                ids.setdefault(page["shard"], set()).add(page["id"])
        for shard, missing in ids.items():
            for document in read_documents(self._pool / shard):
                if document.id in missing:
                    self._texts[document.id] = document.text[:CHARACTERS]
                    missing.remove(document.id)
                    if not missing:
                        break
        for page in wanted[:SAMPLES]:
            if page["id"] in self._texts:
                self._texts.move_to_end(page["id"])
        while len(self._texts) > TEXTS:
            self._texts.popitem(last=False)

    def effect(self, verdicts: dict[str, str]) -> dict[str, dict[str, int]]:
        """verdict -> pages of the queue under prefixes with it, and how many of them are kept. Hosts without
        new verdicts are not looked at again.
        """
        hosts: dict[str, dict[str, str]] = {}
        for prefix, verdict in verdicts.items():
            hosts.setdefault(prefix.partition("/")[0], {})[prefix] = verdict
        changed = {
            host: given for host, given in hosts.items() if self._effects.get(host, ({}, []))[0] != given
        }
        self._effects |= {host: (given, []) for host, given in changed.items()}
        for host, *row in self._counted(changed):
            self._effects[host][1].append(tuple(row))
        total: dict[str, dict[str, int]] = {}
        for verdict, pages, kept in (row for host in hosts for row in self._effects[host][1]):
            sums = total.setdefault(verdict, {"pages": 0, "kept": 0})
            sums["pages"] += pages
            sums["kept"] += kept
        return total

    def _counted(self, hosts: dict[str, dict[str, str]]) -> list[tuple[str, str, int, int]]:
        """(host, verdict, pages, kept ones) of hosts by their verdicts."""
        found = [prefix for host in hosts for prefix in self._by_host.get(host, [])]
        if not found:
            return []
        self._database.execute("DROP TABLE IF EXISTS given")
        given = [pair for verdicts in hosts.values() for pair in verdicts.items()]
        add_prefixes(self._database, "given", given)
        # As constants they tell DuckDB which parts of the sorted file to read.
        names = ", ".join("'{}'".format(prefix.replace("'", "''")) for prefix in found)
        return self._database.execute(EFFECT.format(names=names)).fetchall()
