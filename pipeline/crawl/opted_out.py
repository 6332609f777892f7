"""Pages that no corpus may have and nothing may learn from: their owner opted out, or their domain is on a
blocklist.

Inputs of programs: `opt_out`, hosts and URL prefixes as in `annotations.py`, but that `www.` and ports do not
count, and `blocklists`, domains, each of which covers its subdomains; files with one a line.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa
from datatrove.data import Document

from pipeline.core.stage import InputError

SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
ROOT = re.compile(r"^(?:www\.)?([^/?:]*)(?::[0-9]*)?")
PART = re.compile(r"[/?]|$")  # the end of a host, or of a part of the path


def read_urls(path: Path) -> list[str]:
    """Read the URLs of a file, perhaps compressed, one a line; `#` starts a comment line. Raises
    InputError.
    """
    try:
        with pa.input_stream(str(path), compression="detect") as file:
            lines = file.read().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); it lists URLs, one a line") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def owned(url: str) -> str:
    """Return host, path and query of a URL, as the macro of this name in `annotations.py`."""
    host, slash, rest = SCHEME.sub("", url).partition("#")[0].partition("/")
    return ROOT.sub(r"\1", (host.lower() + slash + rest).rstrip("/"))


class OptedOut:
    """The pages that such lists cover; `pages`: how many of them `allowed` has left out."""

    def __init__(self, prefixes: Iterable[str] = (), domains: Iterable[str] = ()) -> None:
        self._prefixes, self._domains = set(map(owned, prefixes)) - {""}, {one.lower() for one in domains}
        self.pages = 0

    @classmethod
    def of(cls, inputs: dict[str, list[str]]) -> Self:
        """Those of a stage's inputs. Raises InputError."""
        named = (inputs.get(name, []) for name in ("opt_out", "blocklists"))
        return cls(*([one for file in files for one in read_urls(Path(file))] for files in named))

    def covers(self, url: str) -> bool:
        """Whether a list names the page's domain, its host or a prefix of its URL."""
        if not (self._prefixes or self._domains):
            return False
        found = owned(url)
        starts = [found[: match.start()] for match in PART.finditer(found)]
        names = starts[0].split(".")
        parents = (".".join(names[number:]) for number in range(len(names) - 1))
        return not (self._prefixes.isdisjoint(starts) and self._domains.isdisjoint(parents))

    @property
    def counts(self) -> dict[str, int]:
        """How many pages were left out, if any list is given."""
        return {"opted_out": self.pages} if self._prefixes or self._domains else {}

    def allowed(self, pages: Iterable[Document]) -> Iterator[Document]:
        """Leave out the pages that are covered."""
        for page in pages:
            if self.covers(page.metadata.get("url") or ""):
                self.pages += 1
            else:
                yield page


NOTHING = OptedOut()
