"""Mistakes of a first day, with one's own data and models: each ends in one line that names file or key.

`tests/data/messages.jsonl` has command lines, with the files and keys that they meet, and their answers.
`MESSAGES=write python -m pytest tests/test_messages.py` writes the answers anew: then read the difference.
"""

import contextlib
import importlib
import io
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from given.cases import DATA
from given.lines import read_lines, write_lines
from given.machines import Small
from huggingface_hub.constants import HF_HUB_CACHE

from pipeline.config.root import Config
from pipeline.core.errors import InputError
from pipeline.core.overlays import DEFAULTS, merge, read_config
from pipeline.core.stage import run_stage
from pipeline.core.stages import program_of
from workflow.arguments import problem
from workflow.forecast.refusals import refusals
from workflow.graph import Graph
from workflow.preflight import missing

SNAPSHOT = DATA / "messages.jsonl"
TURNS = '{"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"}]}\n'
MODEL = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": ""}
FILES = {
    "tabs.yaml": "rl:\n\tsteps: 1\n",
    "latin.yaml": "run: caf\xe9\n",
    "twice.yaml": "run: a\nrun: b\n",
    "good.yaml": "run: a\n",
    "mine/config.yaml": "executor: nowhere\n",
    "rows.jsonl": TURNS,
    "good.jsonl": '{"question": "1 + 1?", "answer": "2"}\n',
    "list.jsonl": "[1]\n",
    "pairs.jsonl": '{"id": "1", "prediction": "1"}\n',
    "reward.py": "def other(item, text):\n    return 1\n",
    "short.py": "def other(item, text):\n    short(\n",
    "old.json": "an older result",
    "out/old": "an older result",
    "empty/x": "",
    "untold/config.json": "{}",
    "untold/model.safetensors": "",
    "light/config.json": "{}",
    "light/tokenizer.json": "{}",
    **{f"model/{name}": text for name, text in MODEL.items()},
}


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files with these contents, a character for a byte."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="latin-1", newline="")


def answer_to_run(keys: dict[str, Any]) -> tuple[int, str]:
    """Look at a configuration as `dsm run` does before the first job."""
    try:
        graph = Graph(Config(merge(read_config([DEFAULTS]), keys)))
        lines = refusals(graph.config) or missing(graph, dict.fromkeys(graph.nodes, 0), True, Small())
    except InputError as error:
        lines = [str(error)]
    assert not any("\n" in line for line in lines)
    return int(bool(lines)), "\n".join(lines)


def answer_to_program(module: str, words: list[str]) -> tuple[int, str]:
    """Run a program in this process."""
    stage = program_of(module)
    name = module if stage is None or module.count(".") > 1 else f"{module}.__main__"
    imported, stderr = importlib.import_module(name), io.StringIO()
    with pytest.raises(SystemExit) as end, contextlib.redirect_stderr(stderr):
        run_stage(*stage, imported.run, words) if stage else imported.main(words)
    if isinstance(end.value.code, str):
        return 1, end.value.code
    (line,) = [line for line in stderr.getvalue().splitlines() if "error: " in line]
    return end.value.code, line


def answer(case: dict[str, Any]) -> tuple[int, str]:
    """Return exit code and line of a command."""
    first, *words = shlex.split(case["command"])
    if first == "snakemake":
        line = problem(words) or ""
        return int(bool(line)), line
    return answer_to_run(case["keys"]) if first == "run" else answer_to_program(first, words)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """New working directories, each with the shipped configurations."""
    monkeypatch.setattr("workflow.preflight.check", lambda weak: None)

    def folders() -> Iterator[Path]:
        for number in range(1000):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "configs").symlink_to(ROOT / "configs")
            monkeypatch.chdir(folder)
            yield folder

    return folders()


@pytest.mark.slow
def test_each_mistake_has_the_answer_on_record(folders: Iterator[Path]) -> None:
    recorded = read_lines(SNAPSHOT)
    answered = []
    for case, folder in zip(recorded, folders, strict=False):
        write(folder, files := FILES | case.get("files", {}))
        code, line = answer(case)
        assert {name: (folder / name).read_bytes().decode("latin-1") for name in files} == files
        answered.append(
            case | {"code": code, "line": line.replace(str(ROOT), "{root}").replace(HF_HUB_CACHE, "{hub}")}
        )
    if os.environ.get("MESSAGES") == "write":
        write_lines(SNAPSHOT, answered)
    assert [row for row, case in zip(answered, recorded, strict=True) if row != case] == []
