"""Start stage programs as the workflow does, on the CPU and in a process group of their own."""

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen

from warm import Program

ROOT = Path(__file__).resolve().parents[1]
GROUP = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in GROUP}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
# Of several ranks: a collective on a tensor that NCCL would refuse fails.
OF_RANKS = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests/collectives'}"}


def launchers(folder: Path, nodes: int, ranks: int, *options: str) -> list[list[str]]:
    """The command of the launcher on each node, all of them on this machine; the program follows."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = [f"--nodes={nodes}", f"--ranks={ranks}", f"--port={port}", f"--ended={folder / 'ended'}"]
    start = [sys.executable, "-m", "pipeline.core.launch.launcher", *place, *options]
    return [[*start, f"--node={node}"] for node in range(nodes)]


Inputs = Mapping[str, Path | list[Path]]
HANGS = 1800  # seconds; a program that takes longer on a busy machine hangs


def words_of(folder: Path, config: dict, launch: dict | None, inputs: Inputs) -> list[str]:
    """The options of a stage program that works in `<folder>/work` and writes `<folder>/data`,
    `<folder>/manifest.json` and `<folder>/run.json`, with a checkpoint after each step.
    """
    launch = {"save_minutes": 0} | (launch or {})
    words = ["--instance", folder.name, "--config", json.dumps(config), "--launch", json.dumps(launch)]
    words += ["--work", folder / "work", "--output", folder / "data"]
    words += ["--manifest", folder / "manifest.json"]
    for name, paths in inputs.items():
        for path in paths if isinstance(paths, list) else [paths]:
            words += ["--input", f"{name}={path}"]
    return list(map(str, words))


def start(
    stage: str, folder: Path, config: dict, launch: dict | None, inputs: Inputs, dies_at: Sequence[str] = ()
) -> Popen | Program:
    """Start `pipeline.<stage>` (see `words_of`), under the launcher if it has several ranks. `dies_at`: the
    number of a call and the function's name; the program is killed in its place.
    """
    words = words_of(folder, config, launch, inputs)
    if dies_at:
        return Program("tests.killing", [*dies_at, f"pipeline.{stage}", *words], ENVIRONMENT)
    if (launch or {}).get("ranks", 1) == 1:
        return Program(f"pipeline.{stage}", words, ENVIRONMENT)
    command = [sys.executable, "-m", "pipeline.core.start", f"pipeline.{stage}", *words]
    return Popen(command, cwd=ROOT, env=OF_RANKS, stderr=PIPE, text=True)


def finished(process: Popen | Program) -> None:
    """Wait for a program and assert that it succeeds."""
    _, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 0, errors
