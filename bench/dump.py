"""A generated slice of a dump through deduplication, the corpus and decontamination: `make bench-dump`.

`PAGES="50000 200000"` names other sizes. CPU time, peak memory and disk of each program, on one core. The
slice (`slices.py`) has log-normal sizes, a long tail of words and hosts, two languages, pages that share most
of their words with a template, and URL, exact and near duplicates. One iteration trains a small classifier on
2 pages of 100 and keeps one. In the rows of single programs `ratio` is the speed at the largest size beside
that at the smallest, 1 where time is linear. Peers are datatrove's stages 2 and 3 as they are, on the same
signatures: without exact rules before them and without a check of similarity.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from slices import PARTS, write_slice
from stock_minhash import link_signatures, run_stages
from table import ROOT, Row, publish, row_of, use_one_core

from pipeline.config.crawl import CrawlSection
from pipeline.core.section import parts_of

SIZES = "1000000 4000000"
OURS, PEER = "ours", "datatrove, stages 2 and 3"
KEPT, TOKENS = 0.01, 200  # share of the pages that selection keeps; about the tokens of a page
CLASSIFIER = {"dimension": 16, "epochs": 1, "buckets": 100_000}
Measured = tuple[Path, float, float]  # output, CPU seconds, peak MB
Found = dict[str, list[Measured]]  # by program


def children() -> float:
    """CPU seconds of all ended children, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(
    folder: Path,
    program: str,
    name: str,
    room: str = "crawl",
    keys: dict[str, object] | None = None,
    **inputs: list[Path],
) -> Measured:
    """A program of a room, run and measured. Its result is `name` in `folder`; `keys`: of its section."""
    words = [f"--input={key}={path}" for key, paths in inputs.items() for path in paths]
    words += ["--config", json.dumps(keys or {})]
    command = [sys.executable, "-m", f"pipeline.{room}.{program}", "--instance", name, *words]
    output, before = folder / name, children()
    subprocess.run([*command, "--output", str(output)], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    seconds, memory = children() - before, json.loads((output / "run.json").read_text())["peak_rss_mb"]
    print(f"{room} {name}: {seconds:.1f} s of CPU, {memory:,} MB", file=sys.stderr, flush=True)
    return output, seconds, memory


def stock(folder: Path, signed: list[Path]) -> tuple[float, float, int]:
    """(CPU seconds, peak MB, pages removed) of datatrove's stages 2 and 3 on our signatures."""
    link_signatures(folder / "stock", signed, CrawlSection())
    command, before = [sys.executable, __file__, "--stock", str(folder)], children()
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return children() - before, float(done.stdout), disk([folder / "stock/clusters"]) // 4


def run_stock(folder: str) -> None:
    """Run datatrove's stages in `folder`; prints the peak memory in MB."""
    run_stages(Path(folder) / "stock", CrawlSection())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def disk(folders: Iterable[Path]) -> float:
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def paths(runs: list[Measured]) -> list[Path]:
    return [path for path, *_ in runs]


def deduplication(folder: Path, shards: list[Path]) -> Found:
    """Run all programs from `sign` to `dedup`."""
    signed = [
        measured(folder, "sign", f"sign-{rank:04d}", extract=[path]) for rank, path in enumerate(shards)
    ]
    exact = measured(folder, "exact", "exact", sign=paths(signed))
    pairs = measured(folder, "buckets", "buckets-0000", exact=[exact[0]])
    joined = measured(folder, "survivors", "survivors", exact=[exact[0]], buckets=[pairs[0]])
    removed = sorted((joined[0] / "removed").iterdir())
    kept = [
        measured(folder, "filter", f"filter-{rank:04d}", extract=[path], removed=[removed[rank]])
        for rank, path in enumerate(shards)
    ]
    pool = measured(folder, "dedup", "dedup", filter=paths(kept))
    runs = {"sign": signed, "exact": [exact], "buckets": [pairs], "survivors": [joined]}
    return runs | {"filter": kept, "dedup": [pool]}


def corpus(folder: Path, pages: int, pool: Path) -> Found:
    """Run one iteration."""
    keys = selection_keys(pages) | CLASSIFIER
    keys |= dict.fromkeys(("positives", "negatives"), int(pages * KEPT))
    shards, given = (
        sorted((pool / "pool").iterdir()),
        {"pool": [pool], "seed_urls": [folder / "seed_urls.txt"]},
    )

    def run(name: str, **inputs: list[Path]) -> Measured:
        return measured(folder, name.partition("-")[0], f"iteration-1/{name}", "corpus", keys, **inputs)

    found = {"train": [run("train", **given)]}
    trained = {"train": paths(found["train"])}
    found["score"] = [run(f"score-{rank:04d}", shard=[shard], **trained) for rank, shard in enumerate(shards)]
    found["select"] = [run("select", score=paths(found["score"]), **trained, **given)]
    return found


def selection_keys(pages: int) -> dict[str, object]:
    """Keys of the cut."""
    return {"budget_tokens": [int(pages * KEPT * TOKENS)]}


def decontamination(folder: Path, shards: list[Path], before: Found) -> Found:
    """Clean the kept pages, and say what became of each page."""
    select, scores, filtered = before["select"][0][0], paths(before["score"]), paths(before["filter"])
    pool = sorted((before["dedup"][0][0] / "pool").iterdir())
    given = {"select": [select], "benchmark.questions": [folder / "questions.jsonl"]}
    cleaned = [
        measured(folder, "clean", f"clean-{rank:04d}", "decontaminate", {}, shard=[shard], **given)
        for rank, shard in enumerate(pool)
    ]
    found = []
    for number, part in enumerate(parts_of(len(pool), PARTS)):
        inputs = {name: [select / f"{name}.parquet"] for name in ("kept", "excluded")}
        inputs |= {"extract": [shards[rank] for rank in part], "score": [scores[rank] for rank in part]}
        inputs["duplicates"] = [filtered[rank] / "removed.parquet" for rank in part]
        inputs["removals"] = [cleaned[rank][0] / "log.jsonl" for rank in part]
        found.append(measured(folder, "pages", f"pages-of-{number:04d}", "decontaminate", {}, **inputs))
    return {"clean": cleaned, "pages": found}


def programs(folder: Path, pages: int) -> dict[str, tuple[float, float, float]]:
    """(CPU seconds, peak MB, bytes) of each program; of the peer, the pages removed in place of bytes."""
    with ProcessPoolExecutor(1) as worker:  # its memory would count as that of programs started here
        shards = worker.submit(write_slice, folder, pages).result()
    runs = deduplication(folder, shards)
    runs |= corpus(folder, pages, runs["dedup"][0][0])
    runs |= decontamination(folder, shards, runs)
    found = {}
    for name, jobs in runs.items():
        folders, seconds, memory = zip(*jobs, strict=True)
        found[name] = sum(seconds), max(memory), disk(folders)
    seconds, memory, _ = zip(*(found[name] for name in ("buckets", "survivors")), strict=True)
    near = json.loads((runs["dedup"][0][0] / "manifest.json").read_text())["counts"]["duplicates_near"]
    both = sum(seconds), max(memory), near
    return found | {OURS: both, PEER: stock(folder, paths(runs["sign"]))}


def beside_peer(pages: int, ours: tuple[float, ...], peer: tuple[float, ...]) -> list[Row]:
    """Speed, memory and pages removed of both."""
    values = [
        ("speed", "pages/s of CPU", pages / ours[0], pages / peer[0], True),
        ("memory", "MB", ours[1], peer[1], False),
        ("pages removed", "pages", ours[2], peer[2], None),
    ]
    return [
        row_of(f"near-duplicates, {what}", unit, one, other, PEER, f"{pages:,} pages", rate=rate)
        for what, unit, one, other, rate in values
    ]


def main() -> None:
    use_one_core()
    sizes, found, rows = [int(size) for size in os.environ.get("PAGES", SIZES).split()], {}, []
    for pages in sizes:
        with TemporaryDirectory() as folder:
            found[pages] = programs(Path(folder), pages)
    rows += [
        row for pages in sizes for row in beside_peer(pages, found[pages].pop(OURS), found[pages].pop(PEER))
    ]
    for name in found[sizes[0]]:
        slope = found[sizes[0]][name][0] / sizes[0] / (found[sizes[-1]][name][0] / sizes[-1])
        for pages in sizes:
            seconds, memory, size = found[pages][name]
            data = f"{pages:,} pages, {memory:,.0f} MB in a job, {size / pages:,.0f} bytes of disk a page"
            rows.append(row_of(name, "pages/s of CPU", pages / seconds, data=data) | {"ratio": slope})
    publish("dump", rows, "one used")


if __name__ == "__main__":
    run_stock(sys.argv[2]) if sys.argv[1:2] == ["--stock"] else main()
