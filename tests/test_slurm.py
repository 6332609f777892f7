"""The small workflow on a real Slurm: one job is cancelled midway, the rerun gives the undisturbed result."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import OVERLAYS, ROOT, Checkout, copy_checkout

pytestmark = pytest.mark.slurm
PACKAGES = ("slurm-wlm", "munge")


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def install() -> None:
    """Debian's Slurm and Snakemake's plugin for it."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"needs root and apt-get to install {', '.join(PACKAGES)}")
    if shutil.which("slurmctld") is None or shutil.which("munged") is None:
        run("apt-get", "update", "-qq")
        run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", *PACKAGES)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    run(*pip, "-r", str(ROOT / "requirements/slurm.lock"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    install()
    folder = tmp_path_factory.mktemp("slurm")
    script = ROOT / "tests/slurm/cluster.sh"
    run("bash", script, "start", folder)
    yield
    run("bash", script, "stop", folder)


def slurm_command() -> list[str]:
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--profile",
        "workflow/profiles/slurm",
        "--slurm-no-account",
    ]
    command += ["--slurm-status-command", "squeue", "--retries", "0", "--latency-wait", "5"]
    command += ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]
    gpu_rules = ("cpt_model", "sft_model", "reward_model", "rl_model", "evaluate_model")
    command += [
        "--set-resources",
        *(f"{rule}:{key}" for rule in gpu_rules for key in ("gpu=0", "mem_mb=6000")),
    ]
    return [*command, "--configfile", *OVERLAYS]


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def cancel_when_it_has_a_checkpoint(
    checkout: Checkout, stage: str, rule: str, workflow: subprocess.Popen[str]
) -> None:
    """Wait for a checkpoint of `stage` and cancel the Slurm job that writes it."""
    while workflow.poll() is None:
        if list((checkout.folder / "work" / stage).glob("*/checkpoints/step-*")):
            jobs = [
                line.split(maxsplit=1) for line in run("squeue", "--noheader", "--format=%i %k").splitlines()
            ]
            for job, comment in jobs:
                if rule in comment:
                    run("scancel", job)
                    return
        time.sleep(0.1)
    raise AssertionError(f"the workflow ended before a checkpoint of {stage} appeared")


def weights(checkout: Checkout, model: str) -> str:
    return hashlib.sha256(checkout.result(f"{model}/data/model.safetensors").read_bytes()).hexdigest()


def test_a_cancelled_training_job_resumes_to_the_result_of_an_undisturbed_run(
    cluster: None, finished: Checkout, tmp_path: Path
) -> None:
    checkout = copy_checkout(tmp_path)
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen(
            slurm_command(), cwd=tmp_path, env=environment(), stdout=log, stderr=subprocess.STDOUT
        )
        try:
            cancel_when_it_has_a_checkpoint(checkout, "sft", "sft_model", first)
            assert first.wait(timeout=600) != 0
        finally:
            first.kill()
    assert not checkout.result("sft/instruct/manifest.json").exists()
    again = subprocess.run(slurm_command(), cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert again.returncode == 0, (again.stdout + again.stderr)[-5000:]
    for model in ("cpt/base", "sft/instruct", "rl/grpo"):
        assert weights(checkout, model) == weights(finished, model)
