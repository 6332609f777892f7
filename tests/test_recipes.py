"""Every recipe of docs/recipes.md: its files are written and its commands run, on the small run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import OVERLAYS, ROOT, Checkout

from pipeline.cli.status import read_graph

PAGE = (ROOT / "docs/recipes.md").read_text()
RECIPES = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
FILE = re.compile(r"^`(my/[\w.]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# As small as the recipe allows. Only keys of what is new: others would make finished results stale.
SMALLER = {
    "A variant of a model beside the old one": {"models": {"careful": {"steps": 2, "benchmarks": []}}},
    "Your own fine-tuning data": {"models": {"mine": {"steps": 2, "benchmarks": []}}},
    "NuminaMath and OpenR1-Math": {"models": {"numina": {"steps": 1}, "openr1": {"steps": 1}}},
}


@pytest.fixture
def checkout(finished: Checkout, tmp_path: Path) -> Checkout:
    """A checkout with the finished small run, which a recipe may change."""
    return finished.copy(tmp_path / "checkout", "results")


def follow(checkout: Checkout, title: str) -> str:
    """Do what the recipe says, with the small run in place of the demo; returns what its commands print."""
    smaller = SMALLER.get(title)
    overlays = " ".join(OVERLAYS)
    for name, text in FILE.findall(RECIPES[title]):
        path = checkout.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if smaller and name.endswith(".yaml"):
            merged = yaml.safe_load(text)
            for model, keys in smaller["models"].items():
                merged["models"][model] |= keys
            path.write_text(yaml.safe_dump(merged))
    commands = "".join(COMMANDS.findall(RECIPES[title]))
    commands = commands.replace("configs/demo.yaml", overlays).replace("results/demo", "results/small")
    commands = re.sub("^dsm run .*$", r"\g<0> --cores 1", commands, flags=re.MULTILINE)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", 'dsm() { python -m pipeline "$@"; }\n' + commands],
        cwd=checkout.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_a_variant_stands_beside_the_old_model(checkout: Checkout, finished: Checkout) -> None:
    text = follow(checkout, "A variant of a model beside the old one")
    assert "sft/careful: not made yet" in text and "input sft/careful changed" in text
    assert "sft/careful: finished" in text and "rl/grpo: starts" not in text
    weights = [checkout.result(f"sft/{name}/data/model.safetensors") for name in ("careful", "instruct")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    assert "careful" in checkout.result("report/index.html").read_text()


def test_a_new_benchmark_is_asked(checkout: Checkout) -> None:
    text = follow(checkout, "A new benchmark")
    assert "rl/grpo: made before from the same content" in text
    scores = json.loads(checkout.result("report/summary.json").read_text())["models"]["grpo"]
    assert scores["toy"]["chat_cot"]["n"] == 2 and "miniweb" in scores
    counters = json.loads(checkout.result("evaluate/grpo/run.json").read_text())["counters"]
    assert counters["vllm.requests"] == 2 * (1 + 4)


def test_own_fine_tuning_data_makes_a_model(checkout: Checkout) -> None:
    text = follow(checkout, "Your own fine-tuning data")
    assert "sft/mine: finished" in text and "cpt/" not in text
    assert checkout.result("sft/mine/data/model.safetensors").is_file()
    assert json.loads(checkout.result("sft/mine/manifest.json").read_text())["counts"]


def test_published_data_sets_are_read_by_their_columns(checkout: Checkout) -> None:
    text = follow(checkout, "NuminaMath and OpenR1-Math")
    assert "sft/numina: finished" in text and "rl/openr1: finished" in text
    assert checkout.result("rl/openr1/data/model.safetensors").is_file()


def test_own_warc_files_make_a_corpus(checkout: Checkout) -> None:
    follow(checkout, "Your own WARC files")
    pages = checkout.folder / "results/pages"
    assert list((pages / "decontaminate/corpus/data/corpus").iterdir())
    assert (pages / "corpus/pages.parquet").is_file()
    assert (pages / "corpus/iteration-1/select/data/review.tsv").is_file()


def test_results_from_elsewhere_are_taken_over(checkout: Checkout) -> None:
    text = follow(checkout, "Resume on another machine")
    assert f"adopted {len(read_graph(OVERLAYS, []).nodes)} results" in text and "Nothing to be done" in text


def test_every_recipe_is_run() -> None:
    source = Path(__file__).read_text()
    assert RECIPES and all(f'follow(checkout, "{title}")' in source for title in RECIPES)
