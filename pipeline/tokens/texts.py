"""The texts of a source, from rows of documents or of conversations."""

from collections.abc import Iterator
from typing import Any

from pipeline.core.data.rows import read_rows
from pipeline.core.stage import InputError


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """Return the text of each row: its `field`, or the turns of its `messages` in the paper's chat format."""
    for place, row in read_rows(source):
        if isinstance(row.get(field), str):
            yield row[field]
        elif isinstance(row.get("messages"), list):
            yield "\n\n".join(f"{role}: {content}" for role, content in _turns(place, row["messages"]))
        else:
            raise InputError(f"{place}: no text in field {field!r} and no messages; name the field in `text`")


def _turns(place: str, messages: list[Any]) -> Iterator[tuple[str, str]]:
    names = {"user": "User", "assistant": "Assistant"}
    for turn in messages:
        role, content = (turn.get(key) if isinstance(turn, dict) else None for key in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError(f"{place}: each of `messages` needs `role` and `content`, both texts")
        yield names.get(role, role), content
