"""URL lists, annotated prefixes, and how their URLs find pages of the pool."""

import csv
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.shards import read_table
from pipeline.common.stage import InputError
from pipeline.crawl.urls import normalise_url

VERDICTS = ("math", "not_math")


def read_urls(path: Path) -> list[str]:
    """The URLs of a file, one a line; `#` starts a comment line."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); it lists URLs, one a line") from error
    urls = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not urls:
        raise InputError(f"{path}: holds no URL")
    return urls


class Survivors:
    """Which page of the pool a URL means: the page itself or the one kept of its duplicates."""

    def __init__(self, duplicates: Path) -> None:
        table = read_table(duplicates, ["url", "duplicate_of_url"])
        pairs = zip(*(table.column(name).to_pylist() for name in ("url", "duplicate_of_url")), strict=True)
        self._kept = {normalise_url(url): normalise_url(kept) for url, kept in pairs}

    def key(self, url: str) -> str:
        """The normalised URL of the page that stands for `url` in the pool."""
        url = normalise_url(url)
        return self._kept.get(url, url)


@dataclass(frozen=True)
class Annotations:
    """Reviewed URL prefixes; the longest prefix of a URL decides."""

    verdicts: dict[str, str]

    def accepted(self, url: str) -> str | None:
        """The longest annotated prefix of the normalised `url`, if its verdict is math."""
        for end in range(len(url), 0, -1):
            verdict = self.verdicts.get(url[:end])
            if verdict is not None:
                return url[:end] if verdict == "math" else None
        return None


def read_annotations(path: Path) -> Annotations:
    """Read `prefix, verdict, annotator, date, evidence`, tab-separated with a header."""
    verdicts = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if not {"prefix", "verdict"} <= set(reader.fieldnames or ()):
            raise InputError(
                f"{path}: its first line must name the columns prefix and verdict, tab-separated"
            )
        for row in reader:
            if row["verdict"] not in VERDICTS:
                raise InputError(
                    f"{path}: line {reader.line_num}: verdict {row['verdict']!r}, not {VERDICTS}"
                )
            prefix = row["prefix"].partition("://")[2] or row["prefix"]
            verdicts[prefix.lower().removeprefix("www.").rstrip("/")] = row["verdict"]
    return Annotations(verdicts)
