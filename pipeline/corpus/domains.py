"""Mathematical domains, and what their reviewed prefixes teach (paper section 2.1, steps 3 and 4).

The paper calls a domain (pages of one base URL) mathematical if more than 10 % of its pages were collected;
here it must also have three pages. A domain is a host.

The queries read `kept` and the tables of `candidates.py`. Pages that a reviewer rejected are never kept and
say nothing about the rest of their domain; those whose owner opted out do not even teach.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipeline.core.data.database import Database
from pipeline.core.data.shards import table_schema
from pipeline.corpus.candidates import BLOCKED, OPT_OUT
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl.annotations import NOT_MATH
from pipeline.crawl.urls import NO_HOST

DOMAIN_PAGES = 3  # of a domain that is judged
MACROS = """
CREATE OR REPLACE MACRO parts(key) AS string_split(split_part(key, '?', 1), '/');
CREATE OR REPLACE MACRO domain_of(key) AS parts(key)[1];
"""
# Pages without a URL have hosts of their own, which are no domains.
JUDGE = f"""
WITH collected AS (
    SELECT domain_of(key) AS domain, count(*) AS kept FROM kept
    WHERE NOT ends_with(host, '{NO_HOST}') GROUP BY domain),
total AS (
    SELECT domain_of(key) AS domain, count(*) AS pages FROM candidates
    WHERE NOT ends_with(host, '{NO_HOST}') AND domain_of(key) IN (SELECT domain FROM collected)
    GROUP BY domain)
SELECT domain, pages, kept FROM collected JOIN total USING (domain) ORDER BY kept DESC, domain
"""
# A join, because a list of all mathematical domains would be searched for each page.
LEARN = """
CREATE OR REPLACE TABLE learnt AS
WITH teaching AS (
    SELECT id, url, key, prefix, verdict FROM reviewed JOIN pages USING (id)
    WHERE id NOT IN (SELECT id FROM opted_out)),
mathematics AS (SELECT id FROM teaching JOIN mathematical ON domain_of(key) = domain)
SELECT url, key, prefix, verdict = 'math' AS math FROM teaching
WHERE CASE verdict
    WHEN 'math' THEN ($all OR id NOT IN (SELECT id FROM kept)) AND id IN (SELECT id FROM mathematics)
    WHEN 'not_math' THEN $all END
"""
REJECTED = f"""
SELECT key FROM pages JOIN in_seed USING (key) JOIN reviewed USING (id) WHERE verdict = '{NOT_MATH}'
"""
DOMAINS = table_schema(domain=str, pages=int, kept=int, share=float, math=bool)


@dataclass(frozen=True)
class Domain:
    """A host: its pages in the pool, those kept, whether it is `math`."""

    domain: str
    pages: int
    kept: int
    share: float
    math: bool


@dataclass
class Growth:
    """What reviewed prefixes change: URLs that join the seed and the negatives, and their number by prefix;
    keys of pages that leave the seed.
    """

    seed: list[str] = field(default_factory=list)
    not_math: list[str] = field(default_factory=list)
    prefixes: Counter[str] = field(default_factory=Counter)
    rejected: set[str] = field(default_factory=set)


def judge(database: Database, least: float) -> list[Domain]:
    """All domains with a kept page, most kept first, which are mathematical above the share `least`; creates
    `mathematical` (domain, share).
    """
    database.execute(MACROS)
    domains = []
    for name, pages, kept in database.execute(JUDGE).fetchall():
        math = kept / pages > least and pages >= DOMAIN_PAGES
        domains.append(Domain(name, pages, kept, round(kept / pages, 4), math))
    add_mathematical(database, ((domain.domain, domain.share) for domain in domains if domain.math))
    return domains


def add_mathematical(database: Database, domains: Iterable[tuple[str, float]]) -> None:
    """Create `mathematical` from (domain, share) pairs, and `opted_out` (id)."""
    found = [{"domain": domain, "share": share} for domain, share in domains]
    database.register("found", pa.Table.from_pylist(found, table_schema(domain=str, share=float)))
    database.execute(f"{MACROS}; CREATE OR REPLACE TABLE mathematical AS SELECT * FROM found")
    database.execute(
        "CREATE OR REPLACE VIEW opted_out AS"
        f" SELECT id FROM excluded WHERE reason IN ('{OPT_OUT}', '{BLOCKED}')"
    )


def learn(database: Database, every: bool) -> None:
    """Create `learnt` (url, key, prefix, math): pages of mathematical domains under reviewed prefixes, as
    `corpus.reviewed` says; `every`: whether it is `all`. `judge` comes first.
    """
    database.execute(LEARN, {"all": every})


def growth(database: Database, in_seed: set[str], in_others: Iterable[str] = ()) -> Growth:
    """Return what the pages in `learnt` add to the lists, whose pages have the keys `in_seed` and
    `in_others`, and which pages leave the seed, because it would teach the contrary of a verdict.
    """
    for name, keys in (("in_seed", in_seed), ("in_others", in_others)):
        database.register(name, pa.table([pa.array(keys, pa.string())], ["key"]))
    rejected = database.execute(REJECTED).fetchall()
    added = "FROM learnt WHERE key NOT IN (FROM in_others) AND (NOT math OR key NOT IN (FROM in_seed))"
    seed, not_math = (
        [url for (url,) in database.execute(f"SELECT url {added} AND {which} ORDER BY url").fetchall()]
        for which in ("math", "NOT math")
    )
    prefixes = database.execute(f"SELECT prefix, count(*) {added} GROUP BY prefix").fetchall()
    return Growth(seed, not_math, Counter(dict(prefixes)), {key for (key,) in rejected})


def write_grown(folder: Path, lists: dict[str, list[str]], grown: Growth, survivors: Survivors) -> None:
    """Write the lists for the next iteration, with what reviewed prefixes add, without what they reject."""
    seed = [url for url in lists["seed_urls"] if survivors.keys([url]).isdisjoint(grown.rejected)]
    others = [*lists["not_math_urls"], *grown.not_math]
    for name, urls in (("seed_urls", [*seed, *grown.seed]), ("not_math_urls", others)):
        (folder / f"{name}.txt").write_text("".join(f"{url}\n" for url in urls))
