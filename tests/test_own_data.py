"""Rows of other projects' forms are the same conversations, or refused with the form to name."""

import gzip
import json
import math
import random
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from programs import ENVIRONMENT, ROOT
from pyarrow import parquet

from pipeline.config.evaluate import BenchmarkNode
from pipeline.core.data.rows import read_rows, read_rows_and_flaws
from pipeline.core.errors import InputError
from pipeline.evaluate.benchmarks import load
from pipeline.training.chat import chat_parts
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
        (None, {"messages": [CHAT[0], CHAT[1] | {"weight": 0}]}, "no assistant message"),
        (None, {"messages": [CHAT[0], CHAT[1] | {"weight": 0.5}]}, "message 2: `weight` is 0.5; 0 or 1"),
        (None, {"messages": [CHAT[0], CHAT[1] | {"tool_calls": [{}]}]}, "does not read `tool_calls`; remove"),
        (None, {"messages": [CHAT[0], CHAT[1] | {"thinking": "2"}]}, "message 2: fine-tuning does not read"),
        ("sharegpt", {"conversations": [THEIRS[0], THEIRS[1] | {"reasoning_content": "x"}]}, "`reasoning_co"),
        (None, {"messages": "none"}, "expected messages of role and content"),
    ],
)
def test_a_row_of_another_form_is_refused_with_the_form_to_name(
    row_format: Any, row: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError) as error:
        read_messages(row, row_format)
    assert words in str(error.value)


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}, {"loss_mask": 0}, {"loss": False}])
@pytest.mark.parametrize("theirs", [False, True])
def test_a_turn_that_is_marked_is_context(mark: dict[str, Any], theirs: bool) -> None:
    turns = THEIRS if theirs else CHAT
    noted = [turns[0], turns[1] | mark | {"tool_calls": None, "id": "a"}, *turns[2:]]
    row = {"conversations": noted} if theirs else {"messages": noted}
    texts, own = chat_parts(read_messages(row, "sharegpt" if theirs else None))
    assert texts[1:3] == [" 2", ""] and own == [False, False, False, False, True, True]


VERL = {
    "data_source": "x",
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
}
VERL_FIELDS = {"question": "prompt", "answer": "reward_model.ground_truth"}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "array.json", "array.json.gz", "a.parquet"])
def test_rows_of_verl_are_questions_in_each_kind_of_file(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [VERL, VERL | {"reward_model": {"style": "rule", "ground_truth": "3"}}]
    if name.endswith(".parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        text = json.dumps(rows, indent=1) if "array" in name else "".join(json.dumps(r) + "\n" for r in rows)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    items = load("own", BenchmarkNode(source=[str(path)], fields=VERL_FIELDS), [str(path)])
    assert [(item.question, item.answer) for item in items] == [("1 + 1?", "2"), ("1 + 1?", "3")]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (math.nan, "`answer` is nan (float)"),
        (-math.inf, "`answer` is -inf (float)"),
        (True, "`answer` is True (bool)"),
        (date(2024, 7, 26), "(date)"),
        (Decimal("1.50"), "(Decimal)"),
        ({"value": 1}, "(dict)"),
        (None, "`answer` is missing or empty"),
        (" ", "`answer` is missing or empty"),
    ],
)
def test_an_answer_that_is_no_text_is_refused_with_the_reason(
    tmp_path: Path, answer: object, words: str
) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([{"question": "1?", "answer": answer}]), path)
    with pytest.raises(InputError) as error:
        load("own", BenchmarkNode(source=[str(path)]), [str(path)])
    assert f"{path}: row 1: " in str(error.value) and words in str(error.value)


def test_a_line_that_is_no_row_is_a_flaw_and_the_next_ones_follow(tmp_path: Path) -> None:
    path, good = tmp_path / "a.jsonl", b'{"text": "x"}\n'
    bad = [b'{"text": "x\n', b'{"text": "\\ud800"}\n', b"\xff\n", b"[1]\n"]
    path.write_bytes(good + good.join(bad) + good)
    rows = [row for _, row in read_rows_and_flaws(str(path))]
    assert [row for row in rows if isinstance(row, dict)] == [{"text": "x"}] * 5
    told = [str(row) for row in rows if isinstance(row, InputError)]
    for words, line in zip(
        ("not JSON", "surrogate", "not UTF-8", "expected a JSON object"), told, strict=True
    ):
        assert words in line and line.startswith(f"{path}: line ")
    with pytest.raises(InputError, match="line 2: not JSON"):
        list(read_rows(str(path)))


def test_large_parquet_rows_are_decoded_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sizes = tmp_path / "a.parquet", []
    rows = [{"text": random.Random(n).randbytes(50_000).hex()} for n in range(40)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    batches = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile,
        "iter_batches",
        lambda file, batch_size: sizes.append(batch_size) or batches(file, batch_size=batch_size),
    )
    monkeypatch.setattr("pipeline.core.data.rows.BATCH_BYTES", 1 << 20)
    assert [row for _, row in read_rows(str(path))] == rows and 1 <= sizes[0] <= 20


def test_a_program_reads_and_writes_utf_8_under_any_locale(tmp_path: Path) -> None:
    pair = {"id": "求", "reference": "2", "response": "一加一等于 $\\boxed{2}$"}
    (tmp_path / "pairs.jsonl").write_bytes(json.dumps(pair, ensure_ascii=False).encode() + b"\n")
    words = ["--input", tmp_path / "pairs.jsonl", "--output", tmp_path / "verdicts.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.evaluate.grade", *words],
        env=ENVIRONMENT | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ((_, verdict),) = read_rows(str(tmp_path / "verdicts.jsonl"))
    assert (verdict["id"], verdict["verdict"]) == ("求", "right")
