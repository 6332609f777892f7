"""A training job that is asked to end, fails or hangs: all ranks end together, say why, and can go on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from programs import ENVIRONMENT, ROOT

from pipeline.ranks.links import PORTS

HOST = socket.gethostname()
SECONDS = 600  # after which a test is given up; each takes a few, but a busy machine takes longer
# A stage program whose ranks do what the instance's name says: rank 1 does it, the others wait for rank 1.
PROGRAM = """
import os, signal, time
from pathlib import Path

from pipeline.protocol.ending import interrupted, received
from pipeline.protocol.stage import InputError, run_stage
from pipeline.protocol.watchdog import beat, enter
from pipeline.config.sft import SftSection


def run(stage):
    rank = os.environ["RANK"]
    Path(f"pid-{rank}").write_text(str(os.getpid()))
    while not all(Path(f"pid-{other}").exists() for other in "01"):
        beat()  # the other one may start late
        time.sleep(0.01)
    if rank == "1" and stage.instance == "input":
        raise InputError("prompts.jsonl: line 7: no answer")
    if rank == "1" and stage.instance == "bug":
        raise KeyError("answer")
    if stage.instance in ("stopped", "asleep"):
        enter("forward" if rank == "1" else "backward")
        if rank == "1" and stage.instance == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)  # rank 0 as in a collective, rank 1 for reasons of its own
    while not received():
        time.sleep(0.01)
    raise interrupted(received(), "after step 3")


if __name__ == "__main__":
    run_stage("sft", SftSection, run)
"""

HANGING = """
import sys, time
from pathlib import Path

from pipeline.protocol import watchdog

watchdog.reached(True, int(sys.argv[3]))
watchdog.enter("backward")
watchdog.watch(0.002, Path(sys.argv[1]), sys.argv[2])
time.sleep(60)
"""


def launch(folder: Path, name: str, nodes: int, launch: str = "{}") -> list[Popen]:
    """The launchers of two ranks of the program, on one node or as if on two."""
    (folder / "program.py").write_text(PROGRAM)
    place = [f"--nodes={nodes}", f"--ranks={2 // nodes}", f"--meeting={folder / 'meeting'}"]
    words = ["program", "--instance", name, "--output", folder / "data", "--launch", launch]
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{folder}"}
    return [
        Popen(
            [sys.executable, "-m", "pipeline.ranks.launcher", *place, f"--node={node}", *words],
            cwd=folder,
            env=environment,
            stderr=PIPE,
            text=True,
        )
        for node in range(nodes)
    ]


def pids(folder: Path) -> list[int]:
    """Process ids of both ranks, once they run."""
    return [int(wait_for(lambda name=name: (folder / name).read_text())) for name in ("pid-0", "pid-1")]


def wait_for(what: Callable[[], object]) -> object:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if found := what():
                return found
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def ended(launchers: list[Popen]) -> tuple[set[int], list[str]]:
    """Exit codes of the launchers, and the lines of each that ended last."""
    logs = [process.communicate(timeout=SECONDS)[1] for process in launchers]
    return {process.returncode for process in launchers}, [log.splitlines()[-1] for log in logs]


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def ranks_of(launcher: int) -> list[int]:
    """Process ids of a launcher's ranks, in order."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(pid) for pid in children]


@pytest.mark.parametrize("nodes", [1, 2])
def test_bad_input_on_one_rank_ends_all_and_the_last_line_names_rank_node_and_cause(tmp_path, nodes):
    codes, last = ended(launch(tmp_path, "input", nodes))
    assert codes == {2}
    assert set(last) == {f"error: rank 1 of 2 on {HOST}: prompts.jsonl: line 7: no answer"}
    assert all(gone(pid) for pid in pids(tmp_path))


def test_a_bug_on_one_rank_is_named_after_its_traceback(tmp_path):
    (process,) = launch(tmp_path, "bug", 1)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and "Traceback" in errors
    assert errors.endswith(f"error: rank 1 of 2 on {HOST}: KeyError: 'answer'\n")


@pytest.mark.parametrize("killed", ["rank", "launcher"])
def test_a_killed_rank_or_launcher_ends_all_ranks_of_both_nodes(tmp_path, killed):
    launchers = launch(tmp_path, "wait", 2)
    ranks = pids(tmp_path)
    os.kill(ranks[1] if killed == "rank" else launchers[1].pid, signal.SIGKILL)
    codes, last = ended(launchers[: 2 if killed == "rank" else 1])
    if killed == "rank":
        assert codes == {137} and all("rank 1 of 2 on" in line and "SIGKILL" in line for line in last)
    else:
        assert codes == {1} and "node 1 of the job is gone without a word" in last[0]
        launchers[1].communicate()
    assert all(wait_for(lambda pid=pid: gone(pid)) for pid in ranks)


@pytest.mark.parametrize(("kind", "nodes"), [("stopped", 1), ("asleep", 2)])
def test_a_job_that_hangs_names_every_ranks_phase_and_stack_and_ends_with_code_85(tmp_path, kind, nodes):
    launchers = launch(tmp_path, kind, nodes, '{"hang_minutes": 0.05}')
    logs = [process.communicate(timeout=SECONDS)[1] for process in launchers]
    assert {process.returncode for process in launchers} == {85}
    stacks = "".join(logs).split("phase ")
    for rank, phase in enumerate(("backward", "forward")):
        assert f"rank {rank} of 2 on {HOST}: phase {phase} hangs; Python stacks" in "".join(logs) or (
            f"rank {rank} on {HOST}: phase {phase}, T (stopped):" in "".join(logs)
        )
        assert any(part.startswith(phase) and "program.py" in part and "in run" in part for part in stacks)
    for log in logs:
        said = (
            "made no progress for 0.05 minutes (launch.hang_minutes); run me again, from the last checkpoint"
        )
        assert said in log.splitlines()[-1] and log.splitlines()[-1].startswith("error: rank ")
    assert all(gone(pid) for pid in pids(tmp_path))
    hangs = json.loads((tmp_path / ".data.work/hangs.json").read_text())
    assert (hangs["count"], hangs["training"], hangs["steps"]) == (1, False, 0)


def test_a_run_that_hangs_three_times_without_a_step_of_progress_is_not_run_again(tmp_path):
    def hang(owner: str, steps: int) -> tuple[int, str]:
        command = [sys.executable, "-c", HANGING, tmp_path / "hangs.json", owner, str(steps)]
        done = subprocess.run(command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
        assert "in <module>" in done.stderr
        return done.returncode, done.stderr.splitlines()[-1]

    runs = [("a", 3), ("a", 3), ("a", 5), ("a", 4), ("a", 5), ("a", 5), ("b", 2), ("a", 1)]
    found = [hang(*run) for run in runs]
    assert [code for code, _ in found] == [85, 85, 85, 85, 1, 1, 85, 85]
    assert found[1][1].endswith("; run me again, from the last checkpoint (exit code 85)")
    assert found[4][1].startswith("error: phase backward made no progress for 0.002 minutes")
    assert "hang 3 in a row that got no further than step 6" in found[4][1]
    assert "hang 4 in a row" in found[5][1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_reaches_ranks_that_have_not_started_yet_and_their_code_85_passes_through(tmp_path, number):
    launchers = launch(tmp_path, "wait", 2)
    for process in launchers:
        wait_for(lambda process=process: ranks_of(process.pid))
        process.send_signal(number)
    codes, last = ended(launchers)
    assert codes == {85}
    for line in last:
        assert line.endswith(f"after step 3: {number.name}; state saved, run me again (exit code 85)")


# Ranks of two nodes that share out items through the store of rank 0, and train in one group of processes.
TOGETHER = """
from collections import Counter
from pathlib import Path

from pipeline.ranks.queue import Batch, make_together, queue_of_ranks

queue = queue_of_ranks(Counter())
batches = [Batch(Path("rows"), str(number), lambda: None, lambda: [1]) for number in range(9)]
make_together(queue, "test", batches)
"""
IN_A_GROUP = """
import torch
from torch import distributed

from pipeline.training.engine import start_process_group

start_process_group()
one = torch.ones(1)
distributed.all_reduce(one)
assert one.item() == distributed.get_world_size() == 2
"""


def listening() -> set[int]:
    """The ports of this machine, of those that launchers use, at which somebody listens."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A"} & set(PORTS)


def scan(seen: Counter, over: threading.Event) -> None:
    """Call all these ports until it is over: hang up, say one line of HTTP, or stay silent on the line."""
    lines = []
    while not over.is_set():
        for port in listening():
            with contextlib.suppress(OSError):
                lines.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                seen[port] += 1
                if len(lines) % 3 == 0:
                    lines[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
                if len(lines) % 3 == 1:
                    lines.pop().close()
        time.sleep(0.05)


@pytest.mark.parametrize(("program", "extra"), [(TOGETHER, ["--apart"]), (IN_A_GROUP, [])])
def test_a_port_scan_while_two_nodes_start_changes_nothing(tmp_path, program, extra):
    (tmp_path / "program.py").write_text(program)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "CUDA_VISIBLE_DEVICES": ""}
    seen, over = Counter(), threading.Event()
    scanner = threading.Thread(target=scan, args=(seen, over))
    scanner.start()
    try:
        command = [sys.executable, "-m", "pipeline.ranks.launcher", "--nodes=2", "--ranks=1", *extra]
        launchers = []
        for node in (0, 1):
            words = [f"--meeting={tmp_path / 'meeting'}", f"--node={node}", "program"]
            launchers.append(Popen([*command, *words], cwd=tmp_path, env=environment, stderr=PIPE, text=True))
            wait_for(lambda: len(seen) >= 2)  # both ports of the first node have been called
        logs = [process.communicate(timeout=SECONDS)[1] for process in launchers]
    finally:
        over.set()
        scanner.join()
    assert [process.returncode for process in launchers] == [0, 0], logs


# Ranks that share out items. Rank 1 takes one and is killed; rank 0 goes on when it has seen that.
APART = """
import os, signal, sys, time
from collections import Counter
from pathlib import Path

from pipeline.ranks.queue import Batch, make_together, queue_of_ranks


def make():
    if os.environ.get("RANK") == "1":
        Path("taken").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        os.kill(os.getpid(), signal.SIGKILL)
    while not Path("taken").exists():
        time.sleep(0.01)
    return [{"made": True}]


queue = queue_of_ranks(Counter())
queue.patience = 1.0
make_together(queue, "test", [Batch(Path("rows"), str(number), lambda: None, make) for number in range(6)])
"""


def apart(folder: Path, gpus: str) -> tuple[int, str]:
    """Exit code and messages of the program at two ranks that see `gpus`."""
    (folder / "program.py").write_text(APART)
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{folder}", "CUDA_VISIBLE_DEVICES": gpus}
    environment.pop("DS_ACCELERATOR", None)  # which says that there are none
    command = [sys.executable, "-m", "pipeline.ranks.launcher", "--ranks=2", "--apart", "program"]
    process = Popen(command, cwd=folder, env=environment, stderr=PIPE, text=True)
    _, errors = process.communicate(timeout=SECONDS)
    return process.returncode, errors


def test_ranks_that_share_out_items_go_on_without_one_that_is_killed(tmp_path):
    code, errors = apart(tmp_path, "4,7")
    assert code == 0, errors
    assert f"one rank ended: rank 1 of 2 on {HOST} was killed by SIGKILL" in errors
    assert sorted(path.name[0] for path in (tmp_path / "rows").iterdir()) == list("012345")
    assert (tmp_path / "taken").read_text() == "7"
    for none in ("NoDevFiles", "-1"):  # on the CPU
        assert "GPUs" not in apart(tmp_path, none)[1]
    code, errors = apart(tmp_path, "4")
    assert code == 2 and "launch.ranks is 2, but CUDA_VISIBLE_DEVICES names 1 GPUs: 4" in errors


def test_fewer_cores_than_ranks_are_told(tmp_path):
    (tmp_path / "program.py").write_text("")
    one = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", one, sys.executable, "-m", "pipeline.ranks.launcher", "--ranks=2", "program"]
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0 and f"2 ranks share 1 cores on {HOST}: docs/cluster.md" in done.stderr
