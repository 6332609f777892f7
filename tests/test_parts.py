"""Three rooms are packages of their own: each is built, installed and used without the project."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from conftest import ROOT

PARTS = {"formulas": "webformulas", "sandbox": "sealedpy"}
PACKAGES = ("numpy", "numpy.libs", "sympy", "mpmath", "resiliparse", "latex2mathml")  # what they depend on


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the built parts and the packages that they name, and nothing else."""
    folder = tmp_path_factory.mktemp("parts")
    venv.create(folder / "environment", symlinks=True)
    there = next((folder / "environment/lib").glob("python*/site-packages"))
    for package in PACKAGES:
        (there / package).symlink_to(Path(sysconfig.get_path("platlib")) / package)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = ["--no-deps", "--no-index", "--no-build-isolation"]
    for room in PARTS:
        source = shutil.copytree(ROOT / "pipeline" / room, folder / room)
        subprocess.run([*pip, "wheel", *quiet, "--wheel-dir", folder / "wheels", source], check=True)
    wheels = sorted((folder / "wheels").glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in wheels] == sorted(PARTS.values())
    subprocess.run([*pip, "install", *quiet, "--target", there, *wheels], check=True)
    return folder / "environment/bin/python"


@pytest.mark.parametrize("room", PARTS)
def test_the_example_of_its_readme_prints_what_it_says(room: str, python: Path, tmp_path: Path) -> None:
    example = re.findall(
        r"```python\n(.*?)```", (ROOT / f"pipeline/{room}/README.md").read_text(), re.DOTALL
    )[0]
    assert not re.search(r"\bpipeline\b", example)
    (tmp_path / "example.py").write_text(example)
    done = subprocess.run(
        [python, "-I", "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    said = {
        "formulas": "So $x^{2}$ is at least 0.\n",
        "sandbox": "ok 42\n\ntimeout \n",
    }
    assert done.stdout == said[room]


@pytest.mark.parametrize("room", PARTS)
def test_a_part_imports_nothing_of_the_project(room: str) -> None:
    for path in (ROOT / "pipeline" / room).rglob("*.py"):
        assert not re.search(r"^\s*(from|import) (pipeline|workflow|\.\.)", path.read_text(), re.MULTILINE), (
            path
        )
