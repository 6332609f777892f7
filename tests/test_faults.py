"""Faults of machines and of inputs end in one line before anything is half done."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from pipeline.common.folders import check_writable, full_disk, held
from pipeline.common.overlays import DEFAULTS, read_config
from pipeline.common.stage import InputError
from pipeline.config.evaluate import EvaluateSection
from pipeline.config.root import Config, ConfigError
from pipeline.config.section import LARGEST_SEED
from pipeline.config.sft import SftSection
from workflow.graph import Graph

SPACE = "2m"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"run: a\nrun: b\n", "key 'run' stands twice, line 2"),
        (b"sft: {steps: 1, steps: 2}\n", "key 'steps' stands twice, line 1"),
        (b"run: caf\xe9\n", "not YAML ('utf-8' codec can't decode byte 0xe9"),
        (b"run: [1\n", "not YAML"),
        (b"sft: &x {steps: *x}\n", "a value is a part of itself"),
        (b"a: " + b"[" * 5000, "nested more than 100 times"),
        (b"- run\n", "expected a mapping"),
    ],
)
def test_a_file_that_is_no_sound_yaml_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(text)
    with pytest.raises(InputError) as error:
        read_config([file])
    assert str(error.value).startswith(f"{file}: ") and words in str(error.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sft": {"learning_rate": float("inf")}}, "sft.learning_rate: Input should be a finite number"),
        ({"sft": {"learning_rate": float("nan")}}, "sft.learning_rate: Input should be a finite number"),
        ({"rl": {"rewards": {"format": float("nan")}}}, "rl.rewards.format: Input should be a finite number"),
        ({"sft": {"steps": True}}, "sft.steps: true and false are no value of this key (got True)"),
        ({"evaluate": {"k": [True]}}, "evaluate.k: true and false are no value"),
        ({"rl": {"rewards": {"functions": {"a.py:b": True}}}}, "rewards.functions: true and false are no"),
        ({"seed": True}, "seed: expected an integer"),
        ({"seed": -1}, "seed: expected an integer from 0 on"),
        ({"sft": {"seed": LARGEST_SEED + 1}}, "sft.seed: Input should be less than or equal to"),
        ({"evaluate": {"k": [64], "samples": 4}}, "every value of `k` is above `samples`, 4"),
        ({"evaluate": {"k": [0]}}, "evaluate.k.0: Input should be greater than or equal to 1"),
        (
            {"evaluate": {"k": [8]}, "benchmarks": {"x": {"source": "a", "samples": 4}}},
            "benchmarks.x.samples: 4",
        ),
        ({"run": None}, "run: not a name: None"),
        ({"run": "a{b}"}, "run: not a name: 'a{b}'"),
        ({"benchmarks": ["gsm8k"]}, "benchmarks: expected a mapping"),
        ({"benchmarks": {"gsm8k": 3}}, "benchmarks.gsm8k: expected a mapping, got 3"),
        ({"models": {"a": [1]}}, "models.a: expected a mapping"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_its_key(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        Config(values)
    assert f"config key {words}" in str(error.value) or words in str(error.value)
    assert str(error.value).startswith("config key ")


def test_true_is_taken_where_it_means_something_and_some_k_may_be_above_the_samples() -> None:
    assert EvaluateSection(samples=4).k[-1] == 64 and EvaluateSection(samples=0, k=[64]).k == [64]
    assert Config({"launch": {"sleep": True, "compile": False}}).sections["launch"].sleep
    assert SftSection(learning_rate="1e-6").learning_rate == 1e-6  # what YAML makes of `1e-6`


@pytest.mark.parametrize("name", ["tset.jsonl", "warc/miniweb-00099.warc.gz", ""])
def test_a_misspelt_file_of_the_generated_web_is_refused(name: str) -> None:
    values = read_config([DEFAULTS, ROOT / "configs/demo.yaml"])
    values["benchmarks"]["miniweb"]["source"] = f"miniweb:{name}"
    with pytest.raises(ConfigError, match=r"benchmarks.miniweb.source: 'miniweb:.*' is not generated; "):
        Graph(Config(values))


def holder(folder: Path) -> int:
    """A process that works in `folder`, and has a child of its own that outlives it; returns its id."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with held(folder):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
            os.write(writer, b"1")
            time.sleep(20)
        os._exit(0)
    assert os.read(reader, 1) == b"1"
    return child


def test_two_programs_cannot_work_in_one_folder_and_a_kill_leaves_no_lock(tmp_path: Path) -> None:
    work = tmp_path / "deep/work"
    child = holder(work)
    try:
        with pytest.raises(InputError) as error, held(work):
            pass
        assert str(error.value).startswith(f"{work}: process {child} on {os.uname().nodename} (since 2")
        with held(tmp_path / "deep/other"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with held(work):
        assert (tmp_path / "deep/.work.lock").read_text().startswith(f"process {os.getpid()} ")
    assert not list((tmp_path / "deep").glob(".*"))


def command(folder: Path, work: Path) -> list[str]:
    """A small stage program: the run's own tokenizer."""
    text = folder / "text.jsonl"
    text.write_text(json.dumps({"text": "One and one is two. " * 5000}) + "\n")
    config = ["--config", json.dumps({"vocabulary": 300})]
    places = ["--work", str(work), "--output", str(folder / "out"), "--input", f"text={text}"]
    return [sys.executable, "-m", "pipeline.tokens.tokenizer", *config, *places]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=300
    )


def test_a_program_names_the_one_that_works_in_its_folder_and_other_ranks_are_let_in(tmp_path: Path) -> None:
    with held(tmp_path / "work"):
        done = run(command(tmp_path, tmp_path / "work"))
        assert done.returncode == 2 and f"process {os.getpid()} on" in done.stderr
        assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()
        (tmp_path / "work/partial").mkdir(parents=True)
        assert run(command(tmp_path, tmp_path / "work"), RANK="1").returncode == 0


@pytest.mark.parametrize("place", ["", "dev/full"])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    folder = Path("/proc/self/fdinfo") if place else tmp_path / "file/below"
    with pytest.raises(InputError, match=f"^{folder}: cannot be written \\("):
        check_writable(folder)


def on_small_disk(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a disk of `SPACE` at `folder`, in a mount namespace of its own."""
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={SPACE} none {folder} && "
    done = run(["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", mount + script])
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("this machine does not let a test mount a small disk of its own")
    return done


@pytest.mark.parametrize("which", ["work", "output"])
def test_a_read_only_folder_is_noticed_before_the_work(tmp_path: Path, which: str) -> None:
    small = tmp_path / "small"
    line = command(tmp_path, small / "work" if which == "work" else tmp_path / "work")
    line[line.index("--output") + 1] = str(small / "out" if which == "output" else tmp_path / "out")
    script = f"mount -o remount,ro {small} && {shlex.join(line)}"
    done = on_small_disk(small, script)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"error: {small}: cannot be written (Read-only file system)\n"


def test_the_causes_of_a_full_disk_are_known(tmp_path: Path) -> None:
    import errno

    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        wrapped = RuntimeError("the library's own words")
        wrapped.__cause__ = OSError(number, os.strerror(number), "/a/file")
        assert full_disk(wrapped, [tmp_path]).startswith("/a/file: no space left")
    assert full_disk(RuntimeError("I/O error: No space left on device"), [tmp_path]).startswith(
        f"{tmp_path}: no"
    )
    assert full_disk(RuntimeError("another reason"), [tmp_path]) is None
