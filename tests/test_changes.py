"""Change X, rerun Y: what `status` says is what `snakemake -n` plans is what a run makes.

The table in docs/architecture.md has some of `CHANGES`. Each change is made to a copy of the finished small
run; of what it plans, only what takes seconds is made.
"""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import OVERLAYS, ROOT, Checkout
from snakemake.cli import main as snakemake

from pipeline.cli import status
from pipeline.config.corpus import CorpusSection
from pipeline.core import code
from pipeline.core.stage import CODE
from workflow.graph import Graph
from workflow.keys import Keys
from workflow.reasons import Reasons

COPIED = (
    "Snakefile",
    "environment.yml",
    "configs",
    "pipeline",
    "profiles",
    "results",
    "snakemake_logger_plugin_dsm",
    "tests",
    "workflow",
)
WARC = [f"miniweb:warc/miniweb-{number:05d}.warc.gz" for number in range(3)]  # the run has the first two
MODELS = ("cpt/base", "sft/instruct", "sft/tool", "reward/prm", "rl/grpo")
ALL, EVALUATIONS, NEW = " ".join(MODELS), "evaluate/*", "new"
PROMPT = "configs/prompts/question-answer.yaml"


@dataclass
class Change:
    """A change to the folder of a run, made by `make`, which may return an overlay.

    `again`: patterns of the instances that are made again, beside all that follows from them; `told`: models
    of which it is said that other code made them; `reason`: words of the line on the first instance.
    """

    text: str
    again: tuple[str, ...]
    make: Callable[[Path, pytest.MonkeyPatch], dict[str, Any] | None]
    told: tuple[str, ...] = ()
    reason: str = ""
    runs: bool = False


def key(text: str, again: str, overlay: dict[str, Any], reason: str = "", runs: bool = False) -> Change:
    """A change of the configuration."""
    return Change(text, tuple(again.split()), lambda *_: overlay, reason=reason, runs=runs)


def edit(
    text: str, again: str, file: str, old: str = "", new: str = "\n# c\n", told: str = "", reason: str = ""
) -> Change:
    """A change of a file's text; without an `old` it is added at the end."""

    def make(folder: Path, patch: pytest.MonkeyPatch) -> None:
        path = folder / file
        before = path.read_text()
        assert old in before, f"{file} has changed: {old!r} is not in it"
        path.write_text(before.replace(old, new, 1) if old else before + new)

    return Change(text, tuple(again.split()), make, tuple(told.split()), reason)


def package(name: str, again: str, told: str = "") -> Change:
    """Another version of a package."""

    def make(folder: Path, patch: pytest.MonkeyPatch) -> None:
        real = code.installed
        patch.setattr(code, "installed", lambda each: "99.0" if each == name else real(each))

    reason = f"{name} " if again else ""
    return Change(f"another version of {name}", tuple(again.split()), make, tuple(told.split()), reason)


def result(text: str, again: str, do: Callable[[Path], Any], reason: str = "", runs: bool = False) -> Change:
    """A change of the run's results."""

    def make(folder: Path, patch: pytest.MonkeyPatch) -> None:
        do(folder / "results/small")

    return Change(text, tuple(again.split()), make, reason=reason, runs=runs)


def manifest(name: str, text: str | None) -> Callable[[Path], Any]:
    """Writes a text into the manifest of an instance, or removes it."""

    def do(run: Path) -> None:
        path = Keys(graph_of()).entry(name).manifest
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    return do


def new_benchmark(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (folder / "toy.jsonl").write_text('{"id": "1", "question": "What is one and one?", "answer": "2"}\n')
    models = {"grpo": {"benchmarks": ["miniweb", "heldout", "toy"]}}
    return {"benchmarks": {"toy": {"source": "toy.jsonl"}}, "models": models}


def moved_prompt(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (folder / "my").mkdir()
    shutil.copy(folder / PROMPT, folder / "my/prompt.yaml")
    os.utime(folder / "my/prompt.yaml", (1e9, 1e9))
    return {"benchmarks": {name: {"prompt": "my/prompt.yaml"} for name in ("miniweb", "heldout")}}


def raised_version(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CorpusSection, "version", CorpusSection.version + 1)


def pinned_base(folder: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    key = (folder / "results/small/cpt/base").resolve().name
    return {"decontaminate": {"ngram": 12}, "pins": {"cpt/base": key}}


def reordered(folder: Path, patch: pytest.MonkeyPatch) -> None:
    for name in OVERLAYS:
        text = yaml.safe_load((folder / name).read_text())
        (folder / name).write_text(yaml.safe_dump(backwards(text), sort_keys=False))


def backwards(value: Any) -> Any:
    """A configuration with all keys in the reverse order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(value)}
    return value


def other_times(run: Path) -> None:
    for path in sorted(run.rglob("*"), reverse=True):
        os.utime(path, (2e9, 2e9), follow_symlinks=False)


def variant(run: Path) -> None:
    """As if another value of a key had been tried."""
    other = run / "store/rl/grpo/0123456789abcdef"
    shutil.copytree((run / "rl/grpo").resolve(), other)
    (run / "rl/grpo").unlink()
    (run / "rl/grpo").symlink_to("../store/rl/grpo/0123456789abcdef")


OTHER_DATA = {"stage": "sft", "parent": "base", "data": "miniweb:sft_tool.jsonl", "benchmarks": []}
SHARE = {"mixtures": {"math": {"sources": {"corpus": {"share": 0.5}}}}}
LAUNCH = {"launch": {"micro_batch": 2, "threads": 2}, "rl": {"launch": {"zero_stage": 3}}}
MORE, EXTRACT = "\n\ndef more():\n    return 1\n", "pipeline/crawl/extract.py"
CHANGES = [
    key("a key of one model", "rl/grpo", {"models": {"grpo": {"kl_coefficient": 0.04}}}, "0.0 -> 0.04"),
    key("a key of a stage, `rl.steps`", "rl/*", {"rl": {"steps": 5}}, "steps 3 -> 5"),
    key("`sft.learning_rate`", "sft/*", {"sft": {"learning_rate": 0.01}}),
    key("`cpt.tokens`", "cpt/*", {"cpt": {"tokens": 40960}}, "tokens 32768 -> 40960"),
    key("`reward.questions`", "reward/*", {"reward": {"questions": 20}}),
    key("`evaluate.temperature`", EVALUATIONS, {"evaluate": {"temperature": 0.9}}, "temperature 0.7 -> 0.9"),
    key("`corpus.domain_share`", "corpus/*/select", {"corpus": {"domain_share": 0.2}}),
    key("`corpus.iterations` 3 -> 4", NEW, {"corpus": {"iterations": 4}}),
    key("`crawl.min_similarity`", "crawl/buckets-*", {"crawl": {"min_similarity": 0.6}}),
    key("one more WARC file, anywhere in the list", NEW, {"crawl": {"warc": [WARC[2], *WARC[:2]]}}),
    key("`decontaminate.ngram`", "decontaminate/*", {"decontaminate": {"ngram": 12}}),
    key("`tokens.vocabulary`", "tokens/tokenizer", {"tokens": {"vocabulary": 1000}}),
    key("the share of a source in a mixture", "tokens/math", SHARE),
    key("`miniweb.scale`", "miniweb", {"miniweb": {"scale": 0.3}}),
    key("`report.seed_spread`", "report", {"report": {"seed_spread": 0.04}}, runs=True),
    key("`seed`", "*", {"seed": 1}),
    key("a new model", NEW, {"models": {"other": OTHER_DATA}}),
    key("a model less", "report", {"models": {"tool": None}}),
    Change("a new benchmark", ("decontaminate/clean-*", "evaluate/grpo"), new_benchmark),
    Change("`decontaminate.ngram`, with `pins: {cpt/base: ...}`", ("decontaminate/*",), pinned_base),
    key("`launch`, threads, GPUs", "", LAUNCH),
    key("a key set to its default", "", {"evaluate": {"temperature": 0.7}}),
    Change("the order of keys, comments in a configuration", (), reordered),
    edit("a file of yours, other content", EVALUATIONS, PROMPT, reason="input prompt"),
    edit("the report's claims", "report", "configs/claims.yaml", reason="input claims"),
    Change("a file of yours in another place, or touched", (), moved_prompt),
    edit("a comment in a program", "", EXTRACT),
    edit("a docstring", "", EXTRACT, '"""', '"""Other words. '),
    edit("an annotation", "", EXTRACT, "url: bytes | None)", "url: bytes)"),
    edit("code that only carries work out, `core/stage.py`", "", "pipeline/core/stage.py", new=MORE),
    edit("a declaration of keys (`config/`)", "", "pipeline/config/crawl.py", new=MORE),
    edit("a rule (`workflow/rules/`)", "", "workflow/rules/crawl.smk"),
    edit("what a program of data does", "crawl/extract-*", EXTRACT, new=MORE, reason="the code of"),
    edit("`decontaminate/pages.py`", "decontaminate/pages", "pipeline/decontaminate/pages.py", new=MORE),
    edit("a template of the report", "report", "pipeline/report/templates/page.html.j2", new="\n"),
    edit("the loss of RL", "", "pipeline/rl/objectives.py", "torch.minimum(", "torch.maximum(", "rl/grpo"),
    edit("what all training does", "", "pipeline/training/engine.py", new=MORE, told=ALL),
    Change("a section's `version` raised", ("corpus/*",), raised_version, reason="the meaning of a key"),
    package("resiliparse", "crawl/extract-* crawl/sign-*"),
    package("mathverdict", f"{EVALUATIONS} report", "reward/prm rl/grpo"),
    package("fasttext", "corpus/*/train corpus/*/score-*"),
    package("torch", EVALUATIONS, ALL),
    package("numpy", ""),
    result("a manifest removed", "sft/instruct", manifest("sft/instruct", None), "its manifest was removed"),
    result("a manifest empty", "evaluate/base", manifest("evaluate/base", ""), "cannot be read"),
    result("a manifest `{}`", "report", manifest("report", "{}"), "cannot be read", runs=True),
    result("a manifest cut off", "crawl/dedup", manifest("crawl/dedup", '{"schema": 1, '), "cannot be read"),
    result("a link removed", "", lambda run: (run / "sft/instruct").unlink()),
    result("another variant tried and given up", "", variant),
    result("other times of all files", "", other_times),
    result("`work/` deleted", "", lambda run: shutil.rmtree(run.parents[1] / "work")),
]


def graph_of(*more: str) -> Graph:
    """The graph of the small run, here and now."""
    return status.read_graph([*OVERLAYS, *more], [])


def expected(change: Change, graph: Graph) -> set[str]:
    """The instances that the change makes again, with all that follows."""
    known = graph_of().nodes
    roots = {
        name
        for name in graph.nodes
        if any(fnmatch(name, each) for each in change.again) or (NEW in change.again and name not in known)
    }
    for name in graph.nodes:  # in an order in which inputs come first
        if name not in graph.config.pins and roots & graph.before(name).keys():
            roots.add(name)
    return roots


def planned(overlays: list[str], patch: pytest.MonkeyPatch) -> tuple[set[str], str]:
    """The instances that a dry run of Snakemake plans, in this process, and all it prints."""
    words = ["--dry-run", "--cores", "1", "--configfile", *overlays]
    patch.setattr(sys, "argv", ["snakemake", *words])
    patch.setattr(sys, "path", list(sys.path))
    # Snakemake leaves an object there that gives anything for any name; vLLM, which looks through all
    # modules, cannot start in a process that has it.
    patch.setitem(vars(sys.modules["snakemake.workflow"]), "storage", None)
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told), pytest.raises(SystemExit) as end:
        snakemake(words)
    text = told.getvalue()
    assert end.value.code == 0, text[-3000:]
    found = set(re.findall(r"^    output: .*/store/(.+)/[0-9a-f]{16}/manifest.json", text, re.MULTILINE))
    return found, text


@pytest.fixture
def folder(finished: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the finished run with its programs, which may be changed, as the working directory."""
    for name in COPIED:
        subprocess.run(["cp", "-a", finished.folder / name, tmp_path], check=True)
    (tmp_path / "work").mkdir()
    shutil.copy(finished.folder / CODE, tmp_path / CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    yield tmp_path


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.text)
def test_a_change_reruns_what_it_should(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    if overlay := change.make(folder, monkeypatch):
        (folder / "change.yaml").write_text(yaml.safe_dump(overlay, sort_keys=False))
    more = ["change.yaml"] if overlay else []
    reasons = Reasons(Keys(graph_of(*more)))
    again = expected(change, reasons.graph)
    assert bool(again) == bool(change.again)
    said = {*reasons.causes, *(name for names in reasons.followers.values() for name in names)}
    assert said == reasons.graph.nodes.keys() - reasons.made == again
    lines = status.summary(reasons)
    assert change.reason in lines[0]
    edited = {
        name: line
        for line in lines
        if ": made by other code: " in line
        for name in MODELS
        if name in line.partition(":")[0]
    }
    assert edited.keys() == set(change.told)
    found, text = planned([*OVERLAYS, *more], monkeypatch)
    assert found == again
    assert all(line in text for line in lines)
    if change.runs:
        done = Checkout(folder).dsm(overlays=[*OVERLAYS, *more])
        assert done.returncode == 0, done.stdout[-3000:]
        assert set(re.findall(r"^(\S+): starts", done.stdout, re.MULTILINE)) == again
        assert Reasons(Keys(graph_of(*more))).made == reasons.graph.nodes.keys()


def rows() -> set[str]:
    """Each change as a row of the table in docs/architecture.md."""
    found = set()
    for change in CHANGES:
        again = ", ".join("what is new" if each == NEW else f"`{each}`" for each in change.again) or "nothing"
        told = "all models" if change.told == MODELS else ", ".join(f"`{name}`" for name in change.told)
        found.add(f"| {change.text} | {again} | {told} |")
    return found


def test_the_table_in_the_docs_says_what_these_tests_found() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    _, _, *lines = text.split("| change |")[1].split("\n\n")[0].splitlines()
    assert len(lines) > 15 and set(lines) <= rows(), set(lines) - rows()
