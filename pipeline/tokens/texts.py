"""The texts of a source, from rows of documents or of conversations."""

from collections.abc import Iterator

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError


def read_texts(source: str, field: str = "text") -> Iterator[str]:
    """The text of each row: its `field`, or the turns of its `messages` in the paper's chat format."""
    for place, row in read_rows(source):
        if isinstance(row.get(field), str):
            yield row[field]
        elif isinstance(row.get("messages"), list):
            names = {"user": "User", "assistant": "Assistant"}
            yield "\n\n".join(
                f"{names.get(turn['role'], turn['role'])}: {turn['content']}" for turn in row["messages"]
            )
        else:
            raise InputError(f"{place}: no text in field {field!r} and no messages; name the field in `text`")
