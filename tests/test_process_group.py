"""Ranks start torch in one way, however many there are and on however many nodes."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from programs import ENVIRONMENT, ROOT, launchers

PROGRAM = """
import json
import sys
import weakref

import pipeline.training.engine
import torch
from deepspeed.utils import groups
from torch import distributed

calls, join = [], distributed.init_process_group


def init_process_group(*words, **options):
    calls.append([[str(word) for word in words], {name: str(value) for name, value in options.items()}])
    join(*words, **options)


def report():
    sys.stdout.write(json.dumps([int(total), calls, distributed.is_initialized(), timeout]) + "\\n")


weakref.finalize(sys, report)  # of finalizers the last one runs first
distributed.init_process_group = init_process_group
pipeline.training.engine.start_process_group()
group = groups._get_data_parallel_group()  # of DeepSpeed's, which adds up gradients
timeout = str(group._get_backend(torch.device("cpu")).options._timeout)
total = torch.ones(1)
distributed.all_reduce(total)
"""


def calls(folder: Path, nodes: int, ranks: int) -> list:
    """For each rank: the number of ranks that it met, how it called torch, whether its group outlives it."""
    (folder / "program.py").write_text(PROGRAM)
    alone = [[sys.executable, "-m"]]
    started = [
        Popen(
            [*command, "program"],
            env=ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{folder}"},
            stdout=PIPE,
            stderr=PIPE,
            text=True,
        )
        for command in (alone if nodes * ranks == 1 else launchers(folder, nodes, ranks))
    ]
    ended = [process.communicate(timeout=180) for process in started]
    assert not any(process.returncode for process in started), ended
    return [json.loads(line) for output, _ in ended for line in output.splitlines()]


@pytest.mark.slow
def test_one_rank_one_node_and_two_nodes_join_and_leave_in_the_same_way(tmp_path: Path) -> None:
    found = {place: calls(tmp_path, *place) for place in ((1, 1), (1, 2), (2, 1))}
    for (nodes, ranks), heard in found.items():
        assert [met for met, *_ in heard] == [nodes * ranks] * nodes * ranks
        for _, (call,), member, timeout in heard:
            assert not member and timeout == "1:00:00"  # longer than the watchdog waits
            words, options = call
            assert words == ["gloo"]
            assert options.pop("store") and int(options.pop("world_size")) == nodes * ranks
            assert int(options.pop("rank")) < nodes * ranks
            assert options == {"timeout": "1:00:00"}  # no device_id


HANGS = """
import sys
import time
from pathlib import Path

import pipeline.training.engine
import torch
from torch import distributed

from pipeline.core import watchdog

pipeline.training.engine.start_process_group()
distributed.all_reduce(torch.ones(3))
watchdog.watch(0.002, Path(sys.argv[1], "hangs.json"), "x")
time.sleep(60)
"""


@pytest.mark.slow
def test_a_rank_that_hangs_writes_down_its_last_collectives(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGS, tmp_path]
    done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=180)
    path = tmp_path / "collectives-0.json"
    assert done.returncode == 85 and f"its last collectives: {path}" in done.stderr
    (entry,) = json.loads(path.read_text())["entries"]
    assert entry["profiling_name"] == "gloo:all_reduce" and entry["input_sizes"] == [[3]]
