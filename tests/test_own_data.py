"""Rows of other projects' forms are the same conversations, or refused with the form to name."""

from typing import Any

import pytest

from pipeline.protocol.errors import InputError
from pipeline.training.conversations import read_messages

TURNS = [("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 1?"), ("assistant", "3")]
CHAT = [{"role": role, "content": text} for role, text in TURNS]
SYSTEM = {"role": "system", "content": "Be brief.\n"}
THEIRS = [{"from": {"user": "human"}.get(role, "gpt"), "value": text} for role, text in TURNS]
HISTORY = {"instruction": "2 + 1?", "output": "3", "history": [["1 + 1?", "2"]]}


@pytest.mark.parametrize(
    ("row_format", "row"),
    [
        (None, {"messages": CHAT}),
        ("sharegpt", {"messages": CHAT, "format": "cot"}),
        ("chat", {"messages": CHAT}),
        ("sharegpt", {"conversations": THEIRS, "id": "7"}),
        ("sharegpt", {"conversations": CHAT}),
        ("alpaca", HISTORY | {"input": ""}),
        ("alpaca", HISTORY | {"system": None, "text": "all of it"}),
    ],
)
def test_rows_of_each_form_are_the_same_conversation(row_format: Any, row: dict[str, Any]) -> None:
    assert read_messages(row, row_format) == CHAT


@pytest.mark.parametrize(
    ("row_format", "row"),
    [
        ("chat", {"messages": [SYSTEM, *CHAT]}),
        ("sharegpt", {"conversations": [{"from": "system", "value": "Be brief."}, *THEIRS]}),
        ("sharegpt", {"conversations": THEIRS, "system": "Be brief."}),
        ("alpaca", HISTORY | {"system": "Be brief."}),
    ],
)
def test_what_the_system_says_stands_before_the_first_question(row_format: Any, row: dict[str, Any]) -> None:
    assert read_messages(row, row_format) == [CHAT[0] | {"content": "Be brief.\n\n1 + 1?"}, *CHAT[1:]]


def test_the_input_of_an_instruction_stands_below_it() -> None:
    row = {"instruction": "Add.", "input": "1, 1", "output": "2"}
    assert read_messages(row, "alpaca")[0]["content"] == "Add.\n1, 1"


@pytest.mark.parametrize(
    ("row_format", "row", "words"),
    [
        (None, {"conversations": THEIRS}, "write `row_format: sharegpt`"),
        (None, HISTORY, "write `row_format: alpaca`"),
        (None, {"messages": [SYSTEM, *CHAT]}, "unknown role 'system' in message 1; roles are user and"),
        (None, {"messages": [SYSTEM, *CHAT]}, "write `row_format: chat`"),
        ("alpaca", {"conversations": THEIRS}, "expected instruction and output; it looks like sharegpt"),
        ("sharegpt", HISTORY, "expected conversations of from and value; it looks like alpaca"),
        ("alpaca", {"prompt": "1", "completion": "2"}, "the row has prompt, completion"),
        (None, {"text": "x"}, "expected messages of role and content; the row has text"),
        ("sharegpt", {"conversations": [*THEIRS, {"from": "tool", "value": "x"}]}, "unknown role 'tool'"),
        ("sharegpt", {"conversations": [{"value": "x"}]}, "expected conversations of from and value"),
        ("chat", {"messages": [*CHAT, SYSTEM]}, "unknown role 'system' in message 5"),
        ("chat", {"messages": [SYSTEM]}, "unknown role 'system' in message 1"),
        (None, {"messages": [CHAT[0], {"role": "assistant", "content": ["2"]}]}, "message 2: its `content`"),
        ("alpaca", HISTORY | {"history": [{"q": "1 + 1?", "a": "2"}]}, "`history` holds something else than"),
        ("alpaca", HISTORY | {"history": ["12", "34"]}, "`history` holds something else than pairs"),
        ("alpaca", HISTORY | {"history": [["1 + 1?"]]}, "`history` holds something else than pairs"),
        ("alpaca", {"instruction": "1", "output": None}, "message 2: its `content` is no text"),
        (None, {"messages": CHAT[:1]}, "no assistant message"),
        (None, {"messages": "none"}, "expected messages of role and content"),
    ],
)
def test_a_row_of_another_form_is_refused_with_the_form_to_name(
    row_format: Any, row: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        read_messages(row, row_format)
    assert words in str(error.value)
