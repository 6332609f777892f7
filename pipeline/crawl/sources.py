"""Find WARC files (lists, globs, dumps) and open local and remote ones alike.

A server is not trusted: its lists lead only to itself or the server of the configured base, and lists are
bounded. Messages and lineage show addresses without user and query, which may be secret.
"""

import glob
import gzip
import io
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipeline.core.addresses import is_remote, public
from pipeline.core.stage import InputError
from pipeline.crawl.remote import RemoteFile, server_of

DUMP = re.compile(r"CC-MAIN-\d{4}-\d{2}(?:/(?:warc|wet))?")
LISTS = (".paths", ".paths.gz", ".txt")
BUFFER_BYTES = 1 << 20
LINE_BYTES = 1 << 20
LIST_BYTES, LIST_LINES = 64 << 20, 1_000_000  # of a list, unpacked; one of Common Crawl's has 90,000 lines


def expand(sources: Iterable[str], base_url: str = "") -> list[str]:
    """Find the WARC files that `sources` stand for, in order; relative entries of lists are below `base_url`.

    A Common Crawl dump (`CC-MAIN-2024-10`, for its text files `CC-MAIN-2024-10/wet`) stands for its list.

    Raises InputError for a missing file or list, a glob without match, or two files of the same name (a
    page's lineage names its file without folder).
    """
    return [path for _, path in expand_lists(sources, base_url)]


def expand_lists(sources: Iterable[str], base_url: str = "") -> list[tuple[str, str]]:
    """Find the files of `expand`, each after the list that names it; "" for files that no list names."""
    if base_url != public(base_url):
        raise InputError(
            "config key crawl.base_url: manifests show it, so it must hold no user, password or query"
        )
    found: list[tuple[str, str]] = []
    for source in sources:
        if DUMP.fullmatch(source):
            dump, _, kind = source.partition("/")
            paths = _read_list(f"{base_url}crawl-data/{dump}/{kind or 'warc'}.paths.gz", base_url)
            found += [(source, path) for path in paths]
            continue
        for path in _matches(source):
            listed = public(path).endswith(LISTS)
            found += [(path, one) for one in _read_list(path, base_url)] if listed else [("", path)]
    for _, path in found:
        if not is_remote(path) and not os.path.isfile(path):
            raise InputError(f"{path[:200]}: no such WARC file")
    repeated = [name for name, times in Counter(file_name(path) for _, path in found).items() if times > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: two WARC files of this name; lineage needs different names")
    return found


def _matches(source: str) -> list[str]:
    """Find the files that a glob matches, in order; anything else is itself."""
    if is_remote(source) or not glob.has_magic(source):
        return [source]
    matches = sorted(glob.glob(source, recursive=True))
    if not matches:
        raise InputError(f"{source}: matches no file")
    return matches


def _read_list(path: str, base_url: str) -> list[str]:
    found, size = [], 0
    for number, line in enumerate(read_lines(path), start=1):
        size += len(line) + 1
        if size > LIST_BYTES or number > LIST_LINES:
            raise InputError(
                f"{public(path)}: a list of over {LIST_LINES:,} lines or {LIST_BYTES >> 20} MB; split it"
            )
        if name := line.strip():
            found.append(follow(name, path, base_url))
    return found


def follow(name: str, origin: str, base_url: str) -> str:
    """Find the file that the list or index `origin` calls `name`: as given, or else below `base_url`.

    Raises InputError where a remote list leads to another server than its own or that of `base_url`, or to a
    file of this machine outside the folder `base_url`.
    """
    if not is_remote(origin):  # the user's own file
        return name if is_remote(name) or os.path.isfile(name) else base_url + name
    path = name if is_remote(name) else base_url + name
    if is_remote(path):
        known = (origin, base_url)
        allowed = server_of(path) in [
            server_of(one) for address in known for one in (address, public(address))
        ]
    else:
        folder = Path(base_url).resolve()
        allowed = bool(base_url) and Path(path).resolve().is_relative_to(folder)
    # Libraries differ in what they make of a backslash; fsspec reads `::` as another address.
    if not allowed or "\\" in name or "::" in name:
        raise InputError(
            f"{public(origin)}: leads to {public(name)[:200]}; it may only name files of its own server"
            " or of crawl.base_url"
        )
    return path


def file_name(path: str) -> str:
    """Return the name of a WARC file without its folder, as lineage gives it."""
    return public(path).rsplit("/", 1)[-1]


def open_source(path: str, forward: bool = False) -> BinaryIO:
    """Open a local or remote file for seekable binary reading, or raise InputError that names it. `forward`:
    it is read from its beginning on, with few seeks.
    """
    if is_remote(path):
        return io.BufferedReader(RemoteFile(path, forward), buffer_size=BUFFER_BYTES)
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read_lines(path: str) -> Iterator[str]:
    """Yield the lines of a local or remote text file, unpacked if it is a `.gz`. Raises InputError."""
    name = public(path)
    with open_source(path) as file:
        stream = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        try:
            while line := stream.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    raise InputError(f"{name}: not a list, it has a line of over {LINE_BYTES:,} bytes")
                yield line.decode().rstrip("\n")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise InputError(f"{name}: not a readable text or gzip file ({error})") from error
