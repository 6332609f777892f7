"""The benchmark of mutants: what it changes, and that it tells what tests kill from what they let live."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from conftest import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import mutants  # noqa: E402

CODE = '''def double(x: int = 3) -> int:
    """Not this + 1."""
    return x * 2
def unused(x):
    if not x:
        double(x)
def unchecked(x):
    return x >= 3
'''
TESTS = """from pipeline.sums import double, unchecked
def test_double(): assert double(3) == 6
def test_unchecked(): unchecked(9)
def test_that_fails(): assert unchecked(9) is None
"""


def test_each_kind_of_change_is_found_in_functions_alone() -> None:
    assert [(each.line, each.text.strip()) for each in mutants.mutants_of("sums.py", CODE)] == [
        (3, "return x / 2"), (3, "return x * 3"), (5, "if  x:"), (8, "return x > 3"), (8, "return x >= 4"),
        (3, "return None"), (5, "if not (not x):"), (6, "pass"), (8, "return None"),
    ]  # fmt: skip


def test_killed_survived_and_not_run_are_told_apart(tmp_path: Path) -> None:
    files = {"pipeline/sums.py": CODE, "tests/test_sums.py": TESTS, "tests/test_no.py": ""}
    files["Makefile"] = "WHOLE = other\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commit = "git init -q && git add . && git -c user.name=a -c user.email=a@example.org commit -qm All"
    subprocess.run(commit, shell=True, cwd=tmp_path, check=True)
    words = Namespace(mutants=9, workers=1)
    found = mutants.measure(tmp_path, "HEAD", tmp_path / "work", words)
    assert found == {"passed": 2, "failed": 1, "killed": 1, "survived": 1, "not run": 2, "beyond": 0}
    assert mutants.rows_of({"HEAD": found})[1]["data"].startswith("2: 50.0 [")
