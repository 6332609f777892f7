"""A sandbox of either kind: `isolated` in namespaces, `plain` as where the system refuses them."""

import platform
from contextlib import nullcontext

import pytest
from conftest import WEAK
from sandbox_attacks import plain
from sealedpy.pool import Sandbox, Worker

KINDS = ("isolated", "plain")


def skip_without_namespaces(kind: str = "isolated") -> None:
    """Skip a test of what this system cannot have."""
    if kind == "isolated" and WEAK:
        pytest.skip("this system allows no namespaces")


def skip_calls_of_x86(code: str) -> None:
    """Skip a program with raw system calls on another processor."""
    if "{call}" in code and platform.machine() != "x86_64":
        pytest.skip("numbers of system calls are those of x86_64")


def open_sandbox(kind: str, workers: int = 1, program: str | None = None) -> Sandbox:
    """Start a sandbox; `program` is what its workers run instead of their own module."""
    skip_without_namespaces(kind)
    with pytest.MonkeyPatch.context() as patch, plain() if kind == "plain" else nullcontext():
        if program is not None:
            patch.setattr(Worker, "command", (*Worker.interpreter, "-c", program))
        return Sandbox(workers, weak=kind == "plain")


ROOT_USER, ORDINARY = 0, 12345  # the latter has nothing here
SETPRIV = {
    ROOT_USER: ["setpriv", "--inh-caps=-setgid", "--bounding-set=-setgid"],  # it cannot change its user
    ORDINARY: ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"],
}
