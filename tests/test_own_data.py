"""Data that a user brings: rows of other projects' forms, and what is wrong told before the first job."""

from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from given.instances import graph_of
from given.lines import write_lines

from pipeline.protocol.errors import InputError
from pipeline.training.conversations import read_messages
from workflow.first_rows import ROWS, faulty_rows

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


GOOD = {"question": "1 + 1?", "answer": "2"}
MODEL = {"init": "hub/model", "benchmarks": []}


def sft(**keys: Any) -> dict[str, Any]:
    return {"models": {"mine": {"stage": "sft", "data": "rows.jsonl", **MODEL, **keys}}}


def rl(**keys: Any) -> dict[str, Any]:
    return {
        "models": {"mine": {"stage": "rl", "prompts": "rows.jsonl", "questions_per_step": 1, **MODEL, **keys}}
    }


def asked(**keys: Any) -> dict[str, Any]:
    layouts = dict.fromkeys(("prompt", "pal_prompt"), str(ROOT / "configs/prompts/pal-math.yaml"))
    benchmark = {"benchmarks": {"toy": {"source": "rows.jsonl", "samples": 0, **layouts, **keys}}}
    return benchmark | {"models": {"mine": {"stage": "rl", "train": False, "init": "hub/model"}}}


def mixed(**keys: Any) -> dict[str, Any]:
    source = {"data": "rows.jsonl", **keys}
    return {"mixtures": {"m": {"tokenizer": "hub/model", "sources": {"books": source}}}}


BRACES = {"row_format": "alpaca", "fields": {"instruction": "{q}", "output": "{a}"}}
THEIR_QUESTION = {"problem": "1 + 1?", "solution": "It is \\boxed{2}."}


@pytest.mark.parametrize(
    ("config", "rows", "words"),
    [
        (sft(), [{"messages": CHAT}] * 3, []),
        (sft(), [{"conversations": THEIRS}], ["models.mine.data: rows.jsonl: line 1", "sharegpt"]),
        (sft(row_format="sharegpt"), [{"conversations": THEIRS}], []),
        (sft(row_format="alpaca", fields={"instruction": "q", "output": "a"}), [{"q": "1", "a": "2"}], []),
        (sft(), [{"messages": CHAT}] * (ROWS - 1) + [{}], [f"rows.jsonl: line {ROWS}: not an example"]),
        (sft(), [{"messages": CHAT}] * ROWS + [{}], []),
        (sft(malformed="skip"), [{"text": "x"}], []),
        (sft(malformed="skip", **BRACES), [{"q": "1", "a": "2"}, {"q": "1"}], []),
        (sft(**BRACES), [{"q": "1"}], ["models.mine.data: rows.jsonl: line 1: no column 'a'"]),
        (sft(), [], ["models.mine.data: rows.jsonl: it has no rows"]),
        (sft(), ["{'messages': []}"], ["models.mine.data: rows.jsonl: line 1: not JSON"]),
        (rl(), [GOOD], []),
        (rl(), [THEIR_QUESTION], ["models.mine.prompts: rows.jsonl: line 1: `question`", "has problem, sol"]),
        (rl(fields={"question": "problem"}), [THEIR_QUESTION], []),
        (rl(method="my.py:GRPO"), [GOOD], []),
        (rl(method="my.py"), [GOOD], ["config key models.mine.method: my.py: has no 'METHOD'"]),
        (rl(prompts=None, evaluation="rows.jsonl"), [{"question": "1?"}], ["mine.evaluation", "`answer`"]),
        (asked(), [GOOD], []),
        (asked(fields={"question": "problem"}), [THEIR_QUESTION], []),
        (asked(), [GOOD, {"question": "2?"}], ["benchmarks.toy.source: rows.jsonl: line 2: `answer`"]),
        (asked(exemplars="rows.jsonl"), [{"q": "1"}], ["toy.source: rows", "toy.exemplars: rows"]),
        (mixed(), [{"text": "x"}], []),
        (mixed(), [{"content": "x"}], ["mixtures.m.sources.books: rows.jsonl: line 1: no text in field"]),
        (mixed(text="content"), [{"content": "x"}], []),
    ],
)
def test_the_first_rows_of_a_file_are_read_before_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], rows: list[Any], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "rows.jsonl", rows)
    (tmp_path / "my.py").write_text("GRPO = 1\n")
    graph = graph_of(**config)
    lines = list(faulty_rows(graph, graph.nodes.values()))
    assert bool(lines) == bool(words) and all(word in "\n".join(lines) for word in words), lines
    assert all(line.startswith("config key ") and "\n" not in line for line in lines)
