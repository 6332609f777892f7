"""`make bench-rows [ROWS=1000000]`: a corpus made of Parquet rows, and of the same pages as WARC files.

Generates the pages (`row_pages.py`) in both forms, runs the stages `crawl`, `corpus` and `decontaminate` once
from each, by one command, with the same lists and keys, and compares the pages of the pool and of the corpus
by URL and text. Fails if a page is in one of them alone. In the table `ours` is the way from rows, `peer` the
way from WARC files. What is there is not made again, so a run that was stopped goes on.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/benchmarks")]

import row_pages  # noqa: E402
from table import Row, publish  # noqa: E402

from pipeline.data.shards import read_documents, shard_paths  # noqa: E402

SEED = 0
PART = 50_000  # pages of a file
SHARD = 250_000  # of the pool, before deduplication
CORES = 2
FORMS = {"texts": "parquet", "warc": "warc.gz"}  # by key of the section `crawl`
PEER = "from WARC files"
PROGRAMS = ("crawl/*", "corpus/*/*", "decontaminate/*")  # links to the results of a run
CORPUS = {
    "iterations": 2,
    "positives": 20_000,
    "negatives": 20_000,
    "dimension": 16,
    "learning_rate": 0.5,
    "word_ngrams": 2,
    "epochs": 5,
    "buckets": 100_000,
    "reviewed": "all",
    "cut": "score",
}


def generate(folder: Path, rows: int) -> None:
    """Write the files of both forms that are not there yet, and the lists."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [range(first, min(first + PART, rows)) for first in range(0, rows, PART)]
    with ProcessPoolExecutor(CORES) as workers:
        jobs = [
            workers.submit(
                row_pages.write_part,
                *(folder / f"{key}/rows-{number:05d}.{suffix}" for key, suffix in reversed(FORMS.items())),
                part,
                SEED,
            )
            for number, part in enumerate(parts)
        ]
        for number, job in enumerate(jobs, start=1):
            job.result()
            print(f"generated: {number} of {len(jobs)} parts", file=sys.stderr, flush=True)
    row_pages.write_lists(folder, rows, SEED)


def configuration(folder: Path, run: str, key: str, rows: int) -> dict[str, Any]:
    """Build the configuration of a way; only name and files differ between the two."""
    parts = -(-rows // SHARD)
    lists = {name.split(".")[0]: str(folder / name) for name in row_pages.LISTS}
    crawl = {key: f"{folder / key}/*.{FORMS[key]}", "pool_shards": parts, "bucket_jobs": CORES}
    return {
        "run": run,
        "crawl": crawl | {"cluster_jobs": parts},
        "corpus": CORPUS | lists,
        "benchmarks": {"questions": {"source": str(folder / "questions.jsonl")}},
        "launch": {"threads": 1},
    }


def make(folder: Path, key: str, rows: int) -> Path:
    """Run a way by one command; returns the folder of its results."""
    run, overlay = f"rows-{key}-{rows}", folder / f"{key}.yaml"
    overlay.write_text(yaml.safe_dump(configuration(folder, run, key, rows), sort_keys=False))
    command = [sys.executable, "-m", "pipeline", "run", str(overlay), "decontaminate", "--cores", str(CORES)]
    subprocess.run(command, cwd=ROOT, check=True)
    return ROOT / "results" / run


def pages_of(folder: Path) -> set[tuple[str, bytes]]:
    """(URL, hash of the text) of all pages in a folder of shards."""
    found = set()
    for path in shard_paths(folder):
        for page in read_documents(path):
            found.add((page.metadata["url"], hashlib.blake2b(page.text.encode(), digest_size=16).digest()))
    return found


def spent(results: Path) -> tuple[Counter[str], dict[str, int], float]:
    """(core-seconds, highest peak in MB) by program, in order, and seconds from the first job to the last."""
    runs = [
        (path, json.loads(path.read_text())) for one in PROGRAMS for path in results.glob(f"{one}/run.json")
    ]
    runs.sort(key=lambda found: found[1]["started"])
    seconds: Counter[str] = Counter()
    memory: dict[str, int] = {}
    for path, run in runs:
        name = f"{path.relative_to(results).parts[0]} {path.parent.name.split('-')[0]}"
        seconds[name] += run["cpu_seconds"]
        memory[name] = max(memory.get(name, 0), run["peak_rss_mb"])
    ended = max(run["started"] + run["seconds"] for _, run in runs)
    return seconds, memory, ended - runs[0][1]["started"]


def compare(ways: list[Path], what: str, folder: str) -> list[Row]:
    """Count the pages in a folder of both ways, and those in one of them alone."""
    ours, peer = (pages_of(way / folder) for way in ways)
    numbers = [(what, len(ours), len(peer)), (f"{what}: in one alone", len(ours - peer), len(peer - ours))]
    return [row(name, "pages", one, other, None, f"{one:,}, {other:,}") for name, one, other in numbers]


def row(what: str, unit: str, ours: float, peer: float, ratio: float | None, data: str = "") -> Row:
    numbers = {"ours": ours, "peer": peer, "peer_name": PEER, "ratio": ratio}
    return {"what": what, "unit": unit, **numbers, "data": data}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="pages to generate")
    rows = parser.parse_args().rows
    code = hashlib.sha256(Path(row_pages.__file__).read_bytes()).hexdigest()[:8]
    folder = ROOT / "work" / f"rows-{rows}-{code}"
    generate(folder, rows)
    ways = [make(folder, key, rows) for key in FORMS]
    (ours, memory, whole), (peer, other_memory, other) = map(spent, ways)
    table = [row("from the first job to the last", "seconds", whole, other, other / whole, f"{rows:,} rows")]
    table.append(row("all jobs", "core-seconds", ours.total(), peer.total(), peer.total() / ours.total()))
    for name in ours:
        used = f"{memory[name]:,} MB in a job, {other_memory[name]:,} from WARC"
        table.append(row(name, "core-seconds", ours[name], peer[name], peer[name] / ours[name], used))
    found = compare(ways, "pages of the pool", "crawl/dedup/data/pool")
    found += compare(ways, "pages of the corpus", "decontaminate/corpus/data/corpus")
    publish("rows", table + found, f"{CORES} used")
    if any(one["ours"] or one["peer"] for one in found[1::2]):
        sys.exit("error: the two ways keep different pages")


if __name__ == "__main__":
    main()
