"""Which URL prefixes a person shall review next (paper section 2.1, step 4).

A mathematical domain is one prefix, unless it is mixed: a directory whose share of kept pages differs from
the rest of its domain is asked about by itself, and the domain's own verdict is about what is left. First
come the prefixes whose verdict is expected to change most pages: large ones of which the classifier kept a
part.

The paper's authors looked at domains by hand and annotated paths; it does not say how they were ordered.
"""

from collections.abc import Iterable, Iterator
from math import log
from pathlib import Path
from typing import Any

from pipeline.core.data.database import Database, save
from pipeline.core.data.shards import ROWS, table_schema
from pipeline.crawl.annotations import add_prefixes, covered

REVIEW_SAMPLES = 3
DEEPEST = 6  # parts of a prefix, its host among them
LEAST_PAGES = 5  # of a directory that is asked about by itself
ALIKE = 5  # pages, whose evidence that of a whole path never exceeds
PRIOR = 2  # pages, as many as whose evidence its host counts
LEAST_DIFFERENCE = 0.2  # of its share of kept pages from that of the rest
CRITICAL = 10.83  # chi-squared with one degree of freedom at 99.9 %, since each domain has many directories
UNREVIEWED = """
CREATE OR REPLACE TABLE unreviewed AS
WITH places AS (
    SELECT id, url, score, shard, tie, place(url) AS place, domain_of(key) AS domain
    FROM pages
    WHERE id NOT IN (SELECT id FROM reviewed) AND id NOT IN (SELECT id FROM opted_out))
SELECT id, url, score, shard, tie, place, id IN (SELECT id FROM kept) AS kept
FROM places JOIN mathematical USING (domain)
"""
QUEUE = table_schema(prefix=str, id=str, url=str, score=float, shard=str, kept=bool)
# Hosts and directories of unreviewed pages, each after those that it lies in.
DIRECTORIES = """
SELECT prefix, count(*) AS pages, count(*) FILTER (kept) AS kept, bool_or(length = 1) AS whole
FROM (
    SELECT array_to_string(parts(place)[:length], '/') AS prefix, kept, length
    FROM (
        SELECT *, unnest(range(1, greatest(1, least(len(parts(place)) - 1, $deepest)) + 1)) AS length
        FROM unreviewed))
WHERE place(prefix) = prefix AND NOT regexp_matches(prefix, '\\s')
GROUP BY prefix HAVING count(*) >= $pages OR whole ORDER BY root(prefix), prefix
"""
PROPOSED = f"""
SELECT prefix || '/' AS prefix, count(*) AS pages, count(*) FILTER (kept) AS kept,
    coalesce(min_by(url, {{score: -score, tie: tie, id: id}}, $samples) FILTER (NOT kept), []) AS others,
    coalesce(min_by(url, {{score: -score, tie: tie, id: id}}, $samples) FILTER (kept), []) AS own
FROM unreviewed JOIN ({covered("unreviewed", "proposed")}) USING (id) GROUP BY prefix
"""
PAGES = f"""
SELECT prefix || '/' AS prefix, id, url, score, shard, kept
FROM unreviewed JOIN ({covered("unreviewed", "proposed")}) USING (id) ORDER BY prefix, score DESC, tie, id
"""


def divergence(kept: int, pages: int, share: float) -> float:
    """`pages` times the Kullback-Leibler divergence of the share `kept / pages` from `share`, in nats."""
    parts = ((kept, share), (pages - kept, 1 - share))
    return sum(count * log(count / pages / expected) for count, expected in parts if count)


def differs(kept: int, pages: int, other_kept: int, others: int) -> bool:
    """Whether shares of kept pages differ, by a likelihood-ratio test and by as much as matters."""
    if not others or abs(kept / pages - other_kept / others) < LEAST_DIFFERENCE:
        return False
    share = (kept + other_kept) / (pages + others)
    return 2 * (divergence(kept, pages, share) + divergence(other_kept, others, share)) > CRITICAL


def split(directories: Iterable[tuple[str, int, int, bool]]) -> Iterator[str]:
    """Choose the prefixes to ask about. `directories`: (prefix, pages, kept, whether it is a whole domain),
    those of a host together and each after those that it lies in. A directory is compared with the rest of
    the nearest prefix above it that is asked about.
    """
    host, asked = "", {}
    for prefix, pages, kept, whole in directories:
        root, *rest = prefix.split("/")
        if root != host:
            host, asked = root, {}
        above = ("/".join([root, *rest[:length]]) for length in range(len(rest) - 1, -1, -1))
        all_pages, all_kept = next((asked[place] for place in above if place in asked), (pages, kept))
        if whole or differs(kept, pages, all_kept - kept, all_pages - pages):
            asked[prefix] = (pages, kept)
            yield prefix


def likely_math(counts: dict[str, tuple[int, int]]) -> dict[str, float]:
    """Estimate the probability that a prefix is mathematical, from (pages, kept) by prefix.

    It is the share of kept pages, drawn towards that of the host. Pages of one path are alike: a classifier
    that errs on one errs on all, so however many they are, they prove no more than ALIKE of them.
    """
    hosts: dict[str, tuple[int, int]] = {}
    for prefix, (pages, kept) in counts.items():
        others = hosts.get(host := prefix.partition("/")[0], (0, 0))
        hosts[host] = (others[0] + pages, others[1] + kept)
    found = {}
    for prefix, (pages, kept) in counts.items():
        all_pages, all_kept = hosts[prefix.partition("/")[0]]
        weight = pages / (1 + (pages - 1) / ALIKE)
        prior = (all_kept + 1) / (all_pages + 2)  # Laplace's rule
        found[prefix] = (weight * kept / pages + PRIOR * prior) / (weight + PRIOR)
    return found


def effect(pages: int, kept: int, math: float) -> float:
    """Pages that a verdict should change: `math` adds those not kept, `not_math` removes the others."""
    return math * (pages - kept) + (1 - math) * kept


def by_effect(counts: dict[str, tuple[int, int]]) -> list[str]:
    """Sort the prefixes, largest expected effect first."""
    math = likely_math(counts)
    return sorted(
        counts, key=lambda prefix: (-effect(*counts[prefix], math[prefix]), -counts[prefix][0], prefix)
    )


def review_queue(database: Database) -> list[dict[str, Any]]:
    """Prefixes of mathematical domains with pages that nobody has reviewed, largest expected effect first.
    `judge` comes first. Pages that were not kept are shown first.
    """
    database.execute(UNREVIEWED)
    directories = database.execute(DIRECTORIES, {"deepest": DEEPEST, "pages": LEAST_PAGES})
    found = split(row for rows in iter(lambda: directories.fetchmany(ROWS), []) for row in rows)
    proposed = [(prefix, "") for prefix in found]  # the connection has one open result
    database.execute("DROP TABLE IF EXISTS proposed")
    add_prefixes(database, "proposed", proposed)
    rows = {row[0]: row[1:] for row in database.execute(PROPOSED, {"samples": REVIEW_SAMPLES}).fetchall()}
    counts = {prefix: (pages, kept) for prefix, (pages, kept, _, _) in rows.items()}
    math = likely_math(counts)
    return [
        {
            "prefix": prefix,
            "expected": round((counts[prefix][0] - counts[prefix][1]) * math[prefix]),
            "pages": counts[prefix][0],
            "kept": counts[prefix][1],
            "samples": " ".join([*rows[prefix][2], *rows[prefix][3]][:REVIEW_SAMPLES]),
        }
        for prefix in by_effect(counts)
    ]


def save_queue(path: Path, database: Database) -> None:
    """Write the pages of the queue, those of a prefix together. `review_queue` comes first."""
    save(path, database.execute(PAGES), QUEUE)


def write_review(path: Path, queue: Iterable[dict[str, Any]]) -> None:
    """Write the queue as an annotation file without verdicts."""
    with path.open("w") as file:
        file.write("prefix\tverdict\tannotator\tdate\tevidence\n")
        for row in queue:
            kept = f"{row['kept']} of {row['pages']} pages kept, expect {row['expected']} more"
            file.write(f"{row['prefix']}\t\t\t\t{kept}: {row['samples']}\n")
