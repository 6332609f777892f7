"""Conversations as other projects write them, read as the `messages` that fine-tuning learns from.

The paper's chat format has no system role: a system turn's text stands before the user's first words.
"""

from collections.abc import Callable
from typing import Any

from pipeline.core.errors import InputError
from pipeline.training.chat import chat_parts

Row = dict[str, Any]
Turns = list[dict[str, Any]]
ROLES = {"human": "user", "gpt": "assistant"}  # ShareGPT's names; the others are ours


def read_messages(row: Row, row_format: str | None) -> Turns:
    """Return the turns of a row in one of `READERS`; a row that has `messages` is one of `chat` in any.

    Raises InputError for a row that is none, or that has no assistant's turn, and says which `row_format` it
    seems to have.
    """
    guess = guess_format(row)
    other = f"; it looks like {guess}: write `row_format: {guess}`" if guess and guess != row_format else ""
    reader = _of_chat if "messages" in row or row_format is None else READERS[row_format]
    try:
        turns = reader(row)
        if row_format:
            turns = _without_system(turns)
        if not any(chat_parts(turns)[1]):
            raise InputError("no assistant message to learn from")
    except InputError as error:
        raise InputError(f"{error}{other}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        pairs = "" if row_format or "messages" in row else f"; {PAIRS}"
        told = other or f"; the row has {', '.join(row)}{pairs}"
        raise InputError(f"not an example; expected {EXPECTED[row_format]}{told}") from error
    return turns


def guess_format(row: Row) -> str | None:
    """Say which format a row seems to have that fine-tuning does not read as it is."""
    if isinstance(row.get("conversations"), list):
        return "sharegpt"
    if "messages" not in row and {"instruction", "output"} <= row.keys():
        return "alpaca"
    messages = row.get("messages")
    first = messages[0] if isinstance(messages, list) and messages else None
    return "chat" if isinstance(first, dict) and first.get("role") == "system" else None


def _of_chat(row: Row) -> Turns:
    return row["messages"]


def _of_sharegpt(row: Row) -> Turns:
    turns = []
    for turn in row["conversations"]:
        if "role" not in turn:
            others = {key: value for key, value in turn.items() if key not in ("from", "value")}
            turn = {"role": ROLES.get(turn["from"], turn["from"]), "content": turn["value"]} | others
        turns.append(turn)
    return [*_system(row), *turns]


def _of_alpaca(row: Row) -> Turns:
    asked = "\n".join(filter(None, (row["instruction"], row.get("input"))))
    pairs = [*(row.get("history") or []), (asked, row["output"])]
    if any(not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs):
        raise InputError("its `history` holds something else than pairs [question, answer]")
    turns = [("user", "assistant")[number] for _ in pairs for number in (0, 1)]
    texts = [text for question, answer in pairs for text in (question, answer)]
    return [
        *_system(row),
        *({"role": role, "content": text} for role, text in zip(turns, texts, strict=True)),
    ]


PAIRS = "pairs are read by `row_format: alpaca, fields: {instruction: COLUMN, output: COLUMN}`"
EXPECTED = {
    None: "messages of role and content",
    "chat": "messages of role and content",
    "sharegpt": "conversations of from and value",
    "alpaca": "instruction and output",
}
READERS: dict[str, Callable[[Row], Turns]] = {
    "chat": _of_chat,
    "sharegpt": _of_sharegpt,
    "alpaca": _of_alpaca,
}


def _system(row: Row) -> Turns:
    return [{"role": "system", "content": row["system"]}] if row.get("system") else []


def _without_system(turns: Turns) -> Turns:
    """Put the text of a first turn of the system before that of the user's."""
    if len(turns) < 2 or turns[0]["role"] != "system":
        return turns
    (system, first), rest = turns[:2], turns[2:]
    said = "\n\n".join(filter(None, (system["content"].strip(), first["content"])))
    return [first | {"content": said}, *rest]
