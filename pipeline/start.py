"""Start a stage program: `python -m pipeline.start pipeline.sft --run results/demo ...`.

If the run's store holds the result of these inputs and settings, it becomes the current one, in a second.
Otherwise the program replaces this one, under torchrun where it trains on several ranks. Under `srun` with
one task per node torchrun joins the nodes of the job; the first one is the rendezvous.
"""

import os
import sys

from pipeline.common.arguments import parser
from pipeline.common.errors import InputError
from pipeline.common.slurm import first_host, in_step, supervise
from pipeline.common.stage import open_stage
from pipeline.stages import program_of


def command(program: list[str], ranks: int, environment: dict[str, str]) -> list[str]:
    """The command that starts `ranks` processes of `program` here, joined with the job's other nodes."""
    nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
    if ranks * nodes == 1:
        return [sys.executable, "-m", *program]
    torchrun = [sys.executable, "-m", "pipeline.common.ranks", f"--nproc-per-node={ranks}"]
    if nodes == 1:
        return [*torchrun, "--standalone", "-m", "--", *program]
    port = 20000 + int(environment["SLURM_JOB_ID"]) % 20000
    place = [
        f"--nnodes={nodes}",
        f"--node-rank={environment['SLURM_NODEID']}",
        f"--master-addr={first_host()}",
        f"--master-port={port}",
    ]
    return [*torchrun, *place, "-m", "--", *program]


def with_threads(environment: dict[str, str], launch: dict[str, object]) -> dict[str, str]:
    """`environment` for ranks with the threads of one rank each; Snakemake's is the job's number of cores."""
    return environment | {"OMP_NUM_THREADS": str(launch["threads"])} if "threads" in launch else environment


def main() -> None:
    module, *words = sys.argv[1:]
    found = program_of(module)
    if found is None:
        sys.exit(f"error: {module}: no stage program; pipeline/stages.py lists them")
    name, section = found
    try:
        stage = open_stage(name, section, module, parser(name, section).parse_args(words))
        entry = stage.entry
        if entry and entry.problem(stage.digests) is None:
            entry.make_current()
            print(f"{entry.name}: made before from the same inputs and settings", file=sys.stderr)
            return
    except InputError as error:
        sys.exit(f"error: {error}")
    environment = dict(os.environ)
    arguments = [sys.executable, "-m", module, *words]
    if section.trains:
        environment = with_threads(environment, stage.launch)
        arguments = command([module, *words], int(stage.launch.get("ranks", 1)), environment)
    if in_step(environment):
        sys.exit(supervise(arguments, environment))
    os.execvpe(arguments[0], arguments, environment)


if __name__ == "__main__":
    main()
