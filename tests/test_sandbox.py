"""The sandbox: no attack has an effect outside, none leaves a process, and ordinary programs work."""

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import pytest
from conftest import NO_NAMESPACES, OVERLAYS, WEAK, copy_checkout
from sandbox_attacks import CALL, ESCAPES, LAYERS, MARKED, SEARCH, STATUSES

from pipeline.common.manifest import ROOT, code_files
from pipeline.evaluate import sandbox as program
from pipeline.sandbox.pool import Sandbox, Worker

SECONDS = 1.0


def processes_below(root: int) -> set[int]:
    """Process numbers of all descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, grown = {root}, True
    while grown:
        new = {process for process, parent in parents.items() if parent in found} - found
        found |= new
        grown = bool(new)
    return found - {root}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Targets of the attacks: a secret file, an environment variable, an open port."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_text("CANARY")
    os.environ["SANDBOX_CANARY"] = "CANARY"
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "secret": folder / "secret",
            "folder": folder,
            "project": ROOT,
            "process": os.getpid(),
            "port": server.getsockname()[1],
            "call": CALL,
        }
    del os.environ["SANDBOX_CANARY"]


def _plain_worker(monkeypatch) -> None:
    start = Worker._start
    monkeypatch.setattr(
        Worker, "_start", lambda self, kind: start(self, kind) if kind == "plain" else "switched off"
    )


def system_has(layer: str) -> bool:
    """Whether this system has a layer, asked without the sandbox: a lost layer must not be skipped."""
    if layer == "Landlock":
        create_ruleset, version = 444, 1  # the flag that asks for the version
        return ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version) > 0
    return {
        "namespaces": not WEAK,
        "seccomp": platform.machine() in ("x86_64", "aarch64"),
        "limits": True,
    }[layer]


@pytest.fixture(scope="module", params=["isolated", "plain"])
def sandbox(request, world):
    """One worker; `plain` is the fallback where namespaces are forbidden."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if request.param == "plain":
            _plain_worker(monkeypatch)
        found = Sandbox(1, weak=request.param == "plain" or WEAK)
    with found:
        if request.param == "isolated" and any("namespaces" in layer for layer in found.missing):
            assert WEAK, "the system has namespaces, the sandbox did not get them"
            pytest.skip(f"this system allows no namespaces: {found.missing}")
        found.plain = request.param == "plain"
        yield found


def _worker_process(sandbox) -> int:
    worker = sandbox.free.get()
    sandbox.free.put(worker)
    return worker.process.pid


def settled(sandbox) -> set[int]:
    """Descendants of this process that belong to the sandbox."""
    worker = _worker_process(sandbox)
    return {worker} | processes_below(worker)


def run_and_check(sandbox, code, world):
    before = settled(sandbox)
    (outcome,) = sandbox.run([code], SECONDS)
    assert settled(sandbox) == before, "a process was left behind, or the worker was lost"
    assert sorted(path.name for path in world["folder"].iterdir()) == ["secret"]
    assert world["secret"].read_text() == "CANARY"
    (after,) = sandbox.run(
        ["import os; print(6 * 7, os.listdir('.') if os.access('.', os.W_OK) else [])"], 5.0
    )
    assert (after.status, after.stdout) == ("ok", "42 []\n")
    return outcome


@pytest.mark.parametrize("name", ESCAPES)
def test_no_attack_gets_out(sandbox, world, name):
    if "{call}" in ESCAPES[name] and platform.machine() != "x86_64":
        pytest.skip("numbers of system calls are those of x86_64")
    outcome = run_and_check(sandbox, ESCAPES[name].format(**world), world)
    assert "ESCAPED" not in outcome.stdout
    assert "NameError" not in outcome.stderr and "SyntaxError" not in outcome.stderr


@pytest.mark.parametrize("name", STATUSES)
def test_every_misbehaviour_ends_with_its_status(sandbox, world, name):
    status, code = STATUSES[name]
    outcome = run_and_check(sandbox, code, world)
    needs_files = any(word in code for word in ("open(f", "open('f'", "mkfifo"))
    needs_children = "os.fork" in code
    if sandbox.plain and (needs_files or needs_children):
        assert outcome.status in (status, "error")
    else:
        assert outcome.status == status, outcome.stderr
    assert len(outcome.stdout) <= 1 << 16 and len(outcome.stderr) <= 1 << 17


@pytest.mark.parametrize(
    "name",
    [
        "read a file of the parent",
        "list the project",
        "symlink in the scratch folder to a secret",
        "environment of the parent",
        "own environment",
        "signal to the parent",
        "run another program",
        "TCP to this machine",
        "memory without limit (memfd)",
    ],
)
def test_outside_the_sandbox_the_same_attacks_succeed(world, tmp_path, name):
    code = ESCAPES[name].format(**world)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "ESCAPED" in done.stdout, done.stderr


SWITCH_OFF = {
    "Landlock": "kernel.landlock_version = lambda: 0",
    "seccomp": "seccomp.known = lambda: False",
    "limits": "jail._limit = lambda *_: None",
}  # namespaces are off in a plain worker


def _with_only(layer: str | None, monkeypatch) -> Sandbox:
    """A sandbox in which all other layers are switched off; its worker does not import numpy and sympy."""
    off = "\n".join(line for name, line in SWITCH_OFF.items() if name != layer)
    code = f"import socket\nfrom pipeline.sandbox import jail, kernel, seccomp, worker\n{off}\n"
    code += "worker.warm_up = list\nworker.main()"
    monkeypatch.setattr(Worker, "command", (sys.executable, "-s", "-P", "-c", code))
    if layer != "namespaces":
        _plain_worker(monkeypatch)
    return Sandbox(1, weak=layer != "namespaces" or WEAK)


@pytest.fixture(scope="module")
def open_world(world):
    """What no file permission protects: a folder for everyone, and shared memory under a key."""
    libc, key = ctypes.CDLL(None), 0x5EED0000 + os.getpid() % 0xFFFF
    memory = libc.shmget(key, 4096, 0o1666)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        (Path(folder) / "secret").write_text("CANARY")
        (Path(folder) / "secret").chmod(0o666)
        yield {**world, "open_folder": folder, "key": key}
    libc.shmctl(memory, 0, None)


@pytest.fixture(scope="module")
def no_layer():
    with pytest.MonkeyPatch.context() as monkeypatch:
        sandbox = _with_only(None, monkeypatch)
    with sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def one_layer(request):
    """A sandbox with one layer; skips where the system does not have it."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        sandbox = _with_only(request.param, monkeypatch)
    with sandbox:
        if not system_has(request.param):
            pytest.skip(f"this system has no {request.param}: {sandbox.missing}")
        yield sandbox


@pytest.mark.parametrize(
    ("one_layer", "name"),
    [(layer, name) for layer, attacks in LAYERS.items() for name in attacks],
    indirect=["one_layer"],
)
def test_each_layer_holds_alone_and_without_any_the_attack_succeeds(
    one_layer, no_layer, open_world, name, request
):
    code = LAYERS[request.node.callspec.params["one_layer"]][name]
    if "{call}" in code and platform.machine() != "x86_64":
        pytest.skip("numbers of system calls are those of x86_64")
    code = code.format(**open_world)
    (without,), (alone,) = (sandbox.run([code], 10.0) for sandbox in (no_layer, one_layer))
    assert "ESCAPED" in without.stdout, without.stderr
    assert "ESCAPED" not in alone.stdout
    assert "NameError" not in alone.stderr and "SyntaxError" not in alone.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root sees the namespaces of a worker")
def test_the_worker_has_namespaces_of_its_own():
    if WEAK:
        pytest.skip("this system allows no namespaces")
    with Sandbox(1, weak=WEAK) as sandbox:
        (inner,) = settled(sandbox) - {_worker_process(sandbox)}
        for kind in ("user", "mnt", "pid", "net", "ipc", "uts"):
            link = f"ns/{kind}"
            assert os.readlink(f"/proc/{inner}/{link}") != os.readlink(f"/proc/self/{link}"), kind


def test_programs_see_neither_each_other_nor_what_others_left():
    with Sandbox(2, weak=WEAK) as sandbox:
        write = (
            "open('left', 'w').write('x'); import math; math.pi = 3; import random; print(random.random())"
        )
        read = "import os, math; print(os.listdir('.'), math.pi > 3, __name__, sum(range(5)))"
        first, *others = sandbox.run([write, read, read], 10.0)
    assert first.status == "ok", (first.stderr, sandbox.missing)
    assert {other.stdout for other in others} == {"[] True __main__ 10\n"}


def test_programs_that_compute_with_numpy_and_sympy_give_their_results(sandbox):
    outcomes = sandbox.run(
        [
            "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
            "import numpy as np\nprint(np.linalg.solve([[2, 0], [0, 4]], [1, 2]).tolist())",
            "print('π ≈ 3', end='')",
            "from threading import Timer\nTimer(0.1, lambda: print('late')).start()",
            "from sympy.stats import E, Die\nprint(E(Die('D', 6)))\n"
            "from sympy.solvers.diophantine import diophantine",
        ],
        10.0,
    )
    expected = ["[2, 3]\n", "[0.5, 0.5]\n", "π ≈ 3", "late\n", "7/2\n"]
    for outcome, stdout in zip(outcomes, expected, strict=True):
        assert outcome.stdout == stdout, outcome.stderr


def test_a_program_finds_neither_code_nor_result_of_the_one_before_in_its_memory(sandbox):
    outcomes = sandbox.run([MARKED, SEARCH, MARKED + "\n" + SEARCH], 20.0)
    before, other, itself = (outcome.stdout.split() for outcome in outcomes)
    assert before == ["MARK=096889010407"]
    assert "ESCAPED" in itself[1], "the search finds nothing, not even what is there"
    assert len(other) == 1 and int(other[0]) > 20, other  # MiB


def test_output_of_exit_functions_is_kept(sandbox):
    (found,) = sandbox.run(["import atexit\natexit.register(print, 'bye')\nprint('hello')"], 10.0)
    assert (found.status, found.stdout) == ("ok", "hello\nbye\n")


@pytest.mark.parametrize("sandbox", ["isolated"], indirect=True)
def test_the_host_name_is_not_that_of_the_machine(sandbox):
    (found,) = sandbox.run(["import os; print(os.uname().nodename)"], 10.0)
    assert found.stdout == "sandbox\n"


def test_a_lost_worker_costs_one_program_and_is_replaced():
    with Sandbox(1, weak=WEAK) as sandbox:
        worker = sandbox.free.get()
        os.kill(worker.process.pid, 9)
        worker.process.wait()
        sandbox.free.put(worker)
        lost, next_one = sandbox.run(["print(1)", "print(2)"], 10.0)
    assert (lost.status, next_one.status, next_one.stdout) == ("limit", "ok", "2\n")


def test_a_killed_parent_takes_its_programs_along():
    code = "from pipeline.sandbox.pool import Sandbox\n"
    code += f"list(Sandbox(1, weak={WEAK}).run(['while True: pass'], 300.0))"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    deadline = time.monotonic() + 60
    expected = 2 if WEAK else 3  # the worker, process 1 of its namespace, the program
    while len(below := processes_below(parent.pid)) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(below) == expected
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{process}").exists() for process in below) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [process for process in below if Path(f"/proc/{process}").exists()]


def test_the_sandbox_imports_nothing_else_of_the_project():
    assert {path.parent for path in code_files("pipeline.sandbox.pool")} == {Path("pipeline/sandbox")}


def test_the_workers_code_counts_as_code_of_the_evaluation():
    assert Path("pipeline/sandbox/worker.py") in code_files("pipeline.evaluate")


def test_without_namespaces_programs_run_only_if_weak_protection_is_accepted(tmp_path):
    (tmp_path / "programs.jsonl").write_text('{"id": "a", "code": "print(1)"}\n')
    command = [*NO_NAMESPACES, sys.executable, "-m", "pipeline.evaluate.sandbox"]
    command += ["--input", tmp_path / "programs.jsonl", "--output", tmp_path / "results.jsonl"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2 and not (tmp_path / "results.jsonl").exists()
    (line,) = refused.stderr.splitlines()
    assert line.startswith("error: ") and all(
        word in line for word in ("sysctl", "--security-opt", "sandbox.weak: true", "--weak")
    )
    accepted = subprocess.run([*command, "--weak"], cwd=ROOT, capture_output=True, text=True)
    assert json.loads((tmp_path / "results.jsonl").read_text())["stdout"] == "1\n", accepted.stderr
    assert "sandbox: no namespaces" in accepted.stderr


def test_the_workflow_refuses_before_the_first_job_where_programs_could_not_run(tmp_path):
    checkout = copy_checkout(tmp_path)
    strict = [name for name in OVERLAYS if name != "tests/weak.yaml"]
    done = checkout.snakemake(overlays=strict, start=NO_NAMESPACES)
    assert done.returncode != 0 and not (tmp_path / "results").exists(), done.stdout
    assert "sandbox.weak: true" in done.stdout


def test_a_missing_layer_is_named_on_standard_error_at_the_start(monkeypatch, capfd):
    _plain_worker(monkeypatch)
    with Sandbox(1, weak=True) as sandbox:
        assert any("no namespaces" in layer for layer in sandbox.missing)
    assert "sandbox: no namespaces" in capfd.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests already run as an ordinary user")
def test_it_works_for_an_ordinary_user(tmp_path):
    system = Path("/usr/bin/python3")
    if not system.exists() or platform.machine() != "x86_64":
        pytest.skip("no interpreter that every user can read")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.owner() == "root" and "pytest" in str(folder):
            folder.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("CANARY")
    programs = ["print(2)", f"print(open({str(secret)!r}).read())"]
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), sysconfig.get_path('purelib')]!r}\n"
        "from pipeline.sandbox import pool\nwith pool.Sandbox(1, weak=True) as sandbox:\n"
        f"    print(sandbox.missing, [found.stdout for found in sandbox.run({programs!r}, 5)])"
    )
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(system), "-c", code],
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[] ['2\\n', '']\n", done.stderr


def test_the_program_answers_in_order_and_names_a_bad_row(tmp_path, capsys):
    rows = [{"id": "a", "code": "print(1)"}, {"id": "b", "code": "1/0"}, {"id": "c", "code": "while 1: pass"}]
    programs, results = tmp_path / "programs.jsonl", tmp_path / "results.jsonl"
    programs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--input", str(programs), "--output", str(results), "--timeout", "0.5"]
    program.main(arguments)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert [(row["id"], row["status"], row["stdout"]) for row in found] == [
        ("a", "ok", "1\n"),
        ("b", "error", ""),
        ("c", "timeout", ""),
    ]
    assert "ZeroDivisionError" in found[1]["stderr"]
    programs.write_text('{"id": "a"}\n')
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert "programs.jsonl: line 1: `code` is missing" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root loses the right to change its user")
def test_root_that_cannot_change_its_user_is_told_so_without_a_traceback():
    code = (
        "from pipeline.sandbox import pool\nstart = pool.Worker._start\n"
        "pool.Worker._start = lambda self, kind: start(self, kind) if kind == 'plain' else 'switched off'\n"
        "with pool.Sandbox(1, weak=True) as sandbox:\n"
        "    print([one.stdout for one in sandbox.run(['print(2)'], 9)])"
    )
    command = ["setpriv", "--inh-caps=-setgid", "--bounding-set=-setgid", sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "['2\\n']\n" and "Traceback" not in done.stderr, done.stderr
    assert "sandbox: no change of user" in done.stderr
