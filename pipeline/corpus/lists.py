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
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); it lists URLs, one a line") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


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


def place(url: str) -> str:
    """Host, path and query of a URL, as prefixes are written: `www.` counts, scheme and fragment do not."""
    rest = (url.partition("://")[2] or url).partition("#")[0]
    host, slash, path = rest.partition("/")
    return (host.lower() + slash + path).rstrip("/")


@dataclass(frozen=True)
class Annotations:
    """Reviewed URL prefixes: prefix -> verdict. The longest prefix of a URL decides."""

    verdicts: dict[str, str]

    def find(self, url: str) -> tuple[str, str] | None:
        """(prefix, verdict) of a URL; None where nobody has reviewed.

        A prefix ends with a part of the path: `a.org/b` covers `a.org/b`, `a.org/b/c` and `a.org/b?c`, not
        `a.org/bc`.
        """
        where = place(url) if self.verdicts else ""
        for end in range(len(where), 0, -1):
            if (end == len(where) or where[end] in "/?") and where[:end] in self.verdicts:
                return where[:end], self.verdicts[where[:end]]
        return None


def read_annotations(path: Path) -> Annotations:
    """Read `prefix, verdict, annotator, date, evidence`, tab-separated with a header. Raises InputError that
    names the line.
    """
    verdicts: dict[str, str] = {}
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if not {"prefix", "verdict"} <= set(reader.fieldnames or ()):
                raise InputError(
                    f"{path}: its first line must name the columns prefix and verdict, tab-separated"
                )
            for row in reader:
                prefix, verdict = row["prefix"].strip(), row["verdict"]
                if not prefix or verdict not in VERDICTS:
                    raise InputError(
                        f"{path}: line {reader.line_num}: expected a prefix and one of {VERDICTS}, "
                        f"got {prefix!r}, {verdict!r}"
                    )
                if verdicts.setdefault(place(prefix), verdict) != verdict:
                    raise InputError(
                        f"{path}: line {reader.line_num}: {prefix} has another verdict further up"
                    )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    return Annotations(verdicts)
