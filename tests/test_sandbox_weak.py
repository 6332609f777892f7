"""Where namespaces are missing: programs are refused, or run weakly; and the attacks as an ordinary user."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

import pytest
from conftest import NO_NAMESPACES, OVERLAYS, ROOT, WEAK, copy_checkout
from sandbox_attacks import ESCAPES, plain

from pipeline.sandbox.pool import Sandbox


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


def test_a_missing_layer_is_named_on_standard_error_at_the_start(capfd):
    with plain(), Sandbox(1, weak=True) as sandbox:
        assert any("no namespaces" in layer for layer in sandbox.missing)
    assert "sandbox: no namespaces" in capfd.readouterr().err


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


RUNS = "import os, numpy, sandbox_as_user; sys.exit(not os.access(sys.executable, os.X_OK))"
ORDINARY = 12345  # number of a user who has nothing here
AS_USER = (
    ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"] if os.getuid() == 0 else []
)


@pytest.fixture(scope="module", params=["isolated", "plain"])
def as_user(request):
    """What all attacks did that an ordinary user ran, on that user's own files."""
    if request.param == "isolated" and WEAK:
        pytest.skip("this system allows no namespaces")
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests'), sysconfig.get_path('purelib')]!r}\n"
    interpreters = [[*AS_USER, path, "-c"] for path in (sys.executable, "/usr/bin/python3")]
    usable = [
        start
        for start in interpreters
        if subprocess.run([*start, code + RUNS], cwd="/", stderr=subprocess.DEVNULL).returncode == 0
    ]
    if not usable:
        pytest.skip("an ordinary user has no interpreter that reads this project")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if AS_USER:
            os.chown(folder, ORDINARY, ORDINARY)
        command = [*usable[0], f"{code}import sandbox_as_user; sandbox_as_user.main()", request.param, folder]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_sandbox_of_an_ordinary_user_changes_nothing_and_has_threads(as_user, request):
    assert as_user["user"] == (ORDINARY if AS_USER else os.getuid()) and as_user["changed"] == []
    isolated = request.node.callspec.params["as_user"] == "isolated"
    assert isolated == (not any("namespaces" in layer for layer in as_user["missing"]))
    assert as_user["threads"] == "from a thread\n"


@pytest.mark.parametrize("name", ESCAPES)
def test_no_attack_of_an_ordinary_users_program_gets_out(as_user, name):
    outcome = as_user["outcomes"][name]
    assert "ESCAPED" not in outcome["stdout"]
    assert outcome["status"] in ("ok", "error"), outcome
    assert not re.search("(Name|Syntax|ModuleNotFound)Error", outcome["stderr"]), outcome["stderr"]
