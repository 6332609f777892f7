"""Where namespaces are missing: programs are refused, or run weakly; and the attacks as an ordinary user."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

import pytest
from conftest import NO_NAMESPACES, OVERLAYS, ROOT, copy_checkout
from given.sandboxes import KINDS, ROOT_USER, SETPRIV, skip_without_namespaces
from sandbox_attacks import ESCAPES


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


RUNS = "import os, sandbox_as_user; sys.exit(not os.access(sys.executable, os.X_OK))"


@pytest.fixture(scope="module", params=[(kind, user) for kind in KINDS for user in SETPRIV], ids=str)
def attacked(request):
    """What all attacks did in a sandbox of an ordinary user, or of root without the right to change its user,
    on files of that user.
    """
    kind, user = request.param
    skip_without_namespaces(kind)
    if user == ROOT_USER and os.getuid() != ROOT_USER:
        pytest.skip("only root can run as root")
    prefix = SETPRIV[user] if os.getuid() == ROOT_USER else []
    code = f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'tests'), sysconfig.get_path('purelib')]!r}\n"
    interpreters = [[*prefix, path, "-c"] for path in (sys.executable, "/usr/bin/python3")]
    usable = [
        start
        for start in interpreters
        if subprocess.run([*start, code + RUNS], cwd="/", stderr=subprocess.DEVNULL).returncode == 0
    ]
    if not usable:
        pytest.skip("this user has no interpreter that reads this project")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if prefix:
            os.chown(folder, user, user)
        command = [*usable[0], f"{code}import sandbox_as_user; sandbox_as_user.main()", kind, folder]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert found["user"] == (user if prefix else os.getuid())
    return kind, found


def test_a_sandbox_of_another_user_changes_nothing_and_has_threads(attacked):
    kind, found = attacked
    assert found["changed"] == [] and found["threads"] == "from a thread\n"
    missing = " ".join(found["missing"])
    assert ("no namespaces" in missing) == (kind == "plain")
    assert ("no change of user" in missing) == (kind == "plain" and found["user"] == ROOT_USER)


@pytest.mark.parametrize("name", ESCAPES)
def test_no_attack_in_a_sandbox_of_another_user_gets_out(attacked, name):
    outcome = attacked[1]["outcomes"][name]
    assert "ESCAPED" not in outcome["stdout"]
    assert outcome["status"] in ("ok", "error"), outcome
    assert not re.search("(Name|Syntax|ModuleNotFound)Error", outcome["stderr"]), outcome["stderr"]
