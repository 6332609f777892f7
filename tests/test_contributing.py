"""The recipes of CONTRIBUTING.md: their files are in the project's style, a stage takes the edits named."""

import re
import sys
from pathlib import Path

import pytest
from conftest import ROOT, copy_checkout, run

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## Add an? (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
FILE = re.compile(r"^`([\w/.]+)`, new\b[^:]*:\n\n```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
EDIT = re.compile(r"^\d\. `(.+?)`: (.*?)(?=^\d\. |^The |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^   ```python\n(.*?)^   ```", re.MULTILINE | re.DOTALL)
MOST_EDITS = 3


def write_files(folder: Path, recipe: str) -> list[str]:
    """Write the new files of a recipe; returns their names."""
    files = FILE.findall(RECIPES[recipe])
    for name, text in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return [name for name, _ in files]


def insert(path: Path, line: str, text: str) -> None:
    """Write a text before the first line that begins so."""
    before, mark, after = path.read_text().partition(f"\n{line}")
    assert mark
    path.write_text(f"{before}\n{text}{mark[1:]}{after}")


def python(folder: Path, *words: str) -> str:
    """Run a command that must succeed in a copy of the project; returns what it prints."""
    done = run([sys.executable, *words], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_files_that_recipes_write_are_in_the_project_s_style(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    files = [name for recipe in RECIPES for name in write_files(tmp_path, recipe)]
    code = [name for name in files if name.endswith(".py")]
    assert len(code) >= 5
    python(tmp_path, "-m", "ruff", "check", *code)
    python(tmp_path, "-m", "ruff", "format", "--check", *code)


@pytest.mark.slow
def test_a_stage_takes_the_edits_that_its_recipe_names(tmp_path: Path) -> None:
    edits = dict(EDIT.findall(RECIPES["stage"]))
    assert 0 < len(edits) <= MOST_EDITS
    copy_checkout(tmp_path)
    write_files(tmp_path, "stage")
    stage, program = re.findall(r"^ +(\w+\(.*\))$", edits["pipeline/core/stages.py"], re.MULTILINE)
    insert(tmp_path / "pipeline/core/stages.py", '    StageRow("tokens"', f"    {stage},\n")
    insert(tmp_path / "pipeline/core/stages.py", '    Program("tokens_', f"    {program},\n")
    (builder,) = CODE.findall(edits["workflow/graph.py"])
    insert(tmp_path / "workflow/graph.py", "# In the order", re.sub("^   ", "", builder, flags=re.MULTILINE))
    insert(tmp_path / "workflow/graph.py", "    add_tokens,", "    _add_reading,\n")
    python(tmp_path, "-m", "pipeline.config")
    tests = ["tests/test_rules.py", "tests/test_docs.py"]
    python(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", *tests, "-k", "written_out or rooms or room")
    told = python(tmp_path, *["-m", "pipeline", "run", "configs/demo.yaml", "reading", "-n", "--cores", "1"])
    assert re.search(r"^reading_corpus +1$", told, re.MULTILINE)


TRAINED = {
    "pipeline/config/distil.py": """\
from pipeline.config.sft import SftSection


class DistilSection(SftSection):
    steps: int = 7
""",
    "pipeline/distil.py": """\
from pipeline.config.distil import DistilSection
from pipeline.core.stage import run_stage
from pipeline.sft import run

if __name__ == "__main__":
    run_stage("distil", DistilSection, run)
""",
    "my.yaml": 'models: {taught: {stage: distil, parent: base, data: "miniweb:sft.jsonl"}}',
}


@pytest.mark.slow
def test_a_stage_that_trains_needs_one_edit_and_its_models_are_trained_and_evaluated(tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    for name, text in TRAINED.items():
        (tmp_path / name).write_text(text)
    rules = tmp_path / "workflow/rules"
    (rules / "distil.smk").write_text((rules / "sft.smk").read_text().replace("sft", "distil"))
    row = '    StageRow("distil", "Distillation", "distil:DistilSection", "text"),\n'
    insert(tmp_path / "pipeline/core/stages.py", '    StageRow("reward"', row)
    insert(
        tmp_path / "pipeline/core/stages.py",
        '    Program("reward',
        '    Program("distil_model", "pipeline.distil"),\n',
    )
    run = [
        "-m",
        "pipeline",
        "run",
        "configs/demo.yaml",
        "my.yaml",
        "evaluate/taught",
        "-n",
        "-p",
        "--cores",
        "1",
    ]
    told = python(tmp_path, *run)
    assert re.search(r"^distil_model +1$", told, re.MULTILINE)
    assert "python -m pipeline.core.start pipeline.distil --input data=" in told and "--input parent=" in told
