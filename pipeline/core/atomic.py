"""Writing of files that appear whole or not at all."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path, durable: bool = False, secret: bool = False) -> Iterator[Path]:
    """Give a file beside `path` to write, which takes its place when the block ends, and goes if it fails.

    Makes the folder. `durable`: on disk before it gets its name. `secret`: only this user may read it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{platform.node()}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    if secret:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield partial
        if durable:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
