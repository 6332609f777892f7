"""Find WARC files (lists, globs, dumps) and open local and remote ones alike.

Remote files (https, s3, whatever fsspec supports) are read forward in large ranges. A failed read is retried
from where it stopped, with growing delays, and not before the server allows it (`Retry-After`).
"""

import glob
import gzip
import io
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.common.stage import InputError

DUMP = re.compile(r"CC-MAIN-\d{4}-\d{2}(?:/(?:warc|wet))?")
LISTS = (".paths", ".paths.gz", ".txt")
ATTEMPTS = 6
FIRST_DELAY = 1.0  # seconds; doubles with each attempt
MAX_DELAY = 300.0  # seconds, also where the server asks for more
BLOCK_BYTES = 8 << 20  # one range request
BUFFER_BYTES = 1 << 20


def expand(sources: Iterable[str], base_url: str = "") -> list[str]:
    """The WARC files that `sources` stand for, in order; `base_url` is put before relative entries of lists.

    A Common Crawl dump (`CC-MAIN-2024-10`, for its text files `CC-MAIN-2024-10/wet`) stands for its list.

    Raises InputError for a missing file or list, a glob without match, or two files of the same name (a
    page's lineage names its file without folder).
    """
    found: list[str] = []
    for source in sources:
        if DUMP.fullmatch(source):
            dump, _, kind = source.partition("/")
            found += _read_list(f"{base_url}crawl-data/{dump}/{kind or 'warc'}.paths.gz", base_url)
            continue
        for path in _matches(source):
            found += _read_list(path, base_url) if path.endswith(LISTS) else [path]
    for path in found:
        if not is_remote(path) and not Path(path).is_file():
            raise InputError(f"{path}: no such WARC file")
    repeated = [name for name, times in Counter(map(file_name, found)).items() if times > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: two WARC files of this name; lineage needs different names")
    return found


def _matches(source: str) -> list[str]:
    """The files that a glob matches, in order; anything else is itself."""
    if is_remote(source) or not glob.has_magic(source):
        return [source]
    matches = sorted(glob.glob(source, recursive=True))
    if not matches:
        raise InputError(f"{source}: matches no file")
    return matches


def _read_list(path: str, base_url: str) -> list[str]:
    lines = map(str.strip, read_lines(path))
    return [line if is_remote(line) or Path(line).is_file() else base_url + line for line in lines if line]


def is_remote(path: str) -> bool:
    """Whether a path is an address such as https://... or s3://..."""
    return "://" in path


def file_name(path: str) -> str:
    """The name of a WARC file without its folder, as lineage gives it."""
    return path.rsplit("/", 1)[-1]


def open_source(path: str) -> BinaryIO:
    """Open a local or remote file for seekable binary reading, or raise InputError that names it."""
    if is_remote(path):
        return io.BufferedReader(RemoteFile(path), buffer_size=BUFFER_BYTES)
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read_lines(path: str) -> list[str]:
    """The lines of a local or remote text file, unpacked if its name ends in `.gz`. Raises InputError."""
    with open_source(path) as file:
        data = file.read()
    try:
        return (gzip.decompress(data) if path.endswith(".gz") else data).decode().split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a readable text or gzip file ({error})") from error


class RemoteFile(io.RawIOBase):
    """A remote file read in ranges. A request is retried with growing delays, then raises InputError."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self._position = 0
        self._file: Any = None
        self.size: int = self._retry(lambda file: file.size)
        if self.size is None:
            raise InputError(f"{url}: the server tells no size, so no ranges can be read; download it first")

    def _open(self) -> Any:
        import fsspec  # local WARC files need no network stack

        try:
            return fsspec.open(self.url, "rb", block_size=BLOCK_BYTES, cache_type="readahead").open()
        except ImportError as error:
            raise InputError(f"{self.url}: {error}") from error

    def _retry(self, action: Any) -> Any:
        """`action(file)` at the present position; a failed request leaves the file usable."""
        for attempt in range(ATTEMPTS):
            try:
                if self._file is None:
                    self._file = self._open()
                self._file.seek(self._position)
                return action(self._file)
            except InputError:
                raise
            except Exception as error:  # the network stack's own classes: try again
                failure = error
                if _is_absent(error):
                    raise InputError(f"{self.url}: not found") from error
                if attempt + 1 < ATTEMPTS:
                    time.sleep(_delay(error, attempt))
        raise InputError(f"{self.url}: cannot be read ({failure}), {ATTEMPTS} attempts made") from failure

    def _read(self, file: Any, size: int) -> bytes:
        data = file.read(size)
        if not data and size and self._position < self.size:
            raise EOFError(f"the server ends at byte {self._position} of {self.size}")
        return data

    def read_range(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on: one request, without reading ahead."""
        end = min(offset + length, self.size)

        def fetch(file: Any) -> bytes:
            data = file.fs.cat_file(self.url, start=offset, end=end)
            if len(data) != max(end - offset, 0):
                raise EOFError(f"the server gave {len(data)} bytes of {end - offset}")
            return data

        return self._retry(fetch) if offset < end else b""

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the present position; 0 at the end."""
        data = self._retry(lambda file: self._read(file, len(buffer)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move without a request."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """The present position in bytes."""
        return self._position

    def readable(self) -> bool:
        """True: it is read."""
        return True

    def seekable(self) -> bool:
        """True: offsets are needed to resume."""
        return True


def _delay(error: Exception, attempt: int) -> float:
    """Seconds to wait: what the server asks for, else twice as long each time, with random jitter: jobs that
    were refused together should not return together.
    """
    answers = (getattr(one, "headers", None) or {} for one in (error, error.__cause__))
    asked = next((answer["Retry-After"] for answer in answers if "Retry-After" in answer), "")
    own = FIRST_DELAY * 2**attempt
    return min(max(own, float(asked) if asked.isdecimal() else 0.0), MAX_DELAY) * random.uniform(1.0, 1.25)


def _is_absent(error: Exception) -> bool:
    """Whether the server has no such file; fsspec raises the same error for an unreachable server."""
    cause = error.__cause__
    return isinstance(error, FileNotFoundError) and (cause is None or getattr(cause, "status", None) == 404)
