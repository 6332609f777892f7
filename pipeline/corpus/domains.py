"""Mathematical domains, what their reviewed prefixes teach, and which prefixes to review next (paper
section 2.1, steps 3 and 4).

The paper calls a domain (pages of one base URL) mathematical if more than 10 % of its pages were collected.
Here a lower confidence bound of that share must be above 10 %, so that one page of three by chance does not
count. Domains are hosts and, if configured, directories of their paths, since large hosts hold mathematics
under a few paths only.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.annotations import Annotations

REVIEW_SAMPLES = 3


@dataclass(frozen=True)
class PoolPage:
    """A scored page of the pool. `key`: the normalised URL that stands for it; `rejected`: a reviewer found
    that it is not mathematical, so it is never kept and says nothing about the rest of its domain.
    """

    url: str
    key: str
    kept: bool
    rejected: bool = False


@dataclass(frozen=True)
class Domain:
    """A host, or a directory of one (`host/path`): its pages in the pool, those kept, and whether it counts
    as mathematical.
    """

    domain: str
    pages: int
    kept: int
    share: float
    bound: float
    math: bool

    def row(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Unreviewed:
    """The pages of a mathematical domain that nobody has reviewed: how many, how many of them are kept, and
    the first ones of either kind.
    """

    share: float
    pages: int = 0
    kept: int = 0
    samples: dict[bool, list[str]] = field(default_factory=lambda: {False: [], True: []})

    def add(self, page: PoolPage) -> None:
        self.pages += 1
        self.kept += page.kept
        if len(self.samples[page.kept]) < REVIEW_SAMPLES:
            self.samples[page.kept].append(page.url)

    def row(self, name: str) -> dict[str, str | int]:
        """The line of the queue; pages that were not kept are shown first."""
        return {
            "prefix": f"{name}/",
            "expected": round((self.pages - self.kept) * self.share),
            "pages": self.pages,
            "kept": self.kept,
            "samples": " ".join([*self.samples[False], *self.samples[True]][:REVIEW_SAMPLES]),
        }


@dataclass
class Growth:
    """What reviewed prefixes of mathematical domains add: URLs for the seed and for the reviewed negatives,
    and their number by prefix.
    """

    seed: list[str] = field(default_factory=list)
    not_math: list[str] = field(default_factory=list)
    prefixes: Counter[str] = field(default_factory=Counter)


def domains_of(key: str, depth: int) -> Iterator[str]:
    """The domains of a normalised URL: its host and its first `depth` directories."""
    parts = key.partition("?")[0].split("/")
    for length in range(1, min(depth + 1, len(parts) - 1) + 1):
        yield "/".join(parts[:length])
    if len(parts) == 1:
        yield parts[0]


def lower_bound(kept: int, pages: int, confidence: float) -> float:
    """Wilson's one-sided lower bound of the share `kept / pages`; the share itself at confidence 0.5."""
    share, z = kept / pages, NormalDist().inv_cdf(confidence)
    centre, spread = (
        share + z * z / (2 * pages),
        sqrt(share * (1 - share) / pages + z * z / (4 * pages * pages)),
    )
    return max(0.0, (centre - z * spread) / (1 + z * z / pages))


def judge(pages: Iterable[PoolPage], config: CorpusSection) -> list[Domain]:
    """All domains with a kept page, most kept first."""
    total, collected = Counter[str](), Counter[str]()
    for page in pages:
        for name in domains_of(page.key, config.domain_depth) if not page.rejected else ():
            total[name] += 1
            collected[name] += page.kept
    domains = []
    for name, kept in collected.items():
        if kept:
            bound = lower_bound(kept, total[name], config.domain_confidence)
            math = bound > config.domain_share and total[name] >= config.domain_pages
            domains.append(
                Domain(name, total[name], kept, round(kept / total[name], 4), round(bound, 4), math)
            )
    return sorted(domains, key=lambda domain: (-domain.kept, domain.domain))


def learn(
    pages: Iterable[PoolPage],
    domains: list[Domain],
    annotations: Annotations,
    known: set[str],
    config: CorpusSection,
) -> Growth:
    """Pages of mathematical domains under reviewed prefixes, as `reviewed` says; `known`: keys of pages
    already listed.
    """
    mathematical = {domain.domain for domain in domains if domain.math}
    growth = Growth()
    for page in pages:
        found = annotations.find(page.url)
        if found is None or page.key in known:
            continue
        prefix, verdict = found
        domain = set(domains_of(page.key, config.domain_depth))
        if verdict == "math" and domain & mathematical and (config.reviewed == "all" or not page.kept):
            growth.seed.append(page.url)
        elif verdict == "not_math" and config.reviewed == "all":
            growth.not_math.append(page.url)
        else:
            continue
        growth.prefixes[prefix] += 1
    return growth


def review_queue(
    pages: Iterable[PoolPage], domains: list[Domain], annotations: Annotations, depth: int
) -> list[dict[str, str | int]]:
    """Mathematical domains with pages that nobody has reviewed, best expected yield first.

    The yield is the number of pages not yet collected times the share that was: what a verdict may add to
    the seed.
    """
    unreviewed = {domain.domain: Unreviewed(domain.share) for domain in domains if domain.math}
    for page in pages:
        if annotations.find(page.url) is None:
            for name in domains_of(page.key, depth):
                if name in unreviewed:
                    unreviewed[name].add(page)
    rows = [found.row(name) for name, found in unreviewed.items() if found.pages]
    return sorted(rows, key=lambda row: (-int(row["expected"]), -int(row["pages"]), str(row["prefix"])))


def write_review(path: Path, queue: list[dict[str, str | int]]) -> None:
    """The queue as an annotation file whose verdicts are still to be filled in."""
    lines = ["prefix\tverdict\tannotator\tdate\tevidence\n"]
    for row in queue:
        evidence = (
            f"{row['kept']} of {row['pages']} pages kept, expect {row['expected']} more: {row['samples']}"
        )
        lines.append(f"{row['prefix']}\t\t\t\t{evidence}\n")
    path.write_text("".join(lines))
