"""`make corpus-quality`: equal terms for all corpora, solutions that none of them holds, paired results."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Checkout, copy_checkout, run
from datatrove.data import Document
from given.lines import read_lines, write_lines
from report_run import FakeRun
from tiny_model import save_tiny_model

from pipeline.config.root import Config
from pipeline.data.shards import DocumentWriter
from pipeline.experiments import quality
from pipeline.protocol.errors import InputError
from pipeline.protocol.overlays import read_config
from pipeline.protocol.stage import run_stage
from workflow.graph import Graph, Result

NAMES = ("real", "corpus-quality", "corpus-quality-rates")
WARC = ("warc/miniweb-00000.warc.gz", "seed_urls.txt", "background_urls.txt", "annotations.tsv")
SMALL = """
crawl: {min_similarity: 0.5}
corpus: {iterations: 2, second_stage: {enabled: false}}
cpt: {tokens: 1024, batch_tokens: 512, context: 128}
launch: {save_minutes: 0}
"""


def solution(source: str, number: int) -> dict[str, Any]:
    """A row of a benchmark file, with words of its own."""
    words = " ".join(f"{source.lower()}{number}x{place}" for place in range(12))
    text = f"We add the {words} and get {number}."
    return {
        "id": f"{source}-{number}",
        "question": f"What are {words}?",
        "solution": text,
        "solution_plain": text,
    }


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of benchmark files with just enough solutions."""
    folder = tmp_path_factory.mktemp("bench")
    for source, (stem, _) in quality.SOLUTIONS.items():
        number = quality.REPORTED + quality.DEVELOPMENT
        write_lines(folder / f"{stem}.jsonl", [solution(source, place) for place in range(number)])
    for name in ("gsm8k_test", "math500"):
        write_lines(folder / f"{name}.jsonl", [{"question": f"A question of {name}?", "answer": "1"}])
    return folder


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pages and lists."""
    from pipeline.config.miniweb import MiniwebSection
    from pipeline.miniweb.__main__ import run as make_web

    folder, sizes = tmp_path_factory.mktemp("web"), {"scale": 0.05, "background": 60, "warc_files": 1}
    sizes |= {
        "leaks": 4,
        "exact_duplicates": 4,
        "near_duplicates": 4,
        "sft": 20,
        "rl": 20,
        "test": 20,
        "dev": 5,
    }
    words = ["--instance", "miniweb", "--config", json.dumps(sizes | {"heldout": 10, "drill": 5})]
    run_stage("miniweb", MiniwebSection, make_web, [*words, "--output", str(folder / "made")])
    for name in WARC:
        (folder / "made" / name).rename(folder / Path(name).name)
    return folder


@pytest.fixture(scope="module")
def prepared(bench: Path, web: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which `make corpus-quality` would start, with its overlay and a tiny model."""
    checkout = copy_checkout(tmp_path_factory.mktemp("checkout")).folder
    model = save_tiny_model(checkout / "model", seed=0)
    quality.write_overlay(web, bench, str(model), checkout / "work/corpus-quality.yaml")
    return checkout


def configured(*names: str, more: list[Path]) -> Config:
    return Config(read_config([*(ROOT / f"configs/{name}.yaml" for name in names), *more]))


def test_corpora_are_compared_on_equal_terms_and_rates_on_other_solutions(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared)
    overlay = prepared / "work/corpus-quality.yaml"
    config = configured(*NAMES[:2], more=[overlay])
    assert len(config.model_sections) == 1 + 2 * len(quality.CORPORA)
    nodes = [config.models[f"{name}-{seed}"] for name in quality.CORPORA for seed in (0, 1)]
    assert {node.parent for node in nodes} == {"published"}
    sections = [config.model_sections[f"{name}-{seed}"] for name in quality.CORPORA for seed in (0, 1)]
    assert [section.seed for section in sections] == [0, 1] * 4
    assert len({section.model_copy(update={"seed": 0}).model_dump_json() for section in sections}) == 1
    graph = Graph(config)
    for name, folder in zip(
        quality.CORPORA,
        ("decontaminate/iteration-1", "decontaminate", "decontaminate/formulas", "decontaminate/pool"),
        strict=True,
    ):
        assert ("source.pages", Result(f"{folder}/corpus", "corpus")) in graph.nodes[f"tokens/{name}"].inputs
        roles = {role for role, _ in graph.nodes[f"{folder}/clean-0000"].inputs}
        assert {"benchmark.gsm8k", "benchmark.math500"} <= roles
        assert ("select" in roles) == (name != "random")  # which are all pages of the pool
    rates = Graph(configured(*NAMES[:2], more=[overlay, ROOT / f"configs/{NAMES[2]}.yaml"]))
    assert len(rates.names("cpt")) == 3 * 2
    files = [dict(found.nodes["likelihood/published"].inputs)["documents"] for found in (graph, rates)]
    reported, development = ({row["id"] for row in read_lines(Path(file))} for file in files)
    assert len(reported) == 2 * quality.REPORTED and len(development) == 2 * quality.DEVELOPMENT
    assert not reported & development


def results(folder: Path, change: dict[str, float]) -> Path:
    """A finished run whose models give `change` more bits to each byte than the published one, and one page
    that holds a solution.
    """
    made, rows = FakeRun(folder / "results/corpus-quality"), []
    for source in ("MATH", "GSM8K"):
        rows += [solution(source, number) for number in range(30)]
    rows = [row | {"source": row["id"].partition("-")[0], "text": row["solution"]} for row in rows]
    write_lines(
        folder / "rows.jsonl",
        [{key: row[key] for key in ("id", "source", "question", "text")} for row in rows],
    )
    draw = np.random.default_rng(0)
    own = draw.uniform(0.5, 1.5, len(rows))
    pages = made.node("decontaminate/pool/corpus") / "corpus"
    pages.mkdir()
    with DocumentWriter(pages / "0000.jsonl.zst") as writer:
        writer.write(Document(f"A page. {rows[0]['text']}", "leak"))
        writer.write(Document("A page of other words altogether, with no solution in it.", "clean"))
    for name in ("published", *change):
        for seed in (None,) if name == "published" else (0, 1):
            model = name if seed is None else f"{name}-{seed}"
            if seed == 0:
                count(made.node(f"tokens/{name}"), **{"tokens.pages": 5000})
            if seed is not None:
                upstream = [f"tokens/{name}"]
                count(
                    made.node(f"cpt/{model}", upstream, seed=seed, learning_rate=1e-4),
                    tokens=1024,
                    **{"passes.pages": 0.2},
                )
            bits = 100 * (own + change.get(name, 0) + 0.001 * draw.standard_normal(len(rows)))
            lines = [
                {"id": row["id"], "bytes": 100, "bits": value}
                for row, value in zip(rows, bits.tolist(), strict=True)
            ]
            data = made.node(f"likelihood/{model}")
            write_lines(data / "documents.jsonl", lines)
            (data.parent / "run.json").write_text(
                json.dumps({"inputs": {"documents": [str(folder / "rows.jsonl")]}})
            )
    return made.root


def count(data: Path, **counts: float) -> None:
    """Write the counts of a result."""
    path = data.parent / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"counts": counts}))


def test_differences_are_paired_by_solutions_that_no_page_holds(tmp_path: Path) -> None:
    found = quality.quality_table(results(tmp_path, {"last-iteration": -0.02, "random": -0.005}))
    rows = {row[0]: row[1:] for line in found.splitlines() if len(row := line.strip("| ").split(" | ")) > 2}
    assert rows["bits per byte"][2:] == ["MATH train, 29 solutions", "GSM8K train, 30 solutions"]
    assert rows["last-iteration (2 seeds)"][:2] == ["5,000", "0.20"]
    for name, expected in (
        ("last-iteration minus published", -20),
        ("random minus published", -5),
        ("last-iteration minus random", -15),
    ):
        for cell in rows[name]:
            mean, low, high = map(float, re.findall(r"[-+][\d.]+", cell))
            assert low <= expected <= high and abs(mean - expected) < 1 and high - low < 40, (name, cell)
    assert "Of 60 solutions 1 share a run of words" in found and "Each model read 1,024 tokens" in found


def test_models_of_unequal_training_or_without_a_likelihood_are_no_comparison(tmp_path: Path) -> None:
    folder = results(tmp_path, {"random": 0.1})
    count(folder / "cpt/random-1/data", tokens=2048, **{"passes.pages": 0.2})
    with pytest.raises(InputError, match="models read 1024, 2048 tokens"):
        quality.quality_table(folder)
    (folder / "likelihood/random-0/manifest.json").unlink()
    with pytest.raises(InputError, match="models without a likelihood"):
        quality.quality_table(folder)


def test_too_few_solutions_or_one_without_a_field_are_told_by_name(
    bench: Path, web: Path, tmp_path: Path
) -> None:
    for file in bench.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "gsm8k_train.jsonl"
    rows = read_lines(path)
    write_lines(path, rows[:-1])
    with pytest.raises(InputError, match="259 solutions of GSM8K; 260 are needed"):
        quality.write_overlay(web, tmp_path, "m", tmp_path / "out.yaml")
    write_lines(path, [rows[0] | {"solution_plain": None}])
    with pytest.raises(
        InputError, match="gsm8k_train.jsonl: line 1: expected `id`, `question` and `solution_plain`"
    ):
        quality.write_overlay(web, tmp_path, "m", tmp_path / "out.yaml")
    assert not (tmp_path / "out.yaml").exists()


def test_a_miniature_of_the_whole_ends_with_its_table(prepared: Path) -> None:
    (prepared / "small.yaml").write_text(SMALL)
    overlays = [f"configs/{name}.yaml" for name in NAMES[:2]] + ["work/corpus-quality.yaml", "small.yaml"]
    done = Checkout(prepared).dsm(overlays=overlays)
    assert done.returncode == 0, done.stdout[-5000:]
    page = prepared / "page.md"
    page.write_text("a\n" + "\n".join(quality.MARKS) + "\nb\n")
    command = [sys.executable, "-m", "pipeline.experiments.quality", "table", "results/corpus-quality"]
    printed = run(command, prepared)
    assert printed.returncode == 0, printed.stderr
    assert printed.stdout.count("minus") == 7 and "Each model read 1,024 tokens" in printed.stdout
    assert run([*command, "--page", "page.md"], prepared).returncode == 0
    assert page.read_text() == f"a\n{quality.MARKS[0]}\n{printed.stdout}{quality.MARKS[1]}\nb\n"
