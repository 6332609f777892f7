"""What several test files share: a finished small run of the whole workflow, in a copy of the checkout."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = ["configs/demo.yaml", "tests/small.yaml"]


@dataclass(frozen=True)
class Checkout:
    """A copy of the project's files in which a workflow can run without touching the real checkout."""

    folder: Path

    def snakemake(self, *arguments: str, overlays: list[str] = OVERLAYS) -> subprocess.CompletedProcess[str]:
        """Run Snakemake here; returns its output (stdout and stderr together) and exit code."""
        command = [sys.executable, "-m", "snakemake", "--profile", "workflow/profiles/local", "--cores", "2"]
        command += [*arguments, "--configfile", *overlays]
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


def copy_checkout(folder: Path) -> Checkout:
    """Copy the files that git knows or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in listing.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return Checkout(folder)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the small workflow has run to its end."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout"))
    done = checkout.snakemake()
    assert done.returncode == 0, done.stdout[-5000:]
    return checkout
