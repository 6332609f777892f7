"""Mistakes with one's own data and models: each is a line that names file or key, before the first job."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from test_first_contact import Small

from pipeline.config.root import Config
from pipeline.plan.refusals import refusals
from pipeline.protocol.errors import InputError
from pipeline.protocol.overlays import DEFAULTS, merge, read_config
from workflow.first_rows import ROWS
from workflow.graph import Graph
from workflow.preflight import missing

TURNS = [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]
ROW = json.dumps({"messages": TURNS}) + "\n"
CUT = gzip.compress(ROW.encode(), mtime=0)[:30]
ASKED = json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n"
THEIRS = [{"from": "human", "value": "1 + 1?"}, {"from": "gpt", "value": "2"}]
BRACES = {"row_format": "alpaca", "fields": {"instruction": "{q}", "output": "{a}"}}
LAYOUT = str(ROOT / "configs/prompts/pal-math.yaml")
FOLDER = "{tmp}/model"
START = {"init": FOLDER, "benchmarks": []}
WHOLE = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": ""}


def sft(data: Any = "{tmp}/rows.jsonl", **keys: Any) -> dict[str, Any]:
    return {"models": {"mine": {"stage": "sft", "data": data, **START, **keys}}}


def rl(**keys: Any) -> dict[str, Any]:
    common = {"prompts": "{tmp}/rows.jsonl", "questions_per_step": 1}
    return {"models": {"mine": {"stage": "rl", **common, **START, **keys}}}


def asked(**keys: Any) -> dict[str, Any]:
    model = {"stage": "rl", "train": False, "init": FOLDER}
    toy = {"source": "{tmp}/rows.jsonl", "prompt": LAYOUT, "pal_prompt": LAYOUT, **keys}
    return {"benchmarks": {"toy": toy}, "models": {"mine": model}}


def mixed(**keys: Any) -> dict[str, Any]:
    source = {"data": "{tmp}/rows.jsonl", **keys}
    models = {"mine": {"stage": "cpt", "mixture": "m", **START}}
    return {"mixtures": {"m": {"tokenizer": FOLDER, "sources": {"books": source}}}, "models": models}


def watched() -> dict[str, Any]:
    return rl(prompts="{tmp}/good.jsonl", evaluation="{tmp}/rows.jsonl")


def rewarded(name: str) -> dict[str, Any]:
    return rl(rewards={"functions": {f"{{tmp}}/{name}": 1}})


def filtered(name: str) -> dict[str, Any]:
    return {"crawl": {"texts": "{tmp}/rows.jsonl", "filters": [f"{{tmp}}/{name}"]}}


def line(**row: Any) -> str:
    return json.dumps(row) + "\n"


PROBLEM = line(problem="1 + 1?", solution="It is \\boxed{2}.")


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a user's functions, a model, and folders that lack a part of one."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("workflow.preflight.check", lambda weak: None)
    (tmp_path / "reward.py").write_text("def other(item, text):\n    return 1\n")
    (tmp_path / "good.jsonl").write_text(ASKED)
    (tmp_path / "short.py").write_text("def other(item, text):\n    short(\n")
    for folder, lacking in {"model": "", "empty": "config", "untold": "tokenizer", "light": "model"}.items():
        (tmp_path / folder).mkdir()
        for file, text in WHOLE.items() if lacking != "config" else ():
            if not lacking or not file.startswith(lacking):
                (tmp_path / folder / file).write_text(text)


def told_of(folder: Path, change: dict[str, Any], rows: str | bytes) -> str:
    """What is said of a configuration whose data are these rows, each line a mistake."""
    given = json.loads(json.dumps(change).replace("{tmp}", str(folder)))
    name = Path(str(next(iter(given.get("models", {}).values()), {}).get("data", "rows.jsonl"))).name
    kind = name if name.startswith("rows.") else "rows.jsonl"
    (folder / kind).write_bytes(rows.encode() if isinstance(rows, str) else rows)
    try:
        graph = Graph(Config(merge(read_config([DEFAULTS]), given)))
        lines = refusals(graph.config) or missing(graph, dict.fromkeys(graph.nodes, 0), True, Small())
    except InputError as error:
        lines = [str(error)]
    assert not any("\n" in line for line in lines)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("change", "rows", "words"),
    [
        # Files that are another kind than they seem.
        (sft(), ROW.encode("utf-16"), ["mine.data: {tmp}/rows.jsonl: line 1: not UTF-8", "save it as UTF-8"]),
        (sft(), ROW.replace("1 + 1", "caf\xe9").encode("latin-1"), ["rows.jsonl: line 1: not UTF-8"]),
        (sft(), f"[{ROW}]", ["line 1: not JSON"]),
        (sft(), json.dumps([json.loads(ROW)]), ["line 1: expected a JSON object, one on each line"]),
        (sft(), json.dumps(json.loads(ROW), indent=1), ["line 1: not JSON", "each line is one object"]),
        (sft(), "", ["mine.data: {tmp}/rows.jsonl: it has no rows"]),
        (sft(), f"{ROW}\n\n{ROW[:20]}\n", ["rows.jsonl: line 4: not JSON"]),
        (sft("{tmp}/rows.jsonl.gz"), ROW, ["rows.jsonl.gz: cannot be read after line 0"]),
        (sft("{tmp}/rows.jsonl.gz"), CUT, ["rows.jsonl.gz: cannot be read"]),
        (sft("{tmp}/rows.parquet"), ROW, ["rows.parquet: cannot be read after row 0"]),
        (sft("{tmp}/rows.csv"), "a,b\n", ["rows.csv: unknown kind of file; known: .jsonl, "]),
        (sft("{tmp}/rows.json"), ROW, ["rows.json: unknown kind of file"]),
        (sft("{tmp}/empty"), ROW, ["{tmp}/empty: no .jsonl, .jsonl.gz, .jsonl.zst, .parquet file in this"]),
        # Names that are no files.
        (sft("~/rows.jsonl"), ROW, ["~/rows.jsonl: no such file; write the whole path"]),
        (sft("$HOME/rows.jsonl"), ROW, ["$HOME/rows.jsonl: no such file; write the whole path"]),
        (sft("openai/gsm8k"), ROW, ["no such file; a data set of the hub is hub:<owner>/<name>"]),
        (sft("hub:openai/gsm8k"), ROW, ["mine.data: hub:openai/gsm8k: expected hub:<owner>/<name>"]),
        (sft("hub:gsm8k:train"), ROW, ["mine.data: hub:gsm8k:train: expected hub:<owner>/<name>"]),
        (sft("https://example.org/rows.jsonl"), ROW, ["mine.data", "only crawl.warc reads addresses"]),
        (sft("{tmp}/*.parquet"), ROW, ["mine.data: {tmp}/*.parquet: no such file"]),
        (sft(None), ROW, ["models.mine.data: missing"]),
        (sft([]), ROW, ["models.mine.data: missing"]),
        (sft({"path": "x"}), ROW, ["models.mine.data", "valid string"]),
        # Rows that the stage cannot read.
        (sft(), line(prompt="1", completion="2"), ["has prompt, completion; pairs are read by `row_format:"]),
        (sft(), line(messages=json.dumps(TURNS)), ["line 1: not an example; expected messages of role and"]),
        (sft(), line(messages=[]), ["line 1: no assistant message to learn from"]),
        (sft(), line(messages=TURNS[1:]), ["line 1: message 1 is the assistant's; turns alternate"]),
        (sft(row_format="openai"), ROW, ["mine.row_format", "'chat', 'sharegpt' or 'alpaca'"]),
        (sft(fields=["messages"]), ROW, ["mine.fields", "valid dictionary"]),
        (rl(), ROW, ["mine.prompts", "`question` is missing or empty; the row has messages: write `fields:"]),
        (rl(), 2 * line(id=7, question="1?", answer=1), ["line 2: id '7' occurs twice, first in {tmp}"]),
        (rl(), line(question="1?", answer={"value": 1}), ["line 1: `answer` is missing or empty"]),
        (rl(questions_per_step=16), ASKED, ["its questions are 1, questions_per_step is 16: lower that"]),
        (rl(prompts=None), ROW, ["models.mine.prompts: missing"]),
        (asked(), line(id=True, question="1?", answer="2"), ["toy.source", "`id` is neither a text nor"]),
        (asked(), line(question="1?", choices=["1", "2"], answer="2"), ["toy.source", "`answer` be of"]),
        (asked(profile="lm-eval"), ASKED, ["benchmarks.toy.profile: ", "lm-eval"]),
        (asked(modes=["chat"]), ASKED, ["benchmarks.toy.modes", "'chat_cot'"]),
        (asked(limit=0), ASKED, ["benchmarks.toy.limit", "greater than or equal to 1"]),
        ({"benchmarks": {"gms8k": {}}}, ASKED, ["benchmarks.gms8k.source", "did you mean 'gsm8k'?"]),
        # The first rows, by the columns that the configuration names.
        (sft(), line(conversations=THEIRS), ["models.mine.data: {tmp}/rows.jsonl: line 1", "sharegpt"]),
        (sft(), ROW * (ROWS - 1) + "{}\n", [f"rows.jsonl: line {ROWS}: not an example"]),
        (sft(**BRACES), line(q="1"), ["mine.data: {tmp}/rows.jsonl: line 1: no column 'a'"]),
        (rl(), PROBLEM, ["mine.prompts: {tmp}/rows.jsonl: line 1: `question`", "has problem, sol"]),
        (watched(), line(question="1?"), ["mine.evaluation: {tmp}/rows.jsonl: line 1: `answer`"]),
        (asked(), ASKED + line(question="2?"), ["benchmarks.toy.source: {tmp}/rows.jsonl: line 2: `answer`"]),
        (asked(exemplars="{tmp}/rows.jsonl"), line(q="1"), ["toy.source: {tmp}", "toy.exemplars: {tmp}"]),
        (mixed(), line(content="x"), ["mixtures.m.sources.books: {tmp}/rows.jsonl: line 1: no text in"]),
        # Functions, and keys inside keys.
        (rl(method="{tmp}/reward.py"), ASKED, ["key models.mine.method: {tmp}/reward.py: has no 'METHOD'"]),
        (rewarded("reward.py:brief"), ASKED, ["rewards.functions: {tmp}/reward.py: has no 'brief'"]),
        (filtered("reward.py:brief"), ROW, ["filters: {tmp}/reward.py: has no 'brief'"]),
        (rewarded("short.py:other"), ASKED, ["{tmp}/short.py: no Python: "]),
        (rewarded("none.py:f"), ASKED, ["{tmp}/none.py: no such file"]),
        (rl(rewards={"functions": {"brief": 1}}), ASKED, ["mine.rewards.functions", "should match pattern"]),
        (sft(lora={"r": 8}), ROW, ["mine.lora.r: unknown; known: rank, alpha, targets"]),
        (rl(optimizer={"weight_decy": 0}), ASKED, ["optimizer.weight_decy: unknown; did you mean 'weight_"]),
        (rl(method="gppo"), ASKED, ["mine.method: unknown method; known: dpo, grpo"]),
        # Models.
        (sft(init="{tmp}/empty"), ROW, ["sft/mine: {tmp}/empty: no folder of a model, it lacks config.json"]),
        (sft(init="{tmp}/untold"), ROW, ["{tmp}/untold: no folder of a model, it lacks the tokenizer's"]),
        (sft(init="{tmp}/light"), ROW, ["{tmp}/light: no folder of a model, it lacks weights"]),
        (sft(init="{tmp}/model/config.json"), ROW, ["mine.init", "it is a file: name the folder"]),
        (sft(init="https://huggingface.co/a/b"), ROW, ["mine.init", "not a hub id; write a/b"]),
        (sft(init="Qwen 0.5B"), ROW, ["mine.init: Qwen 0.5B: no such folder, and not a hub id"]),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_the_first_job(
    tmp_path: Path, prepared: None, change: dict[str, Any], rows: str | bytes, words: list[str]
) -> None:
    told = told_of(tmp_path, change, rows)
    assert all(word.replace("{tmp}", str(tmp_path)) in told for word in words), told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (sft(), ROW * ROWS + "{}\n"),
        (sft(row_format="sharegpt"), line(conversations=THEIRS)),
        (sft(row_format="alpaca", fields={"instruction": "q", "output": "a"}), line(q="1", a="2")),
        (sft(malformed="skip"), line(text="x")),
        (sft(malformed="skip", **BRACES), line(q="1", a="2") + line(q="1")),
        (rl(), ASKED),
        (rl(fields={"question": "problem"}), PROBLEM),
        (rl(method="{tmp}/reward.py:other"), ASKED),
        (asked(), ASKED),
        (asked(fields={"question": "problem"}), PROBLEM),
        (mixed(), line(text="x")),
        (mixed(text="content"), line(content="x")),
    ],
)
def test_rows_that_can_be_read_are_no_mistake(
    tmp_path: Path, prepared: None, change: dict[str, Any], rows: str
) -> None:
    assert told_of(tmp_path, change, rows) == ""


def test_what_a_windows_editor_adds_and_odd_names_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / "my rows [1].jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + ROW.replace("\n", "\r\n").encode() * 2)
    given = sft(str(path), init="hub/model")
    graph = Graph(Config(merge(read_config([DEFAULTS]), given)))
    assert missing(graph, dict.fromkeys(graph.nodes, 0), True, Small(hub=None)) == []
