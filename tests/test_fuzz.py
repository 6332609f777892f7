"""Whatever a configuration or an input holds, a program works, or it ends in one line that names file and key
and leaves no half result. `fuzzing.py` says how to draw other cases and how to repeat one.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from pipeline.common.overlays import DEFAULTS, read_config, read_yaml
from pipeline.common.stage import InputError
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config, ConfigError, validated
from pipeline.config.tokens import MixtureNode
from pipeline.corpus.annotations import read_annotations
from pipeline.corpus.lists import read_urls
from pipeline.crawl.index import read_index
from pipeline.crawl.sources import expand
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import choose_exemplars, few_shot_text, read_layout
from pipeline.report.collect import Run
from pipeline.report.truth import pages_by_scope
from pipeline.reward.replay import read_labels
from pipeline.rl.rollout import read_groups
from pipeline.tokens.texts import read_texts
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
        return merged(defaults, overlay) if isinstance(overlay, dict) else overlay

    def use(values: Any) -> None:
        if isinstance(values, dict):
            Graph(Config(values))

    assert not (found := failures("config", 800, make, use, REFUSALS, ("config key",))), "".join(found)


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """What `read_config` makes of two files."""
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found


def test_configuration_files_with_wrong_bytes(tmp_path: Path) -> None:
    texts = [(ROOT / f"configs/{name}.yaml").read_bytes() for name in OVERLAYS]
    file = tmp_path / "overlay.yaml"

    def use(data: bytes) -> None:
        Graph(Config(read_config([DEFAULTS, write(file, data)])))

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
        (str(file), "config key", "benchmark mine", "two WARC files", "no such WARC"),
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
    "annotations.tsv": lambda path: read_annotations(path).find("https://example.org/algebra/rings.html"),
    "labels.jsonl": lambda path: pages_by_scope(Run("mine", {}, {"truth": [path]})),
    "rollouts.jsonl": read_groups,
    "step_labels.jsonl": lambda path: read_labels([str(path)]),
}


@pytest.mark.parametrize("name", READERS)
def test_input_files_with_wrong_content(name: str, tmp_path: Path) -> None:
    reading(
        name, 80, tmp_path / name, READERS[name], mutate_lines if name.endswith(".jsonl") else mutate_bytes
    )
