"""Reviewed URL prefixes (paper section 2.1, step 4): verdicts on all pages below them."""

import csv
from dataclasses import dataclass
from pathlib import Path

from pipeline.common.stage import InputError

VERDICTS = ("math", "not_math")


def place(url: str) -> str:
    """Host, path and query of a URL, as prefixes are written: `www.` counts, scheme and fragment do not."""
    rest = (url.partition("://")[2] or url).partition("#")[0]
    host, slash, path = rest.partition("/")
    return (host.lower() + slash + path).rstrip("/")


@dataclass(frozen=True)
class Annotations:
    """URL prefixes (as `place` writes them) -> verdict. The longest prefix of a URL decides."""

    verdicts: dict[str, str]

    def find(self, url: str) -> tuple[str, str] | None:
        """(prefix, verdict) of a URL; None if no prefix covers it.

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
