"""What the shipped profiles and rules give to the programs: GPUs, nodes, cores, and an end for all ranks."""

import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, copy_checkout
from programs import ENVIRONMENT

from pipeline.core.stages import PROGRAMS
from pipeline.core.start import command, with_threads

PROFILES = ROOT / "profiles"
GPU_RULES = ("cpt_model", "sft_model", "reward_model", "rl_model", "evaluate_model", "trajectory_model")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
NOTHING_MISSING = (
    "Machine = object\n"
    "missing = faulty = slow = held_back = unpinned = lambda *_: []\n"
    "nothing_to_do = lambda _: None\n"
)
# Stands in for `pipeline.core.start`: notes when a program starts and ends, and leaves the files of its rule.
STUB = """
import sys
import time
from pathlib import Path
manifest = Path(sys.argv[sys.argv.index("--result") + 1])
manifest.with_name("data").mkdir(parents=True)
manifest.write_text("{}")
with open("moments", "a", buffering=1) as file:
    file.write(f"start {sys.argv[1]}\\n")
    time.sleep(1)
    file.write(f"end {sys.argv[1]}\\n")
"""


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)


def test_two_gpu_jobs_never_overlap_on_a_machine_with_one_gpu(tmp_path: Path, offline: None) -> None:
    checkout = copy_checkout(tmp_path)
    (tmp_path / "pipeline/core/start.py").write_text(STUB)
    (tmp_path / "workflow/preflight.py").write_text(NOTHING_MISSING)  # the test wants no GPU and no hub
    ready = ["--", "rl/grpo", "evaluate/start"]
    done = checkout.dsm("--profile", "profiles/gpu", *ready, overlays=["configs/single-gpu.yaml"])
    assert done.returncode == 0, done.stdout[-3000:]
    moments = [line.split()[0] for line in (tmp_path / "moments").read_text().splitlines()]
    assert moments == ["start", "end", "start", "end"]


def test_a_job_has_cores_for_each_of_its_ranks(tmp_path: Path, offline: None) -> None:
    checkout = copy_checkout(tmp_path)
    (tmp_path / "few.yaml").write_text(
        "crawl: {pool_shards: 2}\nlaunch: {threads: 3, ranks: 8}\nevaluate: {launch: {threads: 5}}\n"
    )
    overlays = ["configs/single-gpu.yaml", "few.yaml"]
    launcher = "rl_model:launcher=srun --kill-on-bad-exit=1"
    done = checkout.snakemake(
        "--dry-run", "--printshellcmds", "--cores", "64", "--set-resources", launcher, overlays=overlays
    )
    assert done.returncode == 0, done.stdout[-3000:]
    blocks = re.split(r"\n(?=rule )", done.stdout)
    cores = {}
    for block in blocks:
        if found := re.match(r"rule (rl_model|evaluate_model):", block):
            threads = int(re.search(r"threads: (\d+)", block)[1])
            launch = json.loads(re.search(r"--launch '(.*?)'", block)[1])
            cores[found[1]] = threads, launch["threads"]
            assert ("srun --kill-on-bad-exit=1 python -m" in block) == (found[1] == "rl_model")
    assert cores == {"rl_model": (24, 3), "evaluate_model": (40, 5)}
    assert with_threads({"OMP_NUM_THREADS": "24"}, {"threads": 3}) == {"OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize("name", ["gpu", "slurm"])
def test_profiles_reserve_gpus_for_each_rule_that_uses_them(name: str) -> None:
    profile = yaml.safe_load((PROFILES / name / "profile.yaml").read_text())
    rules = {rule: found for rule, found in profile["set-resources"].items() if "gpu" in found}
    assert set(rules) == set(GPU_RULES) and all(rule["gpu"] >= 1 for rule in rules.values())
    if name == "slurm":  # without `nodes` Slurm may split the GPUs of one program over several nodes
        assert all(rule["nodes"] == 1 for rule in rules.values())
        assert all(f"--gpus-per-node={rule['gpu']} " in rule["slurm_extra"] for rule in rules.values())


def test_the_slurm_profile_names_only_rules_that_exist() -> None:
    profile = yaml.safe_load((PROFILES / "slurm/profile.yaml").read_text())
    known = {program.rule for program in PROGRAMS}
    assert set(profile["set-resources"]) | set(profile["set-threads"]) <= known


FAILING = """
import sys

import torch.distributed as dist

from pipeline.training.engine import start_process_group

start_process_group()
if dist.get_rank() == 1:
    sys.exit("error: bad input that only rank 1 has seen")
dist.barrier()
"""


def test_an_error_on_one_rank_ends_all(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    done = subprocess.run(
        command(["failing"], 2, {}),
        env=ENVIRONMENT | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode != 0 and "error: bad input that only rank 1 has seen" in done.stderr
    # Rank 0 fails at the barrier; on a busy machine both have ended when the launcher looks.
    assert re.search(f"error: rank [01] of 2 on {socket.gethostname()} ended with exit code 1", done.stderr)
