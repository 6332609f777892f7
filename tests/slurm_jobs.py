"""The cluster of `tests/cluster/slurm.sh`: run Snakemake on it, look at its jobs, and end them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import OVERLAYS, ROOT, Checkout

SCRIPT = ROOT / "tests/cluster/slurm.sh"
PROFILE = "profiles/slurm/profile.yaml"
QUICKLY = ["--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "5"]


def ask(*command: str) -> str:
    """What a command of Slurm's prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wait(what: str, condition: Callable[[], Any], seconds: float = 180) -> Any:
    """Wait until `condition` returns something true, and return that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} seconds: {what}")


_started: list[subprocess.Popen[str]] = []


def stop_all() -> None:
    """End what a failed test has left."""
    for process in _started:
        if process.poll() is None:
            process.kill()
    ask("scancel", "--user=root")


def workflow(
    checkout: Checkout, *targets: str, launch: str, retries: int = 0, more: str = ""
) -> subprocess.Popen[str]:
    """Start Snakemake with the shipped Slurm profile; its output goes to `snakemake.log` in the checkout.
    `more`: keys of the configuration.
    """
    (checkout.folder / "launch.yaml").write_text(f"launch: {launch}\n{more}\n")
    command = [sys.executable, str(ROOT / "tests/cluster/eager.py"), "--profile", str(Path(PROFILE).parent)]
    command += [*QUICKLY, "--retries", str(retries)]
    command += ["--configfile", *OVERLAYS, "tests/cluster/run.yaml", "launch.yaml"]
    with (checkout.folder / "snakemake.log").open("a") as log:
        process = subprocess.Popen(
            [*command, "--", *targets], cwd=checkout.folder, stdout=log, stderr=subprocess.STDOUT, text=True
        )
    _started.append(process)
    return process


def finish(checkout: Checkout, process: subprocess.Popen[str], seconds: float = 900) -> None:
    """Wait for a workflow and assert that it succeeds."""
    code = process.wait(timeout=seconds)
    assert code == 0, (checkout.folder / "snakemake.log").read_text()[-5000:]


@dataclass(frozen=True)
class Job:
    """A job of Slurm's, by its number."""

    number: str

    def field(self, name: str) -> str:
        words = ask("scontrol", "show", "job", self.number, "--oneliner").split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    @property
    def state(self) -> str:
        return self.field("JobState")

    def resume(self, restarts: int, partition: str = "main") -> None:
        """Wait for its `restarts`th requeue, and start it: Slurm would wait two minutes."""

        def runs() -> bool:
            if self.field("Restarts") != str(restarts):
                return False
            state = ask("squeue", "--noheader", f"--jobs={self.number}", "--format=%T").strip()
            if state == "PENDING":  # it may start meanwhile, and then refuses
                change = [f"JobId={self.number}", f"Partition={partition}", "StartTime=now", "TimeLimit=1440"]
                subprocess.run(["scontrol", "update", *change], capture_output=True)
            return state == "RUNNING"

        wait(f"job {self.number} runs again", runs)


def jobs_of(rule: str, states: str = "all") -> list[Job]:
    """The jobs of a rule in these states, each task of an array, in the order of their numbers."""
    lines = ask("squeue", "--noheader", f"--states={states}", "--array", "--format=%A %k").splitlines()
    found = [number for number, comment in map(str.split, lines) if comment.startswith(f"rule_{rule}")]
    return [Job(number) for number in sorted(found, key=int)]


def job_of(rule: str) -> Job:
    """The running job of a rule, as soon as there is one."""
    return wait(f"a job of {rule}", lambda: jobs_of(rule, "RUNNING"))[0]


def programs(module: str) -> dict[int, dict[bytes, bytes]]:
    """Numbers of the processes of a program on all nodes, with their environments."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if module.encode() in words and b"pipeline.core.start" not in words:
                lines = (folder / "environ").read_bytes().split(b"\0")
                found[int(folder.name)] = dict(line.split(b"=", 1) for line in lines if b"=" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def ranks(module: str) -> dict[int, int]:
    """Process numbers of the ranks of a program on all nodes, by rank."""
    found = programs(module).items()
    return {int(given[b"RANK"]): number for number, given in found if b"LOCAL_RANK" in given}


def send(sent: signal.Signals, processes: dict[int, int]) -> None:
    for process in processes.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, sent)


def noticed(process: int) -> bool:
    """Whether SIGUSR1 waits for a stopped process, or has ended it."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except FileNotFoundError:
        return True
    pending = next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
    return bool(pending >> (signal.SIGUSR1 - 1) & 1)


def notice(job: Job, processes: dict[int, int]) -> None:
    """Bring the time limit near, and let the ranks go on when Slurm has warned them."""
    ask("scontrol", "update", f"JobId={job.number}", "TimeLimit=5")
    wait("a notice of the time limit", lambda: all(map(noticed, processes.values())))
    send(signal.SIGCONT, processes)


def requeue(job: Job, processes: dict[int, int]) -> None:
    ask("scontrol", "requeue", job.number)


def preempt(job: Job, processes: dict[int, int]) -> None:
    """An urgent job takes both nodes for a moment."""
    ask("sbatch", "--partition=urgent", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap=sleep 1")


def cut_power(job: Job, processes: dict[int, int], node: str = "n1") -> None:
    """A node, the first of which runs the batch script, dies and comes back when Slurm has noticed."""
    folder = Path(os.environ["CLUSTER"])
    os.kill(int((folder / f"{node}.pid").read_text()), signal.SIGKILL)
    wait("Slurm gives up the node", lambda: job.state != "RUNNING")
    subprocess.run([SCRIPT, "--node", node], check=True)
