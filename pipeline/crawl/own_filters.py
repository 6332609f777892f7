"""Filters of the user's own, which `crawl.filters` names: functions or blocks of datatrove's that say which
documents stay, `filter(document) -> bool | (False, reason)`.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from datatrove.data import Document

from pipeline.core.errors import InputError
from pipeline.core.own_files import load_attribute

KEY = "crawl.filters"


@cache
def load_filter(name: str) -> Callable[[Document], Any]:
    """Load the function or filter that FILE.py:NAME or datatrove.MODULE.NAME names. Raises InputError."""
    try:
        module, _, attribute = name.rpartition(".")
        found = load_attribute(name, KEY) if ":" in name else getattr(import_module(module), attribute)
        made = found() if isinstance(found, type) else found
    except InputError:
        raise
    except Exception as error:  # whatever a module or a class may raise
        raise InputError(f"{KEY}: {name}: cannot be loaded ({type(error).__name__}: {error})") from error
    keeps = getattr(made, "filter", made)
    if not callable(keeps):
        raise InputError(f"{KEY}: {name}: neither a function nor a filter, but {type(made).__name__}")
    return keeps


def rejected_by(document: Document, names: Sequence[str]) -> str | None:
    """Give the reason of the first filter that drops a document, or None. Raises InputError if one fails."""
    for name in names:
        keeps = load_filter(name)
        try:
            found = keeps(document)
            kept, reason = found if isinstance(found, tuple) else (found, re.split("[:.]", name)[-1])
            kept = bool(kept)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise InputError(f"{KEY}: {name}: fails on page {document.id} ({what})") from error
        if not kept:
            return f"filter_{reason}"
    return None
