"""The jobs of a run: how long each takes and the main memory it needs, beside what a profile gives it.

`jobs.yaml` lists the jobs of data with their measured rates; here the quantities are counted.
"""

import gzip
import io
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pipeline.config.crawl import DOWNLOADS, CrawlSection
from pipeline.config.root import Config
from pipeline.core.addresses import is_remote
from pipeline.core.errors import InputError
from pipeline.crawl.sources import DUMP, LISTS
from workflow.forecast.forecast import Assumptions, Forecast

PAGES, WARC = 33_000, 1.0e9  # pages and bytes of a WARC file of Common Crawl
SCORED, KEPT = 0.12, 0.01  # share of a first pass that scoring takes; share of pages that are kept
PASSED = 0.044  # share of the pages that math_first's filter keeps
UNLIKE = 0.55  # share of pages that no other page of their dump is like
READ = 131  # pages per second and core of a first pass
EXTRACTION, PROGRAM = 4e9, 0.5e9  # bytes of an extraction; of a program that joins, beside launch.join_memory
COMPARED = 1.0e9  # bytes of memory in which a job of `buckets` reads a part of the pages
RANGES = 8e9  # bytes of memory of the exact rules, for a range of hashes in each of 16 threads
DECIDED = 2.0e9  # bytes of memory of `survivors`, for the pairs of some pages
LINES = 10_000  # of JSON, from whose length the others are guessed
CODECS = {".gz": "gzip", ".zst": "zstd"}
Quantities = Mapping[str, float]
FIRST = re.compile(r"(\d+)(?: \* attempt)?")


@dataclass
class Job:
    """`number` equal jobs of a rule: `hours` of each on `gpus` GPUs or one core, `main_memory` bytes of a
    machine, `disk` bytes of all.
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
    """Resources of rules in a Snakemake profile; only numbers are read, and what grows with `attempt`."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / "profile.yaml"
        try:
            self.values: dict[str, Any] = yaml.safe_load(path.read_text())
        except (OSError, yaml.YAMLError) as error:
            raise InputError(f"{path}: no profile ({str(error).splitlines()[0]})") from error

    def get(self, rule: str, resource: str) -> int | None:
        """`mem_mb`, `runtime` in minutes, `gpu` or `nodes` of a rule's first try; None where the profile does
        not say.
        """
        own = (self.values.get("set-resources") or {}).get(rule) or {}
        value = own.get(resource, (self.values.get("default-resources") or {}).get(resource))
        number = FIRST.fullmatch(str(value))
        return int(number[1]) if number else None

    def limit(self, resource: str) -> int | None:
        """How much of a resource all jobs may have together; None where the profile does not say."""
        limits = dict(str(line).partition("=")[::2] for line in self.values.get("resources") or [])
        return int(limits[resource]) if limits.get(resource, "").isdecimal() else None

    def threads(self, rule: str) -> int:
        """Cores of a job of a data rule."""
        return int((self.values.get("set-threads") or {}).get(rule, 1))


def model_jobs(rows: list[Forecast]) -> list[Job]:
    """Return a job for each model that is trained or evaluated."""
    found = []
    for row in (row for row in rows if row.hours):
        name, rule, hours = f"{row.stage}/{row.model}", f"{row.stage}_model", row.hours / row.gpus
        found.append(Job(name, rule, 1, hours, row.gpus, row.main_memory))
    return found


def token_jobs(rows: list[Forecast], profile: Profile) -> list[Job]:
    """Return a job for each mixture; its digests are made by one core."""
    cores = profile.threads("tokens_mixture")
    found = []
    for row in (row for row in rows if row.stage == "tokens" and row.trained):
        (job,) = _jobs("tokens", {"one": 1, "tokens": row.trained, "digested": row.disk * cores})
        job.name = f"tokens/{row.model}"
        found.append(job)
    return found


@cache
def _table() -> dict[str, list[dict[str, Any]]]:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())


def _jobs(group: str, count: Quantities) -> list[Job]:
    """Return the jobs of a group of the table, for so much of each quantity."""
    found = []
    for row in _table()[group]:
        number = int(count[row["jobs"]])
        if number and count[row.get("when", "one")]:
            rates = [(what, rate) for what, given in row["work"].items() for rate in _listed(given)]
            hours = sum(count[what] / rate for what, rate in rates) / 3600 / number
            disk = sum(count[what] * size for what, size in row.get("disk", {}).items())
            memory = count[row["memory"]] if "memory" in row else 0.0
            found.append(Job(row["name"], row["rule"], number, hours, main_memory=memory, disk=disk))
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []


def data_jobs(config: Config, assumed: Assumptions, order: str | None = None) -> list[Job]:
    """Return the jobs of crawl, corpus and decontamination; none where the pages are generated or there are
    none. `order`: another `crawl.order` than the configuration's.
    """
    section = config.sections["crawl"]
    math_first = (order or section.order) == "math_first"
    listed = list(_warc_files(_listed(section.warc), assumed.warcs))
    files = sum(number for _, number in listed)
    texts = list(text_rows(section))
    if not files and not texts:
        return []
    records = files * PAGES + sum(texts)
    pages = records * (PASSED if math_first else 1)
    extracts = math.ceil(files / section.files_per_shard) + math.ceil(len(texts) / section.files_per_shard)
    count = {"one": 1, "extracts": extracts, "unscored": files * PAGES * (1 - SCORED), "pages": pages}
    count |= {"rows": sum(texts), "searched": records * math_first, "extraction": EXTRACTION}
    dumps = len({name for name, _ in listed}) if math_first else 0
    deduplication, shards = _deduplication(config, pages, extracts, dumps)
    return [*_jobs("first", count), *deduplication, *_selection(config, records, pages, shards)]


def _deduplication(config: Config, pages: float, extracts: int, dumps: int) -> tuple[list[Job], int]:
    """Return the jobs of a whole crawl, or for each of so many dumps and then for what is left of several;
    and the shards of the pool.
    """
    section = config.sections["crawl"]
    own, within = pages / max(1, dumps), math.ceil(extracts / max(1, dumps))
    count = _deduplicated(config, own, within)
    found, shards = _jobs("deduplication", count), int(count["filters"])
    if dumps:
        for job in found:
            job.name = f"{job.name}, in a dump"
            job.number, job.disk = job.number * dumps, job.disk * dumps
    if dumps > 1:
        count = _deduplicated(config, pages * UNLIKE, dumps * shards)
        found += _jobs("deduplication", count)
        shards = len(section.pool_parts(dumps * shards))
    # What a dump lost in the end is looked up in a share of what the others lost.
    lost = dumps * own * (1 - UNLIKE) if dumps > 1 else 0
    count |= {"lost": lost, "against": lost * UNLIKE}
    count |= {"join": config.launch_of("crawl").join_memory * 1e9 + PROGRAM}
    return [*found, *_jobs("together", count)], shards


def _deduplicated(config: Config, pages: float, extracts: int) -> dict[str, float]:
    section = config.sections["crawl"]
    filters = len(section.pool_parts(extracts))
    count = {
        "one": 1,
        "pages": pages,
        "extracts": extracts,
        "filters": filters,
        "buckets": section.bucket_jobs,
    }
    ranges, compared, decided = RANGES + pages / 8, COMPARED + pages / 8, DECIDED + pages / 8
    return count | {"ranges": ranges, "compared": compared, "decided": decided}


def _selection(config: Config, records: float, pages: float, shards: int) -> list[Job]:
    """All iterations of the corpus on `pages` of `records`, what became of each, and decontamination."""
    section, kept = config.sections["corpus"], records * KEPT
    times, parts = section.iterations, len(config.sections["crawl"].ledger_parts(shards))
    reviews = min(max(1, sum(len(glob(source)) or 1 for source in _listed(section.annotations))), times) - 1
    count = {"one": 1, "iterations": times, "scores": shards * times}
    count |= {"pages": pages * times, "scored": pages * SCORED * times, "kept": kept * times}
    count |= {"reviewed": pages * reviews, "wanted": (section.positives + section.negatives) * times}
    count |= {"join": config.launch_of("corpus").join_memory * 1e9 + PROGRAM}
    found = _jobs("corpus", count)
    for job in found:
        job.name = job.name.replace("corpus,", f"corpus, {times} iterations,")
    count |= {"several": parts > 1, "single": parts == 1}
    count |= {"parts": parts, "scores": shards, "records": records, "kept": kept}
    count |= {"join_pages": config.launch_of("decontaminate").join_memory * 1e9 + PROGRAM}
    return [*found, *_jobs("pages", count)]


def downloads(config: Config, jobs: list[Job], profile: Profile) -> str:
    """Return what the profile's limit on downloads means for the time of extraction; empty without remote
    files.
    """
    section = config.sections["crawl"]
    sources = _listed(section.warc)
    remote = is_remote(section.base_url) and any(map(file_list, sources))
    if not remote and not any(map(is_remote, sources)):
        return ""
    limit, extraction = profile.limit("downloads") or DOWNLOADS, jobs[0]
    at_once = min(limit, extraction.number)
    hours, rate = extraction.hours * extraction.number / at_once, at_once * WARC * READ / PAGES
    return (
        f"Downloads: {at_once} jobs of extraction at a time (resource downloads={limit}) take"
        f" {hours:,.0f} hours or more,\nand {rate / 1e6:,.0f} MB/s of the network if that gives as much"
    )


def orders(config: Config, assumed: Assumptions) -> str:
    """Return what either order of the crawl takes, a line for each."""
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


def _warc_files(sources: list[str], unknown: int) -> Iterator[tuple[str, int]]:
    """Each list of WARC files and their number; "" and 1 for a file that no list names. `unknown`: of a list
    that is not here.
    """
    for source in sources:
        if source.startswith("miniweb:"):
            continue
        files = glob(source)
        if not files:
            yield source, unknown if file_list(source) else 1
        for file in files:
            if file_list(file):
                yield file, int(_counted(Path(file), _listed_files))
            else:
                yield "", 1


def _listed_files(path: Path) -> float:
    data = path.read_bytes()
    return len((gzip.decompress(data) if path.suffix == ".gz" else data).split())


def text_rows(section: CrawlSection) -> Iterator[float]:
    """Count the rows of each file of `crawl.texts` on this disk: of Parquet as it says, of JSON lines by the
    length of the first ones. Those of the hub are not known.
    """
    sources = [one for source in section.text_sources.values() for one in _listed(source.data)]
    for path in (Path(file) for source in sources for file in sorted(glob(source))):
        yield _counted(path, _rows_of)


def _rows_of(path: Path) -> float:
    if path.suffix == ".parquet":
        return pq.read_metadata(path).num_rows
    with path.open("rb") as file:
        packed = CODECS.get(path.suffix)
        lines = io.BufferedReader(pa.CompressedInputStream(file, packed)) if packed else file
        read = sum(1 for _ in islice(lines, LINES))
        return read if read < LINES else read * path.stat().st_size / file.tell()


def _counted(path: Path, count: Callable[[Path], float]) -> float:
    """Count what is in a file. Raises InputError where it is damaged."""
    try:
        return count(path)
    except (OSError, EOFError, ValueError, zlib.error) as error:  # pyarrow's ArrowInvalid is a ValueError
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: cannot be read ({reason}); mend it or take it out of crawl") from error


def file_list(source: str) -> bool:
    """Whether a source of `crawl.warc` is a list of files, or a dump, which has one."""
    return source.endswith(LISTS) or DUMP.fullmatch(source) is not None
