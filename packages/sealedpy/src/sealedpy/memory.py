"""How much memory all processes of a program may have together.

A cgroup bounds them where the system lends one: the cgroup that this process is in, or the one above it,
belongs to its user, or systemd has marked it (`Delegate=yes`). Elsewhere each process gets its share, so that
all processes of all programs fit into the memory of this machine, or of this job.
"""

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROGRAM_BYTES = 1 << 30
LEAST_BYTES = 384 << 20  # of a process; numpy and sympy take 170 MiB of address space
KERNEL_BYTES = 64 << 20  # what the kernel counts along with a program in a cgroup: its files, its page tables
MARKS = ("user.delegate", "trusted.delegate")
_numbers = itertools.count()


def _own() -> Iterator[tuple[Path, str]]:
    """Get the cgroups that count this process's memory, of either version, with the file of their limit."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if "memory" in kinds.split(","):
                yield Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
            elif not kinds:
                yield Path(f"/sys/fs/cgroup{path}"), "memory.max"


def _is_lent(folder: Path) -> bool:
    with suppress(OSError):
        if folder.stat().st_uid == os.getuid() != 0:
            return True
        return any(os.getxattr(folder, mark) == b"1" for mark in MARKS if mark in os.listxattr(folder))
    return False


def borrow() -> Path | None:
    """Make a cgroup for one program at a time; None where the system lends none."""
    for own, limit in _own():
        for folder in filter(_is_lent, (own, own.parent)):
            made = folder / f"sandbox-{os.getpid()}-{next(_numbers)}"
            with suppress(OSError):
                if limit == "memory.max":
                    (folder / "cgroup.subtree_control").write_text("+memory")
                made.mkdir()
                (made / limit).write_text(str(PROGRAM_BYTES + KERNEL_BYTES))
                with suppress(OSError):  # a system without swap may lack it
                    (made / "memory.swap.max").write_text("0")
                return made
            give_back(made)
    return None


def give_back(cgroup: Path | None) -> None:
    """Remove a cgroup whose processes have ended."""
    with suppress(OSError):
        if cgroup:
            cgroup.rmdir()


def share(processes: int) -> int:
    """Bytes for one of so many processes that may run at the same time, at most `PROGRAM_BYTES`."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for own, limit in _own():
        for folder in (own, *own.parents):
            with suppress(OSError, ValueError):  # no limit
                total = min(total, int((folder / limit).read_text()))
    return max(LEAST_BYTES, min(PROGRAM_BYTES, total // processes))
