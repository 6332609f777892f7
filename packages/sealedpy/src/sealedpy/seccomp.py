"""The filter of system calls (seccomp): what a program may ask of the kernel.

`calls.toml` lists what is allowed; all else is refused. Without namespaces nothing else keeps a program from
the files and processes of its user, so there no call is allowed that takes a path, starts a process or tells
of others: a program lives on what its worker has imported, with threads but without files.
"""

import ctypes
import os
import platform
import struct
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PR_GET_SECCOMP, PR_SET_SECCOMP = 21, 22
CLONE_NEW_ANY, CLONE_THREAD = 0x7E020000, 0x10000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_libc = ctypes.CDLL(None, use_errno=True)
LOAD, EQUAL, GREATER_OR_EQUAL, ANY_BIT, ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
SUCCESS, REFUSE, UNKNOWN, ALLOW, KILL = 0x50000, 0x50001, 0x50026, 0x7FFF0000, 0x80000000  # EPERM, ENOSYS
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24  # offsets of what a filter sees; low halves of arguments

CALLS: dict[str, dict[str, list[int]]] = tomllib.loads(Path(__file__).with_name("calls.toml").read_text())
ZERO_IS_OWN = ("prlimit64", "sched_getaffinity")
CLOCKS = 16  # the clocks of a process or a thread have numbers above those of all
# fcntl: copy a descriptor, its flags, the size of a pipe; no locks, no signals, no leases.
# ioctl: whether it is a terminal, its size, bytes to read, blocking, closing. prctl: names.
VALUES = {
    "fcntl": (SECOND, (0, 1, 2, 3, 4, 1030, 1032)),
    "ioctl": (SECOND, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),
    "prctl": (FIRST, (15, 16, 0x53564D41)),
}
UNREAD = 470  # calls from this number on are newer than the table


def known() -> bool:
    """Whether the kernel supports seccomp and the table has numbers for this processor."""
    return platform.machine() in _AUDIT_ARCH and _libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _case(number: int, *steps: bytes) -> list[bytes]:
    """Return what decides about the call `number`."""
    return [_step(EQUAL, number, 0, len(steps)), *steps]


def _allow_values(offset: int, values: Iterable[int]) -> list[bytes]:
    tests = [step for value in values for step in (_step(EQUAL, value, 0, 1), _step(ANSWER, ALLOW))]
    return [_step(LOAD, offset), *tests, _step(ANSWER, REFUSE)]


@cache
def _for_all(isolated: bool) -> bytes:
    """Get the part of the filter that is the same for all programs; it follows on the number of the call."""
    numbers = {
        name: {call: found[_column()] for call, found in table.items() if _column() < len(found)}
        for name, table in CALLS.items()
    }
    special = numbers["special"]
    clone = [_step(LOAD, FIRST), _step(ANY_BIT, CLONE_NEW_ANY, 0, 1), _step(ANSWER, REFUSE)]
    if not isolated:  # threads, but no process: limits on processes count all those of the user
        clone += [_step(ANY_BIT, CLONE_THREAD, 1, 0), _step(ANSWER, REFUSE)]
    clock = [_step(LOAD, FIRST), _step(GREATER_OR_EQUAL, CLOCKS, 0, 1), _step(ANSWER, REFUSE)]
    allowed = numbers["always"] | (numbers["isolated"] if isolated else {})
    cases = [_case(number, _step(ANSWER, ALLOW)) for number in allowed.values()]
    cases += [_case(number, _step(ANSWER, SUCCESS)) for number in numbers["idle"].values()]
    cases += [_case(number, *clock, _step(ANSWER, ALLOW)) for number in numbers["clocks"].values()]
    cases += [_case(special[name], *_allow_values(*values)) for name, values in VALUES.items()]
    cases.append(_case(special["clone"], *clone, _step(ANSWER, ALLOW)))
    cases.append(_case(special["clone3"], _step(ANSWER, UNKNOWN)))  # its flags are in memory
    return b"".join([*(step for case in cases for step in case), _step(ANSWER, REFUSE)])


def _column() -> int:
    return int(platform.machine() == "aarch64")


def program(own: int, isolated: bool) -> bytes:
    """Return the filter as BPF: refused calls fail with EPERM.

    `own`: number of the calling process, in its namespace; `isolated`: whether it has namespaces.
    """
    steps = [
        _step(LOAD, ARCHITECTURE),  # another one has other numbers
        _step(EQUAL, _AUDIT_ARCH[platform.machine()], 1, 0),
        _step(ANSWER, KILL),
        _step(LOAD, NUMBER),
        _step(GREATER_OR_EQUAL, UNREAD, 0, 1),  # among them those of x32
        _step(ANSWER, UNKNOWN),
    ]
    for name, numbers in CALLS["own"].items():
        processes = (own, 0) if name in ZERO_IS_OWN else (own,)
        steps += _case(numbers[_column()], *_allow_values(FIRST, processes))
    return b"".join(steps) + _for_all(isolated)


def install(isolated: bool) -> None:
    """Filter the system calls of this process and its children from now on (needs no_new_privs)."""
    code = program(os.getpid(), isolated)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if _libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
