"""What a machine, the hub or a folder lacks is told in a list before the first job."""

import gzip
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, copy_checkout, run
from given.machines import Small

from pipeline.config.root import Config
from pipeline.core.overlays import DEFAULTS, read_config
from workflow.graph import Graph
from workflow.preflight import Machine, missing, slow


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
    command = [sys.executable, "-m", "pipeline.examples.recipes.real", *words]
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


CHATS = '{"conversations": [{"from": "human", "value": "1?"}, {"from": "gpt", "value": "1"}]}\n'


@pytest.mark.parametrize(
    ("program", "file", "text", "keys", "words"),
    [
        (
            "dsm",
            "chats.jsonl",
            CHATS + CHATS + CHATS.replace(', "value": "1"', ""),
            "models: {chat: {stage: sft, parent: base, data: chats.jsonl, row_format: sharegpt}}",
            "config key models.chat.data: chats.jsonl: line 3: ",
        ),
        (
            "snakemake",
            "riddles.jsonl",
            '{"question": "1?", "answer": "1"}\n{"question": "2?"}\n',
            "benchmarks: {riddles: {source: riddles.jsonl}}",
            "config key benchmarks.riddles.source: riddles.jsonl: line 2: ",
        ),
        (
            "dsm",
            "rewards.py",
            "def short(item, text):\n    return 1.0\n",
            "models: {grpo: {rewards: {functions: {'rewards.py:brief': 1.0}}}}",
            "config key models.grpo.rewards.functions: rewards.py: has no 'brief'",
        ),
    ],
    ids=["chats", "benchmark", "reward"],
)
def test_a_dry_run_looks_at_the_data_and_its_last_line_is_the_cause(
    tmp_path: Path, program: str, file: str, text: str, keys: str, words: str
) -> None:
    checkout = copy_checkout(tmp_path)
    (tmp_path / file).write_text(text)
    (tmp_path / "mine.yaml").write_text(keys)
    for options in (["-n"], []):
        done = getattr(checkout, program)(*options, overlays=["configs/demo.yaml", "mine.yaml"])
        last = done.stdout.strip().splitlines()[-1]
        assert done.returncode == 1 and last.startswith(f"error: before the first job: {words}"), last
        assert "File " not in done.stdout and not (tmp_path / "results").exists()


def test_make_uses_all_cores_where_the_environment_limits_threads() -> None:
    steps = run(["make", "-n", "demo"], OMP_NUM_THREADS="9999").stdout
    assert f"configs/demo.yaml --cores {len(os.sched_getaffinity(0))} " in steps


@pytest.mark.parametrize(
    ("line", "folder", "words"),
    [
        ("-n --snakefile {root}/Snakefile", ROOT / "docs", f"run snakemake in {ROOT}: programs"),
        ("-n --configfile {tmp}/misspelt.yaml", ROOT, "did you mean 'kl_coefficient'"),
        ("-n", ROOT, "config key models: empty, and no crawl.warc"),
    ],
)
def test_the_last_line_of_snakemake_is_the_cause(tmp_path: Path, line: str, folder: Path, words: str) -> None:
    (tmp_path / "misspelt.yaml").write_text("rl: {kl_coeficient: 0.1}\n")
    command = [sys.executable, "-m", "snakemake", "--cores", "1"]
    done = run([*command, *line.format(tmp=tmp_path, root=ROOT).split()], folder)
    *_, told = done.stderr.splitlines()
    assert done.returncode == 1 and told.startswith("error: ") and words in told
    assert "File " not in done.stderr
