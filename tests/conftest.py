"""What several test files share: order and threads of the suite, and a finished run of the small workflow."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
IN_PARALLEL = "PYTEST_XDIST_WORKER" in os.environ
if IN_PARALLEL:  # one core for each worker; set before any test imports torch
    os.environ["OMP_NUM_THREADS"] = "1"
# The longest files, longest first: they start first, so that all workers finish at about the same time.
LONGEST = (
    "workflow",
    "rl",
    "reward",
    "single_gpu",
    "training",
    "evaluate_stage",
    "corpus",
    "training_exact",
    "recipes",  # waits for the small run that test_workflow makes
)
CORES = ["--cores", "1" if IN_PARALLEL else "2"]
UNSHARE = "unshare --user --map-root-user"
# Whether this system, asked by its own tool, refuses the namespaces that programs of a model run in.
WEAK = subprocess.run(f"{UNSHARE} --mount --pid --net --fork true 2>/dev/null", shell=True).returncode != 0
# What starts a command that cannot have them either: in a user namespace that may hold no other.
NO_MORE = "echo 0 > /proc/sys/user/max_user_namespaces"
NO_NAMESPACES = [] if WEAK else [*UNSHARE.split(), "sh", "-c", f'{NO_MORE}; exec "$@"', "sh"]
OVERLAYS = ["configs/demo.yaml", "tests/small.yaml", *(["tests/weak.yaml"] if WEAK else [])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


def run(
    command: Sequence[str | Path], folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, by default in this checkout; returns what it said."""
    env = os.environ | environment
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def on_small_disk(folder: Path, size: str, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a disk of that size at `folder`, in a mount namespace of its own."""
    if WEAK:
        pytest.skip("this system refuses the namespace in which a test can mount a small disk")
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={size} none {folder}"
    command = [*UNSHARE.split(), "--mount", "bash", "-c", f"{mount} && {script}"]
    return run(command)


@dataclass(frozen=True)
class Checkout:
    """A copy of the project's files, in which a workflow can run without touching the real checkout."""

    folder: Path

    def snakemake(
        self, *arguments: str, overlays: Sequence[str] = OVERLAYS, start: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run Snakemake in the copy, by the command `start`; stdout of the result holds stderr too."""
        return self._python(
            *start, sys.executable, "-m", "snakemake", *CORES, *arguments, "--configfile", *overlays
        )

    def dsm(
        self, *options: str, overlays: Sequence[str] = OVERLAYS, start: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run `dsm run` in the copy, likewise."""
        return self._python(*start, sys.executable, "-m", "pipeline", "run", *overlays, *CORES, *options)

    def _python(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ | {"PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def result(self, name: str) -> Path:
        return self.folder / "results/small" / name

    def overlay(self, change: dict[str, Any], name: str = "change.yaml") -> list[str]:
        """Write a configuration file with these keys; returns it behind those of the small run."""
        (self.folder / name).write_text(yaml.safe_dump(change, sort_keys=False))
        return [*OVERLAYS, name]

    def copy(self, folder: Path, *names: str) -> "Checkout":
        """A new checkout with these folders of this one, such as `results`, as in a new clone."""
        other = copy_checkout(folder)
        for name in names:
            subprocess.run(["cp", "-a", self.folder / name, folder / name], check=True)
        return other


def copy_checkout(folder: Path) -> Checkout:
    """Copy tracked files and untracked files that git does not ignore."""
    listing = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"])
    listing.check_returncode()
    for name in listing.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return Checkout(folder)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the small workflow has run to completion: run once, copied for each worker."""
    folder = tmp_path_factory.getbasetemp()
    first = (folder.parent if IN_PARALLEL else folder) / "finished-checkout"
    with FileLock(first.with_suffix(".lock")):
        if not first.exists():
            building = copy_checkout(first.with_suffix(".building"))
            done = building.snakemake()
            assert done.returncode == 0, done.stdout[-5000:]
            building.folder.rename(first)
    subprocess.run(["cp", "-a", first, folder / "checkout"], check=True)
    return Checkout(folder / "checkout")
