"""The store: results under keys, linked where content is the same, made by one program at a time."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from crawl_warcs import html, record, write_warc
from programs import ENVIRONMENT, ROOT
from snakemake.iocontainers import Wildcards

from pipeline.cli import status
from pipeline.config.root import Config
from pipeline.core.arguments import parser
from pipeline.core.errors import InputError
from pipeline.core.folders import held, holder
from pipeline.core.identity import Digests, damage, read_manifest
from pipeline.core.overlays import read_config
from pipeline.core.stage import open_stage
from pipeline.core.stages import program_of
from pipeline.core.store import STORE, Entry
from workflow.graph import Graph
from workflow.job import Job
from workflow.keys import Keys

NAME = "crawl/extract-one"
RUN = Path("results/a")


@pytest.fixture
def warc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A WARC file, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "one.warc.gz"
    write_warc(path, [record(f"http://a.org/{n}", html(f"Page {n} " * 50)) for n in range(20)])
    return path


def started(key: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    """The job of a key, started as a rule starts it."""
    entry = Entry(RUN, NAME, key * 16)
    command = [sys.executable, "-m", "pipeline.core.start", "pipeline.crawl.extract", *words]
    command += ["--result", str(entry.manifest), "--input", "warc=one.warc.gz"]
    return subprocess.Popen(command, env=ENVIRONMENT | environment, stderr=subprocess.PIPE, text=True)


def made(*keys: str) -> list[str]:
    """What the jobs of these keys say, run at once."""
    jobs = [started(key) for key in keys]
    told = [job.communicate(timeout=600)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs), told
    return told


def test_of_jobs_with_one_content_one_makes_it_and_the_others_link(warc: Path) -> None:
    told = made("a", "b", "c")
    assert sum(": linked" in one for one in told) == 2 and sum("done in" in one for one in told) == 1
    entries = [Entry(RUN, NAME, key * 16) for key in "abc"]
    assert len({read_manifest(entry.manifest)["fingerprint"] for entry in entries}) == 1
    assert len({(entry.data / "pages.jsonl.zst").stat().st_ino for entry in entries}) == 1
    assert [path.name for path in Path("work").rglob("*.lock")] == []


@pytest.mark.parametrize("above", ["", "/data/alice", "/big/store/data/runs"])
@pytest.mark.parametrize("name", ["rl/grpo", "rl/data", "rl/store", "corpus/iteration-1/select"])
def test_a_result_is_known_by_its_path_below_folders_and_models_of_any_name(above: str, name: str) -> None:
    entry = Entry(Path(above, "results/store"), name, "0123456789abcdef")
    for path in (entry.data, entry.data / "data" / "0000.bin"):
        found = Entry.of(path)
        assert found is not None and (found.run, found.name, found.key) == (entry.run, name, entry.key)
    assert Entry.of(entry.folder) is None and Entry.of(Path(above, "data/store")) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["demo", "ablations", "pretrained", "deepseekmath-7b"])
def test_each_job_of_a_shipped_configuration_is_started_under_its_own_key(name: str) -> None:
    keys = Keys(Graph(Config(read_config([ROOT / f"configs/{name}.yaml"]))))
    for node in {node.module: node for node in keys.graph.nodes.values()}.values():
        entry = keys.entry(node.name)
        words = Job(keys, lambda: None).words(Wildcards(fromdict={"key": entry.key}), entry, 1)
        options = [*shlex.split(words), "--result", str(entry.manifest)]
        stage, section = program_of(node.module)
        open_stage(stage, section, node.module, parser(stage, section).parse_args(options))


def test_a_job_refuses_files_that_are_others_than_when_it_was_planned(warc: Path) -> None:
    job = started("a", "--planned")
    assert "code or files were changed since the run was planned" in job.communicate(timeout=600)[1]
    assert job.returncode == 2 and not Path("results").exists()


def test_a_requeued_job_ends_where_a_later_one_has_its_work(warc: Path) -> None:
    stage, section = program_of("pipeline.crawl.extract")
    manifest = Entry(RUN, NAME, "a" * 16).manifest
    words = parser(stage, section).parse_args(["--result", str(manifest), "--input", "warc=one.warc.gz"])
    with held(open_stage(stage, section, "pipeline.crawl.extract", words).work):
        job = started("a", SLURM_RESTART_COUNT="1")
        assert "has taken over while this job was in the queue" in job.communicate(timeout=600)[1]
    assert job.returncode == 2 and made("a")


STARTER = """
import os, subprocess, sys
from pathlib import Path
from pipeline.core.folders import take
take(Path("work/x"))
program = [sys.executable, "-c", "from pathlib import Path; from pipeline.core.folders import held\\n"
    "with held(Path('work/x')): print('in', flush=True); input()"]
if sys.argv[1] == "becomes":
    os.execv(program[0], program)
subprocess.run(program, check=True)
"""


@pytest.mark.parametrize("how", ["becomes", "starts"])
def test_a_program_is_let_into_the_folder_that_its_starter_took_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As a launcher starts rank 0, and as `pipeline.core.start` becomes a program without ranks."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", STARTER, how]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"in\n"
        assert holder(Path("work/x")).startswith(f"process {job.pid} on ")
        with pytest.raises(InputError, match=f"work/x: process {job.pid} on "), held(Path("work/x")):
            pass
        monkeypatch.setenv("WORK_FOLDER_TAKER", "1")
        with pytest.raises(InputError, match="works in it"), held(Path("work/x")):
            pass
        job.stdin.write(b"\n")
    assert job.returncode == 0 and holder(Path("work/x")) is None
    with held(Path("work/x")):
        pass


def clean(name: str = NAME, *named: str) -> tuple[int, int, int]:
    """Drop what no graph names but these keys of an instance."""
    entries = {key: Entry(RUN, name, key * 16) for key in named}
    graph = SimpleNamespace(nodes=dict.fromkeys(entries))
    return status.clean(
        SimpleNamespace(graph=graph, run=RUN, entry=entries.get, made=lambda key: entries[key].made)
    )


def test_a_linked_result_names_the_one_that_has_its_bytes_and_cleaning_keeps_that(warc: Path) -> None:
    for key in "abc":
        made(key)
    first, second, third = (Entry(RUN, NAME, key * 16) for key in "abc")
    for entry in (second, third):
        assert os.readlink(entry.data) == f"../{first.key}/data"
        found = read_manifest(entry.manifest)
        assert (found["key"], found["made_as"]) == (entry.key, first.key)
    assert clean(NAME, "b")[0] == 1  # the third
    assert first.made and second.made and not third.folder.exists()
    assert damage(second.data, second.manifest, Digests()) is None
    assert clean(NAME)[0] == 2 and not list((RUN / STORE).rglob("pages.jsonl.zst"))


def test_a_result_whose_manifest_was_removed_is_made_again_and_not_linked(warc: Path) -> None:
    for key in "ab":
        made(key)
    first, second = (Entry(RUN, NAME, key * 16) for key in "ab")
    for entry in (second, first):
        entry.manifest.unlink()
        entry.step_aside(again=True)
        shutil.rmtree(entry.data) if not entry.data.is_symlink() else entry.data.unlink()  # as Snakemake does
        assert "done in" in made(entry.key[0])[0]
        assert not entry.data.is_symlink() and entry.made


def test_data_that_others_are_linked_to_stays_when_its_result_is_made_again(warc: Path) -> None:
    for key in "ab":
        made(key)
    first, second = (Entry(RUN, NAME, key * 16) for key in "ab")
    whole = (second.data / "pages.jsonl.zst").read_bytes()
    first.step_aside(again=True)
    assert not first.made and first.removed and not first.data.exists()
    assert (second.data / "pages.jsonl.zst").read_bytes() == whole
    assert damage(second.data, second.manifest, Digests()) is None
    aside = Entry(RUN, NAME, read_manifest(second.manifest)["made_as"])
    assert aside.made and os.readlink(second.data) == f"../{aside.key}/data"


def test_a_result_that_only_follows_is_found_by_its_job_under_another_key(warc: Path) -> None:
    made("a")
    entry = Entry(RUN, NAME, "a" * 16)
    first = (entry.data / "pages.jsonl.zst").stat()
    entry.step_aside(again=False)
    assert not entry.folder.exists()
    assert ": linked" in made("a")[0]
    assert (entry.data / "pages.jsonl.zst").stat().st_ino == first.st_ino
    for _ in range(2):  # a linked result steps aside too, and no key is left over each time
        entry.step_aside(again=False)
        assert ": linked" in made("a")[0]
    assert len(list(entry.folder.parent.iterdir())) == 2


def test_a_damaged_result_is_not_linked(warc: Path) -> None:
    made("a")
    (Entry(RUN, NAME, "a" * 16).data / "records.parquet").unlink()
    assert "done in" in made("b")[0]


def test_the_link_of_an_instance_leads_to_the_last_one_made_and_to_none_while_it_is_made(warc: Path) -> None:
    made("a")
    assert Entry(RUN, NAME, "a" * 16).linked and not Entry(RUN, NAME, "b" * 16).linked
    job = started("b", "--config", '{"files_per_shard": "many"}')
    assert "config key crawl.files_per_shard" in job.communicate(timeout=600)[1] and job.returncode != 0
    assert Entry(RUN, NAME, "a" * 16).linked
    job = started("b", "--config", '{"files_per_shard": 5}')
    while not list(Path("work").rglob("identity.json")) and job.poll() is None:
        time.sleep(0.01)
    assert not (RUN / NAME).is_symlink()
    assert job.wait(timeout=600) == 0 and Entry(RUN, NAME, "b" * 16).linked
    assert json.loads((RUN / NAME / "manifest.json").read_text())["key"] == "b" * 16


def test_a_model_may_be_called_as_the_store_is() -> None:
    entry = Entry.at(Path("results/run/store/rl/store/0123456789abcdef/manifest.json"), "rl", "store")
    assert (entry.name, entry.link) == ("rl/store", Path("results/run/rl/store"))
