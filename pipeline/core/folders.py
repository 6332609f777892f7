"""Lock a stage's work folder, and check that its output folders can be written."""

import errno
import fcntl
import os
import platform
import shutil
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.errors import InputError, Passing

FULL_DISK_BYTES = 1 << 16
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SEEN_SECONDS = 90.0  # a shared file system may show a new file to other nodes a minute late
TAKER = "WORK_FOLDER_TAKER"  # in the environment: the process that took it for this one
FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
TAKEN = (errno.EAGAIN, errno.EACCES)


class Taken(Passing):
    """Another program works in a folder; the message names it."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other programs out of the work folder `folder` until the block ends, if the program that started
    this one does not do so already (`take`). Raises Taken.

    The kernel drops the lock with its process, so a kill leaves none behind, and children do not inherit it.
    """
    file = None
    try:
        file = _locked(folder)
    except Taken:
        if str(_lock(folder)[0]) != os.environ.get(TAKER):
            raise
    try:
        yield
    finally:
        release(folder)
        if file is not None:
            os.close(file)


def take(folder: Path) -> None:
    """Keep other programs out of a work folder, for this process and the program that it starts or becomes.
    Raises Taken.
    """
    os.set_inheritable(_locked(folder), True)
    os.environ[TAKER] = str(os.getpid())


def release(folder: Path) -> None:
    """Let others take a work folder; the lock itself ends with its process."""
    _lock_of(folder).unlink(missing_ok=True)


def _lock_of(folder: Path) -> Path:
    folder = Path(os.path.abspath(folder))  # "." and ".." name none
    return folder.with_name(f".{folder.name}.lock")


def _locked(folder: Path) -> int:
    """Return the lock of a work folder, open and locked."""
    path = _lock_of(folder)
    check_writable(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(file, 500).decode(errors="replace") or "another program"
            os.close(file)
            if error.errno in TAKEN:
                raise Taken(f"{folder}: {holder} works in it; wait for that or end it") from error
            raise InputError(
                f"{path}: cannot be locked ({error.strerror}); work on another file system"
            ) from error
        if path.exists() and os.fstat(file).st_ino == path.stat().st_ino:
            break
        os.close(file)  # its holder removed it meanwhile
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.ftruncate(file, 0)
    os.write(file, f"process {os.getpid()} on {platform.node()}{_job()} (since {since})".encode())
    return file


def _job() -> str:
    """Return the job of Slurm's that this process is of."""
    return f" of job {os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""


def holder(folder: Path) -> str | None:
    """Name the program that works in the folder, and since when; None if none does, or one of this job of
    Slurm's, whose nodes do not start at once. It does not touch the lock.
    """
    said = _lock(folder)[1]
    return None if said and _job() and f"{_job()} (" in said else said


def _lock(folder: Path) -> tuple[int | None, str | None]:
    """Return the process that has locked a folder, as this machine knows it, and what it says of itself."""
    try:
        file = os.open(_lock_of(folder), os.O_RDWR)
    except OSError:
        return None, None
    try:
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
        locked = found[0] != fcntl.F_UNLCK
        return (found[4], os.read(file, 500).decode(errors="replace")) if locked else (None, None)
    finally:
        os.close(file)


def check_writable(folder: Path) -> None:
    """Raise InputError unless files can be written in `folder`, or where it will be made: the place is not
    read-only, its disk has room and the user's quota too. Nothing is left there.
    """
    there = next(path for path in [folder, *folder.absolute().parents] if path.exists())
    probe = there / f".probe.{os.getpid()}"
    try:
        try:
            probe.write_bytes(bytes(FULL_DISK_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from error


def full_disk(error: BaseException, folders: list[Path]) -> str | None:
    """Return the message about a full disk if `error` comes from one, which libraries report in many ways: by
    the cause, by its text, or by nothing but the full disk.
    """
    cause: BaseException | None = error
    while cause is not None:
        told = any(os.strerror(number) in str(cause) for number in FULL)
        if told or (isinstance(cause, OSError) and cause.errno in FULL):
            where = getattr(cause, "filename", None) or folders[0]
            return f"{where}: no space left on this disk or in this quota; free some and run again"
        cause = cause.__cause__ or cause.__context__
    for folder in folders:
        existing = next(path for path in [folder, *folder.absolute().parents] if path.exists())
        if shutil.disk_usage(existing).free < FULL_DISK_BYTES:
            return f"{folder}: no space left on this disk; free some and run again"
    return None


def wait_for(path: Path) -> None:
    """Wait until this node sees a file that another one has written. Raises Passing if it never does."""
    deadline = time.monotonic() + SEEN_SECONDS
    while not path.exists():
        if time.monotonic() > deadline:
            raise Passing(f"{path}: not seen here, but by another rank; do all nodes share this folder?")
        time.sleep(0.2)
