"""Extraction killed at any moment and run again: the same bytes, and nothing left behind."""

import random
import subprocess
import sys
import time
from pathlib import Path

from crawl_warcs import FILLER, extract_into, html, record, write_warc

ROOT = Path(__file__).parents[1]
PAGES = 200
FILES = ("pages.jsonl.zst", "records.parquet", "manifest.json")


def writes_since(moment, folder):
    """Whether a run that began at `moment` has begun to write pages; a run that starts removes the folder."""
    try:
        return any(path.stat().st_mtime >= moment for path in folder.glob(".pages.jsonl.zst.*.partial"))
    except FileNotFoundError:
        return False


def test_a_run_killed_at_random_moments_and_repeated_gives_the_same_bytes(tmp_path):
    formulas = "".join(f"<p>Case {n}: <math><mi>x</mi><mo>=</mo><mn>{n}</mn></math></p>" for n in range(40))
    pages = [record(f"http://a.org/{n}", html(f"Page {n}. {FILLER}{formulas}")) for n in range(PAGES)]
    for number, some in enumerate((pages[:20], pages[20:])):
        write_warc(tmp_path / f"{number}.warc.gz", some)
    files = [tmp_path / "0.warc.gz", tmp_path / "1.warc.gz"]
    extract_into(tmp_path / "whole", *files)
    expected = [(tmp_path / "whole" / name).read_bytes() for name in FILES]
    output = tmp_path / "out"
    command = [sys.executable, "-m", "pipeline.crawl.extract", *(f"--warc={file}" for file in files)]
    second = tmp_path / ".out.work/files/.000001"
    generator, killed = random.Random(), 0
    while killed < 3:
        started = time.time()
        running = subprocess.Popen([*command, "--output", output], cwd=ROOT, stderr=subprocess.DEVNULL)
        while not writes_since(started, second) and running.poll() is None:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.4))
        running.kill()
        killed += running.wait() == -9
        if output.exists():  # complete, or not there
            assert [(output / name).read_bytes() for name in FILES] == expected
    extract_into(output, *files)
    assert [(output / name).read_bytes() for name in FILES] == expected
    assert {path.name for path in tmp_path.iterdir()} == {"0.warc.gz", "1.warc.gz", "whole", "out"}
