"""Mathematical domains and the pages that annotated prefixes add to the seed (paper section 2.1, steps 3 and 4)."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.corpus.lists import Annotations, Survivors

Page = dict[str, Any]


@dataclass(frozen=True)
class Domain:
    """A host: its pages in the pool, those kept, and whether it counts as mathematical."""

    domain: str
    pages: int
    kept: int
    share: float
    math: bool

    def row(self) -> dict[str, Any]:
        return asdict(self)


def judge(pages: list[Page], kept: set[str], share: float, least: int) -> list[Domain]:
    """All domains with a kept page; mathematical if more than `share` of at least `least` pages is kept."""
    total = Counter(page["host"] for page in pages)
    collected = Counter(page["host"] for page in pages if page["id"] in kept)
    domains = [
        Domain(
            host,
            total[host],
            count,
            round(count / total[host], 4),
            count / total[host] > share and total[host] >= least,
        )
        for host, count in collected.items()
    ]
    return sorted(domains, key=lambda domain: (-domain.kept, domain.domain))


def grown(
    pages: list[Page], kept: set[str], domains: list[Domain], annotations: Annotations, survivors: Survivors
) -> dict[str, list[str]]:
    """URLs that join the seed, by prefix: not collected, on a mathematical domain, under an accepted prefix."""
    mathematical = {domain.domain for domain in domains if domain.math}
    found: dict[str, list[str]] = {}
    for page in pages:
        if page["id"] in kept or page["host"] not in mathematical:
            continue
        prefix = annotations.accepted(survivors.key(page["url"]))
        if prefix is not None:
            found.setdefault(prefix, []).append(page["url"])
    return found
