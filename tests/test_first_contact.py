"""Mistakes of a first day: each ends in one line that names file or key, and loses nothing."""

import gzip
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, run
from given.cases import cases

from pipeline import status
from pipeline.config.root import Config
from pipeline.evaluate import grade, score
from pipeline.protocol.overlays import DEFAULTS, read_config
from pipeline.protocol.stage import run_stage
from pipeline.stages import program_of
from workflow.arguments import is_dry, problem
from workflow.graph import Graph
from workflow.preflight import Machine, missing, slow

TABLES = cases("command_lines")
DEMO = str(ROOT / "configs/demo.yaml")
FILES = {
    "tabs.yaml": b"rl:\n\tsteps: 1\n",
    "latin.yaml": b"run: caf\xe9\n",
    "twice.yaml": b"run: a\nrun: b\n",
    "misspelt.yaml": b"rl: {kl_coeficient: 0.1}\n",
    "good.yaml": b"run: a\n",
    "mine/config.yaml": b"executor: nowhere\n",
}


def write_files(folder: Path) -> None:
    for name, data in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize(("line", "words"), TABLES["mistaken"])
def test_a_command_line_that_cannot_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, words: list[str]
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    found = problem([*line.split(), "--forcerun", "sft"])
    assert found and "\n" not in found and all(word in found for word in words), found


@pytest.mark.parametrize("line", TABLES["meant"])
def test_a_command_line_that_can_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    (tmp_path / "good.yaml").write_bytes(FILES["good.yaml"])
    monkeypatch.chdir(tmp_path)
    assert problem(line.split()) is None
    assert is_dry(line.split()) == ("-n" in line) and is_dry(["-np"]) and not is_dry(["--nolock", "--unlock"])


@pytest.mark.parametrize("word", ["seed", "seed=[", "sft={steps: 1, steps: 2"])
def test_a_value_on_the_command_line_that_is_none(word: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: --config {word[:4]}"):
        status.main(["--configfile", DEMO, "--config", word])


def program(module: str, words: list[str]) -> None:
    """Run a stage program in this process."""
    stage, section = program_of(module)
    name = module if module.count(".") > 1 or module == "pipeline.sft" else f"{module}.__main__"
    run_stage(stage, section, importlib.import_module(name).run, words)


@pytest.mark.parametrize(
    ("module", "inputs", "files", "words"),
    [
        ("pipeline.crawl.extract", ["warc=web.warc.gz"], {}, ["web.warc.gz", "no such"]),
        ("pipeline.crawl.extract", ["warc"], {}, ["--input warc", "KEY=PATH"]),
        ("pipeline.crawl.extract", [], {}, ["--input warc"]),
        ("pipeline.crawl.sign", ["extract=empty"], {"empty/x": b""}, ["empty"]),
        ("pipeline.corpus.select", [], {}, ["--instance corpus", "iteration-<number>/select"]),
        (
            "pipeline.decontaminate",
            ["pool=pool", "benchmark.mine=mine.jsonl"],
            {"pool/a.jsonl.zst": b"", "mine.jsonl": b""},
            ["mine.jsonl: no rows"],
        ),
        (
            "pipeline.decontaminate",
            ["pool=pool", "benchmark.mine=mine.jsonl.gz"],
            {"pool/a.jsonl.zst": b"", "mine.jsonl.gz": gzip.compress(b'{"answer": 1}\n')},
            ["mine.jsonl.gz: line 1", "`question`"],
        ),
        ("pipeline.tokens.tokenizer", ["text=a.txt"], {"a.txt": b"text"}, ["a.txt: unknown kind of file"]),
        ("pipeline.tokens.tokenizer", ["text=a.jsonl"], {"a.jsonl": b""}, ["no text", "`tokens.texts`"]),
    ],
)
def test_an_input_that_cannot_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    module: str, inputs: list[str], files: dict[str, bytes], words: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name, data in (files | {"out/old": b"an older result"}).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(data)
    before = sorted(tmp_path.rglob("[!.]*"))
    with pytest.raises(SystemExit) as exit:
        program(module, [*(part for word in inputs for part in ("--input", word)), "--output", "out"])
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert exit.value.code == 2 and all(word in told for word in words), told
    assert [path for path in sorted(tmp_path.rglob("[!.]*")) if ".work" not in str(path)] == before
    assert Path("out/old").read_bytes() == b"an older result"


@pytest.mark.parametrize(
    ("main", "line", "words"),
    [
        (grade.main, "--input gone.jsonl --output out", ["gone.jsonl: no such file"]),
        (grade.main, "--input list.jsonl --output out", ["list.jsonl: line 1"]),
        (grade.main, "--input pairs.jsonl --output out", ["pairs.jsonl: line 1", "reference"]),
        (score.main, "--benchmark gms8k --outputs pairs.jsonl --output out", ["gms8k", "gsm8k"]),
        (score.main, "--benchmark x --references gone --outputs pairs.jsonl --output out", ["gone"]),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_graded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    main: Any, line: str, words: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("list.jsonl").write_text("[1]\n")
    Path("pairs.jsonl").write_text('{"id": "1", "prediction": "1"}\n')
    Path("out").write_text("an older result")
    with pytest.raises(SystemExit) as exit:
        main(line.split())
    told = capsys.readouterr().err
    assert exit.value.code == 2 and told.count("\n") == 1 and all(word in told for word in words), told
    assert Path("out").read_text() == "an older result"


class Small(Machine):
    """A machine with what a test gives it."""

    def __init__(self, **has: Any) -> None:
        everything = {"gpus": [], "memory": 10**13, "disk": 10**13, "hub": "no network", "lists_cores": True}
        vars(self).update(everything | has)


def graph_of(values: dict[str, Any], *overlays: str) -> Graph:
    """The graph of shipped overlays and of values on top of them."""
    config = read_config([DEFAULTS, *(ROOT / f"configs/{name}.yaml" for name in overlays)])
    return Graph(Config(config | values))


def asked(monkeypatch: pytest.MonkeyPatch, graph: Graph, given: int = 0, **has: Any) -> list[str]:
    """What is missing for all instances on such a machine."""
    monkeypatch.setattr("workflow.preflight.check", lambda weak: None)
    return missing(graph, {name: given * ("/" in name) for name in graph.nodes}, True, Small(**has))


@pytest.fixture
def in_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("workflow.preflight.constants.HF_HUB_CACHE", str(tmp_path))


def test_all_that_is_missing_is_in_one_list(in_root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = asked(monkeypatch, graph_of({}, "single-gpu"), 1, disk=10**9, lists_cores=False)
    starts = [
        "hub:openai/gsm8k/main:test (of evaluate/start, evaluate/grpo): no network: save its rows as .jsonl",
        "hub:HuggingFaceH4/MATH-500:test (of evaluate/start, evaluate/grpo): ",
        "Qwen/Qwen2.5-0.5B-Instruct (of evaluate/start, rl/grpo): no network: `hf download Qwen/Qwen2.5",
        f"{ROOT}: models and checkpoints take 21 GB, free are 1 GB: make room",
        "evaluate/start, rl/grpo, evaluate/grpo: the profile gives a GPU, and torch sees none here",
        "lscpu: not found; vLLM asks it for the cores of this machine: install util-linux",
    ]
    for start in starts:
        assert [line for line in lines if line.startswith(start) and "\n" not in line], (start, lines)


def test_only_what_the_jobs_need_is_asked_for(in_root: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch, graph_of({}, "demo")) == []
    graph, nothing = graph_of({}, "single-gpu"), Small(disk=0, memory=0, lists_cores=False)
    assert missing(graph, {}, True, nothing) == [] and slow(graph, {}, nothing) == []
    cluster = missing(graph, dict.fromkeys(graph.nodes, 8), False, Small(hub=None, lists_cores=False))
    assert cluster == []


@pytest.mark.parametrize(
    ("values", "given", "has", "words"),
    [
        ({"launch": {"ranks": 8}}, 1, {"gpus": [10**11]}, ["rl/grpo: launch.ranks is 8, GPUs here are 1"]),
        ({}, 1, {"gpus": [2 * 10**9]}, ["rl/grpo: weights, gradients", "a GPU has 2 GB: take more ranks"]),
        ({}, 0, {"memory": 4 * 10**9}, ["rl/grpo: weights, gradients", "main memory has 4 GB: take GPUs"]),
    ],
)
def test_a_model_that_cannot_fit_is_named(
    in_root: None,
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any],
    given: int,
    has: Any,
    words: list[str],
) -> None:
    (line,) = asked(monkeypatch, graph_of(values, "single-gpu"), given, hub=None, **has)
    assert all(word in line for word in words), line


def test_a_large_model_on_a_machine_without_gpu_is_told_at_once(in_root: None) -> None:
    graph = graph_of({}, "single-gpu")
    (line,) = slow(graph, graph.nodes, Small())
    assert line.startswith("rl/grpo: trains 494M weights") and "no GPU" in line
    assert slow(graph, graph.nodes, Small(gpus=[1])) == []


def test_a_benchmark_without_rows_is_told_before_the_first_job(
    in_root: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, data in {
        "none.jsonl": b"",
        "odd.jsonl": b"[1]\n",
        "good.jsonl": b'{"question": "1?", "answer": 1}\n',
    }.items():
        (tmp_path / name).write_bytes(data)
    sources = {name: {"source": str(tmp_path / f"{name}.jsonl")} for name in ("none", "odd", "good")}
    lines = asked(monkeypatch, graph_of({"benchmarks": sources, "models": {}}, "demo"))
    assert [line.split(": ")[0] for line in lines] == [
        f"config key benchmarks.{name}.source" for name in ("none", "odd")
    ]
    assert "it has no rows" in lines[0] and "odd.jsonl: line 1" in lines[1]


def test_the_hub_is_asked_only_where_nothing_is_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflow.preflight.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("workflow.preflight.constants.ENDPOINT", "http://127.0.0.1:9")
    assert Machine().hub.startswith("http://127.0.0.1:9 cannot be reached (")
    monkeypatch.setattr("workflow.preflight.constants.HF_HUB_OFFLINE", True)
    assert Machine().hub == "HF_HUB_OFFLINE is set"


def real(web: Path, bench: Path, output: Path) -> list[str]:
    """The errors of `make real`'s look at its folders."""
    words = f"--web {web} --bench {bench} --models results/demo --output {output}".split()
    command = [sys.executable, "-m", "pipeline.experiments.real", *words]
    done = run(command)
    assert (done.returncode == 0) == output.exists() == (not done.stderr)
    return [line.removeprefix("error: ") for line in done.stderr.splitlines()]


def test_make_real_lists_all_that_its_folders_lack_before_the_demo(tmp_path: Path) -> None:
    web, bench = tmp_path / "web", tmp_path / "bench"
    bench.mkdir()
    (bench / "gsm8k_test.jsonl.gz").write_bytes(gzip.compress(b'{"question": "1?", "answer": "1"}\n'))
    (bench / "odd.jsonl").write_bytes(b"\xff\n")
    lines = real(web, bench, tmp_path / "real.yaml")
    named = [f"{web}: no such folder", f"{web}: holds no", f"{web / 'seed_urls.txt'}: not found"]
    named += [
        f"{web / 'background_urls.txt'}: ",
        f"{web / 'annotations.tsv'}: ",
        f"{bench / 'odd.jsonl'}: its first",
    ]
    named += [f"{bench}: math500.jsonl.gz not found"]
    assert [line.startswith(name) for line, name in zip(lines, named, strict=True)] == [True] * 7, lines
    for given, option in (("WEB=a", '--web "a" --kind warc'), ("TEXTS=a", '--web "a" --kind texts')):
        steps = run(["make", "-n", "real", given, "BENCH=b"])
        assert 0 < steps.stdout.index(f"real {option}") < steps.stdout.index("configs/demo.yaml")


def test_make_uses_all_cores_where_the_environment_limits_threads() -> None:
    steps = run(["make", "-n", "demo"], OMP_NUM_THREADS="9999").stdout
    assert f"configs/demo.yaml --cores {len(os.sched_getaffinity(0))} " in steps


@pytest.mark.parametrize(
    ("line", "folder", "words"),
    [
        (
            "-n --configfile configs/demo.yaml {tmp}/twice.yaml",
            ROOT,
            "twice.yaml: not YAML (key 'run' stands twice",
        ),
        ("-n --snakefile {root}/Snakefile", ROOT / "docs", f"run snakemake in {ROOT}: programs"),
        ("-n --configfile configs/demo.yaml {tmp}/misspelt.yaml", ROOT, "did you mean 'kl_coefficient'"),
        ("-n", ROOT, "config key models: empty, and no crawl.warc"),
    ],
)
def test_snakemake_itself_says_it_in_one_line(tmp_path: Path, line: str, folder: Path, words: str) -> None:
    write_files(tmp_path)
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    command += line.format(tmp=tmp_path, root=ROOT).split()
    done = run(command, folder)
    told = [line for line in done.stderr.splitlines() if not line.startswith("Using ")]
    assert done.returncode == 1 and len(told) == 1 and told[0].startswith("error: ") and words in told[0], (
        told
    )
