"""Start a training program once per rank; the only place that knows of torchrun and Slurm.

`python -m pipeline.common.launch pipeline.sft --launch '{"ranks": 8}' ...` replaces itself by the program
(one rank) or by torchrun (several). Under `srun` with one task per node it joins the nodes of the job; the
first one is the rendezvous.
"""

import json
import os
import subprocess
import sys


def first_host() -> str:
    """The first node of the Slurm job."""
    names = subprocess.run(
        ["scontrol", "show", "hostnames"], check=True, capture_output=True, text=True
    ).stdout.split()
    return names[0]


def command(program: list[str], ranks: int, environment: dict[str, str]) -> list[str]:
    """The command that starts `ranks` processes of `program` here, joined with the job's other nodes."""
    nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
    if ranks * nodes == 1:
        return [sys.executable, "-m", *program]
    torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    if nodes == 1:
        return [*torchrun, "--standalone", "-m", *program]
    port = 20000 + int(environment["SLURM_JOB_ID"]) % 20000
    place = [
        f"--nnodes={nodes}",
        f"--node-rank={environment['SLURM_NODEID']}",
        f"--master-addr={first_host()}",
        f"--master-port={port}",
    ]
    return [*torchrun, *place, "-m", *program]


def main() -> None:
    program = sys.argv[1:]
    launch = json.loads(program[program.index("--launch") + 1]) if "--launch" in program else {}
    environment = dict(os.environ)
    arguments = command(program, int(launch.get("ranks", 1)), environment)
    os.execvpe(arguments[0], arguments, environment)


if __name__ == "__main__":
    main()
