"""Step `single_gpu`: ten steps of `configs/single-gpu.yaml` by the workflow, in a copy of the checkout.

On a GPU its model and questions come from the hub or its cache. Without one, small ones are made.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean

import torch
import yaml

GPU = torch.cuda.is_available()
STEPS = 10
SHOWN = ("logprob_gap_mean", "sync_seconds", "rollout_seconds", "train_seconds")


def single_gpu() -> dict[str, float]:
    """Train for ten steps."""
    with tempfile.TemporaryDirectory() as folder:
        return run_shipped(Path(folder), "rl/grpo", small=not GPU)


def run_shipped(folder: Path, *targets: str, small: bool) -> dict[str, float]:
    """Make these results of the configuration, or all, in `folder`; the figures of its ten steps."""
    from conftest import copy_checkout
    from given.single_gpu import MODEL, SMALLER, save_datasets, save_model

    copy_checkout(folder)
    overlays, more = ["configs/single-gpu.yaml"], {"models": {"grpo": {"steps": STEPS}}}
    (folder / "ten.yaml").write_text(yaml.safe_dump(more))
    environment = dict(os.environ)
    if small:
        save_model(folder / MODEL)
        save_datasets(folder)
        (folder / "smaller.yaml").write_text(yaml.safe_dump(SMALLER))
        overlays.append("smaller.yaml")
        environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    options = ["--cores", "2"] if small else ["--profile", "profiles/gpu"]
    command = [sys.executable, "-m", "pipeline", "run", *overlays, "ten.yaml", *targets, *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        logs = sorted(folder.glob("results/*/logs/**/*.log"), key=lambda path: path.stat().st_mtime)
        said = [path.read_text().strip().rpartition("\n")[2] for path in logs[-1:]]
        raise AssertionError(f"{done.stderr.strip().rpartition(chr(10))[2]} {' '.join(said)}")
    text = (folder / "results/single-gpu/rl/grpo/data/metrics.jsonl").read_text()
    log = [json.loads(line) for line in text.splitlines()]
    return {"steps": len(log)} | {name: fmean(row[name] for row in log) for name in SHOWN}
