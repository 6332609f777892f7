"""Whatever a configuration or an input holds, a program works, or it ends in one line that names file and key
and leaves no half result. `fuzzing.py` says how to draw other cases and how to repeat one.
"""

import gzip
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from pipeline.config.crawl import CrawlSection
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config, ConfigError, validated
from pipeline.config.tokens import MixtureNode, TokensSection
from pipeline.corpus.out_of_distribution import read_set
from pipeline.corpus.url_lists import Survivors, read_urls
from pipeline.crawl import extract, filter
from pipeline.crawl.annotations import add_annotations
from pipeline.crawl.index import read_index
from pipeline.crawl.sources import expand
from pipeline.data.database import database
from pipeline.data.shards import write_table
from pipeline.evaluate import grade, score
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import choose_exemplars, few_shot_text, read_layout
from pipeline.protocol.identity import Digests, digest_of
from pipeline.protocol.overlays import DEFAULTS, merge, read_config, read_yaml
from pipeline.protocol.stage import InputError, run_stage
from pipeline.report.collect import Run
from pipeline.report.truth import pages_by_scope
from pipeline.reward.labelled import read_labels
from pipeline.rl.rollout import read_groups
from pipeline.tokens import tokenizer
from pipeline.tokens.texts import read_texts
from tests.crawl_warcs import html, record
from tests.fuzzing import failures, mutate_bytes, mutate_lines, mutate_value, write
from tests.test_data_formats import EXAMPLES
from workflow.graph import Graph

REFUSALS = (InputError, ConfigError)
OVERLAYS = ["demo", "compare", "single-gpu", "deepseekmath-1.3b", "deepseekmath-7b"]


def test_configurations_with_wrong_values() -> None:
    defaults = read_config([DEFAULTS])
    overlays = [read_config([ROOT / f"configs/{name}.yaml"]) for name in OVERLAYS]
    overlays = [overlay | {"crawl": overlay.get("crawl", {}) | {"pool_shards": 2}} for overlay in overlays]

    def make(rng: random.Random) -> Any:
        if rng.random() < 0.3:
            return mutate_value(rng, defaults)
        overlay = mutate_value(rng, rng.choice(overlays))
        return merge(defaults, overlay) if isinstance(overlay, dict) else overlay

    def use(values: Any) -> None:
        if isinstance(values, dict):
            Graph(Config(values))

    assert not (found := failures("config", 800, make, use, REFUSALS, ("config key",))), "".join(found)


def test_configuration_files_with_wrong_bytes(tmp_path: Path) -> None:
    texts = [(ROOT / f"configs/{name}.yaml").read_bytes() for name in OVERLAYS]
    file, defaults = tmp_path / "overlay.yaml", read_config([DEFAULTS])

    def use(data: bytes) -> None:
        values = merge(defaults, read_config([write(file, data)]))
        if isinstance(values["crawl"], dict):
            values["crawl"]["pool_shards"] = 2  # thousands of jobs take long to list
        Graph(Config(values))

    found = failures(
        "overlay",
        200,
        lambda rng: mutate_bytes(rng, rng.choice(texts)),
        use,
        REFUSALS,
        (str(file), "config key"),
    )
    assert not found, "".join(found)


def reading(
    target: str,
    count: int,
    file: Path,
    use: Callable[[Path], Any],
    mutate: Any = mutate_bytes,
    seed: bytes = b"",
) -> None:
    """Give `count` damaged copies of an example of docs/data.md to its reader."""
    data = seed or EXAMPLES[file.name].encode()
    found = failures(
        target,
        count,
        lambda rng: mutate(rng, data),
        lambda damaged: (write(file, damaged), use(file), None)[2],
        REFUSALS,
        (str(file), "config key", "benchmark mine", "two WARC files", "no such WARC", "is a damaged result"),
    )
    assert not found, "".join(found)


def sections(folder: Path, name: str, model: Any) -> Callable[[Path], Any]:
    return lambda path: validated(model, read_yaml(path), name)


def prompt_of(path: Path) -> None:
    layout = read_layout(path)
    few_shot_text(layout, choose_exemplars(layout, [], 1, str(path)), Item("i", "What is 1 + 1?", "2"))


def bench(path: Path) -> None:
    for item in load("mine", BenchmarkNode(source=str(path), split=None), [str(path)]):
        json.dumps(item.labels), item.text.encode(), item.id.encode()


def annotated(path: Path) -> None:
    with database(path.parent / "join", {}) as joins:
        add_annotations(joins, "annotations", path)


READERS = {
    "benchmark.jsonl": bench,
    "benchmark.yaml": lambda path: validated(BenchmarkNode, read_yaml(path), "benchmarks.mine"),
    "layout.yaml": prompt_of,
    "rewards.yaml": lambda path: validated(RewardWeights, read_yaml(path), "rl.rewards"),
    "mixture.yaml": lambda path: validated(MixtureNode, read_yaml(path), "mixtures.mine"),
    "mixture.jsonl": lambda path: [text.encode() for text in read_texts(str(path))],
    "warc.paths": lambda path: expand([str(path)], "https://host/"),
    "index.cdxj": lambda path: read_index(str(path)),
    "index.jsonl": lambda path: read_index(str(path)),
    "seed_urls.txt": read_urls,
    "opt_out.txt": read_urls,
    "annotations.tsv": annotated,
    "labels.jsonl": lambda path: pages_by_scope(Run("mine", {}, {"truth": [path]})),
    "rollouts.jsonl": read_groups,
    "step_labels.jsonl": lambda path: read_labels([str(path)]),
}


@pytest.mark.parametrize("name", READERS)
def test_input_files_with_wrong_content(name: str, tmp_path: Path) -> None:
    reading(
        name, 80, tmp_path / name, READERS[name], mutate_lines if name.endswith(".jsonl") else mutate_bytes
    )


def program(
    target: str,
    count: int,
    folder: Path,
    main: Callable[[list[str]], Any],
    arguments: Callable[[Path], list[str]],
    file: str,
    seed: bytes,
    capsys: pytest.CaptureFixture[str],
    mutate: Any = mutate_lines,
) -> None:
    """Run a program on `count` damaged inputs. It makes its output, or exits with 2 and one line only."""
    path, output = folder / file, folder / "out"

    def use(damaged: bytes) -> str | None:
        write(path, damaged)
        remove(output)
        try:
            main(arguments(path))
        except SystemExit as exit:
            told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
            if exit.code != 2 or len(told) != 1 or output.exists():
                return f"exit {exit.code}, output {output.exists()}, errors {told}"
            return (
                None
                if any(word in told[0] for word in (file, "config key", "`tokens.texts`"))
                else f"names no file: {told[0]}"
            )
        left = [
            str(found) for found in folder.rglob("*") if ".partial" in found.name or ".lock" in found.name
        ]
        return None if output.exists() and not left else f"output {output.exists()}, left {left}"

    found = failures(target, count, lambda rng: mutate(rng, seed), use, (), ())
    assert not found, "".join(found)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def warc_file(compressed: bool) -> bytes:
    """Three pages and a warcinfo record."""
    records = [
        record(f"https://example.org/{name}", html(name), headers="WARC-Truncated: length\r\n")
        for name in "abc"
    ]
    records.insert(0, record("", b"software: test\r\n", kind="warcinfo"))
    return b"".join(gzip.compress(one, mtime=0) if compressed else one for one in records)


@pytest.mark.parametrize("name", ["web.warc.gz", "web.warc"])
def test_damaged_warc_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    def arguments(path: Path) -> list[str]:
        return ["--input", f"warc={path}", "--output", str(path.with_name("out"))]

    def main(words: list[str]) -> None:
        run_stage("crawl", CrawlSection, extract.run, words)

    seed = warc_file(name.endswith("gz"))
    program(name, 45, tmp_path, main, arguments, name, seed, capsys, mutate_bytes)


def test_damaged_pairs_to_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def arguments(path: Path) -> list[str]:
        return ["--input", str(path), "--output", str(path.with_name("out"))]

    seed = EXAMPLES["pairs.jsonl"].encode()
    program("pairs.jsonl", 120, tmp_path, grade.main, arguments, "pairs.jsonl", seed, capsys)


def test_damaged_outputs_to_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = write(tmp_path / "references.jsonl", EXAMPLES["references.jsonl"].encode())

    def arguments(path: Path) -> list[str]:
        files = [
            "--references",
            str(references),
            "--outputs",
            str(path),
            "--output",
            str(path.with_name("out")),
        ]
        return ["--benchmark", "mine", *files]

    seed = EXAMPLES["outputs.jsonl"].encode()
    program("outputs.jsonl", 120, tmp_path, score.main, arguments, "outputs.jsonl", seed, capsys)


def test_damaged_texts_for_a_tokenizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def arguments(path: Path) -> list[str]:
        return [
            "--input",
            f"text={path}",
            "--output",
            str(path.with_name("out")),
            "--config",
            '{"vocabulary": 260}',
        ]

    def main(words: list[str]) -> None:
        run_stage("tokens", TokensSection, tokenizer.run, words)

    seed = EXAMPLES["mixture.jsonl"].encode()
    program("text.jsonl", 60, tmp_path, main, arguments, "text.jsonl", seed, capsys)


def test_damaged_sections_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(tmp_path / "text.jsonl", EXAMPLES["mixture.jsonl"].encode())

    def arguments(path: Path) -> list[str]:
        return ["--input", f"text={text}", "--output", str(path.with_name("out")), "--config", f"@{path}"]

    def main(words: list[str]) -> None:
        run_stage("tokens", TokensSection, tokenizer.run, words)

    def mutate(rng: random.Random, data: bytes) -> bytes:
        return (
            mutate_bytes(rng, data)
            if rng.random() < 0.3
            else json.dumps(mutate_value(rng, json.loads(data))).encode()
        )

    seed = b'{"vocabulary": 260, "sample": 1000, "texts": null}'
    program("section.json", 80, tmp_path, main, arguments, "section.json", seed, capsys, mutate)


def test_damaged_fine_tuning_rows(tmp_path: Path) -> None:
    from pipeline.config.sft import SftSection
    from pipeline.sft import LeftOut, encode_examples
    from pipeline.training.tokenizer import load_tokenizer
    from tests.tiny_model import save_tiny_model

    tiny, section = load_tokenizer(save_tiny_model(tmp_path / "model", seed=0)), SftSection(context=512)
    reading(
        "sft.jsonl",
        80,
        tmp_path / "sft.jsonl",
        lambda path: list(encode_examples([str(path)], tiny, section, LeftOut())),
        mutate_lines,
    )


def test_damaged_out_of_distribution_sets(tmp_path: Path) -> None:
    write_table(tmp_path / "duplicates.parquet", [], filter.DUPLICATES)
    survivors = Survivors([tmp_path / "duplicates.parquet"], tmp_path, {})
    file = tmp_path / "out_of_distribution.jsonl"
    reading(
        "out_of_distribution.jsonl",
        80,
        file,
        lambda path: read_set([str(path)], "x", survivors),
        mutate_lines,
    )


def test_damaged_manifests_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, size in {"config.json": 685}.items():
        (tmp_path / "data" / name).write_bytes(bytes(size))
    (tmp_path / "run.json").write_text("{}")

    def use(path: Path) -> None:
        os.utime(path, (2**31, 2**31 + random.random()))  # newer than the data, and each version another time
        digest_of(str(tmp_path / "data"), Digests())

    reading("manifest.json", 150, tmp_path / "manifest.json", use)
