"""URL lists that iterations learn from, and the pages of the pool that their URLs mean."""

from collections.abc import Iterable
from pathlib import Path

from pipeline.common.shards import read_table
from pipeline.common.stage import InputError, Stage
from pipeline.config.corpus import CorpusSection
from pipeline.crawl.urls import normalise_url

GROWN = ("seed_urls", "not_math_urls")  # lists that each iteration hands to the next


def read_urls(path: Path) -> list[str]:
    """The URLs of a file, one a line; `#` starts a comment line. Raises InputError."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); it lists URLs, one a line") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def current_urls(stage: Stage[CorpusSection], name: str) -> list[str]:
    """The list that this iteration learns from: the one that the previous iteration wrote, else the stage's
    input; empty if there is neither.
    """
    if "previous" in stage.inputs and name in GROWN:
        return read_urls(stage.input("previous") / f"{name}.txt")
    return read_urls(stage.input(name)) if stage.inputs.get(name) else []


def write_urls(folder: Path, name: str, urls: Iterable[str]) -> None:
    """Write a list for the next iteration."""
    (folder / f"{name}.txt").write_text("".join(f"{url}\n" for url in urls))


class Survivors:
    """Which page of the pool a URL means: the page itself or the one kept of its duplicates.

    `pool`: result of deduplication.
    """

    def __init__(self, pool: Path) -> None:
        table = read_table(pool / "duplicates.parquet", ["url", "duplicate_of_url"])
        pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
        self._kept = {normalise_url(url): normalise_url(kept) for url, kept in pairs}

    def key(self, url: str) -> str:
        """The normalised URL of the page that stands for `url` in the pool."""
        url = normalise_url(url)
        return self._kept.get(url, url)

    def keys(self, urls: Iterable[str]) -> set[str]:
        """The keys of several URLs."""
        return set(map(self.key, urls))
