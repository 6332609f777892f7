"""Whatever a configuration or an input holds, a program works, or it ends in one line that names file and key
and leaves no half result. `fuzzing.py` says how to draw other cases and how to repeat one.
"""

import gzip
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from given.examples import EXAMPLES

from pipeline.config.crawl import CrawlSection
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config, ConfigError, validated
from pipeline.config.tokens import MixtureNode, TokensSection
from pipeline.core.data.database import database
from pipeline.core.identity import Digests, digest_of
from pipeline.core.overlays import DEFAULTS, merge, read_config, read_yaml
from pipeline.core.stage import InputError
from pipeline.crawl import extract
from pipeline.crawl.annotations import add_annotations
from pipeline.crawl.index import read_index
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.sources import expand
from pipeline.evaluate import grade, score
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import choose_exemplars, few_shot_text, read_layout
from pipeline.report.collect import Run
from pipeline.report.truth import pages_by_scope
from pipeline.reward.labelled import read_labels
from pipeline.rl.rollout import read_groups
from pipeline.tokens import tokenizer
from pipeline.tokens.texts import read_texts
from tests.crawl_warcs import html, record
from tests.fuzzing import failures, mutate_bytes, mutate_lines, mutate_value, program, program_failures, write
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

    def make(rng: random.Random) -> bytes:
        return mutate_bytes(rng, rng.choice(texts))

    assert not (found := failures("overlay", 200, make, use, REFUSALS, (str(file), "config key"))), found


def reading(target: str, count: int, file: Path, use: Callable[[Path], Any]) -> None:
    """Give `count` damaged copies of an example in docs/data.md or tests/data to its reader."""
    data = (EXAMPLES.get(file.name) or (ROOT / "tests/data" / file.name).read_text()).encode()
    mutate = mutate_lines if file.suffix == ".jsonl" else mutate_bytes
    names = (str(file), "config key", "benchmark mine", "two WARC files", "no such WARC", "a damaged result")

    def read(damaged: bytes) -> None:
        use(write(file, damaged))

    assert not (found := failures(target, count, lambda rng: mutate(rng, data), read, REFUSALS, names)), found


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
    reading(name, 80, tmp_path / name, READERS[name])


def warc_file(compressed: bool) -> bytes:
    """Three pages and a warcinfo record."""
    records = [
        record(f"https://example.org/{name}", html(name), headers="WARC-Truncated: length\r\n")
        for name in "abc"
    ]
    records.insert(0, record("", b"software: test\r\n", kind="warcinfo"))
    return b"".join(gzip.compress(one, mtime=0) if compressed else one for one in records)


EXTRACT = program("crawl", CrawlSection, extract.run)
TRAIN = program("tokens", TokensSection, tokenizer.run)
SECTION = b'{"vocabulary": 260, "texts": null}'
PROGRAMS = {  # of a file: damaged copies, what it holds, the program and its words
    "web.warc.gz": (45, warc_file(compressed=True), EXTRACT, "--input warc={file}"),
    "web.warc": (45, warc_file(compressed=False), EXTRACT, "--input warc={file}"),
    "pairs.jsonl": (120, EXAMPLES["pairs.jsonl"].encode(), grade.main, "--input {file}"),
    "outputs.jsonl": (120, EXAMPLES["outputs.jsonl"].encode(), score.main,
                      "--benchmark mine --references {references} --outputs {file}"),
    "text.jsonl": (60, EXAMPLES["mixture.jsonl"].encode(), TRAIN, "--config @{section} --input text={file}"),
    "section.json": (80, SECTION, TRAIN, "--config @{file} --input text={mixture}"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_damaged_inputs_of_programs(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    count, data, main, line = PROGRAMS[name]
    sound = {role: EXAMPLES[f"{role}.jsonl"].encode() for role in ("references", "mixture")}
    given = {
        role: write(tmp_path / f"{role}.jsonl", held) for role, held in (sound | {"section": SECTION}).items()
    }
    given["file"] = write(tmp_path / "in" / name, data)
    words = [word.format(**given) for word in line.split()]
    found = program_failures(name, count, [given["file"]], main, words, capfd, ("`tokens.texts`",))
    assert not found, "".join(found)


def test_damaged_fine_tuning_rows(tmp_path: Path) -> None:
    from pipeline.config.sft import SftSection
    from pipeline.sft import encode_examples
    from pipeline.training.tokenizer import load_tokenizer
    from tests.tiny_model import save_tiny_model

    tiny, section = load_tokenizer(save_tiny_model(tmp_path / "model", seed=0)), SftSection(context=512)

    def read(path: Path) -> None:
        list(encode_examples([str(path)], tiny, section, []))

    reading("sft.jsonl", 80, tmp_path / "sft.jsonl", read)


def test_damaged_manifests_of_inputs(tmp_path: Path) -> None:
    write(tmp_path / "data/config.json", bytes(685))
    (tmp_path / "run.json").write_text("{}")

    def use(path: Path) -> None:
        os.utime(path, (2**31, 2**31 + random.random()))  # newer than the data, and each version another time
        digest_of(str(tmp_path / "data"), Digests())

    reading("manifest.json", 150, tmp_path / "manifest.json", use)
