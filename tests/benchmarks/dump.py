"""Deduplication and selection of a generated slice of a dump: `make bench-dump`.

`PAGES="50000 200000"` names other sizes. CPU time, peak memory and disk of each program, on one core. The
slice has log-normal sizes, a long tail of words, pages that share most of their words with a template, and
URL, exact and near duplicates. Selection reads generated scores of as many pages, and keeps a hundredth. In
the rows of single programs `ratio` is the speed at the largest size beside that at the smallest, 1 where time
is linear. Peers are datatrove's stages 2 and 3 as they are, on the same signatures: without exact rules
before them and without a check of similarity.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/benchmarks")]

from datatrove.data import Document  # noqa: E402
from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets, MinhashDedupCluster  # noqa: E402
from table import Row, publish  # noqa: E402

from pipeline.common.shards import DocumentWriter  # noqa: E402
from pipeline.config.corpus import CorpusSection  # noqa: E402
from pipeline.config.crawl import CrawlSection  # noqa: E402
from pipeline.corpus import select  # noqa: E402
from pipeline.corpus.score import SCORES  # noqa: E402
from pipeline.crawl.buckets import READ_AHEAD  # noqa: E402
from pipeline.crawl.signatures import minhash_config  # noqa: E402

SIZES = "1000000 4000000"
SHARD = 50_000  # pages
OURS, PEER = "ours", "datatrove, stages 2 and 3"
PARTS = 4  # of the clusters, and of selection
KEPT, TOKENS = 0.01, 500  # share of the pages that selection keeps; most tokens of a page
WORDS, TEMPLATES = 150, 20
SAME_URL, SAME_TEXT, NEAR, TEMPLATE = 0.05, 0.1, 0.15, 0.2  # shares of pages
Measured = tuple[Path, float, float]  # output, CPU seconds, peak MB


def write_slice(folder: Path, pages: int) -> list[Path]:
    """Shards of generated pages, as extraction writes them."""
    draw = np.random.default_rng(1)
    vocabulary = np.array([f"w{number}" for number in range(50_000)], object)
    templates = [draw.integers(0, 50_000, WORDS) for _ in range(TEMPLATES)]
    earlier: list[tuple[str, np.ndarray]] = []
    shards = []
    for first in range(0, pages, SHARD):
        shards.append(folder / f"pages-{first // SHARD:04d}")
        with DocumentWriter(shards[-1] / "pages.jsonl.zst") as writer:
            for number in range(first, min(first + SHARD, pages)):
                kind, url = draw.random(), f"http://h{int(draw.pareto(1)) % 9999}.org/{number}"
                words = np.minimum(draw.pareto(1, int(draw.lognormal(5, 0.6)) + 20) * 100, 49_999).astype(int)
                words = (words + draw.integers(0, 50_000, len(words)) * (words > 99)) % 50_000
                old_url, old = earlier[draw.integers(len(earlier))] if earlier else (url, words)
                if kind < SAME_URL:
                    url = old_url
                elif kind < SAME_URL + SAME_TEXT:
                    words = old
                elif kind < SAME_URL + SAME_TEXT + NEAR:
                    words = np.append(old, words[:5])
                elif kind < SAME_URL + SAME_TEXT + NEAR + TEMPLATE:
                    words = np.append(templates[number % TEMPLATES], words[: int(WORDS * 0.75)])
                if number % 10 == 0 and len(earlier) < 20_000:
                    earlier.append((url, words))
                metadata = {"url": url, "warc_file": shards[-1].name, "offset": number}
                writer.write(Document(" ".join(vocabulary[words]), f"{number}", metadata=metadata))
    return shards


def write_scores(folder: Path, pages: int) -> list[Path]:
    """Tables of scores of generated pages, as `score` writes them."""
    draw, folders = np.random.default_rng(2), []
    means = draw.normal(-5, 2, 100_000)  # of hosts
    for first in range(0, pages, SHARD):
        numbers = range(first, min(first + SHARD, pages))
        hosts = (draw.pareto(0.5, len(numbers)) * 10).astype(int) % len(means)
        names = [f"h{host}.example" for host in hosts]
        keys = [f"{name}/{number % 9}/{number}" for name, number in zip(names, numbers, strict=True)]
        columns = {
            "id": [f"CC-MAIN-20240220211055-20240221001055-{first:05d}.warc.gz:{n}" for n in numbers],
            "url": [f"https://{key}" for key in keys],
            "host": names,
            "shard": [f"{first // SHARD:04d}.jsonl.zst"] * len(numbers),
            "score": draw.normal(means[hosts], 1),
            "tie": draw.integers(2**64, size=len(numbers), dtype=np.uint64),
            "tokens": draw.integers(0, TOKENS, len(numbers)),
            "key": keys,
        }
        folders.append(folder / f"score-{first // SHARD:04d}")
        folders[-1].mkdir()
        pq.write_table(pa.table(columns, SCORES), folders[-1] / "scores.parquet", compression="zstd")
    return folders


def measured(
    folder: Path, program: str, name: str, selection: dict[str, object] | None = None, **inputs: list[Path]
) -> Measured:
    """A program of deduplication or, with keys of the corpus, of selection, run and measured."""
    words = [f"--input={key}={path}" for key, paths in inputs.items() for path in paths]
    shared = {"bucket_jobs": PARTS} if program in ("same", "exact") else {}
    words += ["--config", json.dumps(selection or {"cluster_jobs": PARTS, **shared})]
    room = "corpus" if selection else "crawl"
    command = [sys.executable, "-m", f"pipeline.{room}.{program}", "--instance", name, *words]
    output = folder / name
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*command, "--output", str(output)], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return output, seconds, json.loads((output / "run.json").read_text())["peak_rss_mb"]


def stock(folder: Path, signed: list[Path]) -> tuple[float, float, int]:
    """(CPU seconds, peak MB, pages removed) of datatrove's stages 2 and 3 on our signatures."""
    for rank, path in enumerate(signed):
        for file in path.glob("bucket_*"):
            bucket = folder / "stock" / file.name.partition(".")[0]
            bucket.mkdir(parents=True, exist_ok=True)
            (bucket / f"{rank:05d}.minhash.sig").symlink_to(file)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, __file__, "--stock", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, float(done.stdout), disk([folder / "stock-clusters"]) // 4


def run_stock(folder: str) -> None:
    """Run datatrove's stages in `folder`; prints the peak memory in MB."""
    settings = minhash_config(CrawlSection())
    for bucket in range(settings.num_buckets):
        block = MinhashDedupBuckets(
            f"{folder}/stock", f"{folder}/stock-pairs", config=settings, lines_to_buffer=READ_AHEAD
        )
        block.run(rank=bucket, world_size=settings.num_buckets)
    MinhashDedupCluster(
        f"{folder}/stock-pairs", f"{folder}/stock-clusters", config=settings, lines_to_buffer=READ_AHEAD
    ).run()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def disk(folders: Iterable[Path]) -> float:
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def programs(folder: Path, pages: int) -> dict[str, tuple[float, float, float]]:
    """(CPU seconds, peak MB, bytes) of each program; of the peer, the pages removed in place of bytes."""
    shards = write_slice(folder, pages)
    signed = [
        measured(folder, "sign", f"sign-{rank:04d}", extract=[path]) for rank, path in enumerate(shards)
    ]
    exact = measured(folder, "exact", "exact", sign=[path for path, _, _ in signed])
    shared = exact_parts(folder, signed, exact[0])
    pairs = measured(folder, "buckets", "buckets-0000", exact=[exact[0]])
    joined: list[Measured] = []
    for part in reversed(range(PARTS)):
        given = {"exact": [exact[0]], "buckets": [pairs[0]], "later": [path for path, *_ in joined]}
        joined.insert(0, measured(folder, "cluster", f"cluster-{part:04d}", **given))
    forests = [path for path, *_ in joined]
    gone = [
        measured(folder, "removed", f"removed-{part:04d}", exact=[exact[0]], cluster=forests[: part + 1])
        for part in range(PARTS)
    ]
    removed = sorted(file for path, *_ in gone for file in (path / "removed").iterdir())
    kept = [
        measured(folder, "filter", f"filter-{rank:04d}", extract=[path], removed=[removed[rank]])
        for rank, path in enumerate(shards)
    ]
    pool = measured(folder, "dedup", "dedup", filter=[path for path, _, _ in kept])
    near = json.loads((pool[0] / "manifest.json").read_text())["counts"]["duplicates_near"]
    runs = {
        "sign": signed,
        "exact": [exact],
        **shared,
        "buckets": [pairs],
        "cluster": joined,
        "removed": gone,
    }
    found = {}
    for name, jobs in (runs | {"filter": kept, "dedup": [pool]}).items():
        folders, seconds, memory = zip(*jobs, strict=True)
        found[name] = sum(seconds), max(memory), disk(folders)
    seconds, memory, _ = zip(*(found[name] for name in ("buckets", "cluster", "removed")), strict=True)
    both = sum(seconds), max(memory), near
    found |= selection(folder, pages, pool[0])
    return found | {OURS: both, PEER: stock(folder, [path for path, *_ in signed])}


def exact_parts(folder: Path, signed: list[Measured], alone: Path) -> dict[str, list[Measured]]:
    """The exact rules by several jobs, which must find the pairs that the one job `alone` found."""
    listed = measured(folder, "shards", "shards", sign=[path for path, *_ in signed])
    found: dict[str, list[Measured]] = {"shards": [listed]}
    for name in ("urls", "texts"):
        given = {done: [path for path, *_ in runs] for done, runs in found.items()}
        found[name] = [measured(folder, "same", f"{name}-{part:04d}", **given) for part in range(PARTS)]
    given = {done: [path for path, *_ in runs] for done, runs in found.items()}
    together = measured(folder, "exact", "exact-of-parts", **given)
    if (together[0] / "pairs").read_bytes() != (alone / "pairs").read_bytes():
        sys.exit("error: the jobs that share the exact rules found other pairs than one job")
    return found | {"exact, of parts": [together]}


def selection(folder: Path, pages: int, pool: Path) -> dict[str, tuple[float, float, float]]:
    """(CPU seconds, peak MB, bytes) of each program of selection, on generated scores."""
    scores, train = write_scores(folder, pages), folder / "train"
    train.mkdir()
    (train / "train.json").write_text(json.dumps(dict.fromkeys(select.TRAINED)))
    keys = {"select_jobs": PARTS, "budget_tokens": [int(pages * KEPT * TOKENS / 2)]}

    def run(name: str, **inputs: list[Path]) -> Measured:
        given = {"train": [train], **inputs}
        return measured(folder, name.partition("-")[0], f"iteration-1/{name}", keys, **given)

    parts = CorpusSection(select_jobs=PARTS).select_parts(len(scores))
    found = {
        "rank": [
            run(f"rank-{number:04d}", score=[scores[shard] for shard in part])
            for number, part in enumerate(parts)
        ]
    }
    for name, jobs in (("cut", 1), ("order", PARTS), ("keep", len(parts)), ("hosts", PARTS), ("select", 1)):
        paths = {done: [path for path, *_ in runs] for done, runs in found.items()} | {"pool": [pool]}
        found[name] = [run(name if jobs == 1 else f"{name}-{job:04d}", **paths) for job in range(jobs)]
    results = {}
    for name, runs in found.items():
        folders, seconds, memory = zip(*runs, strict=True)
        results[name] = sum(seconds), max(memory), disk(folders)
    return results


def beside_peer(pages: int, ours: tuple[float, ...], peer: tuple[float, ...]) -> list[Row]:
    """Speed, memory and pages removed of both."""
    values = [
        ("speed", "pages/s of CPU", pages / ours[0], pages / peer[0], peer[0] / ours[0]),
        ("memory", "MB", ours[1], peer[1], peer[1] / ours[1]),
        ("pages removed", "pages", ours[2], peer[2], None),
    ]
    return [
        {"what": f"near-duplicates, {what}", "unit": unit, "ours": one, "peer": other, "ratio": ratio}
        | {"peer_name": PEER, "data": f"{pages:,} pages"}
        for what, unit, one, other, ratio in values
    ]


def main() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sizes, found = [int(size) for size in os.environ.get("PAGES", SIZES).split()], {}
    for pages in sizes:
        with TemporaryDirectory() as folder:
            found[pages] = programs(Path(folder), pages)
    rows = [
        row for pages in sizes for row in beside_peer(pages, found[pages].pop(OURS), found[pages].pop(PEER))
    ]
    for name in found[sizes[0]]:
        slope = found[sizes[0]][name][0] / sizes[0] / (found[sizes[-1]][name][0] / sizes[-1])
        for pages in sizes:
            seconds, memory, size = found[pages][name]
            kind = "selection" if name in (*select.PARTS, "select") else "deduplication"
            data = f"{pages:,} pages, {memory:,.0f} MB in a job, {size / pages:,.0f} bytes of disk a page"
            row = {"what": f"{kind}, {name}", "unit": "pages/s of CPU", "ours": pages / seconds}
            rows.append(row | {"peer": None, "peer_name": None, "ratio": slope, "data": data})
    publish("dump", rows, "one used")


if __name__ == "__main__":
    run_stock(sys.argv[2]) if sys.argv[1:2] == ["--stock"] else main()
