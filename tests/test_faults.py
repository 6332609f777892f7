"""Faults of machines and of inputs end in one line before anything is half done."""

import gzip
import hashlib
import json
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import on_small_disk, run

from pipeline.config.evaluate import BenchmarkNode, EvaluateSection
from pipeline.config.root import Config
from pipeline.config.sft import SftSection
from pipeline.core.data.rows import read_rows, saved_batch
from pipeline.core.folders import check_writable, full_disk, held
from pipeline.core.identity import Digests, digest_of
from pipeline.core.manifest import SCHEMA
from pipeline.core.overlays import read_config
from pipeline.core.stage import InputError
from pipeline.corpus.classifier import load as load_classifier
from pipeline.crawl import extract
from pipeline.evaluate import grade, sandbox
from pipeline.evaluate.benchmarks import load
from tests.crawl_warcs import html, record, write_warc


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


def test_true_is_taken_where_it_means_something_and_some_k_may_be_above_the_samples() -> None:
    assert EvaluateSection(samples=4).k[-1] == 64 and EvaluateSection(samples=0, k=[64]).k == [64]
    assert Config({"launch": {"sleep": True, "compile": False}}).sections["launch"].sleep
    assert SftSection(learning_rate="1e-6").learning_rate == 1e-6  # what YAML makes of `1e-6`


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
    """A small stage program: the extraction of one page."""
    write_warc(folder / "web.warc.gz", [record("https://example.org/a", html("A page."))])
    command = [sys.executable, "-m", "pipeline.crawl.extract", "--work", str(work)]
    return [*command, "--output", str(folder / "out"), "--input", f"warc={folder / 'web.warc.gz'}"]


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


@pytest.mark.parametrize("which", ["work", "output"])
def test_a_read_only_folder_is_noticed_before_the_work(tmp_path: Path, which: str) -> None:
    small = tmp_path / "small"
    line = command(tmp_path, small / "work" if which == "work" else tmp_path / "work")
    line[line.index("--output") + 1] = str(small / "out" if which == "output" else tmp_path / "out")
    script = f"mount -o remount,ro {small} && {shlex.join(line)}"
    done = on_small_disk(small, "2m", script)
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


def test_fine_tuning_on_a_full_disk_is_one_line_and_leaves_nothing_final(tmp_path: Path) -> None:
    from tests.tiny_model import save_tiny_model

    turns = [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]
    (tmp_path / "sft.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    model, small = save_tiny_model(tmp_path / "model", seed=1), tmp_path / "small"
    section = {"precision": "fp32", "context": 48, "steps": 2, "batch": 1, "suffix": {}}
    line = [sys.executable, "-m", "pipeline.sft", "--config", json.dumps(section)]
    line += ["--launch", json.dumps({"save_minutes": 0}), "--output", str(small / "out")]
    line += ["--input", f"data={tmp_path / 'sft.jsonl'}", "--input", f"init={model}"]
    done = on_small_disk(small, "300k", f"{shlex.join(line)}; code=$?; ls {small}; exit $code")
    assert done.returncode == 2 and done.stdout == "", done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert str(small) in error and "no space left" in error and "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["a.warc.gz", "a.warc"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"Not a crawl at all.\n" * 100, "another kind of file"),
        (b"PK\x03\x04" + bytes(500), "a zip archive"),
        (gzip.compress(b"plain text"), "another kind of file"),
    ],
    ids=["empty", "text", "zip", "gzip"],
)
def test_a_file_without_any_warc_record_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SystemExit) as exit:
        extract.main(["--warc", str(tmp_path / name), "--output", str(tmp_path / "out")])
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert exit.value.code == 2 and len(told) == 1 and not (tmp_path / "out").exists()
    assert told[0].startswith(f"error: {tmp_path / name}: no WARC record in it, it is ") and words in told[0]


@pytest.mark.parametrize("manifest", [b"{", b"[]", b"\xff", b"null", b"[" * 100_000, b'{"files": {"a": 1}}'])
def test_a_damaged_manifest_of_an_input_is_named(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_text("a")
    (tmp_path / "manifest.json").write_bytes(manifest)
    shutil.copytree(tmp_path / "data", tmp_path / "copy/data")
    found = [digest_of(str(folder), Digests()) for folder in (tmp_path / "data", tmp_path / "copy/data")]
    assert found[0] == found[1]  # another program's file
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match=f"^{tmp_path}/manifest.json: "):
        digest_of(str(tmp_path / "data"), Digests())


def test_a_damaged_result_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/classifier.bin").write_bytes(b"cut")
    files = {"classifier.bin": [100, "0" * 64]}
    manifest = {"schema": SCHEMA, "stage": "corpus", "instance": "x", "fingerprint": "0", "files": files}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="classifier.bin has 3 bytes, not 100; .* is a damaged result"):
        digest_of(str(tmp_path / "data"), Digests())


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_damaged_classifier_is_refused(tmp_path: Path, keep: float) -> None:
    whole = bytes(range(256)) * 8
    (tmp_path / "train.json").write_text(json.dumps({"sha256": hashlib.sha256(whole).hexdigest()}))
    (tmp_path / "classifier.bin").write_bytes(whole[: int(keep if keep > 1 else keep * len(whole))])
    with pytest.raises(InputError, match=f"^{tmp_path}/classifier.bin: damaged"):
        load_classifier(tmp_path)


def test_a_damaged_batch_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    def make() -> list[Any]:
        made.append(1)
        return [{"text": "one"}, {"text": "two"}]

    rows = [saved_batch(tmp_path / "a.jsonl", make) for _ in range(2)]
    (file,) = tmp_path.iterdir()
    assert rows[0] == rows[1] == make() and len(made) == 2
    for damage in (lambda data: data[:-9], lambda data: data.replace(b"two", b"tvo"), lambda data: b"\xff"):
        file.write_bytes(damage(file.read_bytes()))
        assert saved_batch(tmp_path / "a.jsonl", make) == rows[0]
        assert capsys.readouterr().err == f"{file}: damaged; this batch is made again\n"
    assert len(made) == 5


@pytest.mark.parametrize(
    "row",
    [
        b'{"text": "\\ud800"}',
        b'{"text": ' + b"[" * 100_000,
        b'{"text": "' + b"9" * 10 + b'", "n": ' + b"9" * 5000 + b"}",
        b'{"text": "\xff"}',
    ],
    ids=["surrogate", "deep", "digits", "bytes"],
)
def test_a_row_that_no_program_can_use_is_named(tmp_path: Path, row: bytes) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'{"text": "\\ud835\\udd38"}\n' + row + b"\n")
    with pytest.raises(InputError, match=f"^{file}: (line 2|cannot be read after line [12])") as error:
        list(read_rows(str(file)))
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("identity", ["[1]", '{"a": 1}', "true", "1.5"])
def test_an_id_is_a_text_or_a_number(
    tmp_path: Path, identity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f'{{"id": {identity}, "question": "1 + 1?", "answer": "2"}}\n')
    with pytest.raises(InputError, match="rows.jsonl: line 1: `id` is neither"):
        load("mine", BenchmarkNode(source=str(file)), [str(file)])
    if identity[0] in "[{":
        file.write_text(f'{{"id": {identity}, "reference": "1", "prediction": "1"}}\n')
        with pytest.raises(SystemExit):
            grade.main(["--input", str(file), "--output", str(tmp_path / "out")])
        assert capsys.readouterr().err == f"error: {file}: line 1: `id` is neither a text nor a number\n"


@pytest.mark.parametrize(
    "option", ["--timeout nan", "--timeout inf", "--timeout 0", "--workers -1", "--workers 0"]
)
def test_limits_of_programs_are_checked(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "programs.jsonl"
    file.write_text('{"code": "print(1)"}\n')
    with pytest.raises(SystemExit) as exit:
        sandbox.main(["--input", str(file), "--output", str(tmp_path / "out"), *option.split()])
    assert exit.value.code == 2 and capsys.readouterr().err == f"error: {option}: must be above 0\n"
    assert not list(tmp_path.glob("*out*"))
