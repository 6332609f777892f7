"""Programs of the corpus that `make bench-dump` runs and measures, each as a job runs it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

from table import ROOT

PARTS = 4  # of the clusters
Measured = tuple[Path, float, float]  # output, CPU seconds, peak MB


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
    words += ["--config", json.dumps({"cluster_jobs": PARTS} if keys is None else keys)]
    command = [sys.executable, "-m", f"pipeline.{room}.{program}", "--instance", name, *words]
    output, before = folder / name, children()
    subprocess.run([*command, "--output", str(output)], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    seconds, memory = children() - before, json.loads((output / "run.json").read_text())["peak_rss_mb"]
    print(f"{room} {name}: {seconds:.1f} s of CPU, {memory:,} MB", file=sys.stderr, flush=True)
    return output, seconds, memory
