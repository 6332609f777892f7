"""Start a stage program: `python -m pipeline.start pipeline.sft --run results/demo ...`.

If the run's store holds the result of these inputs and settings, it becomes the current one, in a second.
Otherwise the program replaces this one, under the launcher where it has several ranks. Under `srun`
with one task per node the launchers join the nodes of the job; the first one is the rendezvous.
"""

import os
import signal
import sys

from pipeline.common.arguments import parser
from pipeline.common.ending import SIGNALS
from pipeline.common.errors import InputError
from pipeline.common.slurm import first_host, in_step, supervise
from pipeline.common.stage import open_stage
from pipeline.stages import program_of


def command(program: list[str], ranks: int, environment: dict[str, str], apart: bool = False) -> list[str]:
    """The command that starts `ranks` processes of `program` here, joined with the job's other nodes.

    `apart`: none needs another (see the launcher).
    """
    nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
    if ranks * nodes == 1:
        return [sys.executable, "-m", *program]
    place = [f"--ranks={ranks}", *(["--apart"] if apart else [])]
    if nodes > 1:
        # Two ports: rank 0's, and one for the launchers.
        port = 20000 + 2 * (int(environment["SLURM_JOB_ID"]) % 10000)
        place += [f"--nodes={nodes}", f"--node={environment['SLURM_NODEID']}"]
        place += [f"--address={first_host()}", f"--port={port}"]
    return [sys.executable, "-m", "pipeline.common.launcher", *place, *program]


def with_threads(environment: dict[str, str], launch: dict[str, object]) -> dict[str, str]:
    """`environment` for ranks with the threads of one rank each; Snakemake's is the job's number of cores."""
    return environment | {"OMP_NUM_THREADS": str(launch["threads"])} if "threads" in launch else environment


def main() -> None:
    module, *words = sys.argv[1:]
    found = program_of(module)
    if found is None:
        sys.exit(f"error: {module}: no stage program; pipeline/stages.py lists them")
    name, section = found
    if section.has_ranks():
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the program can save its state
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
    if section.has_ranks():
        environment = with_threads(environment, stage.launch)
        ranks = int(stage.launch.get("ranks", 1))
        arguments = command([module, *words], ranks, environment, apart=not section.trains)
    if in_step(environment):
        sys.exit(supervise(arguments, environment))
    os.execvpe(arguments[0], arguments, environment)


if __name__ == "__main__":
    main()
