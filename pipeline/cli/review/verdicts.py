"""The annotation file of a round of review, saved whole after each verdict.

Two people may review at the same time, each with a program of their own: each verdict is put into the file as
it is by then, under a lock, and only one's own lines change.
"""

import csv
import fcntl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import Any

from pipeline.core.atomic import atomic_write
from pipeline.core.folders import check_writable
from pipeline.core.stage import InputError
from pipeline.crawl.annotations import UNSURE, VERDICTS, read_annotations

COLUMNS = ("prefix", "verdict", "annotator", "date", "evidence")
SEPARATORS = ("\t", "\n", "\r")


def plain(prefix: str) -> str:
    """Return a prefix as prefixes are compared: without scheme and closing slash, its host in lower case."""
    host, slash, path = prefix.split("://", 1)[-1].partition("/")
    return f"{host.lower()}{slash}{path}".rstrip("/")


class Verdicts:
    """An annotation file as one annotator sees it. Raises InputError if it cannot be read or written."""

    def __init__(self, path: Path, annotator: str) -> None:
        if not annotator.strip() or any(character in annotator for character in SEPARATORS):
            raise InputError("--annotator: expected a name without tabs and line breaks")
        self.path, self.annotator = path, annotator.strip()
        check_writable(path.parent)
        self.rows()

    def rows(self) -> list[dict[str, str]]:
        """Return the lines of the file as they are now; none if there is no file yet."""
        return [row for _, row in read_annotations(self.path)] if self.path.exists() else []

    def by_prefix(self) -> dict[str, dict[str, str]]:
        """prefix -> annotator -> verdict, of lines with a verdict."""
        found: dict[str, dict[str, str]] = {}
        for row in self.rows():
            if row["verdict"]:
                found.setdefault(plain(row["prefix"]), {})[row["annotator"]] = row["verdict"]
        return found

    def give(self, prefix: str, verdict: str, evidence: str) -> None:
        """Save one's own verdict on a prefix, instead of an earlier one; an empty verdict takes it back."""
        if any(character in prefix + evidence for character in SEPARATORS) or verdict not in ("", *VERDICTS):
            raise InputError(f"{prefix!r}, {verdict!r}: expected a prefix and one of {VERDICTS}")
        with self._locked():
            rows = [row for row in self.rows() if not self._replaced(row, prefix)]
            if verdict:
                values = (prefix, verdict, self.annotator, date.today().isoformat(), evidence)
                rows.append(dict(zip(COLUMNS, values, strict=True)))
            self._write(rows)

    def _replaced(self, row: dict[str, str], prefix: str) -> bool:
        own = row["annotator"] == self.annotator or not row["verdict"]
        return own and plain(row["prefix"]) == plain(prefix)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f".{self.path.name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, rows: list[dict[str, str]]) -> None:
        names = list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)]))
        with (
            atomic_write(self.path, durable=True) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            options: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
            writer = csv.DictWriter(file, names, restval="", lineterminator="\n", **options)
            writer.writeheader()
            writer.writerows(rows)


def decided(verdicts: dict[str, dict[str, str]]) -> dict[str, str]:
    """prefix -> verdict that counts; `unsure` where annotators disagree."""
    return {
        prefix: next(iter(found.values())) if len(set(found.values())) == 1 else UNSURE
        for prefix, found in verdicts.items()
    }


def agreement(verdicts: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """For each two annotators who judged some prefixes both: how many, on how many they agree, and Cohen's
    kappa, the share of agreement beyond chance; None where chance alone would agree always.
    """
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for found in verdicts.values():
        for first, second in combinations(sorted(found), 2):
            pairs.setdefault((first, second), []).append((found[first], found[second]))
    rows = []
    for names, both in sorted(pairs.items()):
        same, sides = sum(a == b for a, b in both), [Counter(side) for side in zip(*both, strict=True)]
        chance = sum(sides[0][verdict] * sides[1][verdict] for verdict in VERDICTS) / len(both) ** 2
        kappa = None if chance == 1 else (same / len(both) - chance) / (1 - chance)
        rows.append({"annotators": names, "both": len(both), "same": same, "kappa": kappa})
    return rows
