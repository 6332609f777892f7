"""Mathematical domains, and what their reviewed prefixes teach (paper section 2.1, steps 3 and 4).

The paper calls a domain (pages of one base URL) mathematical if more than 10 % of its pages were collected;
here it must also have three pages. With `domain_confidence` above a half a lower confidence bound of the
share must be above 10 %. Domains are hosts and, if configured, directories of their paths, since large hosts
hold mathematics under a few paths only.

The queries read `kept` and the tables of `candidates.py`. Pages that a reviewer rejected are never kept and
say nothing about the rest of their domain; those whose owner opted out do not even teach.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from statistics import NormalDist

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import BLOCKED, OPT_OUT
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl.annotations import NOT_MATH
from pipeline.crawl.urls import NO_HOST
from pipeline.data.database import Database
from pipeline.data.shards import table_schema

DOMAIN_PAGES = 3  # of a domain that is judged
# domains_of(key, depth): the domains of a normalised URL, its host and its first `depth` directories.
MACROS = """
CREATE OR REPLACE MACRO parts(key) AS string_split(split_part(key, '?', 1), '/');
CREATE OR REPLACE MACRO domains_of(key, depth) AS list_transform(
    range(1, greatest(1, least(depth + 1, len(parts(key)) - 1)) + 1),
    lambda length: array_to_string(parts(key)[:length], '/'));
"""
# Pages without a URL have hosts of their own, which are no domains.
JUDGE = f"""
WITH collected AS (
    SELECT domain, count(*) AS kept
    FROM (SELECT unnest(domains_of(key, $depth)) AS domain FROM kept WHERE NOT ends_with(host, '{NO_HOST}'))
    GROUP BY domain),
total AS (
    SELECT domain, count(*) AS pages
    FROM (SELECT unnest(domains_of(key, $depth)) AS domain FROM candidates
        WHERE NOT ends_with(host, '{NO_HOST}'))
    WHERE domain IN (SELECT domain FROM collected) GROUP BY domain)
SELECT domain, pages, kept FROM collected JOIN total USING (domain) ORDER BY kept DESC, domain
"""
# A join, because a list of all mathematical domains would be searched for each page.
LEARN = """
CREATE OR REPLACE TABLE learnt AS
WITH teaching AS (
    SELECT id, url, key, prefix, verdict FROM reviewed JOIN pages USING (id)
    WHERE id NOT IN (SELECT id FROM opted_out)),
places AS (SELECT id, unnest(domains_of(key, $depth)) AS domain FROM teaching WHERE verdict = 'math'),
mathematics AS (SELECT DISTINCT id FROM places JOIN mathematical USING (domain))
SELECT url, key, prefix, verdict = 'math' AS math FROM teaching
WHERE CASE verdict
    WHEN 'math' THEN ($all OR id NOT IN (SELECT id FROM kept)) AND id IN (SELECT id FROM mathematics)
    WHEN 'not_math' THEN $all END
"""
REJECTED = f"""
SELECT key FROM pages JOIN in_seed USING (key) JOIN reviewed USING (id) WHERE verdict = '{NOT_MATH}'
"""
DOMAINS = table_schema(domain=str, pages=int, kept=int, share=float, bound=float, math=bool)


@dataclass(frozen=True)
class Domain:
    """A host or a directory of one (`host/path`): its pages in the pool, those kept, whether it is `math`."""

    domain: str
    pages: int
    kept: int
    share: float
    bound: float
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


def lower_bound(kept: int, pages: int, confidence: float) -> float:
    """Wilson's one-sided lower bound of the share `kept / pages`; the share itself at confidence 0.5."""
    share, z = kept / pages, NormalDist().inv_cdf(confidence)
    centre = share + z * z / (2 * pages)
    spread = sqrt(share * (1 - share) / pages + z * z / (4 * pages * pages))
    return max(0.0, (centre - z * spread) / (1 + z * z / pages))


def judge(database: Database, config: CorpusSection) -> list[Domain]:
    """All domains with a kept page, most kept first; creates `mathematical` (domain, share)."""
    database.execute(MACROS)
    domains = []
    for name, pages, kept in database.execute(JUDGE, {"depth": config.domain_depth}).fetchall():
        bound = lower_bound(kept, pages, config.domain_confidence)
        math = bound > config.domain_share and pages >= DOMAIN_PAGES
        domains.append(Domain(name, pages, kept, round(kept / pages, 4), round(bound, 4), math))
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


def learn(database: Database, config: CorpusSection) -> None:
    """Create `learnt` (url, key, prefix, math): pages of mathematical domains under reviewed prefixes, as
    `reviewed` says. `judge` comes first.
    """
    database.execute(LEARN, {"depth": config.domain_depth, "all": config.reviewed == "all"})


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
