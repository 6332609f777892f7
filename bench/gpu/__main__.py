"""`make gpu-check`: what a GPU must show before a night is spent on it, in steps that run alone.

Each step is a program of at most ten minutes; its figures go to results/gpu/<device>.json as soon as it ends.
A step that has figures there is not run again, unless it is named. Without a GPU all of it runs small, so
that nothing is tried for the first time on the GPU. `--steps`, then the table for docs/cluster.md.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
MINUTES = 10
# Modules with a function for each step; each needs what it says here, and `single_gpu` on a GPU the hub.
STEPS = {
    "parts": (
        "attention",
        "loss",
        "rounding",
        "compiling",
        "memory",
        "utilisation",
        "rl_rows",
    ),  # transformers
    "nodes": ("ranks",),  # torch
    "engines": ("zero_1", "zero_2", "zero_3", "sampler", "grpo"),  # DeepSpeed, and vLLM for the last two
    "shipped": ("single_gpu",),  # the whole environment
}
Figures = dict[str, float]


def device_name() -> str:
    """The GPU's name, or `cpu`."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def run_step(name: str) -> Figures:
    """Run one step in this process. Raises AssertionError if a figure is not what it must be."""
    module = next(module for module, names in STEPS.items() if name in names)
    return getattr(__import__(module), name)()


def start_step(name: str) -> dict[str, Any]:
    """Run one step as a program: its figures and seconds, or the last line of its error."""
    started = time.monotonic()
    command = [sys.executable, __file__, "--here", name]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes)
    try:
        printed, errors = process.communicate(timeout=60 * MINUTES)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its ranks too, which would stay on the GPU
        process.communicate()
        return {"error": f"not done after {MINUTES} minutes"}
    seconds = round(time.monotonic() - started, 1)
    if process.returncode:
        error = errors.strip().rpartition("\n")[2] or f"exit {process.returncode}"
        return {"error": error, "seconds": seconds}
    return {"figures": json.loads(printed.splitlines()[-1])[name], "seconds": seconds}


def as_table(results: dict[str, Any]) -> str:
    """The results as a table of Markdown."""
    lines = [f"| {results['device']}, torch {results['torch']} | seconds | |", "|---|---:|---|"]
    for name, found in results["steps"].items():
        figures = ", ".join(f"{what} {value:.4g}" for what, value in found.get("figures", {}).items())
        lines.append(f"| {name} | {found.get('seconds', '')} | {found.get('error', figures)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    names = [name for module in STEPS.values() for name in module]
    parser.add_argument(
        "--steps", nargs="+", choices=names, default=[], help="run these, though they were run"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "results/gpu", help="folder of the results")
    parser.add_argument(
        "--here", nargs="+", choices=names, help="run these steps in this process and print their figures"
    )
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps({name: run_step(name) for name in arguments.here}))
        return
    import torch

    device = device_name()
    path = arguments.output / f"{re.sub('[^A-Za-z0-9]+', '-', device)}.json"
    results = json.loads(path.read_text()) if path.exists() else {"steps": {}}
    results |= {"device": device, "torch": torch.__version__}
    known = {name for name, found in results["steps"].items() if "figures" in found}
    for name in arguments.steps or [name for name in names if name not in known]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        results["steps"][name] = start_step(name)
        if os.environ.get("SLURM_NODEID", "0") != "0":
            continue  # the first node writes what all have found
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=1) + "\n")
        os.replace(partial, path)
    print(as_table(results))
    sys.exit(any("error" in found for found in results["steps"].values()))


if __name__ == "__main__":
    main()
