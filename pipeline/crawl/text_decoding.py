"""From the bytes of a page to characters, whatever its headers say."""

import codecs
import re

from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

SNIFF_BYTES = 4096
HTML_TYPES, XML_TYPES = ("text/html", "application/xhtml+xml"), ("text/xml", "application/xml")
TYPE_END = re.compile(r"[;,\s]+")  # servers repeat types, and forget the semicolon before a charset
HTML_START = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|div|table|p|h1)\b", re.IGNORECASE)
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
BINARY = (b"%PDF-", b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"\x7fELF")
BINARY += (b"OggS", b"ID3", b"RIFF")
ISO_2022 = b"\x1b$"  # escape sequence of East Asian text in ASCII bytes
SAMPLE = 20_000  # bytes in which a double encoding is looked for
TWICE = re.compile(rb"\xc3(?:\x83\xc2|\xa2\xe2\x82|\xa4\xc2\xb8|\xa7\xc5|\xa5\xc2)")
TWICE_RUN = re.compile(
    "[\x80-\xff\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]{2,}"
)


def is_html(declared: str, identified: str, body: bytes) -> bool:
    """Whether a type is HTML: one that the server declares, or the one that the crawler identified.

    Where the server declares none, or XML, it is HTML if the body begins like it. A PDF file, an image or an
    archive is no HTML whatever is declared.
    """
    if body.startswith(BINARY):
        return False
    types = [name for name in TYPE_END.split(f"{identified},{declared}".lower()) if name]
    if any(name in HTML_TYPES for name in types):
        return True
    vague = not declared.strip() or any(name in XML_TYPES for name in types)
    return vague and HTML_START.search(body[:SNIFF_BYTES]) is not None


def decode_text(body: bytes, declared: str | None) -> tuple[str, str]:
    """(text, charset) of a body.

    Tried in this order: byte order mark; UTF-8 (a wrong `meta` is common, valid UTF-8 by accident is rare);
    `meta`, else detection; HTTP header. The first that decodes without error wins, else the last known one
    with replacement characters. A character truncated at the end is dropped. UTF-8 that was encoded twice is
    decoded twice.
    """
    for mark, charset in BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body.decode(charset, "replace"), charset.removesuffix("-sig")
    if ISO_2022 not in body and (text := _decode_exactly(body, "utf-8")) is not None:
        middle = body if len(body) < 2 * SAMPLE else body[len(body) // 3 :][:SAMPLE]
        return _decode_again(text) if TWICE.search(middle) else text, "utf-8"
    charset = detect_encoding(body, from_html_meta=True)
    header = map_encoding_to_html5(declared, fallback_utf8=False) if declared else None
    for name in filter(None, (charset, header)):
        if (text := _decode_exactly(body, name)) is not None:
            return text, name
    return bytes_to_str(body, header or charset, errors="replace", fallback_encodings=()), header or charset


def _decode_again(text: str) -> str:
    """Text whose UTF-8 bytes had been taken for Windows-1252 and encoded once more; each run for itself."""
    runs = TWICE_RUN.findall(text)
    fixed = {run: _once_less(run) for run in runs}
    if sum(fixed[run] != run for run in runs) * 2 <= len(runs):
        return text
    return TWICE_RUN.sub(lambda run: fixed[run[0]], text)


def _once_less(run: str) -> str:
    try:
        return b"".join(_windows_byte(character) for character in run).decode()
    except UnicodeError:
        return run


def _windows_byte(character: str) -> bytes:
    return bytes([ord(character)]) if character <= "\xff" else character.encode("cp1252")


def _decode_exactly(body: bytes, charset: str) -> str | None:
    """Return the text, or None if the bytes are invalid in that charset."""
    name = "gb18030" if charset in ("gbk", "gb2312") else charset  # the superset, as browsers do
    try:
        return codecs.getincrementaldecoder(name)().decode(body)
    except (UnicodeError, LookupError):
        return None
