"""From the bytes of a page to characters, whatever its headers say."""

import codecs
import re

from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

SNIFF_BYTES = 4096
HTML_TYPES, XML_TYPES = ("text/html", "application/xhtml+xml"), ("text/xml", "application/xml")
TYPE_END = re.compile(r"[;,\s]+")  # servers repeat types, and forget the semicolon before a charset
HTML_START = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|div|table|p|h1)\b", re.IGNORECASE)
META_CHARSET = re.compile(rb"charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
BINARY = (b"%PDF-", b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"PK\x03\x04", b"\x7fELF")
BINARY += (b"OggS", b"ID3", b"RIFF")
WESTERN = ("cp1252", "iso8859-1", "iso8859-15", "latin-1", "latin_1")  # as Resiliparse names them
EAST_ASIAN = ("gbk", "gb18030", "gb2312", "big5", "euc_kr", "shift_jis", "euc_jp")
HAN_WORDS = re.compile("[\u4e00-\u9fff] (?=[\u4e00-\u9fff])")
MARKUP = re.compile("<[^>]*>")
SAMPLE, FEW_LETTERS = 20_000, 20  # characters looked at where a declared charset is doubted; least letters
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
    HTTP header; `meta`; detection. The first that decodes without error wins, else the first known one with
    replacement characters. A character truncated at the end is dropped. An East Asian or Western charset is
    doubted if the text would make no sense in it; UTF-8 that was encoded twice is decoded twice.
    """
    for mark, charset in BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body.decode(charset, "replace"), charset.removesuffix("-sig")
    if charset := _utf_16(body):
        return body.decode(charset, "replace"), charset
    candidates = [declared, _meta_charset(body)]
    if body.isascii():
        shifted = [name for name in candidates if name and name.lower().startswith(("iso-2022", "hz"))]
        for name in [*shifted, detect_encoding(body)] if shifted or b"\x1b$" in body else ():
            if (text := _decode_exactly(body, name)) is not None:
                return text, name
        return body.decode("ascii"), "utf-8"
    known = ["utf-8", *(map_encoding_to_html5(name, fallback_utf8=False) for name in candidates if name)]
    for name in (*known, ""):
        charset = name if name != "" else detect_encoding(body)  # slow: only where nothing else fits
        if charset and (text := _decode_exactly(body, charset)) is not None:
            if charset == "utf-8":
                middle = body if len(body) < 2 * SAMPLE else body[len(body) // 3 :][:SAMPLE]
                return _decode_again(text) if TWICE.search(middle) else text, charset
            return _doubt(body, text, charset)
    charset = next((name for name in known[1:] if name), None) or detect_encoding(body) or "utf-8"
    return bytes_to_str(body, charset, errors="replace", fallback_encodings=()), charset


def _utf_16(body: bytes) -> str:
    """Tell the kind of UTF-16 without a byte order mark; empty if the bytes are not mostly of it."""
    start = body[:1000]
    for charset, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if len(start) > 20 and zeros.count(0) > 0.4 * len(zeros) and start.count(0) < 0.6 * len(start):
            return charset
    return ""


def _doubt(body: bytes, text: str, charset: str) -> tuple[str, str]:
    """(text, charset), in the detected charset if the declared one gives characters that nobody writes."""
    best = _common_share(text, charset) if charset in EAST_ASIAN else 0.0
    if charset not in WESTERN and charset not in EAST_ASIAN or best >= 0.75:
        return text, charset
    detected = detect_encoding(body)
    if charset in WESTERN:
        sample = MARKUP.sub(" ", text)[:SAMPLE]
        letters = [letter for letter in sample if letter > "~" and letter.isalpha()]
        if len(letters) < FEW_LETTERS or detected in WESTERN:  # quotes and dashes are no evidence
            return text, charset
        if detected not in EAST_ASIAN and (other := _decode_exactly(body, detected)) is not None:
            return other, detected
    for name in dict.fromkeys((detected, *EAST_ASIAN)):
        other = _decode_exactly(body, name) if name in EAST_ASIAN and name != charset else None
        if other is not None and (share := _common_share(other, name)) > max(best + 0.1, 0.6):
            best, text, charset = share, other, name
    return text, charset


def _common_share(text: str, charset: str) -> float:
    """Share of East Asian letters that are common: kana, Korean syllables, the first level of GB and Big5.

    Korean read as Chinese has spaces between its words, and Japanese has kana: such a reading counts half.
    """
    letters = [letter for letter in text if letter > "\u2e7f" or letter.isalpha() and letter > "~"][:1000]
    if not letters:
        return 1.0
    share = sum(map(_is_common, letters)) / len(letters)
    kana = sum("\u3041" <= letter <= "\u30ff" for letter in letters)
    chinese = charset.startswith(("gb", "big5"))
    spaced = len(HAN_WORDS.findall(text[:5000])) > 0.1 * len(letters)
    return share / 2 if chinese and (spaced or kana > 0.1 * len(letters)) else share


def _is_common(character: str) -> bool:
    if "\u3001" <= character <= "\u30ff" or "\uff01" <= character <= "\uff5e":
        return True
    for charset, first, last in (("gb2312", 0xB0, 0xD7), ("big5", 0xA4, 0xC6), ("euc-kr", 0xB0, 0xC8)):
        try:
            if first <= character.encode(charset)[0] <= last:
                return True
        except UnicodeEncodeError:
            continue
    return False


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


def _meta_charset(body: bytes) -> str | None:
    match = META_CHARSET.search(body[:SNIFF_BYTES])
    return match[1].decode("ascii") if match else None
