"""A trained model leaves the run: a folder that transformers loads, with a card that says how it was made."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from conftest import ROOT, Checkout
from huggingface_hub import ModelCard
from report_run import FakeRun
from transformers import AutoModelForCausalLM, AutoTokenizer

from pipeline.cli.export import CONVERTER, asked_question, front_matter, licence_of, score_table
from pipeline.config.evaluate import SUFFIX, TOOL_SUFFIX
from pipeline.config.rl import RlSection
from pipeline.report.collect import open_run
from pipeline.report.compare import Results
from pipeline.training.tokenizer import PROBES, load_tokenizer, probe_ids


def export(run: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "export", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment)


@pytest.fixture(scope="module")
def model(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small run's last model, exported."""
    folder = tmp_path_factory.mktemp("export") / "grpo"
    done = export(finished.folder, finished.result("rl/grpo"), "--to", folder, "--licence", "apache-2.0")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_folder_is_the_model_and_nothing_else(model: Path, finished: Checkout) -> None:
    names = {path.name for path in model.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names
    assert not names & {"metrics.jsonl", "samples.jsonl", "rollouts", "best", "tensorboard"}
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokens = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 3 + 4?"}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    ours, theirs = (
        AutoModelForCausalLM.from_pretrained(folder)(tokens).logits
        for folder in (model, finished.result("rl/grpo") / "data")
    )
    assert torch.equal(ours, theirs)
    plain = load_tokenizer(model)
    assert all(probe_ids(tokenizer, text) == probe_ids(plain, text) for text in PROBES)


def test_the_snippet_of_the_card_runs_as_it_stands(model: Path) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", (model / "README.md").read_text(), re.M | re.S)
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=model.parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()


def test_an_adapter_lies_beside_the_weights_that_hold_it_unless_it_is_left_out(
    finished: Checkout, tmp_path: Path
) -> None:
    adapter = finished.result("rl/grpo") / "data/adapter"
    adapter.mkdir()
    try:
        (adapter / "adapter_config.json").write_text("{}")
        for name, options in {"both": [], "whole": ["--merge"]}.items():
            done = export(finished.folder, finished.result("rl/grpo"), "--to", tmp_path / name, *options)
            assert done.returncode == 0, done.stderr
            assert "adapters (LoRA), which are merged" in (tmp_path / name / "README.md").read_text()
    finally:
        shutil.rmtree(adapter)
    assert (tmp_path / "both/adapter/adapter_config.json").is_file()
    assert not (tmp_path / "whole/adapter").exists()


def test_the_file_for_llama_cpp_needs_its_converter_and_nothing_half_done_stays(
    finished: Checkout, tmp_path: Path
) -> None:
    words = [finished.result("rl/grpo"), "--to", tmp_path / "new", "--gguf"]
    done = export(finished.folder, *words, PATH="/usr/bin")
    assert done.returncode == 1 and f"no {CONVERTER} in PATH: install llama.cpp" in done.stderr
    failing = tmp_path / "bin" / CONVERTER
    failing.parent.mkdir()
    failing.write_text("#!/bin/sh\necho 'pre-tokenizer is not known' >&2\nexit 1\n")
    failing.chmod(0o755)
    done = export(finished.folder, *words, PATH=f"{failing.parent}:/usr/bin")
    assert done.returncode == 1 and done.stderr.endswith(f"{CONVERTER} failed: pre-tokenizer is not known\n")
    assert done.stderr.count("\n") == 1 and [path.name for path in tmp_path.iterdir()] == ["bin"]


@pytest.mark.parametrize(
    ("config", "suffix"),
    [
        (RlSection().model_dump(), SUFFIX["en"]),
        (RlSection(mode="pal").model_dump(), TOOL_SUFFIX["en"]),
        ({"suffix": {"en": "Think."}}, "Think."),  # of older code, which had no `mode`
        ({"suffix": {}}, ""),
    ],
)
def test_a_model_of_rl_is_asked_with_the_instruction_of_its_mode(config: dict[str, Any], suffix: str) -> None:
    assert json.loads(asked_question("rl", config)) == "\n".join(filter(None, ["What is 3 + 4?", suffix]))
    assert json.loads(asked_question("sft", {"suffix": {"cot": {"en": "Go."}}})).endswith("?\nGo.")
    assert json.loads(asked_question("cpt", {})) == "What is 3 + 4?"


@contextmanager
def hub(private: bool = True) -> Iterator[tuple[str, dict[str, bytes], list[Any]]]:
    """A server that answers as the hub does to an upload to a repository, which is private or public; yields
    its address, the files and repositories.
    """
    files: dict[str, bytes] = {}
    made: list[Any] = []

    class Hub(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answer: dict[str, Any] = {}
            place = f"http://127.0.0.1:{self.server.server_port}/me/mine"
            if self.path == "/api/repos/create":
                made.append(json.loads(text))
                answer = {"url": place}
            elif "/preupload/" in self.path:
                asked = json.loads(text)["files"]
                answer = {
                    "files": [
                        {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in asked
                    ]
                }
            elif "/commit/" in self.path:
                rows = [json.loads(line)["value"] for line in text.splitlines()]
                files.update({row["path"]: base64.b64decode(row["content"]) for row in rows if "path" in row})
                answer = {"commitUrl": f"{place}/commit/0", "commitOid": "0" * 40, "hookOutput": ""}
            self.answer(answer)

        def do_GET(self) -> None:
            self.answer({"id": "me/mine", "sha": "0" * 40, "siblings": [], "private": private})

        def answer(self, values: dict[str, Any]) -> None:
            text = json.dumps(values).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", files, made
    finally:
        server.shutdown()


def test_an_upload_is_the_folder_byte_for_byte_and_private(finished: Checkout, tmp_path: Path) -> None:
    words = [finished.result("rl/grpo"), "--to", tmp_path / "new", "--push", "me/mine"]
    with hub() as (address, files, made):
        done = export(finished.folder, *words, HF_ENDPOINT=address, HF_TOKEN="hf_none", HF_HUB_OFFLINE="0")
    assert done.returncode == 0, done.stderr
    assert [(one["name"], one["visibility"]) for one in made] == [("mine", "private")]
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}


@pytest.mark.parametrize("private", [True, False])
def test_nothing_is_uploaded_to_a_repository_that_is_public(tmp_path: Path, private: bool) -> None:
    (tmp_path / "README.md").write_text("A model.\n")
    code = f"from pipeline.cli import export; export.push({str(tmp_path)!r}, 'me/mine')"
    with hub(private) as (address, files, _):
        environment = {"HF_ENDPOINT": address, "HF_TOKEN": "hf_none", "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert list(files) == (["README.md"] if private else [])
    assert private == (done.returncode == 0)
    assert private or "--push me/mine: is there and public; make it private there first" in done.stderr


@pytest.mark.parametrize(
    ("text", "licence"),
    [
        (None, "not stated"),
        ("---\nlicense: mit\n---\n", "mit"),
        ("---\nlicense: [\n---\n", "its README.md cannot be read"),
        ("---\n- mit\n---\n", "its README.md cannot be read"),
    ],
)
def test_a_licence_is_what_the_card_says(tmp_path: Path, text: str | None, licence: str) -> None:
    if text:
        (tmp_path / "README.md").write_text(text)
    assert licence_of(str(tmp_path)) == licence


@pytest.mark.parametrize(
    "source", ["nobody/no-such-model", "hub:nobody/none:train", "https://example.org/a/b.jsonl"]
)
def test_a_licence_that_was_never_looked_up_is_not_called_unstated(source: str) -> None:
    assert licence_of(source) == "see its page"


def test_an_upload_that_fails_is_one_line_and_leaves_the_folder(finished: Checkout, tmp_path: Path) -> None:
    words = [finished.result("rl/grpo"), "--to", tmp_path / "new", "--push", "me/mine"]
    done = export(finished.folder, *words, HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="0")
    assert done.returncode == 1 and done.stderr.startswith("error: --push me/mine: "), done.stderr
    assert done.stderr.count("\n") == 1 and (tmp_path / "new/README.md").is_file()


def test_the_card_tells_every_stage_and_the_results_that_the_hub_reads(model: Path) -> None:
    card = ModelCard.load(model / "README.md")
    assert card.data.license == "apache-2.0" and card.data.library_name == "transformers"
    assert {result.dataset_name for result in card.data.eval_results} == {"miniweb", "heldout"}
    stages = re.findall(r"^\| ((?:cpt|sft|rl)/\w+) \(key ([0-9a-f]{16})\)", card.text, re.MULTILINE)
    assert [name for name, _ in stages] == ["cpt/base", "sft/instruct", "rl/grpo"]
    assert "miniweb, sft.jsonl" in card.text and "learning_rate: 0.0002" in card.text
    assert "| miniweb, sft.jsonl | not stated |" in card.text
    assert "random weights" in card.text and str(model.parent) not in card.content


def test_the_hub_reads_the_results_of_a_model_and_of_no_other(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    for name, skill in (("sft/instruct", 0.4), ("rl/grpo", 0.6)):
        run.model(name, None, 3, 2.0)
        run.evaluation(name, "chat_cot", skill, 1.0, benchmarks=("gsm8k",))
    score = json.loads((tmp_path / "evaluate/grpo/data/scores.json").read_text())["gsm8k"]["chat_cot"]
    results, percent = Results(open_run(tmp_path)), 100 * score["accuracy"]
    (result,) = ModelCard(front_matter(results, "grpo", {})).data.eval_results
    assert (result.dataset_name, result.metric_type) == ("gsm8k", "accuracy")
    assert result.metric_value == pytest.approx(percent, abs=0.01)
    _, _, row = score_table(results, "grpo")
    assert row.startswith(f"| gsm8k | chat cot | {score['n']} | {percent:.1f} | ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crawl/dedup", "crawl/dedup is no model that writes text"),
        ("reward/prm", "reward/prm is no model that writes text"),
        ("nothing", "no finished result of a run"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(
    name: str, words: str, finished: Checkout, tmp_path: Path
) -> None:
    done = export(finished.folder, finished.result(name), "--to", tmp_path / "new")
    assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(model: Path, finished: Checkout) -> None:
    before = (model / "README.md").read_bytes()
    done = export(finished.folder, finished.result("rl/grpo"), "--to", model)
    assert done.returncode == 1 and "name a folder that does not" in done.stderr
    assert (model / "README.md").read_bytes() == before
