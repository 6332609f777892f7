"""The layers that confine a program: some set up once per worker, some per program.

Per worker: unprivileged user, mount, pid, network, ipc and uts namespaces; a read-only root with Python's
libraries and four devices only; another user. Per program: a scratch folder in memory, limits on processor
time, memory, processes and files, no capabilities, Landlock, seccomp. Where the system forbids namespaces, a
stricter filter takes their place (`seccomp`); `missing` says what is left open.
"""

import os
import re
import resource
import signal
import sys
import sysconfig
from contextlib import suppress
from math import ceil

from . import kernel, seccomp

NOBODY = 65534
SCRATCH = "/scratch"  # not /tmp: libraries may lie below it
SCRATCH_BYTES, SCRATCH_FILES = 16 << 20, 256
PROCESSES = 8
OPEN_FILES = 64
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
NAMESPACES = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


def library_paths(packages: list[str]) -> list[str]:
    """Folders and files of the standard library, of shared libraries and of `packages` (the folders named
    site-packages), none inside another. What a `.pth` file adds to `sys.path` is none of them: beside an
    editable install lie its repository's secrets.
    """
    found = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", f"{sys.base_prefix}/lib"]
    found += [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *packages]
    kept: list[str] = []
    for path in sorted({os.path.abspath(path) for path in found if os.path.exists(path)}):
        if not any(path.startswith(f"{other}/") and not os.path.islink(other) for other in kept):
            kept.append(path)
    return kept


def build_view(paths: list[str]) -> None:
    """Change to a root with nothing but `paths`, devices and an empty scratch folder."""
    root = "/proc"  # a mount point that exists everywhere and holds no library
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", root, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    read_only = kernel.MS_RDONLY | kernel.MS_NOSUID
    for path in [*paths, *DEVICES]:
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.close(os.open(target, os.O_CREAT))
        kernel.bind(path, target, read_only if path in DEVICES else read_only | kernel.MS_NODEV)
    os.mkdir(root + SCRATCH)
    os.symlink(SCRATCH, f"{root}/dev/shm")
    kernel.mount("none", root, None, kernel.MS_REMOUNT | read_only | kernel.MS_NODEV)
    kernel.change_root(root)


def become_nobody() -> None:
    """Change to user nobody, but keep the capabilities to mount scratch folders."""
    kernel.prctl(kernel.PR_SET_KEEPCAPS, 1)
    with suppress(PermissionError):  # started by an ordinary user, whose groups are not mapped
        os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    kernel.set_capabilities(raised=True)


def others(isolated: bool, load: int) -> int:
    """Count the processes and threads that the kernel may count along with those of a program, for
    RLIMIT_NPROC: none in a user namespace since Linux 5.14, else at most all of this machine. `load`:
    /proc/loadavg, open.
    """
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if isolated and version and (int(version[1]), int(version[2])) >= (5, 14):
        return 0
    return int(os.pread(load, 128, 0).split()[3].partition(b"/")[2])


def lock(seconds: float, processes: int, isolated: bool, paths: list[str], memory: int) -> None:
    """Confine the calling process for good: it may compute and, if isolated, write to its scratch folder.

    `processes`: how many processes and threads the program's user may have; `memory`: bytes of each process.
    """
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if isolated:
        kernel.unshare(kernel.CLONE_NEWNS)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount(
            "tmpfs",
            SCRATCH,
            "tmpfs",
            flags,
            f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=700,uid={NOBODY},gid={NOBODY}",
        )
        os.chdir(SCRATCH)
    _limit(seconds, processes, memory)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.set_capabilities(raised=False)
    if kernel.landlock_version():
        kernel.install_landlock([*paths, *DEVICES], [SCRATCH] if isolated else [])
    if seccomp.known():
        seccomp.install(isolated)


def _limit(seconds: float, processes: int, memory: int) -> None:
    processor = ceil(seconds) + 1  # the wall clock ends a program first
    for limit, value in (
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_FSIZE, SCRATCH_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 64),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def missing(isolated: bool) -> list[str]:
    """Return the layers that this system lacks and what they leave open; empty if there are all."""
    found = []
    if not isolated:
        found.append("no namespaces: seccomp alone keeps off files, the network and other processes")
        if os.getuid() == 0:
            found.append("no change of user: the right to change it is missing, programs run as root")
    if not kernel.landlock_version():
        found.append("no Landlock")
    if not seccomp.known():
        found.append(
            "no seccomp: system calls are not filtered"
            + ("" if isolated else ", so programs read every file that their user can read")
        )
    return found
