"""A training job that is asked to end, fails or hangs: all ranks end together, say why, and can go on."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from programs import ENVIRONMENT, ROOT, launchers

from pipeline.core.launch.slurm import describe_node
from pipeline.core.start import command

HOST = socket.gethostname()
SECONDS = 600  # after which a test is given up; each takes a few, but a busy machine takes longer
# A stage program whose ranks do what the instance's name says: rank 1 does it, the others wait for rank 1.
PROGRAM = """
import os, signal, time
from pathlib import Path

from pipeline.core.ending import interrupted, received
from pipeline.core.stage import InputError, run_stage
from pipeline.core.watchdog import beat, enter
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

from pipeline.core import watchdog

watchdog.reached(True, int(sys.argv[3]))
watchdog.enter("backward")
watchdog.watch(0.002, Path(sys.argv[1]), sys.argv[2])
time.sleep(60)
"""


def launch(folder: Path, name: str, nodes: int, launch: str = "{}") -> list[Popen]:
    """The launchers of two ranks of the program, on one node or as if on two."""
    (folder / "program.py").write_text(PROGRAM)
    words = ["program", "--instance", name, "--output", folder / "data", "--launch", launch]
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{folder}"}
    return [
        Popen([*command, *words], cwd=folder, env=environment, stderr=PIPE, text=True)
        for command in launchers(folder, nodes, 2 // nodes)
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


def ended(started: list[Popen]) -> tuple[set[int], list[str]]:
    """Exit codes of the launchers, and the lines of each that ended last."""
    logs = [process.communicate(timeout=SECONDS)[1] for process in started]
    return {process.returncode for process in started}, [log.splitlines()[-1] for log in logs]


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


def test_a_killed_rank_ends_all_ranks_of_both_nodes(tmp_path):
    started = launch(tmp_path, "wait", 2)
    ranks = pids(tmp_path)
    os.kill(ranks[1], signal.SIGKILL)
    codes, last = ended(started)
    assert codes == {137} and set(last) == {
        f"error: rank 1 of 2 on {HOST} was killed by SIGKILL; its messages are above"
    }
    assert all(gone(pid) for pid in ranks)


def test_the_ranks_of_a_killed_launcher_die_with_it(tmp_path):
    (process,) = launch(tmp_path, "wait", 1)
    ranks = pids(tmp_path)
    process.kill()
    process.communicate()
    assert all(wait_for(lambda pid=pid: gone(pid)) for pid in ranks)


def test_a_port_that_another_program_has_is_named(tmp_path):
    first, _ = launchers(tmp_path, 2, 1)
    port = next(word for word in first if word.startswith("--port=")).partition("=")[2]
    with socket.create_server(("", int(port))):
        done = subprocess.run([*first, "program"], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    told = f"error: port {port} of {HOST}: Address already in use; run the job again\n"
    assert (done.returncode, done.stderr.splitlines(keepends=True)[-1]) == (2, told)
    assert json.loads((tmp_path / "ended").read_text())["code"] == 2


@pytest.mark.parametrize(("kind", "nodes"), [("stopped", 1), ("asleep", 2)])
def test_a_job_that_hangs_names_every_ranks_phase_and_stack_and_ends_with_code_85(tmp_path, kind, nodes):
    started = launch(tmp_path, kind, nodes, '{"hang_minutes": 0.05}')
    logs = [process.communicate(timeout=SECONDS)[1] for process in started]
    assert {process.returncode for process in started} == {85}
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
    started = launch(tmp_path, "wait", 2)
    for process in started:
        wait_for(lambda process=process: ranks_of(process.pid))
        process.send_signal(number)
    codes, last = ended(started)
    assert codes == {85}
    for line in last:
        assert line.endswith(f"after step 3: {number.name}; state saved, run me again (exit code 85)")


# Ranks that share out items. Rank 1 takes one and is killed; rank 0 goes on when it has seen that.
APART = """
import os, signal, sys, time
from collections import Counter
from pathlib import Path

from pipeline.core.launch.queue import Batch, make_together, queue_of_ranks


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
    command = [sys.executable, "-m", "pipeline.core.launch.launcher", "--ranks=2", "--apart", "program"]
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
    command = [
        "taskset",
        "-c",
        one,
        sys.executable,
        "-m",
        "pipeline.core.launch.launcher",
        "--ranks=2",
        "program",
    ]
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0 and f"2 ranks share 1 cores on {HOST}: docs/cluster.md" in done.stderr


SQUEUE = """#!/bin/sh
echo "$(basename $0) $*" >> calls
echo RUNNING
"""


@pytest.mark.parametrize(("number", "asks"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_job_goes_back_into_the_queue_unless_slurm_ends_its_step(tmp_path, number, asks):
    """After SIGTERM Slurm knows what follows: a preempted job runs again, one with a failed task does not."""
    for name in ("squeue", "scontrol"):
        (tmp_path / name).write_text(SQUEUE)
        (tmp_path / name).chmod(0o755)
    waits = "import signal, sys, time; signal.signal(%d, lambda *_: sys.exit(85)); print(flush=True); "
    waits += "time.sleep(60)"
    environment = ENVIRONMENT | {"SLURM_JOB_ID": "17", "SLURM_NODEID": "0"}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    words = [sys.executable, "-c", waits % number]
    supervises = (
        f"import os; from pipeline.core.launch.slurm import supervise; supervise({words}, dict(os.environ))"
    )
    process = Popen(
        [sys.executable, "-c", supervises],
        cwd=tmp_path,
        env=environment,
        stdout=PIPE,
        text=True,
        start_new_session=True,
    )
    process.stdout.readline()
    os.killpg(process.pid, number)
    calls = tmp_path / "calls"
    wait_for(lambda: len(calls.read_text().splitlines()) == 1 + asks)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # until Slurm ends it
    process.kill()
    process.communicate()
    assert ("scontrol requeue 17" in calls.read_text()) == asks


def test_the_nodes_of_a_slurm_step_are_told_where_the_ranks_join(tmp_path, monkeypatch):
    (tmp_path / "scontrol").write_text("#!/bin/sh\nprintf 'n1\\nn2\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step = {"SLURM_STEP_NUM_NODES": "2", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
    first, second = (command(["pipeline.sft"], 8, step | {"SLURM_NODEID": node}) for node in "01")
    assert {"--address=n1", "--port=20017", "--ended=work/ended/17.0.0"} < {*first}
    assert {*first} ^ {*second} == {"--node=0", "--node=1"}
    assert "--ended=work/ended/17.0.2" in describe_node(
        step | {"SLURM_NODEID": "0", "SLURM_RESTART_COUNT": "2"}
    )
