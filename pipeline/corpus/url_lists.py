"""URL lists that iterations learn from, and the pages of the pool that their URLs mean."""

from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import database, parquet
from pipeline.core.data.shards import ROWS, tables
from pipeline.core.stage import Stage
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.urls import normalise_url

GROWN = ("seed_urls", "not_math_urls")  # lists that each iteration hands to the next
LEARNT_FROM = ("seed_urls", "background_urls", "not_math_urls")


def current_urls(stage: Stage[CorpusSection], name: str, learnt: Path | None = None) -> list[str]:
    """Read the list that this iteration learns from: the one in `learnt`, where a new round of review has
    added to it, else the one that the previous iteration wrote, else the stage's input; empty if there is
    none.
    """
    if learnt and (learnt / f"{name}.txt").exists():
        return read_urls(learnt / f"{name}.txt")
    if "previous" in stage.inputs and name in GROWN:
        return read_urls(stage.input("previous") / f"{name}.txt")
    return read_urls(stage.input(name)) if stage.inputs.get(name) else []


# The host of a usual address without `www.`, as its normalised URL begins; empty for all other addresses.
HOST = (
    r"regexp_extract(lower(url), '^https?://(?:www\.)?([a-z0-9.-]*[a-z0-9])(?::[0-9]{1,4})?(?:[/?#]|$)', 1)"
)
NEAR = f"""
SELECT url, duplicate_of_url FROM duplicates
WHERE {HOST} = '' OR {HOST} IN (SELECT regexp_extract(key, '^[^:/?]*') FROM given)
"""
NEAR_ORDER = itemgetter("url", "duplicate_of_url")  # of duplicates


class Survivors:
    """Which pages of the pool URLs mean: the pages themselves or those kept of their duplicates. Of several
    duplicates of one normalised URL the first counts, by its URL and then by that of the page that stays, so
    the order of the rows and the files that they are in change nothing.

    `duplicates`: the tables of all duplicates; `work`: a folder for joins that outgrow memory, `launch`: how
    they run.
    """

    def __init__(self, duplicates: list[Path], work: Path, launch: dict[str, Any]) -> None:
        self._duplicates, self._work, self._launch = duplicates, work / "join", launch
        self.found: dict[str, dict[str, str]] = {}  # the duplicates whose URLs were asked for, by key
        self._asked: set[str] = set()

    @classmethod
    def of(cls, stage: Stage[Any]) -> Self:
        """Those of a stage's pool."""
        return cls(tables(stage.input("pool"), "duplicates"), stage.work, stage.launch)

    def keys(self, urls: Iterable[str]) -> set[str]:
        """Return the normalised URLs of the pages that stand for `urls` in the pool. All duplicates are read
        for URLs that were not asked for before.
        """
        given = set(map(normalise_url, urls))
        if new := given - self._asked:
            self._look_up(new)
            self._asked |= new
        found = self.found
        return {normalise_url(found[key]["duplicate_of_url"]) if key in found else key for key in given}

    def _look_up(self, keys: set[str]) -> None:
        with database(self._work, self._launch) as joins:
            joins.register("given", pa.table([pa.array(keys, pa.string())], ["key"]))
            joins.execute(f"CREATE VIEW duplicates AS SELECT * FROM {parquet(*self._duplicates)}")
            for batch in joins.execute(NEAR).fetch_record_batch(ROWS):  # few: of the same hosts
                for row in batch.to_pylist():
                    if (key := normalise_url(row["url"])) in keys:
                        self.found[key] = min(row, self.found.get(key, row), key=NEAR_ORDER)
