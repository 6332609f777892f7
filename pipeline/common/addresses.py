"""Addresses as they may be shown: without what may be a secret."""

import re

ADDRESS = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"<>]+")


def is_remote(path: str) -> bool:
    """Whether a path is an address such as https://... or s3://..."""
    return "://" in path


def public(path: str) -> str:
    """An address without user, password, query and fragment; a local path as it is."""
    if not is_remote(path):
        return path
    scheme, _, rest = path.partition("://")
    host, slash, tail = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{tail}"


def scrub(text: str) -> str:
    """A message, e.g. of a network library, with all addresses in it made public."""
    return ADDRESS.sub(lambda match: public(match[0]), text)
