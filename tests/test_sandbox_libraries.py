"""A program sees the standard library and site-packages, and no file that lies beside them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from given.sandboxes import ORDINARY, ROOT_USER, SETPRIV, skip_without_namespaces

PATH_LINES = """\
{repository}
import sys; sys.path.append({repository!r}); sys.CHANGED = "ESCAPED"
"""
RUN = """
import json, sys
from contextlib import nullcontext
from sandbox_as_user import SMALL_WORKER
from sandbox_attacks import plain
from sealedpy.pool import Sandbox, Worker
assert "{repository}" in sys.path and sys.CHANGED, "the `.pth` file is not read even outside"
Worker.command = (*Worker.interpreter, "-c", SMALL_WORKER)
with plain() if {kind!r} == "plain" else nullcontext():
    sandbox = Sandbox(1, weak=True)
with sandbox:
    print(json.dumps([vars(outcome) for outcome in sandbox.run({programs!r}, 10.0)]))
"""
ATTACKS = (
    "print('ESCAPED' * ('token' in open('{repository}/.env').read()))",
    "print('ESCAPED' * ('token' in open('{repository}/.git/config').read()))",
    "import os; print('ESCAPED', os.listdir('{repository}'))",
    "import neighbour; print('ESCAPED')",
    "import sys; print('ESCAPED' * ('{repository}' in sys.path), getattr(sys, 'CHANGED', ''))",
    "import linked; print('ESCAPED')",
)


@pytest.fixture
def beside() -> Iterator[dict[str, str]]:
    """A virtual environment with an editable install of a repository that holds tokens."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        repository = Path(folder, "repository")
        packages = Path(folder, f"venv/lib/python3.{sys.version_info.minor}/site-packages")
        for made in (repository / ".git", packages, Path(folder, "venv/bin")):
            made.mkdir(parents=True)
        (repository / ".env").write_text("token=1")
        (repository / ".git/config").write_text("token=1")
        (repository / "neighbour.py").write_text("")
        (packages / "inside.py").write_text("WORD = 'found'\n")
        (packages / "linked.py").symlink_to(repository / "neighbour.py")
        (packages / "editable.pth").write_text(PATH_LINES.format(repository=str(repository)))
        yield {"folder": folder, "repository": str(repository)}


def _interpreter(prefix: list[str], folder: str) -> str:
    """The environment's Python, of a base that the user may run."""
    for base in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        same = f"sys.version_info[:2] == {sys.version_info[:2]}"
        code = f"import os, sys; sys.exit(not ({same} and os.access(sys.executable, os.X_OK)))"
        if subprocess.run([*prefix, base, "-c", code], stderr=subprocess.DEVNULL).returncode == 0:
            link = Path(folder, "venv/bin/python")
            link.symlink_to(base)
            Path(folder, "venv/pyvenv.cfg").write_text(f"home = {Path(base).parent}\n")
            return str(link)
    pytest.skip("this user has no Python of this version")


@pytest.mark.parametrize("user", [ROOT_USER, ORDINARY])
@pytest.mark.parametrize("kind", ["isolated", "plain"])
def test_what_a_pth_file_adds_is_out_of_sight(kind: str, user: int, beside: dict[str, str]) -> None:
    skip_without_namespaces(kind)
    if user == ROOT_USER and os.getuid() != ROOT_USER:
        pytest.skip("only root can run as root")
    prefix = SETPRIV[ORDINARY] if user == ORDINARY and os.getuid() == ROOT_USER else []
    python = _interpreter(prefix, beside["folder"])
    if prefix:
        subprocess.run(["chown", "-R", str(user), beside["repository"]], check=True)
    works = (
        "import inside, decimal; exit(print(inside.WORD))" if kind == "isolated" else "exit(print('found'))"
    )
    programs = [works, *(code.format(**beside) for code in ATTACKS)]
    done = subprocess.run(
        [*prefix, python, "-c", RUN.format(kind=kind, programs=programs, **beside)],
        cwd="/",
        env={"PYTHONPATH": f"{ROOT}:{ROOT}/tests:{ROOT}/packages/sealedpy/src"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, *others = json.loads(done.stdout)
    assert (first["status"], first["stdout"]) == ("ok", "found\n"), first
    assert [row["stdout"] for row in others if "ESCAPED" in row["stdout"]] == []
    assert sum("Error" in row["stderr"] for row in others) == 5, others
