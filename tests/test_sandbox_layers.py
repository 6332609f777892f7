"""Each layer of the sandbox stops its own attacks while the others are off."""

import ctypes
import os
import platform
import re
import struct
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from conftest import WEAK
from given.sandboxes import open_sandbox, skip_calls_of_x86
from sandbox_attacks import PROGRAMS, outside
from sealedpy import seccomp
from sealedpy.pool import Sandbox


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
from sealedpy import jail, kernel, seccomp, worker
worker.warm_up = worker.more_modules = list  # numpy and sympy are not needed
{}
worker.main()
"""


def _sandbox_without(layers: Sequence[str], isolated: bool) -> Sandbox:
    lines = "\n".join(SWITCH_OFF[name] for name in layers)
    return open_sandbox("isolated" if isolated else "plain", program=WITHOUT.format(lines))


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
    ("name", "attack"),
    [(layer, attack) for layer, attacks in PROGRAMS["layers"].items() for attack in attacks],
)
def test_each_layer_holds_alone_and_without_any_the_attack_succeeds(layers, open_world, name, attack):
    if not system_has(name):
        pytest.skip(f"this system has no {name}")
    if attack == "a namespace" and WEAK:
        pytest.skip("this system refuses namespaces to everyone")
    code = PROGRAMS["layers"][name][attack]
    skip_calls_of_x86(code)
    if name == "Landlock" and landlock_version() < PROGRAMS["landlock_since"].get(attack, 1):
        pytest.skip("this kernel's version of Landlock does not know of it")
    (stopped,), (successful,) = (sandbox.run([code.format(**open_world)], 10.0) for sandbox in layers(name))
    assert "ESCAPED" in successful.stdout, successful.stderr
    assert "ESCAPED" not in stopped.stdout
    assert not re.search("(Name|Syntax|ModuleNotFound)Error", stopped.stderr), stopped.stderr


HEADERS = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@pytest.mark.parametrize(("column", "machine"), enumerate(HEADERS))
def test_the_filter_knows_the_numbers_of_calls_as_the_kernel_does(column, machine):
    path = Path("/usr/include") / HEADERS[machine]
    if not path.exists():
        pytest.skip(f"no {path} on this system")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text()))
    if machine == "aarch64":
        numbers["newfstatat"] = numbers["fstatat"]
    calls = {name: found for table in seccomp.CALLS.values() for name, found in table.items()}
    assert len(calls) == sum(map(len, seccomp.CALLS.values())), "a call stands in two tables"
    ours = {name: str(found[column]) for name, found in calls.items() if column < len(found)}
    assert len(ours) > 100 and ours == {name: numbers.get(name, ours[name]) for name in ours}
    assert not calls.keys() - ours.keys() & numbers.keys(), "this processor has the call too"


def verdict(code: bytes, machine: str, number: int, *arguments: int) -> str:
    """What the filter answers to a call, by the rules of the kernel's machine for filters."""
    words = struct.pack("IIQ6Q", number, ARCHITECTURES[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    steps, at, value = list(struct.iter_unpack("HBBI", code)), 0, 0
    while True:
        operation, yes, no, operand = steps[at]
        if operation == seccomp.ANSWER:
            return {value: name for name, value in ANSWERS.items()}[operand]
        if operation == seccomp.LOAD:
            (value,) = struct.unpack_from("I", words, operand)
        else:
            tests = {
                seccomp.EQUAL: value == operand,
                seccomp.GREATER_OR_EQUAL: value >= operand,
                seccomp.ANY_BIT: value & operand != 0,
            }
            at += yes if tests[operation] else no
        at += 1


ANSWERS = {name: getattr(seccomp, name) for name in ("SUCCESS", "REFUSE", "UNKNOWN", "ALLOW", "KILL")}


def filter_of(machine: str, isolated: bool) -> bytes:
    """The filter of process 7 on a processor of this kind."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(platform, "machine", lambda: machine)
        seccomp._for_all.cache_clear()
        code = seccomp.program(7, isolated)
    seccomp._for_all.cache_clear()
    return code


@pytest.mark.parametrize("machine", HEADERS)
@pytest.mark.parametrize("isolated", [True, False])
def test_every_call_that_is_not_listed_is_refused(machine, isolated):
    code, nothing = filter_of(machine, isolated), (0x90000000, 0x90000000)  # arguments that no rule allows
    column = list(HEADERS).index(machine)
    listed = seccomp.CALLS["always"] | (seccomp.CALLS["isolated"] if isolated else {})
    free = {found[column] for found in listed.values() if column < len(found)}
    answers = {number: verdict(code, machine, number, *nothing) for number in range(1 << 11)}
    assert {number for number, answer in answers.items() if answer == "ALLOW"} == free
    idle = {found[column] for found in seccomp.CALLS["idle"].values()}
    assert {number for number, answer in answers.items() if answer == "SUCCESS"} == idle
    assert {answers[number] for number in range(470, 1 << 11)} == {"UNKNOWN"}
    assert verdict(code, machine, 0x40000000 | 1) == "UNKNOWN"  # x32
    assert verdict(code, {"x86_64": "aarch64", "aarch64": "x86_64"}[machine], 1) == "KILL"


@pytest.mark.parametrize("isolated", [True, False])
def test_calls_with_conditions_are_allowed_under_them_alone(isolated):
    code, fork, thread = filter_of("x86_64", isolated), 0x11, 0x3D0F00

    def allowed(name: str, *arguments: int) -> bool:
        table = next(table for table in seccomp.CALLS.values() if name in table)
        return verdict(code, "x86_64", table[name][0], *arguments) == "ALLOW"

    assert [allowed("kill", who, 9) for who in (7, 0, 1, 8, 2**32 - 1)] == [True, False, False, False, False]
    assert [allowed("sched_getaffinity", who) for who in (7, 0, 8)] == [True, True, False]
    assert [allowed("prlimit64", who) for who in (7, 0, 8)] == [True, True, False]
    clocks, commands = (0, 1, 11, 16, 2**32 - 6), (1, 3, 1030, 6, 8, 10, 1024)
    assert [clock for clock in clocks if allowed("clock_gettime", clock)] == [0, 1, 11]
    assert [command for command in commands if allowed("fcntl", 1, command)] == [1, 3, 1030]
    assert [allowed("ioctl", 1, request) for request in (0x5401, 0x5412, 0x541C)] == [True, False, False]
    assert [allowed("prctl", option) for option in (15, 1, 4, 22, 36)] == [True, False, False, False, False]
    assert [allowed("clone", flags) for flags in (thread, fork, fork | 0x10000000)] == [True, isolated, False]
