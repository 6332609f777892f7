"""Each layer of the sandbox stops its own attacks while the others are off."""

import ctypes
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import cache
from pathlib import Path

import pytest
from conftest import WEAK
from sandbox_attacks import outside, plain
from sandbox_layers import LANDLOCK_SINCE, LAYERS

from pipeline.sandbox import seccomp
from pipeline.sandbox.pool import Sandbox, Worker


def system_has(layer: str) -> bool:
    """Whether this system has a layer, asked without the sandbox: a lost layer must not be skipped."""
    return {
        "namespaces": not WEAK,
        "Landlock": landlock_version() > 0,
        "seccomp": platform.machine() in ("x86_64", "aarch64"),
        "limits": True,
        "another user": os.getuid() == 0,
        "no capabilities": not WEAK,
    }[layer]


def landlock_version() -> int:
    create_ruleset, version = 444, 1  # the flag that asks for the version
    return ctypes.CDLL(None).syscall(create_ruleset, None, ctypes.c_size_t(0), version)


SWITCH_OFF = {
    "Landlock": "kernel.landlock_version = lambda: 0",
    "seccomp": "seccomp.known = lambda: False",
    "limits": "jail._limit = lambda *_: None",
    "another user": "import os; os.setgroups = os.setresgid = os.setresuid = lambda *_: None",
    "no capabilities": "drop = kernel.set_capabilities\nkernel.set_capabilities = lambda raised: drop(True)",
}  # namespaces are off in a plain worker
IN_NAMESPACES = ("namespaces", "no capabilities")
WITHOUT = """
import socket
from pipeline.sandbox import jail, kernel, seccomp, worker
worker.warm_up = worker.more_modules = list  # numpy and sympy are not needed
{}
worker.main()
"""


def _sandbox_without(layers: Sequence[str], isolated: bool) -> Sandbox:
    lines = "\n".join(SWITCH_OFF[name] for name in layers)
    with pytest.MonkeyPatch.context() as monkeypatch, nullcontext() if isolated else plain():
        monkeypatch.setattr(Worker, "command", (sys.executable, "-s", "-P", "-c", WITHOUT.format(lines)))
        return Sandbox(1, weak=not isolated)


@pytest.fixture(scope="module")
def layers():
    """Makes two sandboxes: one with a layer, one without; of the others only the change of user is on."""
    with ExitStack() as stack:

        @cache
        def pair(name: str) -> tuple[Sandbox, Sandbox]:
            others = [other for other in ("Landlock", "seccomp", "limits") if other != name]
            alone = _sandbox_without(others, name in IN_NAMESPACES)
            none = [*others, name] if name in SWITCH_OFF else others
            without = _sandbox_without(none, name in IN_NAMESPACES and name != "namespaces")
            return stack.enter_context(alone), stack.enter_context(without)

        yield pair


@pytest.fixture(scope="module")
def open_world(tmp_path_factory):
    """What no file permission protects, a folder for everyone, and in it a file that is private."""
    made = tempfile.TemporaryDirectory(dir="/tmp")
    with outside(tmp_path_factory.mktemp("outside")) as world, made as folder:
        Path(folder).chmod(0o777)
        for name, mode in (("secret", 0o666), ("private", 0o600)):
            (Path(folder) / name).write_text("CANARY")
            (Path(folder) / name).chmod(mode)
        own = f"path = '{folder}/' + os.urandom(8).hex()"
        yield {**world, "open_folder": folder, "own": own}


@pytest.mark.parametrize(
    ("name", "attack"), [(layer, attack) for layer, attacks in LAYERS.items() for attack in attacks]
)
def test_each_layer_holds_alone_and_without_any_the_attack_succeeds(layers, open_world, name, attack):
    if not system_has(name):
        pytest.skip(f"this system has no {name}")
    if attack == "a namespace" and WEAK:
        pytest.skip("this system refuses namespaces to everyone")
    code = LAYERS[name][attack]
    if "{call}" in code and platform.machine() != "x86_64":
        pytest.skip("numbers of system calls are those of x86_64")
    if name == "Landlock" and landlock_version() < LANDLOCK_SINCE.get(attack, 1):
        pytest.skip("this kernel's version of Landlock does not know of it")
    (stopped,), (successful,) = (sandbox.run([code.format(**open_world)], 10.0) for sandbox in layers(name))
    assert "ESCAPED" in successful.stdout, successful.stderr
    assert "ESCAPED" not in stopped.stdout
    assert not re.search("(Name|Syntax|ModuleNotFound)Error", stopped.stderr), stopped.stderr


@pytest.mark.parametrize(
    ("column", "header"), [(0, "x86_64-linux-gnu/asm/unistd_64.h"), (1, "asm-generic/unistd.h")]
)
def test_the_filter_knows_the_numbers_of_calls_as_the_kernel_does(column, header):
    path = Path("/usr/include") / header
    if not path.exists():
        pytest.skip(f"no {path} on this system")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text()))
    ours = seccomp.DENIED | seccomp.DENIED_WITHOUT_NAMESPACES | seccomp.OWN_PROCESS_ONLY
    ours |= {"fcntl": seccomp.FCNTL, "prctl": seccomp.PRCTL, "clone": seccomp.CLONE, "clone3": seccomp.CLONE3}
    if column == 1:
        numbers["newfstatat"] = numbers["fstatat"]
    known = {name: str(found[column]) for name, found in ours.items() if name in numbers}
    assert len(known) > 100 and known == {name: numbers[name] for name in known}
