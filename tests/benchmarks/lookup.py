"""`make bench-lookup`: URLs joined with a generated columnar index, in rows per second and peak memory.

The index has the columns of Common Crawl's and hosts with a long tail; half of the URLs are in it, written
with other schemes. `--scale 1` is 10M URLs against 300M rows; the default is a hundredth of both.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from table import ROOT, publish  # noqa: E402

URLS, ROWS, FILES = 10_000_000, 300_000_000, 20
ROWS_OF_A_GROUP = 100_000


def write_index(path: Path, rows: int, seed: int) -> None:
    """One file of the index, sorted by URL as Common Crawl's are."""
    rng = np.random.default_rng(seed)
    hosts = np.sort((rng.pareto(0.6, rows) * 3).astype(np.int64) % 4_000_000)
    names = [f"www.host{host}.com" for host in hosts]
    urls = [f"https://{name}/page/{seed}/{number}.html" for number, name in enumerate(names)]
    table = {
        "url_surtkey": [f"com,host{host})/page/{seed}/{number}.html" for number, host in enumerate(hosts)],
        "url": urls,
        "url_host_name": names,
        "url_host_registered_domain": [f"host{host}.com" for host in hosts],
        "fetch_time": pa.array(1_700_000_000_000 + rng.integers(10**9, size=rows), pa.timestamp("ms")),
        "fetch_status": rng.choice(np.array([200, 200, 200, 404], np.int16), rows),
        "content_mime_detected": ["text/html"] * rows,
        "content_languages": ["eng"] * rows,
        "warc_filename": [
            f"crawl-data/CC-MAIN/segments/{number % 900:05d}.warc.gz" for number in range(rows)
        ],
        "warc_record_offset": rng.integers(10**9, size=rows).astype(np.int32),
        "warc_record_length": rng.integers(10**5, size=rows).astype(np.int32),
    }
    pq.write_table(pa.table(table), path, row_group_size=ROWS_OF_A_GROUP, compression="gzip")


def write_urls(path: Path, index: list[Path], count: int) -> None:
    """`count` URLs: every n-th of the index with another scheme, and as many that it does not hold."""
    share = count // 2 // len(index)
    with path.open("w") as lines:
        for file in index:
            urls = pq.read_table(file, columns=["url"])["url"]
            for url in urls.take(np.linspace(0, len(urls) - 1, share).astype(np.int64)).to_pylist():
                lines.write(f"{url.replace('https', 'http')}\n{url}.bak\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="share of the 10M URLs and 300M rows")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    rows, urls = int(ROWS * given.scale), int(URLS * given.scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = [folder / f"part-{number:05d}.parquet" for number in range(FILES)]
        for number, path in enumerate(index):
            write_index(path, rows // FILES, number)
        write_urls(folder / "urls.txt", index, urls)
        launch = json.dumps({"threads": given.threads, "join_memory": 3.0})
        command = [sys.executable, "-m", "pipeline.crawl.lookup", "--output", str(folder / "out")]
        command += ["--launch", launch, "--input", f"urls={folder / 'urls.txt'}"]
        command += [word for path in index for word in ("--input", f"index={path}")]
        started, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, cwd=ROOT, check=True)
        seconds = time.time() - started
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        found = json.loads((folder / "out/manifest.json").read_text())["counts"]["pages"]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    what, data = f"{urls:,} URLs in {rows:,} rows of an index", f"generated, {found:,} found"
    values = (("rows/s", rows / seconds), ("seconds", seconds), ("CPU seconds", cpu), ("peak GB", peak))
    keys = ("what", "unit", "ours", "peer", "peer_name", "ratio", "data")
    table = [
        dict(zip(keys, (what, unit, value, None, None, None, data), strict=True)) for unit, value in values
    ]
    publish("lookup", table, f"{min(given.threads, os.cpu_count() or 1)} used")


if __name__ == "__main__":
    main()
