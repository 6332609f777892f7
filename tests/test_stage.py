"""How stage programs start and end: nothing half-written under a final name, one line for bad input."""

import errno
import json
import os
import platform
import shlex
import sys
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from conftest import on_small_disk, run
from crawl_warcs import html, record, write_warc

from pipeline.core.arguments import keep, read_inputs, shortened
from pipeline.core.code import Code
from pipeline.core.errors import InputError
from pipeline.core.manifest import fingerprint
from pipeline.core.progress import Progress, duration
from pipeline.core.store import put_in_place

SPACE = "4m"


def command(folder: Path, warc: Path, **options: str) -> list[str]:
    """An extraction job that reads `warc` and works and writes under `folder`."""
    words = [sys.executable, "-m", "pipeline.crawl.extract", "--work", str(folder / "work")]
    words += ["--output", str(folder / "data"), "--manifest", str(folder / "manifest.json")]
    for name, value in ({"input": f"warc={warc}"} | options).items():
        words += [f"--{name}", value]
    return words


@pytest.fixture(scope="module")
def warc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("warc") / "pages.warc.gz"
    pages = (f"Page {n}: " + " ".join(f"{n * k * 7919 % 100003}" for k in range(300)) for n in range(3000))
    write_warc(path, [record(f"http://a.org/{n}", html(page)) for n, page in enumerate(pages)])
    return path


def folder_of(path: Path, words: str) -> Path:
    path.mkdir(exist_ok=True)
    for name in "abc":
        (path / name).write_text(words)
    return path


@pytest.mark.parametrize("file_systems", [1, 2])
@pytest.mark.parametrize(
    ("call", "before"), [("unlink", 0), ("unlink", 2), *(("rename", n) for n in range(3))]
)
def test_a_replacement_that_is_cut_off_leaves_no_part_of_a_folder_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_systems: int, call: str, before: int
) -> None:
    new, final = folder_of(tmp_path / "new", "new"), folder_of(tmp_path / "final", "old")
    calls, real = iter(range(100)), {name: getattr(os, name) for name in ("unlink", "rename")}

    def changed(name: str, *words: object, **options: object) -> None:
        if name == call and next(calls) == before:
            raise KeyboardInterrupt
        if name == "rename" and words[0] == new and file_systems == 2:
            raise OSError(errno.EXDEV, "cross-device")
        real[name](*words, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for name in real:
            patch.setattr(os, name, partial(changed, name))
        put_in_place(new, final)
    assert not final.exists() or len({(path.read_text()) for path in final.iterdir()}) == 1
    assert not final.exists() or {path.name for path in final.iterdir()} == set("abc")
    put_in_place(folder_of(new, "again"), final)
    assert {path.read_text() for path in final.iterdir()} == {"again"}
    assert {path.name for path in tmp_path.iterdir()} == {"final"}


def test_a_manifest_tells_what_the_result_is_and_run_json_how_it_went(tmp_path: Path, warc: Path) -> None:
    assert run(command(tmp_path, warc, launch='{"threads": 1}')).returncode == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["fingerprint"] == fingerprint(manifest["identity"])
    assert manifest["counts"]["pages"] == 3000
    pages = (tmp_path / "data/pages.jsonl.zst").read_bytes()
    assert manifest["files"]["pages.jsonl.zst"] == [len(pages), sha256(pages).hexdigest()]
    assert manifest["code"] == Code().digest("pipeline.crawl.extract")
    assert not {"seconds", "host", "started"} & set(manifest)
    how = json.loads((tmp_path / "run.json").read_text())
    assert how["counters"]["fastwarc.records"] == 3000 and how["launch"] == {"threads": 1}
    assert how["cpu"] == platform.machine() or how["cpu"] in Path("/proc/cpuinfo").read_text().split()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"config": '{"min_characterz": 1}'}, "config key crawl.min_characterz"),
        ({"config": '{"min_similarity": "much"}'}, "config key crawl.min_similarity"),
        ({"config": "{"}, "--config"),
        ({"input": "warc=no/such/file.warc.gz"}, "no/such/file.warc.gz"),
        ({"input": "warc"}, "expected KEY=PATH"),
        ({"input": "warc=/proc/self/mem"}, "/proc/self/mem: cannot be read"),  # is there, and fails when read
    ],
)
def test_bad_input_is_one_line_that_names_it(tmp_path: Path, warc: Path, options: dict, words: str) -> None:
    done = run(command(tmp_path, warc, **options))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and words in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_full_disk_is_one_line_that_names_the_place_and_leaves_nothing_final(
    tmp_path: Path, warc: Path
) -> None:
    small = tmp_path / "small"
    script = f"dd if=/dev/zero of={small}/filler bs=1k count=3900 status=none; "
    script += f"{shlex.join(command(small, warc))}; code=$?; ls {small}; exit $code"
    done = on_small_disk(small, SPACE, script)
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "no space left" in errors[0] and str(small) in errors[0]
    assert "Traceback" not in done.stderr
    assert "data" not in done.stdout.split() and "manifest.json" not in done.stdout.split()


def test_fingerprints_ignore_the_order_of_keys_and_see_every_value() -> None:
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": [1, 2], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint([1, 2]) != fingerprint([2, 1])


def test_bars_of_other_libraries_are_not_drawn_in_a_log() -> None:
    bar = "import pipeline.training.environment; from tqdm import tqdm; list(tqdm([1], desc='bar'))"
    assert "bar" not in run([sys.executable, "-c", bar]).stderr


def test_progress_in_a_log_is_whole_lines_with_speed_and_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress("job", 100, initial=50) as bar:
        bar.last_line -= 60
        bar.update(25, loss=1.5)
        bar.update(25)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("job: 75/100 steps in 0s") and lines[0].endswith("loss 1.5")
    assert lines[1].startswith("job: 100/100 steps")
    assert [duration(seconds) for seconds in (5, 65, 3700)] == ["5s", "1m05s", "1h01m"]


def test_inputs_too_long_for_a_command_line_come_from_a_file_in_order(tmp_path: Path) -> None:
    shards = [f"results/a/crawl/sign-{number * 7919:08x}/data" for number in range(3000)]
    words = [*(f"sign={path}" for path in shards), "warc=https://host/a.gz?key", "odd=c[0001-0002]"]
    short, text = shortened(words, tmp_path / "inputs")
    assert not (tmp_path / "inputs").exists()
    keep(short[0], text)
    assert len(" ".join(short)) < 1000 and read_inputs(short) == read_inputs(words)
    expected = {"sign": shards, "warc": ["https://host/a.gz?key"], "odd": ["c[0001-0002]"]}
    assert read_inputs(short) == expected
    assert shortened(words[:10], tmp_path / "none") == (words[:10], "")
    assert shortened(words[-2:], tmp_path / "none")[1] == "\n".join(words[-2:]), "it may hold a secret"
    with pytest.raises(InputError, match="--input @@none/file: not a readable file"):
        read_inputs(["@@none/file"])
