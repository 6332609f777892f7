"""Addresses as they may be shown: without what may be a secret."""

import re
from typing import Any

SECRET = re.compile("[@?#]")  # what may set off a user, a query or a fragment
ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+")


def is_remote(path: str) -> bool:
    """Whether a path is an address such as https://... or s3://..."""
    return "://" in path


def public(path: str) -> str:
    """Return an address without user, password, query and fragment; a local path as it is."""
    if not is_remote(path) or not SECRET.search(path):
        return path
    scheme, _, rest = path.partition("://")
    host, slash, tail = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{tail}"


def scrub(text: str) -> str:
    """Return a message, e.g. of a network library, with all addresses in it made public."""

    def shown(match: re.Match[str]) -> str:
        address = match[0].rstrip(".,;:)]}")  # what follows is the message's
        return public(address) + match[0][len(address) :]

    return ADDRESS.sub(shown, text)


def quoted(value: Any) -> str:
    """Return a value for a message: one line, not too long, its addresses public."""
    text = scrub(repr(value))
    return text if len(text) <= 200 else f"{text[:197]}..."
