"""What counts as the code of a program: what decides bytes, and nothing else."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT

from pipeline.core import code, stages
from pipeline.core.code import CARRIERS, DATA, Code, changed
from pipeline.evaluate.sampling import Decoding, Request, Sampler

PROGRAMS = sorted({program.module for program in stages.PROGRAMS})
BEFORE = Code()  # of this checkout; it remembers what it read, by content
WHOLE = {module: BEFORE.digest(module) for module in PROGRAMS}
DEFINITIONS = {module: BEFORE.definitions(module) for module in PROGRAMS}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the programs that may be edited."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(autouse=True)
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "ROOT", project)


def stale(project: Path, file: str, old: str, new: str) -> set[str]:
    """The programs whose code another text of a file changes; `old` at its end stands for the end."""
    path = project / file
    text = path.read_text()
    assert old in text, f"{file} has changed: {old!r} is not in it"
    path.write_text(text.replace(old, new, 1) if old else text + new)
    try:
        today = Code()
        today.known = BEFORE.known
        return {module for module in PROGRAMS if today.digest(module) != WHOLE[module]}
    finally:
        path.write_text(text)


def readers(file: str) -> set[str]:
    """The programs whose code a file is part of."""
    return {module for module in PROGRAMS if file in DEFINITIONS[module]}


def test_the_same_text_elsewhere_is_the_same_code(project: Path) -> None:
    """Keys are the same in any checkout; and a program's code is read once for each text."""
    assert stale(project, "pipeline/sft.py", "", "") == set()


@pytest.mark.parametrize(
    "file",
    sorted(
        name
        for room in CARRIERS
        for file in (ROOT / room).rglob("*.py")
        if not (name := str(file.relative_to(ROOT))).startswith(DATA)
    ),
)
@pytest.mark.parametrize("edit", ["\n# a comment\n", "\n\ndef added() -> int:\n    return 1\n"])
def test_what_only_carries_work_out_decides_no_bytes(project: Path, file: str, edit: str) -> None:
    assert (project / file).is_file() and readers(file) == set()
    assert stale(project, file, "", edit) == set()


@pytest.mark.parametrize("file", ["pipeline/core/section.py", "pipeline/config/rl.py"])
def test_keys_count_by_their_values_and_not_by_the_code_that_declares_them(project: Path, file: str) -> None:
    assert stale(project, file, "", "\nEXTRA = 1\n") == set()


EXTRACT = "pipeline/crawl/extract.py"
SAME = {
    "a comment": ("", "\n# c\n"),
    "a comment behind code": ("def page_url(", "# c\ndef page_url("),
    "a docstring": ('"""', '"""Other words. '),
    "an annotation": ("url: bytes | None)", "url: bytes)"),
    "what a function returns": (") -> tuple[str, str]:", ") -> tuple:"),
    "layout": ("def page_url(", "\n\n\ndef page_url("),
    "quotes": ('Unusable("no_url")', "Unusable('no_url')"),
}


@pytest.mark.parametrize("edit", SAME)
def test_comments_docstrings_annotations_and_layout_do_not_count(project: Path, edit: str) -> None:
    assert stale(project, EXTRACT, *SAME[edit]) == set()


OTHER = {
    "a statement": ("", "\nprint()\n"),
    "a function": ("", "\n\ndef other():\n    return 1\n"),
    "a default": ("def page_url(url: bytes | None)", "def page_url(url: bytes | None = None)"),
    "a name": ("def _row(", "def _a_row("),
    "a string that is no docstring": ("def page_url(", "WORD = 'word'\n\n\ndef page_url("),
    "a decorator": ("def page_url(", "@cache\ndef page_url("),
}


@pytest.mark.parametrize("edit", OTHER)
def test_all_else_counts_for_the_programs_that_reach_it_and_for_no_other(project: Path, edit: str) -> None:
    expected = readers(EXTRACT)
    assert "pipeline.crawl.extract" in expected and "pipeline.rl" not in expected
    assert stale(project, EXTRACT, *OTHER[edit]) == expected


def test_a_constant_counts_by_its_type_too(project: Path) -> None:
    texts = ["1", "True", "1.0", "'1'", "b'1'", "\"b'1'\"", "...", "'Ellipsis'", "1j", "None", "-1"]
    found = set()
    for text in texts:
        (project / "pipeline/constant.py").write_text(f"VALUE = {text}\n")
        found.add(Code().digest("pipeline.constant"))
    (project / "pipeline/constant.py").unlink()
    assert len(found) == len(texts)


def test_a_module_that_a_function_imports_or_a_package_loads_by_name_counts() -> None:
    assert "pipeline.rl" in readers("pipeline/rl/methods/dpo.py")
    assert "pipeline.report" in readers("pipeline/report/chapters/rl.py")


def test_a_module_that_runs_in_a_process_of_its_own_counts() -> None:
    assert "pipeline.evaluate" in readers("pipeline/evaluate/paper_equality.py")


def test_a_module_that_moves_with_its_importers_changes_no_code(project: Path) -> None:
    before, rooms = Code().digest("pipeline.sft"), project / "pipeline"
    shutil.copytree(rooms, rooms.with_name("kept"))
    (rooms / "training/packing.py").rename(rooms / "core/data/packing.py")
    for path in rooms.rglob("*.py"):
        text = path.read_text()
        path.write_text(text.replace("pipeline.training.packing", "pipeline.core.data.packing"))
    after = Code().digest("pipeline.sft")
    shutil.rmtree(rooms)
    rooms.with_name("kept").rename(rooms)
    assert after == before


def test_data_files_of_a_programs_package_count_by_their_bytes(project: Path) -> None:
    assert stale(project, "pipeline/report/templates/page.html.j2", "", "\n") == {"pipeline.report"}


KINDS = {"cot", "proof", "pal", "tool", "code"}
RUN = KINDS - {"cot", "proof"}
MORE = "\n\ndef more():\n    return 1\n"


def samples() -> set[tuple[str, str]]:
    """Kinds of answers, and the files where a rank that starts now saves or finds them."""
    today = Code()
    today.known = BEFORE.known
    sampler = Sampler(Path(), None, 64, 8, lambda: None, Counter(), today)
    asked = {kind: Request("x", ["a"], [[1]], (), Decoding(1, 0.0, 8, 0, kind)) for kind in KINDS}
    return {(kind, sampler.batches(request)[0].path.name) for kind, request in asked.items()}


@pytest.mark.parametrize(
    ("file", "edit", "kinds"),
    [
        ("evaluate/sampling.py", MORE, KINDS),
        ("evaluate/tool_use.py", MORE, KINDS),
        ("training/generation.py", MORE, KINDS),
        ("evaluate/programs.py", MORE, RUN),
        ("evaluate/interpreter.py", MORE, RUN),
        ("evaluate/sampling.py", "\n# c\n", set()),
        ("evaluate/__main__.py", MORE, set()),
        ("evaluate/profiles.py", MORE, set()),
        ("evaluate/ocw.toml", "\n", set()),
        ("report/page.py", MORE, set()),
    ],
)
def test_samples_are_drawn_again_when_what_draws_them_changes(
    project: Path, file: str, edit: str, kinds: set[str]
) -> None:
    before, path = samples(), project / "pipeline" / file
    text = path.read_text()
    path.write_text(text + edit)
    after = samples()
    path.write_text(text)
    assert {kind for kind, _ in before - after} == kinds
    assert samples() == before  # as of another rank


@pytest.mark.parametrize(("package", "kinds"), [("vllm", KINDS), ("sealedpy", RUN), ("mathverdict", set())])
def test_samples_are_drawn_again_by_another_version_of_what_draws_or_runs_them(
    package: str, kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = samples(), code.installed
    monkeypatch.setattr(code, "installed", lambda name: "99.0" if name == package else real(name))
    assert {kind for kind, _ in before - samples()} == kinds


@pytest.mark.slow
def test_an_edit_is_told_by_file_and_function(project: Path) -> None:
    file = "pipeline/rl/objectives.py"
    before, path = DEFINITIONS["pipeline.rl"], project / file
    text = path.read_text()
    assert "return torch.minimum(ratio * advantages" in text
    path.write_text(text.replace("return torch.minimum(", "return torch.maximum(") + "\nEXTRA = 1\n")
    now = Code().definitions("pipeline.rl")
    path.write_text(text)
    assert changed(before, now) == ["rl/objectives.py", "rl/objectives.py clipped_surrogate"]
    assert changed(before, before) == []


@pytest.mark.slow
def test_packages_count_that_decide_bytes_without_the_part_that_names_a_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert {"fastwarc", "resiliparse"} <= Code().packages("pipeline.crawl.extract").keys()
    assert {"deepspeed", "torch", "transformers", "vllm"} <= Code().packages("pipeline.rl").keys()
    code.installed.cache_clear()
    monkeypatch.setattr(code.metadata, "version", lambda name: "2.9.0+cpu")
    try:
        assert code.installed("torch") == "2.9.0"
    finally:
        code.installed.cache_clear()


def test_what_was_read_is_read_anew_by_a_reader_that_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Code(tmp_path / "code.json")
    reader.digest("pipeline.sft")
    reader.save()
    monkeypatch.setattr(code, "_here", lambda: b"another")
    monkeypatch.setattr(code.ast, "parse", lambda text: pytest.fail("is read"))
    with pytest.raises(pytest.fail.Exception, match="is read"):
        Code(tmp_path / "code.json").digest("pipeline.sft")


def test_what_was_read_is_kept_only_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "work/code.json"
    reader = Code(memory)
    whole = reader.digest("pipeline.sft")
    assert not memory.exists()
    reader.save()
    monkeypatch.setattr(code.ast, "parse", lambda text: pytest.fail("was read again"))
    assert Code(memory).digest("pipeline.sft") == whole
    memory.write_text(json.dumps([])[:-1])
    monkeypatch.undo()
    assert Code(memory).known == {}


def test_lists_of_words_count_where_a_module_names_them_and_what_pip_reads_nowhere() -> None:
    lists = {module: {file for file in DEFINITIONS[module] if file.endswith(".toml")} for module in PROGRAMS}
    used = {"boilerplate", "mathematics"}
    assert {Path(file).stem for file in lists["pipeline.crawl.extract"]} == used
    assert {Path(file).stem for file in lists["pipeline.tokens"]} == {"notations"}
    everywhere = {file for files in lists.values() for file in files}
    there = {path for path in (ROOT / "pipeline").glob("*/*.toml")}
    assert everywhere == {str(path.relative_to(ROOT)) for path in there}
