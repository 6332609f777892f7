"""What the programs of `data/sandbox.toml` try to reach.

In them `{secret}` is a file outside, `{folder}` its folder, `{process}` the parent's process number, `{port}`
an open TCP port of this machine, `{abstract}` a unix socket without a file, `{key}` the key of shared memory,
`{host}` this machine's name, `{call}` lines that define `call(number, ...)`: a raw system call. `outside`
makes all these.
"""

import ctypes
import os
import platform
import socket
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sealedpy.pool import Worker

ROOT = Path(__file__).resolve().parents[1]

CALL = """
import ctypes, os, platform
_libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    return _libc.syscall(number, *arguments)
"""

PROGRAMS = tomllib.loads((ROOT / "tests/data/sandbox.toml").read_text())
ESCAPES: dict[str, str] = PROGRAMS["escapes"]


def state(folder: Path) -> dict[str, tuple[Any, ...]]:
    """What a program could change of a folder's files: their names, content, mode, owner, links and times."""
    return {
        path.name: (
            path.read_text(),
            *(getattr(path.stat(), f"st_{field}") for field in FIELDS),
            os.listxattr(path),
        )
        for path in sorted(folder.iterdir())
    } | {".": (folder.stat().st_mode, folder.stat().st_mtime_ns)}


FIELDS = ("mode", "uid", "gid", "nlink", "mtime_ns", "ctime_ns")


@contextmanager
def outside(folder: Path) -> Iterator[dict[str, Any]]:
    """The targets of the attacks; `folder` is empty, and of the user who calls this."""
    (folder / "secret").write_text("CANARY")
    os.environ["SANDBOX_CANARY"] = "CANARY"
    libc, key = ctypes.CDLL(None), 0x5EED0000 + os.getpid() % 0xFFFF
    memory, name = libc.shmget(key, 4096, 0o1666), f"canary-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{name}")
        unix.listen()
        yield {
            "secret": folder / "secret",
            "folder": folder,
            "project": ROOT,
            "process": os.getpid(),
            "port": server.getsockname()[1],
            "abstract": name,
            "key": key,
            "host": platform.node(),
            "call": CALL,
        }
    libc.shmctl(memory, 0, None)
    del os.environ["SANDBOX_CANARY"]


@contextmanager
def plain() -> Iterator[None]:
    """Workers that start meanwhile get no namespaces: the fallback where the system refuses them."""
    start = Worker._start
    Worker._start = lambda self, kind: start(self, kind) if kind == "plain" else "switched off"
    try:
        yield
    finally:
        Worker._start = start
