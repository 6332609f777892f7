"""`make bench-lookup`: URLs joined with a generated columnar index, in rows per second and peak memory.

The index has the columns of Common Crawl's and hosts with a long tail; half of the URLs are in it, written
with other schemes. `--scale 1` is 10M URLs against 300M rows; the default is a hundredth of both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

from programs import children  # noqa: E402
from table import ROOT, publish  # noqa: E402

URLS, ROWS, FILES = 10_000_000, 300_000_000, 20
ROWS_OF_A_GROUP = 100_000
INDEX = pa.schema(
    [
        *((name, pa.string()) for name in ("url_surtkey", "url")),
        *((name, pa.string()) for name in ("url_host_name", "url_host_registered_domain")),
        ("fetch_time", pa.timestamp("ms")),
        ("fetch_status", pa.int16()),
        *((name, pa.string()) for name in ("content_mime_detected", "content_languages", "warc_filename")),
        *((name, pa.int32()) for name in ("warc_record_offset", "warc_record_length")),
    ]
)
FEW = [name for name in INDEX.names if name not in ("url_surtkey", "url")]  # columns of repeated values
WARC_FILES = pa.array([f"crawl-data/CC-MAIN/segments/{number:05d}.warc.gz" for number in range(900)])


def write_index(path: Path, rows: int, seed: int, asked: int) -> list[str]:
    """Write one file of the index, sorted by URL as Common Crawl's are; returns `asked` of its URLs, evenly
    spread.
    """
    rng = np.random.default_rng(seed)
    hosts = np.sort((rng.pareto(0.6, rows) * 3).astype(np.int64) % 4_000_000)
    every, found = np.linspace(0, rows - 1, asked).astype(np.int64), []
    with pq.ParquetWriter(path, INDEX, compression="gzip", compression_level=1, use_dictionary=FEW) as writer:
        for first in range(0, rows, ROWS_OF_A_GROUP):
            group = index_rows(hosts[first : first + ROWS_OF_A_GROUP], first, seed, rng)
            writer.write_table(group, row_group_size=ROWS_OF_A_GROUP)
            places = every[(every >= first) & (every < first + len(group))] - first
            found += group["url"].take(places).to_pylist()
    return found


def index_rows(hosts: NDArray[np.int64], first: int, seed: int, rng: np.random.Generator) -> pa.Table:
    """Rows of pages of `hosts` (N,), the first of which has the number `first` in its file."""
    rows, host = len(hosts), pa.array(hosts).cast(pa.string())
    pages = joined(f"/page/{seed}/", pa.array(range(first, first + rows)).cast(pa.string()), ".html")
    names = joined("www.host", host, ".com")
    columns = {
        "url_surtkey": joined("com,host", host, ")", pages),
        "url": joined("https://", names, pages),
        "url_host_name": names,
        "url_host_registered_domain": joined("host", host, ".com"),
        "fetch_time": pa.array(1_700_000_000_000 + rng.integers(10**9, size=rows), pa.timestamp("ms")),
        "fetch_status": rng.choice(np.array([200, 200, 200, 404], np.int16), rows),
        "content_mime_detected": pa.repeat("text/html", rows),
        "content_languages": pa.repeat("eng", rows),
        "warc_filename": WARC_FILES.take(np.arange(first, first + rows) % len(WARC_FILES)),
        "warc_record_offset": rng.integers(10**9, size=rows).astype(np.int32),
        "warc_record_length": rng.integers(10**5, size=rows).astype(np.int32),
    }
    return pa.table(columns, INDEX)


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts put together, row by row."""
    return pc.binary_join_element_wise(*parts, "")


def write_all(folder: Path, rows: int, urls: int) -> list[Path]:
    """Write the index and, to `urls.txt`, URLs: some of the index with another scheme, and as many that it
    does not hold; returns the files of the index.
    """
    index = [folder / f"part-{number:05d}.parquet" for number in range(FILES)]
    sizes = [rows // FILES] * FILES, range(FILES), [urls // 2 // FILES] * FILES
    with (folder / "urls.txt").open("w") as lines, ProcessPoolExecutor(os.cpu_count()) as workers:
        for found in workers.map(write_index, index, *sizes):
            lines.writelines(f"{url.replace('https', 'http')}\n{url}.bak\n" for url in found)
    return index


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="share of the 10M URLs and 300M rows")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    rows, urls = int(ROWS * given.scale), int(URLS * given.scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = write_all(folder, rows, urls)
        launch = json.dumps({"threads": given.threads, "join_memory": 3.0})
        command = [sys.executable, "-m", "pipeline.crawl.lookup", "--output", str(folder / "out")]
        command += ["--launch", launch, "--input", f"urls={folder / 'urls.txt'}"]
        command += [word for path in index for word in ("--input", f"index={path}")]
        started, before = time.time(), children()
        subprocess.run(command, cwd=ROOT, check=True)
        seconds = time.time() - started
        cpu = children() - before
        peak = json.loads((folder / "out/run.json").read_text())["peak_rss_mb"] / 1e3
        found = json.loads((folder / "out/manifest.json").read_text())["counts"]["pages"]
    what, data = f"{urls:,} URLs in {rows:,} rows of an index", f"generated, {found:,} found"
    values = (("rows/s", rows / seconds), ("seconds", seconds), ("CPU seconds", cpu), ("peak GB", peak))
    keys = ("what", "unit", "ours", "peer", "peer_name", "ratio", "data")
    table = [
        dict(zip(keys, (what, unit, value, None, None, None, data), strict=True)) for unit, value in values
    ]
    publish("lookup", table, f"{min(given.threads, os.cpu_count() or 1)} used")


if __name__ == "__main__":
    main()
