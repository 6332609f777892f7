"""Find WARC files (lists, globs, dumps) and open local and remote ones alike.

Remote files (https, s3, whatever fsspec supports) are read forward in large ranges. A failed read is retried
from where it stopped, with growing delays, and not before the server allows it (`Retry-After`).

A server is not trusted: its lists lead only to itself or the server of the configured base, its redirects
to itself or by https to another public server, and lists are bounded. Messages and lineage show addresses
without user and query, which may be secret.
"""

import glob
import gzip
import io
import os
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.common.addresses import is_remote, public, scrub
from pipeline.common.stage import InputError

DUMP = re.compile(r"CC-MAIN-\d{4}-\d{2}(?:/(?:warc|wet))?")
LISTS = (".paths", ".paths.gz", ".txt")
ATTEMPTS = 6
FIRST_DELAY = 1.0  # seconds; doubles with each attempt
MAX_DELAY = 300.0  # seconds, also where the server asks for more
BLOCK_BYTES = 8 << 20  # one range request
BUFFER_BYTES = 1 << 20
LINE_BYTES = 1 << 20
LIST_BYTES, LIST_LINES = 64 << 20, 1_000_000  # of a list, unpacked; one of Common Crawl's has 90,000 lines


def expand(sources: Iterable[str], base_url: str = "") -> list[str]:
    """The WARC files that `sources` stand for, in order; `base_url` is put before relative entries of lists.

    A Common Crawl dump (`CC-MAIN-2024-10`, for its text files `CC-MAIN-2024-10/wet`) stands for its list.

    Raises InputError for a missing file or list, a glob without match, or two files of the same name (a
    page's lineage names its file without folder).
    """
    if base_url != public(base_url):
        raise InputError(
            "config key crawl.base_url: manifests show it, so it must hold no user, password or query"
        )
    found: list[str] = []
    for source in sources:
        if DUMP.fullmatch(source):
            dump, _, kind = source.partition("/")
            found += _read_list(f"{base_url}crawl-data/{dump}/{kind or 'warc'}.paths.gz", base_url)
            continue
        for path in _matches(source):
            found += _read_list(path, base_url) if public(path).endswith(LISTS) else [path]
    for path in found:
        if not is_remote(path) and not os.path.isfile(path):
            raise InputError(f"{path[:200]}: no such WARC file")
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
    """The file that the list or index `origin` calls `name`: as given, or else below `base_url`.

    Raises InputError where a remote list leads to another server than its own or that of `base_url`, or to a
    file of this machine outside the folder `base_url`.
    """
    if not is_remote(origin):  # the user's own file
        return name if is_remote(name) or os.path.isfile(name) else base_url + name
    path = name if is_remote(name) else base_url + name
    if is_remote(path):
        known = (origin, base_url)
        allowed = _server(path) in [_server(one) for address in known for one in (address, public(address))]
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


def _server(address: str) -> str:
    """Scheme, user, host and port of an address."""
    return "://".join(re.split("[/?#]", part)[0].lower() for part in address.split("://", 1))


def file_name(path: str) -> str:
    """The name of a WARC file without its folder, as lineage gives it."""
    return public(path).rsplit("/", 1)[-1]


def open_source(path: str) -> BinaryIO:
    """Open a local or remote file for seekable binary reading, or raise InputError that names it."""
    if is_remote(path):
        return io.BufferedReader(RemoteFile(path), buffer_size=BUFFER_BYTES)
    try:
        return open(path, "rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def read_lines(path: str) -> Iterator[str]:
    """The lines of a local or remote text file, unpacked if its name ends in `.gz`. Raises InputError."""
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


async def _client(loop: Any = None, **options: Any) -> Any:
    """An HTTP session that follows a redirect to the same server, or by https to another public one."""
    import aiohttp
    from yarl import URL

    elsewhere: dict[str, str] = {}  # hosts that redirects led to, and from which address

    class Resolver(aiohttp.ThreadedResolver):
        async def resolve(self, host: str, *arguments: Any, **names: Any) -> Any:
            found = await super().resolve(host, *arguments, **names)
            if host in elsewhere and not all(_is_public(one["host"]) for one in found):
                raise InputError(f"{elsewhere[host]}: redirects to {host}, which is not a public server")
            return found

    async def on_redirect(session: Any, context: Any, step: Any) -> None:
        headers, own = step.response.headers, step.url.origin()
        target = step.url.join(URL(headers.get("Location") or headers.get("URI", "")))
        if target.host and target.origin() in (own, own.with_scheme("https")):
            return
        if not target.host or not own.scheme == target.scheme == "https" or _is_number(target.host):
            shown = public(str(target))
            raise InputError(f"{public(str(step.url))}: redirects to {shown}; name that server instead")
        elsewhere[target.host] = public(str(step.url))

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(on_redirect)
    # Without a cache each connection asks the resolver, so a name cannot change its address after the check.
    connector = aiohttp.TCPConnector(resolver=Resolver(), use_dns_cache=False)
    return aiohttp.ClientSession(loop=loop, trace_configs=[trace], connector=connector, **options)


def _is_number(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _is_public(address: str) -> bool:
    """Whether an IP address is on the public Internet, and not of this machine or a private network."""
    return ip_address(address).is_global


class RemoteFile(io.RawIOBase):
    """A remote file read in ranges. A request is retried with growing delays, then raises InputError."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.name = url, public(url)
        self._position = 0
        self._file: Any = None
        self.size: int = self._retry(lambda file: file.size)
        if self.size is None:
            raise InputError(
                f"{self.name}: the server tells no size, so no ranges can be read; download it first"
            )

    def _open(self) -> Any:
        import fsspec  # local WARC files need no network stack

        try:
            options = {"block_size": BLOCK_BYTES, "cache_type": "readahead"}
            if self.url.startswith(("http://", "https://")):
                options["get_client"] = _client
            return fsspec.open(self.url, "rb", **options).open()
        except ImportError as error:
            raise InputError(f"{self.name}: {error}") from error

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
                if isinstance(error.__cause__, InputError):
                    raise error.__cause__ from None
                if _is_absent(error):
                    raise InputError(f"{self.name}: not found") from error
                if attempt + 1 < ATTEMPTS:
                    time.sleep(_delay(error, attempt))
        reason = f"{self.name}: cannot be read ({scrub(str(failure))}), {ATTEMPTS} attempts made"
        raise InputError(reason) from failure

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
    cause: BaseException | None = error
    while isinstance(cause, FileNotFoundError):  # two of them for an address with a query
        cause = cause.__cause__
    return cause is not error and (cause is None or getattr(cause, "status", None) == 404)
