"""Start a stage program: `python -m pipeline.core.start pipeline.sft --result RUN/store/sft/...`.

If the run's store holds a result of this content under another key, it is linked, in a second. Otherwise the
program replaces this one, under the launcher where it has several ranks. `srun` starts one task per node; the
ranks of all nodes join at the first one.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.core.arguments import parser
from pipeline.core.ending import SIGNALS, leave
from pipeline.core.errors import InputError, Passing
from pipeline.core.folders import Taken, holder, release, take
from pipeline.core.launch.slurm import count_nodes, describe_node, in_step, supervise
from pipeline.core.stage import Stage, open_stage, upstream
from pipeline.core.stages import program_of
from pipeline.core.tries import started

WAIT_SECONDS = 1.0


def command(program: list[str], ranks: int, environment: Mapping[str, str], apart: bool = False) -> list[str]:
    """Return the command that starts `ranks` processes of `program` here, joined with the job's other nodes.

    `apart`: no rank needs another (see the launcher).
    """
    several = count_nodes(environment) > 1
    if ranks == 1 and not several:
        return [sys.executable, "-m", *program]
    place = [f"--ranks={ranks}", *(["--apart"] if apart else [])]
    place += describe_node(environment) if several else []
    return [sys.executable, "-m", "pipeline.core.launch.launcher", *place, *program]


def with_threads(environment: dict[str, str], launch: dict[str, object]) -> dict[str, str]:
    """`environment` for ranks with the threads of one rank each; Snakemake's is the job's number of cores."""
    return environment | {"OMP_NUM_THREADS": str(launch["threads"])} if "threads" in launch else environment


def linked(stage: Stage[Any], environment: Mapping[str, str]) -> bool:
    """Whether the stage's result need not be made: it is there under another key, and is linked, or a program
    that is making it just now, of an earlier start of the workflow or under another key, does so. If not, the
    work folder is taken for the program. Of a job on several nodes the first one links and takes.
    """
    entry, first = stage.entry, environment.get("SLURM_NODEID", "0") == "0"
    if first:
        entry.leave_others()
    alone, said = False, "made meanwhile, by a job of an earlier start"
    while not entry.made_since(started()):
        if same := entry.same(stage.fingerprint, stage.digests):
            said = f"made before from the same content, as {same.key}: linked"
            if first:
                entry.link_to(same, upstream(stage.inputs))
            break
        if alone:
            return False
        before, making = entry.made, _taker(stage.work) if first else holder(stage.work)
        alone = making is None  # now another look: it may have been made just before
        if alone:
            continue
        if int(environment.get("SLURM_RESTART_COUNT", 0)):  # else both would hold their GPUs, one idle
            raise Passing(f"{entry.name}: {making} has taken over while this job was in the queue")
        print(f"{entry.name}: {making} makes the same content; waiting for it", file=sys.stderr, flush=True)
        while holder(stage.work):
            time.sleep(WAIT_SECONDS)
        with suppress(FileNotFoundError):
            os.listdir(entry.folder.parent)  # a shared file system then looks for what it lacked before
        if entry.made and not before:
            break
    if alone and first:
        release(stage.work)
    print(f"{entry.name}: {said}", file=sys.stderr)
    return True


def _taker(folder: Path) -> str | None:
    """Take a work folder; returns the program that has it already, else None. Raises Taken for one of this
    job, which nobody waits for.
    """
    for again in (True, False):
        try:
            take(folder)
            break
        except Taken:
            if making := holder(folder):
                return making
            if not again:  # else it may have ended just now
                raise
    return None


def main() -> None:
    module, *words = sys.argv[1:]
    found = program_of(module)
    if found is None:
        sys.exit(f"error: {module}: no stage program; pipeline/core/stages.py lists them")
    name, section = found
    if section.has_ranks():
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the program can save its state
    try:
        stage = open_stage(name, section, module, parser(name, section).parse_args(words))
        if stage.entry and linked(stage, os.environ):
            return
    except InputError as error:
        leave(str(error), 2)
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
