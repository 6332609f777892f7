"""Remote files, read as if they were here.

A WARC file on a web server is one streamed GET; other remote files (s3 by Arrow, what else fsspec supports)
are read in large ranges. What breaks off goes on from there, with growing delays, and not before the server
allows it (`Retry-After`), which all jobs of a run obey. Redirects lead only to the same server or by https to
another public server. Messages show addresses without user and query, which may be secret.
"""

import io
import os
import random
import re
import time
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pipeline.core.addresses import public, scrub
from pipeline.core.atomic import atomic_write
from pipeline.core.errors import Passing
from pipeline.core.stage import WORK, InputError

ATTEMPTS = 6
FIRST_DELAY = 1.0  # seconds; doubles with each attempt
MAX_DELAY = 300.0  # seconds, also where the server asks for more
HOLDS = WORK / "servers"  # files named after servers: the time before which no job may ask them again
SILENCE = 60.0  # seconds without a byte after which a server is asked again
BLOCK_BYTES = 8 << 20  # one range request
LAST_BYTES = 1 << 20  # of a stream that are remembered at least


def server_of(address: str) -> str:
    """Scheme, user, host and port of an address."""
    return "://".join(re.split("[/?#]", part)[0].lower() for part in address.split("://", 1))


async def _client(loop: Any = None, **options: Any) -> Any:
    """Open an HTTP session that follows a redirect to the same server, or by https to another public one."""
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
    limits = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
    return aiohttp.ClientSession(
        loop=loop, trace_configs=[trace], connector=connector, timeout=limits, **options
    )


def _is_number(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


def _is_public(address: str) -> bool:
    """Whether an IP address is on the public Internet, and not of this machine or a private network."""
    return ip_address(address).is_global


class Streamed:
    """A file on a web server, by one GET from `position` on; a seek asks again, by range."""

    def __init__(self, fs: Any, url: str, position: int) -> None:
        self.fs, self._url, self._stream = fs, url, None
        self.size: int | None = None
        self._request(position)

    def _request(self, position: int) -> None:
        from fsspec.asyn import sync
        from fsspec.implementations.http import HTTPStreamFile

        self.close()
        self._at = position
        session = sync(self.fs.loop, self.fs.set_session)
        headers = {"Accept-Encoding": "identity", "Range": f"bytes={position}-"}
        stream = HTTPStreamFile(self.fs, self._url, loop=self.fs.loop, session=session, headers=headers)
        answer = stream.r.headers
        whole = answer.get("Content-Range", "").rpartition("/")[2] or answer.get("Content-Length", "")
        self.size = int(whole) if whole.isdecimal() else None
        if stream.r.status != 206 and position:
            stream.close()
            raise InputError(f"{public(self._url)}: broke off, and its server sends no part of a file")
        self._stream = stream

    def seek(self, position: int) -> None:
        """Ask again, unless the stream is there."""
        if position != self._at:
            self._request(position)

    def read(self, size: int) -> bytes:
        """Return what has come, at most `size` bytes; empty at the end."""
        data: bytes = self._stream.read(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Hang up."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class RemoteFile(io.RawIOBase):
    """A remote file, read in ranges or, `forward` and from a web server, as a stream. A request is retried
    with growing delays, then raises InputError.

    Of S3 Arrow reads blocks, with the credentials and the region that the AWS tools find (environment,
    profile, role of the machine), from the server in AWS_ENDPOINT_URL where it is set.
    """

    def __init__(self, url: str, forward: bool = False) -> None:
        super().__init__()
        self.url, self.name = url, public(url)
        self._web, self._s3 = url.startswith(("http://", "https://")), url.startswith("s3://")
        self._forward = forward and self._web
        self._position = self._last_end = 0
        self._last = bytearray()  # what a stream gave before `_last_end`
        self._file: Any = None
        self.size: int = self._retry(lambda file: file.raw.size() if self._s3 else file.size)
        if self.size is None:
            raise InputError(
                f"{self.name}: the server tells no size, so no ranges can be read; download it first"
            )

    def _open(self) -> Any:
        if self._s3:
            from pyarrow.fs import S3FileSystem

            files = S3FileSystem(endpoint_override=os.environ.get("AWS_ENDPOINT_URL"))
            return io.BufferedReader(files.open_input_file(self.url.removeprefix("s3://")), BLOCK_BYTES)
        import fsspec  # local WARC files need no network stack

        try:
            options = {"get_client": _client} if self._web else {}
            if self._forward:
                return Streamed(fsspec.filesystem("http", **options), self.url, self._position)
            options |= {"block_size": BLOCK_BYTES, "cache_type": "readahead"}
            return fsspec.open(self.url, "rb", **options).open()
        except ImportError as error:
            raise InputError(f"{self.name}: {error}") from error

    def _retry(self, action: Any) -> Any:
        """`action(file)` at the present position; a failed request leaves the file usable."""
        for attempt in range(ATTEMPTS):
            try:
                _wait_for(self.name)
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
                _hold(self.name, _asked(error))
                if self._forward:
                    self.hang_up()
                if attempt + 1 < ATTEMPTS:
                    time.sleep(_delay(error, attempt))
        reason = f"{self.name}: cannot be read ({scrub(str(failure))}), {ATTEMPTS} attempts made"
        raise Passing(reason) from failure

    def _read(self, file: Any, size: int) -> bytes:
        data = file.read(size)
        if not data and size and self._position < self.size:
            raise EOFError(f"the server ends at byte {self._position} of {self.size}")
        return data

    def read_range(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on: one request, without reading ahead."""
        end = min(offset + length, self.size)

        def fetch(file: Any) -> bytes:
            if self._s3:
                data: bytes = file.raw.read_at(end - offset, offset)
            else:
                data = file.fs.cat_file(self.url, start=offset, end=end)
            if len(data) != end - offset:
                raise EOFError(f"the server gave {len(data)} bytes of {end - offset}")
            return data

        return self._retry(fetch) if offset < end else b""

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` from the present position; 0 at the end."""
        back = self._position - self._last_end + len(self._last)
        if 0 <= back < len(self._last):
            data = bytes(self._last[back : back + len(buffer)])
        else:
            data = self._retry(lambda file: self._read(file, len(buffer)))
            self._keep(data)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def _keep(self, data: bytes) -> None:
        """Remember the last bytes of a stream: the end of a WARC file is read twice."""
        if not self._forward:
            return
        if self._position != self._last_end:
            self._last.clear()
        self._last += data
        self._last_end = self._position + len(data)
        if len(self._last) > 2 * LAST_BYTES:
            del self._last[:-LAST_BYTES]

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move without a request."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = start + offset
        return self._position

    def hang_up(self) -> None:
        """Forget a stream, which may be broken; the next read asks for a new one."""
        if isinstance(self._file, Streamed):
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Hang up for good."""
        self.hang_up()
        super().close()

    def readable(self) -> bool:
        """Answer yes: it is read."""
        return True

    def seekable(self) -> bool:
        """Answer yes: offsets are needed to resume."""
        return True


def _delay(error: Exception, attempt: int) -> float:
    """Seconds to wait: what the server asks for, else twice as long each time, with random jitter: jobs that
    were refused together should not return together.
    """
    own = FIRST_DELAY * 2**attempt
    return min(max(own, _asked(error)), MAX_DELAY) * random.uniform(1.0, 1.25)


def _asked(error: Exception) -> float:
    """Seconds for which the server asks to be left alone; 0 if it does not."""
    answers = (getattr(one, "headers", None) or {} for one in (error, error.__cause__))
    asked = next((answer["Retry-After"] for answer in answers if "Retry-After" in answer), "")
    return float(asked) if asked.isdecimal() else 0.0


def _held(address: str) -> Path:
    return HOLDS / re.sub(r"[^\w.-]", "_", server_of(address))


def _hold(address: str, seconds: float) -> None:
    """Tell all jobs of a run, which have one work folder, that a server asks for a pause."""
    if seconds and HOLDS.parent.is_dir():
        path = _held(address)
        with atomic_write(path) as partial:
            partial.write_text(str(time.time() + min(seconds, MAX_DELAY)))


def _wait_for(address: str) -> None:
    """Wait until a server that has asked some job for a pause may be asked again."""
    try:
        left = float(_held(address).read_text()) - time.time()
    except (OSError, ValueError):
        return
    if left > 0:
        time.sleep(min(left, MAX_DELAY) * random.uniform(1.0, 1.25))


def _is_absent(error: Exception) -> bool:
    """Whether the server has no such file; fsspec raises the same error for an unreachable server."""
    cause: BaseException | None = error
    while isinstance(cause, FileNotFoundError):  # two of them for an address with a query
        cause = cause.__cause__
    return cause is not error and (cause is None or getattr(cause, "status", None) == 404)
