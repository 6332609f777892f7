"""The jobs of a run: how long each takes and the main memory it needs, beside what a profile gives it.

Pages of a crawl: `PAGES` for each WARC file. Core-hours follow rates measured on real pages, those of
deduplication after `sign` and of joins on generated ones (docs/corpus.md); fastText's training and the
network are left out.
"""

import gzip
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path
from typing import Any

import yaml

from pipeline.common.addresses import is_remote
from pipeline.common.errors import InputError
from pipeline.config.crawl import CrawlSection
from pipeline.config.root import Config
from pipeline.crawl.sources import DUMP, LISTS
from pipeline.plan.forecast import Assumptions, Forecast

PAGES = 33_000  # in a WARC file of Common Crawl
# Pages per second and core: all of a first pass, hashes and signatures, decontamination.
READ, SIGN, CLEAN = 131, 4_800, 3_072
LINEAGE, LINKED = 263_000, 15_000_000  # what became of each page, and putting its tables together
PROGRAM = 0.5e9  # bytes of a program that joins, beside launch.join_memory
SCORED, KEPT = 0.12, 0.01  # share of a first pass that scoring takes; share of pages that are kept
# Pages per second and core of what follows the signatures: `make bench-dump`.
FILTER, PASSED = 5_500, 0.044  # pages per second and core of math_first's filter; share that it keeps
UNLIKE = 0.55  # share of pages that no other page of their dump is like
WARC, TEXT = 1.0e9, 3_600  # bytes of a WARC file of Common Crawl; of an extracted page on disk
EXACT = 352_000  # all exact rules in one job
SHARED = {"urls": 1_080_000, "texts": 1_160_000}  # by several jobs, at 16M pages
MARKED, TOGETHER = 198_000_000, 56_000_000  # before that, in each job of `texts`; after it, in `exact`
RATES = {
    "buckets": 32_500,
    "cluster": 250_000,  # 2.5 million pairs a second, 10 of each page of the crawl
    "removed": 250_000,
    "filter": 13_400,  # real pages copied
}
LINKS = 2_700  # shards of the pool per second that `dedup` puts together
STAYING, AGAINST = 350_000, 2_000_000  # rows per second and core of `staying`: its own, and what it looks up
READ_POOL, LISTED, LEARN = 51_000, 195_000, 175_000  # pages per second and core; 40 % have copies
WANTED = 50_000  # listed URLs per second
# The same of selection, at 1M pages; of `order` and `keep` kept pages per second.
SELECTION = {
    "rank": 195_000,
    "cut": 30_000_000,
    "order": 208_000,
    "keep": 291_000,
    "hosts": 367_000,
    "select": 9_000_000,
}
OPENED = 1_270  # signed shards that `shards` checks and lists per second
SIGNATURE = 1512  # bytes of a page on disk, for deduplication
COMPARED = 1.0e9  # bytes of memory in which jobs of the exact rules and of `buckets` read a part of the pages
JOINED = 165  # bytes of memory of `cluster` for each page of its part: 360 if joined, as 45 % are


@dataclass
class Job:
    """`number` equal jobs of a rule: `hours` of each on `gpus` GPUs or one core, `main_memory` bytes of a
    machine; `limits`: what the profile gives; `notes`: what would not work.
    """

    name: str
    rule: str
    number: int
    hours: float
    gpus: int = 0
    main_memory: float = 0.0
    disk: float = 0.0

    def notes(self, profile: "Profile") -> list[str]:
        """Where the profile gives less than the job needs."""
        memory, gpus = profile.get(self.rule, "mem_mb"), profile.get(self.rule, "gpu")
        limit, hours = profile.get(self.rule, "runtime"), self.hours / profile.threads(self.rule)
        found = []
        if limit and not self.gpus and hours * 60 > limit:  # programs on GPUs go on after a time limit
            found.append(f"{hours:.1f} hours, the profile gives {limit / 60:g}")
        if memory and memory * 1e6 < self.main_memory:
            found.append(
                f"{self.main_memory / 1e9:.0f} GB of main memory, the profile gives {memory / 1e3:g}"
            )
        if gpus and self.gpus > gpus:
            found.append(f"starts on {self.gpus} GPUs, the profile reserves {gpus}")
        return found


class Profile:
    """Resources of rules in a Snakemake profile; only plain numbers are read."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / "profile.yaml"
        try:
            self.values: dict[str, Any] = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise InputError(f"{path}: no profile ({str(error).splitlines()[0]})") from error

    def get(self, rule: str, resource: str) -> int | None:
        """`mem_mb`, `runtime` in minutes, `gpu` or `nodes` of a rule; None where the profile does not say."""
        own = (self.values.get("set-resources") or {}).get(rule) or {}
        value = own.get(resource, (self.values.get("default-resources") or {}).get(resource))
        return value if isinstance(value, int) else None

    def limit(self, resource: str) -> int | None:
        """How much of a resource all jobs may have together; None where the profile does not say."""
        for line in self.values.get("resources") or []:
            name, _, value = str(line).partition("=")
            if name == resource and value.isdecimal():
                return int(value)
        return None

    def threads(self, rule: str) -> int:
        """Cores of a job of a data rule."""
        return int((self.values.get("set-threads") or {}).get(rule, 1))


def model_jobs(rows: list[Forecast]) -> list[Job]:
    """A job for each model that is trained or evaluated."""
    return [
        Job(
            f"{row.stage}/{row.model}",
            f"{row.stage}_model",
            1,
            row.hours / row.gpus,
            row.gpus,
            row.main_memory,
        )
        for row in rows
        if row.hours
    ]


def data_jobs(config: Config, assumed: Assumptions, order: str | None = None) -> list[Job]:
    """The jobs of crawl, corpus and decontamination; none where the pages are generated or there are none.
    `order`: another `crawl.order` than the configuration's.
    """
    section, corpus = config.sections["crawl"], config.sections["corpus"]
    math_first = (order or section.order) == "math_first"
    listed = list(_warc_files(section.warc, assumed.warcs))
    files = sum(number for _, number in listed)
    if not files:
        return []
    records = files * PAGES
    pages = records * PASSED if math_first else records
    extracts = math.ceil(files / section.files_per_shard)
    extraction = records * (1 - SCORED) / READ / 3600 + (records / FILTER / 3600 if math_first else 0)
    if math_first:
        memory = config.launch_of("crawl").join_memory * 1e9 + PROGRAM
        dumps = len({name for name, _ in listed})
        deduplication, scores = _by_dump(section, pages, extracts, dumps, memory)
    else:
        deduplication, scores = _deduplication(section, pages, extracts), len(section.pool_parts(extracts))
    iterations = f"corpus, {corpus.iterations} iterations"
    scoring = pages * SCORED / READ / 3600
    return [
        Job(
            "crawl, extraction",
            "crawl_extract",
            extracts,
            extraction / extracts,
            main_memory=4e9,
            disk=TEXT * pages,
        ),
        *deduplication,
        Job(f"{iterations}, scoring", "corpus_score", scores * corpus.iterations, scoring / scores),
        *_reading(config, pages, scores),
        *_selection(config, pages, records * KEPT, scores),
        *_lineage(config, records, scores),
        Job("decontamination", "decontaminate_clean", scores, records * KEPT / CLEAN / 3600 / scores),
    ]


def _reading(config: Config, pages: float, shards: int) -> list[Job]:
    """Reading what classifiers learn from in all iterations; of one part `train` does it."""
    section = config.sections["corpus"]
    parts, memory = len(section.select_parts(shards)), config.launch_of("corpus").join_memory * 1e9 + PROGRAM
    if parts == 1:
        return []
    iterations, number = f"corpus, {section.iterations} iterations", parts * section.iterations
    found = []
    if rounds := min(_rounds(section.annotations), section.iterations) - 1:
        hours = pages / LEARN / 3600 / parts
        rounds_of = f"corpus, {rounds} new rounds of review"
        found.append(Job(f"{rounds_of}, learn", "corpus_learn", parts * rounds, hours, main_memory=memory))
    hours = {name: pages / rate / 3600 / parts for name, rate in (("listed", LISTED), ("read", READ_POOL))}
    merged = (section.positives + section.negatives) / WANTED / 3600
    return [
        *found,
        Job(f"{iterations}, listed", "corpus_listed", number, hours["listed"], main_memory=memory),
        Job(f"{iterations}, wanted", "corpus_wanted", section.iterations, merged, main_memory=memory),
        Job(f"{iterations}, read", "corpus_read", number, hours["read"]),
    ]


def _rounds(annotations: str | list[str] | None) -> int:
    """How many rounds of review there are; at least one, which is no new one."""
    sources = [annotations] if isinstance(annotations, str) else annotations or []
    return max(1, sum(len(glob(source)) or 1 for source in sources))


def _selection(config: Config, pages: float, kept: float, shards: int) -> list[Job]:
    """The programs of selection in all iterations; in one part they are one job."""
    section = config.sections["corpus"]
    parts = len(section.select_parts(shards))
    numbers = dict.fromkeys(SELECTION, parts) | {"cut": 1, "select": 1}
    hours = {name: pages / rate / 3600 for name, rate in SELECTION.items()}
    hours |= {name: kept / SELECTION[name] / 3600 for name in ("order", "keep")}
    if parts == 1:
        numbers, hours = {"select": 1}, {"select": sum(hours.values())}
    return [
        Job(
            f"corpus, {section.iterations} iterations, {name}",
            f"corpus_{name}",
            number * section.iterations,
            hours[name] / number,
            main_memory=config.launch_of("corpus").join_memory * 1e9 + PROGRAM,
        )
        for name, number in numbers.items()
    ]


def _lineage(config: Config, records: float, shards: int) -> list[Job]:
    """What became of each page: a job for each part of selection, and one that puts their tables together."""
    name, rule = "what became of each page", "decontaminate_pages"
    memory = config.launch_of("decontaminate").join_memory * 1e9 + PROGRAM
    parts = len(config.sections["corpus"].select_parts(shards))
    hours = records / LINEAGE / 3600 / parts
    if parts == 1:
        return [Job(name, rule, 1, hours, main_memory=memory)]
    return [
        Job(name, f"{rule}_part", parts, hours, main_memory=memory),
        Job(f"{name}, put together", rule, 1, records / LINKED / 3600),
    ]


def _by_dump(
    section: CrawlSection, pages: float, extracts: int, dumps: int, memory: float
) -> tuple[list[Job], int]:
    """The jobs for each of so many dumps, then those for all that is left of several; shards of the pool.
    `memory`: bytes of a job that joins tables.
    """
    own = math.ceil(extracts / dumps)
    filters = len(section.pool_parts(own))
    found, shards = [], dumps * filters
    for job in _deduplication(section, pages / dumps, own):
        if job.rule != "crawl_dedup":
            rule = f"{job.rule}_of" if job.rule in ("crawl_shards", "crawl_exact") else job.rule
            many = {"number": dumps * job.number, "disk": dumps * job.disk}
            found.append(replace(job, name=f"{job.name}, in a dump", rule=rule, **many))
    last = _deduplication(section, pages * (UNLIKE if dumps > 1 else 1), shards)
    if dumps == 1:
        return [*found, last[-1]], shards
    gone = pages / dumps * (1 - UNLIKE)  # looked up in what the dump lost in the end: a share of the rest
    hours = gone * (1 / STAYING + UNLIKE / AGAINST) / 3600
    last.insert(-1, Job("crawl, staying", "crawl_staying", dumps, hours, main_memory=memory))
    return [*found, *last], len(section.pool_parts(shards))


def _deduplication(section: CrawlSection, pages: float, extracts: int) -> list[Job]:
    parts = len(section.cluster_parts(extracts))
    numbers = {"buckets": section.bucket_jobs, "cluster": parts, "removed": parts}
    numbers["filter"] = len(section.pool_parts(extracts))
    joined = JOINED * pages / parts
    memory = {"buckets": COMPARED + pages / 8, "cluster": joined, "removed": joined}
    sign = pages / SIGN / 3600 / extracts
    found = [Job("crawl, signatures", "crawl_sign", extracts, sign, disk=SIGNATURE * pages)]
    found += _exact(section, pages, extracts)
    for program, rate in RATES.items():
        number = numbers[program]
        found.append(
            Job(
                f"crawl, {program}",
                f"crawl_{program}",
                number,
                pages / rate / 3600 / number,
                main_memory=memory.get(program, 0.0),
            )
        )
    return [*found, Job("crawl, dedup", "crawl_dedup", 1, numbers["filter"] / LINKS / 3600)]


def _exact(section: CrawlSection, pages: float, extracts: int) -> list[Job]:
    """The exact rules: one job, or several and those that list the shards and put the pairs together."""
    jobs = section.exact_jobs
    seconds = {"exact": pages / EXACT}
    if jobs > 1:
        seconds = {
            "shards": extracts / OPENED,
            **{name: pages / rate / jobs for name, rate in SHARED.items()},
        }
        seconds |= {"texts": seconds["texts"] + pages / MARKED, "exact": pages / TOGETHER}
    return [
        Job(
            f"crawl, {program}",
            f"crawl_{program}",
            jobs if program in SHARED else 1,
            each / 3600,
            main_memory=0.0 if program == "shards" else COMPARED + pages / 8,
        )
        for program, each in seconds.items()
    ]


def downloads(config: Config, jobs: list[Job], profile: Profile) -> str:
    """What the profile's limit on downloads means for the time of extraction; empty without remote files."""
    section = config.sections["crawl"]
    sources = [section.warc] if isinstance(section.warc, str) else section.warc or []
    remote = is_remote(section.base_url) and any(file_list(source) for source in sources)
    if not remote and not any(map(is_remote, sources)):
        return ""
    limit, extraction = profile.limit("downloads"), jobs[0]
    if limit is None:
        return "Downloads: the profile sets no limit; give it one by `resources: [downloads=NUMBER]`"
    at_once = min(limit, extraction.number)
    hours, rate = extraction.hours * extraction.number / at_once, at_once * WARC * READ / PAGES
    return (
        f"Downloads: {at_once} jobs of extraction at a time (downloads={limit} of the profile) take"
        f" {hours:,.0f} hours or more,\nand {rate / 1e6:,.0f} MB/s of the network if that gives as much"
    )


def orders(config: Config, assumed: Assumptions) -> str:
    """What either order of the crawl takes, a line for each."""
    lines = []
    for order in ("paper", "math_first"):
        hours = dict.fromkeys(("extraction", "deduplication", "corpus"), 0.0)
        jobs = data_jobs(config, assumed, order)
        for job in jobs:
            crawl = "extraction" if job.rule == "crawl_extract" else "deduplication"
            hours[crawl if job.rule.startswith("crawl") else "corpus"] += job.number * job.hours
        said = ", ".join(f"{name} {value:,.0f}" for name, value in hours.items())
        disk = sum(job.disk for job in jobs) / 1e12
        lines.append(f"crawl.order {order}: core-hours of {said}; {disk:,.1f} TB of pages and signatures")
    return "\n".join(lines)


def _warc_files(sources: str | list[str] | None, unknown: int) -> Iterator[tuple[str, int]]:
    """Each list of WARC files and their number; "" and 1 for a file that no list names. `unknown`: of a list
    that is not here.
    """
    for source in [sources] if isinstance(sources, str) else sources or []:
        if source.startswith("miniweb:"):
            continue
        files = glob(source)
        if not files:
            yield source, unknown
        for file in files:
            if file_list(file):
                data = Path(file).read_bytes()
                yield file, len((gzip.decompress(data) if file.endswith(".gz") else data).split())
            else:
                yield "", 1


def file_list(source: str) -> bool:
    """Whether a source of `crawl.warc` is a list of files, or a dump, which has one."""
    return source.endswith(LISTS) or DUMP.fullmatch(source) is not None
