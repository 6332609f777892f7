"""A stage program as a task of a Slurm step, and what Slurm is asked for when it has not finished.

The Slurm profile starts one task per node with `srun`. Slurm sends SIGUSR1 some minutes before the time limit
and SIGTERM before a preemption, to every process of the step. The programs act on them; what stands between
them and Slurm must not die of them.
"""

import signal
import subprocess
import sys
from collections.abc import Mapping

from pipeline.core.ending import SIGNALS
from pipeline.core.errors import AGAIN
from pipeline.core.stage import WORK

PORTS = range(20000, 32768)  # below those that the kernel gives to connections


def in_step(environment: Mapping[str, str]) -> bool:
    """Whether this process is a task of a step that `srun` started."""
    return "SLURM_STEP_ID" in environment


def count_nodes(environment: Mapping[str, str]) -> int:
    """Count the nodes of this step; 1 outside of one."""
    return int(environment.get("SLURM_STEP_NUM_NODES", "1"))


def describe_node(environment: Mapping[str, str]) -> list[str]:
    """Return the launcher's arguments on a node of a step on several: which one it is, where rank 0 serves,
    and the file of the job's end, another one each time the job runs.
    """
    hosts = ["scontrol", "show", "hostnames"]
    first = subprocess.run(hosts, check=True, capture_output=True, text=True).stdout.split()[0]
    job, step = environment["SLURM_JOB_ID"], environment["SLURM_STEP_ID"]
    turn = f"{job}.{step}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    return [
        f"--nodes={count_nodes(environment)}",
        f"--node={environment['SLURM_NODEID']}",
        f"--address={first}",
        f"--port={PORTS[int(job) % len(PORTS)]}",
        f"--ended={WORK / 'ended' / turn}",
    ]


def supervise(arguments: list[str], environment: dict[str, str]) -> int:
    """Run a program and return its exit code, 128 and the signal's number if it was killed.

    A program that ends with `AGAIN`, or that dies of SIGUSR1 because it has no handler for it, continues
    from what it saved when the job runs again: the first node asks Slurm for that, and all wait for the end
    of this run. No retry of Snakemake's is spent.
    """
    received: list[int] = []
    for number in SIGNALS:  # not SIG_IGN, which the program would inherit
        signal.signal(number, lambda number, _: received.append(number))
    code = subprocess.run(arguments, env=environment).returncode
    if code in (AGAIN, -signal.SIGUSR1) and requeued(environment, signal.SIGTERM in received):
        while True:
            signal.pause()  # Slurm ends this task
    return code if code >= 0 else 128 - code


def requeued(environment: Mapping[str, str], ending: bool) -> bool:
    """Put the job back into the queue, unless it is being cancelled; only the first node asks. If Slurm is
    `ending` the step itself, it decides what follows: a preempted job goes back into the queue, one with a
    failed task does not.
    """
    job = environment["SLURM_JOB_ID"]
    if environment["SLURM_NODEID"] != "0":
        return True
    state = subprocess.run(
        ["squeue", "--noheader", f"--jobs={job}", "--format=%T"], capture_output=True, text=True
    )
    if state.stdout.strip() != "RUNNING":
        return False
    if ending:
        return True
    print(f"job {job} has saved its work and goes back into the queue", file=sys.stderr, flush=True)
    return subprocess.run(["scontrol", "requeue", job]).returncode == 0
