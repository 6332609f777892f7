"""Undo HTTP's transfer and content encodings without trusting the headers.

Crawlers store decoded bodies under unchanged headers, truncate bodies, and keep wrong answers of servers. So
a body that is not encoded as declared is returned unchanged, and of a truncated one the readable part.
"""

import io
import re
import zlib
from collections.abc import Callable

from fastwarc.stream_io import BrotliReader, ZstdReader

GZIP = b"\x1f\x8b"
CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a]")
BLOCK, SMALL = 1 << 16, 1 << 10  # a read that fails loses what it would have given
MAX_LAYERS = 3


class Unusable(Exception):
    """A page that cannot be used; the message is the reason, one word."""


def decode_body(body: bytes, content_encoding: str, transfer_encoding: str, max_bytes: int) -> bytes:
    """Undo the encodings of a body.

    Raises Unusable: "too_large" beyond `max_bytes` (decompression bombs), "bad_encoding" if nothing readable
    comes out.
    """
    if "chunked" in transfer_encoding:
        body = join_chunks(body)
    names = [name.strip() for name in f"{content_encoding},{transfer_encoding}".split(",")]
    for name in reversed(names):
        if name in DECODERS:
            body = DECODERS[name](body, max_bytes)
    for _ in range(MAX_LAYERS):  # compressed twice, or undeclared
        if not body.startswith(GZIP):
            return body
        body = _gunzip(body, max_bytes)
    raise Unusable("bad_encoding")


def join_chunks(body: bytes) -> bytes:
    """Join the chunks of a body; a body that does not begin with a chunk is returned unchanged."""
    parts, position = [], 0
    while match := CHUNK_SIZE.match(body, position):
        size = int(match[1], 16)
        end = match.end() + size
        if not parts and size and body[end : end + 2] not in (b"\r\n", b"") and body[end : end + 1] != b"\n":
            return body  # text that begins with a number
        if size == 0:
            return b"".join(parts)
        parts.append(body[match.end() : end])
        position = end + (2 if body[end : end + 2] == b"\r\n" else body[end : end + 1] == b"\n")
    return b"".join(parts) + (body[position:] if not parts or position < len(body) else b"")


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    """All members of a gzip body; the readable part of a broken one."""
    if not body.startswith(GZIP):
        return body
    decoded = bytearray()
    while body.startswith(GZIP):
        inflater = zlib.decompressobj(wbits=31)
        decoded += _inflate(inflater, body, max_bytes - len(decoded))
        body = inflater.unused_data
    return _checked(decoded)


def _undeflate(body: bytes, max_bytes: int) -> bytes:
    """Undo zlib, or the bare deflate that some servers send; returns other bodies as they are."""
    if len(body) > 1 and body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0:
        return _checked(_inflate(zlib.decompressobj(), body, max_bytes))
    bare = zlib.decompressobj(wbits=-15)
    decoded = _inflate(bare, body, max_bytes)
    return bytes(decoded) if bare.eof else body


def _inflate(inflater: "zlib._Decompress", body: bytes, max_bytes: int) -> bytearray:
    """Inflate up to the end of the stream or its first error. Raises Unusable("too_large")."""
    decoded = bytearray()
    try:
        while body and not inflater.eof:
            decoded += inflater.decompress(body, BLOCK)
            body = inflater.unconsumed_tail
            if len(decoded) > max_bytes:
                raise Unusable("too_large")
    except zlib.error:
        pass
    return decoded


def _read_all(reader: Callable[[io.BytesIO], io.RawIOBase]) -> Callable[[bytes, int], bytes]:
    """Make a decoder that uses a stream class and returns bodies that are text already."""

    def decode(body: bytes, max_bytes: int) -> bytes:
        decoded = bytearray()
        try:
            stream = reader(io.BytesIO(body))
            while block := stream.read(SMALL):
                decoded += block
                if len(decoded) > max_bytes:
                    raise Unusable("too_large")
        except OSError:
            if not CONTROL.search(body[:BLOCK]):
                return body  # text, stored decoded
        return _checked(decoded)

    return decode


def _checked(decoded: bytearray) -> bytes:
    if not decoded:
        raise Unusable("bad_encoding")
    return bytes(decoded)


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _undeflate,
    "br": _read_all(BrotliReader),
    "zstd": _read_all(ZstdReader),
}
