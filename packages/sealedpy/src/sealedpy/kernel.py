"""Linux system calls missing in Python 3.11: namespaces, mounts, capabilities, Landlock."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
ST_RELATIME, MS_RELATIME = 1 << 12, 1 << 21
KEPT_FLAGS = 0b1111 | 1 << 10 | 1 << 11  # ro, nosuid, nodev, noexec, noatime, nodiratime: equal in statvfs
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_KEEPCAPS = 1, 4, 8
PR_SET_NO_NEW_PRIVS, PR_SET_CHILD_SUBREAPER = 38, 36
CAPABILITY_VERSION_3 = 0x20080522
LANDLOCK_NET_BIND_TCP, LANDLOCK_NET_CONNECT_TCP = 1, 2
LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL = 1, 2

ARM = platform.machine() == "aarch64"
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID its children) to new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), data and data.encode()), f"mount {target}")


def bind(source: str, target: str, flags: int) -> None:
    """Bind-mount `source` at `target`, keeping the mount flags of the source, as the kernel demands."""
    mount(source, target, None, MS_BIND | MS_REC)
    found = os.statvfs(target).f_flag
    kept = found & KEPT_FLAGS | (MS_RELATIME if found & ST_RELATIME else 0)
    mount("none", target, None, MS_BIND | MS_REMOUNT | flags | kept)


def change_root(folder: str) -> None:
    """Make `folder`, a mount point, the root of this mount namespace and unmount the old root."""
    os.chdir(folder)
    number = 41 if ARM else 155
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def prctl(option: int, value: int = 0) -> None:
    """prctl(2) with one argument."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def set_capabilities(raised: bool) -> None:
    """Make all permitted capabilities effective, or drop all for good."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    words = bytearray(24)
    buffer = (ctypes.c_char * 24).from_buffer(words)
    if raised:
        _check(_libc.capget(header, buffer), "capget")
        low, high = struct.unpack("6I", words)[1], struct.unpack("6I", words)[4]
        words[:] = struct.pack("6I", low, low, 0, high, high, 0)
    _check(_libc.capset(header, buffer), "capset")


def landlock_version() -> int:
    """Version of the kernel's Landlock interface; 0 if it has none."""
    return max(0, _libc.syscall(444, None, ctypes.c_size_t(0), 1))


def install_landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Deny this process and its children all files but these folders (needs no_new_privs).

    Where the kernel's version of Landlock can: also TCP (4), and abstract unix sockets of and signals to
    processes outside (6).
    """
    read, version = 0b1100, landlock_version()
    handled = 0x1FFF | sum(1 << bit for bit, since in ((13, 2), (14, 3), (15, 5)) if version >= since)
    attributes = struct.pack("Q", handled)
    if version >= 4:
        attributes += struct.pack("Q", LANDLOCK_NET_BIND_TCP | LANDLOCK_NET_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("Q", LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | LANDLOCK_SCOPE_SIGNAL)
    ruleset = _check(_libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock")
    for paths, rights in ((readable, read), (writable, handled)):
        for path in paths:
            try:
                handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except PermissionError:
                continue  # unreachable for this user anyway
            own = rights if os.path.isdir(path) else rights & (0b110 | 1 << 14)
            _check(
                _libc.syscall(445, ruleset, 1, struct.pack("=Qi", own & handled, handle), 0), "landlock rule"
            )
            os.close(handle)
    _check(_libc.syscall(446, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)
