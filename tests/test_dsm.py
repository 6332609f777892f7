"""The command `dsm` and the lines of its logger plugin: what it asks of Snakemake, and what it says."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import OVERLAYS, ROOT, UNSHARE, WEAK, Checkout, copy_checkout
from given.cases import cases

from pipeline.__main__ import HELP, MODULES, snakemake
from pipeline.cli.status import read_graph
from workflow.keys import Keys
from workflow.targets import Targets

TABLES = cases("words_of_run")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which the generated web is made."""
    checkout = copy_checkout(tmp_path_factory.mktemp("web"))
    done = checkout.dsm("--", "miniweb")
    assert done.returncode == 0 and "miniweb: finished. 1 of 1 done" in done.stdout, done.stdout
    return checkout


def dsm(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run the command, whose package is this checkout's."""
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_a_reader_of_the_plan_may_end_first() -> None:
    words = f"{sys.executable} -m pipeline plan configs/demo.yaml"
    done = subprocess.run(f"{words} | :", shell=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize(("line", "arguments"), TABLES["arguments"])
def test_the_words_of_run_as_arguments_of_snakemake(line: str, arguments: list[str]) -> None:
    assert snakemake(line.split()) == arguments


@pytest.mark.parametrize(("words", "linked"), TABLES["targets"])
def test_results_among_the_words_of_run_become_their_links(words: str, linked: str) -> None:
    demo = ["--configfile", "configs/demo.yaml"]
    assert Targets([*demo, *words.split()]).linked() == [*demo, *linked.split()]


@pytest.mark.parametrize(("line", "words"), TABLES["mistaken"])
def test_a_command_that_cannot_be_meant_is_one_line(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "Snakefile").touch()
    for folder in ("configs", "pipeline"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    (tmp_path / "latin.yaml").write_bytes(b"run: caf\xe9\n")
    done = dsm(*line.replace("configs/latin", "latin").split(), folder=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not done.stdout, done.stderr
    assert done.stderr.startswith("error: ") and words in done.stderr


def test_outside_of_the_repository_it_says_where_to_run(tmp_path: Path) -> None:
    done = dsm("run", "configs/demo.yaml", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "error: run dsm in the folder of the repository\n")


def test_help_fits_a_screen_and_names_every_command() -> None:
    for words in ([], ["--help"], ["run", "--help"]):
        assert dsm(*words).stdout == HELP
    lines = HELP.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert [name for name in MODULES if f" {name}" not in HELP] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", MODULES)
def test_every_command_explains_its_options(command: str) -> None:
    done = dsm(command, "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ") and "--help" in done.stdout


def test_installed_it_is_a_command(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    site = tmp_path / "site"
    subprocess.run([sys.executable, *install, "--target", site, checkout.folder], check=True)
    done = subprocess.run(
        [site / "bin/dsm"], env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True
    )
    assert done.stdout == HELP, done.stderr


def test_it_prints_the_line_of_snakemake_which_does_the_same(web: Checkout) -> None:
    done = web.dsm("-n", "--", "crawl")
    line, plan = done.stdout.split("\n", 1)
    assert line.startswith("python -m snakemake --logger dsm --configfile configs/demo.yaml ")
    again = subprocess.run(
        [sys.executable, *shlex.split(line)[1:]],
        cwd=web.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert sorted(again.stdout.splitlines()) == sorted(plan.splitlines())
    assert plan.count("Job stats:") == 1 and "crawl_extract  " in plan and "rule crawl_extract:" not in plan


def test_forcerun_takes_the_name_of_a_result_with_and_without_dsm(web: Checkout) -> None:
    again = "miniweb: --forcerun names it"
    assert again in web.dsm("-n", "--forcerun", "miniweb").stdout
    plan = web.snakemake("crawl", "-n", "--forcerun", "miniweb").stdout
    assert again in plan and "rule miniweb_web:" in plan
    assert again not in web.dsm("-n").stdout


def test_a_failure_ends_with_its_cause_and_its_log(web: Checkout) -> None:
    program = web.folder / "pipeline/crawl/extract.py"
    text = program.read_text()
    program.write_text("raise SystemExit('broken')\n")
    done = web.dsm("--", "crawl")
    program.write_text(text)
    *told, last = done.stdout.splitlines()
    name = last.split(": ")[1]
    (log,) = (web.folder / "results/small/logs").glob(f"{name}-*.log")
    why = f"ended without an error; it said last: broken (log: {log.relative_to(web.folder)})"
    assert done.returncode == 1 and last == f"error: {name}: {why}"
    assert f"{name}: starts" in told and f"{name}: failed" in told
    failures = [line for line in told if line.endswith(": failed")]
    assert done.stdout.count("broken") == 2 * len(failures)  # by the program itself, and at the end
    assert "CalledProcess" not in done.stdout and "rule crawl_extract:" not in done.stdout


def test_a_lock_is_one_line_with_the_command_that_removes_it(
    web: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(web.folder)
    manifest = Keys(read_graph(OVERLAYS, [])).entry("crawl/exact").manifest
    lock = web.folder / ".snakemake/locks/0.output.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(f"{manifest}\n")
    done = web.dsm("--", "crawl")
    told = done.stdout.splitlines()[-1]
    start = f"error: {web.folder} is locked: another Snakemake makes the same results, or one was killed."
    assert done.returncode == 1 and told.startswith(start) and "locked" not in done.stdout.replace(told, "")
    subprocess.run(shlex.split(told.partition("on any machine: ")[2]), check=True, capture_output=True)
    assert not lock.exists()


@pytest.mark.skipif(WEAK, reason="this system refuses the namespace in which a test can mount a folder")
def test_a_plan_needs_no_right_to_write_results_or_work(web: Checkout) -> None:
    (web.folder / "work").mkdir(exist_ok=True)
    folders = ["results", "work"]
    mounts = " && ".join(f"mount --bind {name} {name} && mount -o remount,ro,bind {name}" for name in folders)
    start = [
        *UNSHARE.split(),
        "--mount",
        "sh",
        "-c",
        f'{mounts} && ! touch work/new 2>/dev/null && exec "$@"',
        "sh",
    ]
    for run in (web.dsm, web.snakemake):
        done = run("-n", start=start)
        assert done.returncode == 0 and "then 7 of crawl" in done.stdout and "Traceback" not in done.stdout
