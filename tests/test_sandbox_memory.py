"""All processes of a program together stay within their memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT, WEAK
from given.sandboxes import ORDINARY, ROOT_USER, SETPRIV, skip_without_namespaces
from sealedpy import memory
from sealedpy.pool import Sandbox

# The folder of memory cgroups, the file with the most that was used, and one that only a usable folder has.
KINDS = (
    (Path("/sys/fs/cgroup"), "memory.peak", "memory.stat"),
    (Path("/sys/fs/cgroup/memory"), "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
)
FOUR_CHILDREN = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        held = [bytearray(b'x') * (1 << 20) for _ in range(500)]
        time.sleep(1)
        os._exit(0)
print(sorted(os.wait()[1] for _ in range(4)))
"""
RUN = """
import json, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from sandbox_as_user import SMALL_WORKER
from sealedpy.pool import Sandbox, Worker
Worker.command = (*Worker.interpreter, "-c", SMALL_WORKER)
sandbox = Sandbox(1)
(outcome,) = sandbox.run([{program!r}], 30.0)
lent = [str(path) for path in Path({folder!r}).rglob("sandbox-*")]
most = [int((Path(path) / {peak!r}).read_text()) for path in lent]
sandbox.close()
print(json.dumps([vars(outcome), most, [path for path in lent if Path(path).exists()]]))
"""


@pytest.fixture
def cgroup() -> Iterator[tuple[Path, str]]:
    """A cgroup of root's that lends nothing yet, with one below it to be in; and its file of the peak."""
    name = f"test-sandbox-{os.getpid()}"
    for mount, peak, sign in KINDS:
        folder = mount / name
        try:
            (folder / "main").mkdir(parents=True)
            if (folder / sign).exists():
                yield folder, peak
                return
        except OSError:
            continue
        finally:
            for made in (folder / "main", folder):
                if made.exists():
                    made.rmdir()
    pytest.skip("no cgroup can be made here")


@pytest.mark.parametrize("user", [ROOT_USER, ORDINARY])
def test_a_cgroup_that_is_lent_bounds_all_processes_of_a_program(user: int, cgroup: tuple[Path, str]) -> None:
    folder, peak = cgroup
    skip_without_namespaces()
    if user == ROOT_USER:
        os.setxattr(folder, "trusted.delegate", b"1")  # as systemd marks it
    else:
        for path in (folder, folder / "main", *folder.glob("cgroup.*"), *folder.glob("main/cgroup.procs")):
            os.chown(path, user, user)
    python = sys.executable if user == ROOT_USER else "/usr/bin/python3"
    prefix = [] if user == ROOT_USER else SETPRIV[user]
    paths = [str(ROOT / name) for name in (".", "tests", "packages/sealedpy/src")]
    code = RUN.format(paths=paths, program=FOUR_CHILDREN, folder=str(folder), peak=peak)
    join = f'echo $$ > {folder}/main/cgroup.procs; exec "$@"'
    command = ["sh", "-c", join, "sh", *prefix, python, "-c", code]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    if user == ORDINARY and "not found" in done.stderr + done.stdout:
        pytest.skip("this user has no Python")
    assert done.returncode == 0, done.stderr
    outcome, most, left = json.loads(done.stdout)
    limit = memory.PROGRAM_BYTES + memory.KERNEL_BYTES
    assert len(most) == 1 and memory.PROGRAM_BYTES / 2 < most[0] <= limit, (most, outcome)
    assert left == [] and (outcome["status"] == "limit" or "9]" in outcome["stdout"]), outcome


def test_the_processes_of_all_programs_fit_into_the_machines_memory() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for processes in (1, 16, 128, 1024, 10**6):
        share = memory.share(processes)
        assert memory.LEAST_BYTES <= share <= memory.PROGRAM_BYTES
        assert share * processes <= total or share == memory.LEAST_BYTES


def test_a_smaller_share_is_told_once_and_held(capfd: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(memory, "borrow", lambda: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(10**5))
    with Sandbox(2, weak=WEAK) as sandbox:
        code = "import resource, numpy, sympy; print(resource.getrlimit(resource.RLIMIT_AS)[1], sympy.pi)"
        outcomes = list(sandbox.run([code] * 4, 20.0))
        (full,) = sandbox.run(["bytes(400 << 20)"], 20.0)
    assert {outcome.stdout for outcome in outcomes} == {
        f"{memory.LEAST_BYTES} pi\n"
    } and full.status == "limit"
    assert capfd.readouterr().err.count("so that all fit, a process of a program has 384 MiB") == 1
