"""The three packages: each is built, installed and used without the project; the grader is
a reward of TRL's trainer in one line.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from datasets import Dataset
from mathverdict.adapters import (
    compute_score,
    inspect_scorer,
    lighteval_metric,
    process_results,
    trl_reward,
)
from tiny_model import save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from pipeline.core import code

PARTS = ("mathverdict", "sealedpy", "webformulas")
PACKAGES = ("numpy", "numpy.libs", "sympy", "mpmath", "resiliparse")  # what they depend on


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the built parts and the packages that they name, and nothing else."""
    folder = tmp_path_factory.mktemp("parts")
    venv.create(folder / "environment", symlinks=True)
    there = next((folder / "environment/lib").glob("python*/site-packages"))
    for package in PACKAGES:
        (there / package).symlink_to(Path(sysconfig.get_path("platlib")) / package)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = ["--no-deps", "--no-index", "--no-build-isolation"]
    for room in PARTS:
        source = shutil.copytree(ROOT / "packages" / room, folder / room)
        subprocess.run([*pip, "wheel", *quiet, "--wheel-dir", folder / "wheels", source], check=True)
    wheels = sorted((folder / "wheels").glob("*.whl"))
    assert [wheel.name.split("-")[0] for wheel in wheels] == sorted(PARTS)
    subprocess.run([*pip, "install", *quiet, "--target", there, *wheels], check=True)
    return folder / "environment/bin/python"


@pytest.mark.parametrize("room", PARTS)
def test_the_example_of_its_readme_prints_what_it_says(room: str, python: Path, tmp_path: Path) -> None:
    example = re.findall(
        r"```python\n(.*?)```", (ROOT / f"packages/{room}/README.md").read_text(), re.DOTALL
    )[0]
    assert not re.search(r"\bpipeline\b", example)
    (tmp_path / "example.py").write_text(example)
    done = subprocess.run(
        [python, "-I", "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    said = {
        "webformulas": "So $x^{2}$ is at least 0.\n",
        "mathverdict": "right\nright\nwrong\n",
        "sealedpy": "ok 42\n\ntimeout \n",
    }
    assert done.stdout == said[room]


@pytest.mark.parametrize("room", PARTS)
def test_a_part_imports_nothing_of_the_project(room: str) -> None:
    for path in (ROOT / "packages" / room).rglob("*.py"):
        assert not re.search(r"^\s*(from|import) (pipeline|workflow|\.\.)", path.read_text(), re.MULTILINE), (
            path
        )


def digest_of(part: str) -> str:
    """A digest of a package's code, without comments, docstrings and annotations, and of its word lists."""
    folder = ROOT / "packages" / part / "src" / part
    trees = [code._plain(ast.parse(path.read_text())) for path in sorted(folder.rglob("*.py"))]
    return code._hash([*trees, *(path.read_text() for path in sorted(folder.rglob("*.toml")))])


@pytest.mark.parametrize("part", PARTS)
def test_other_code_of_a_package_has_another_version(part: str) -> None:
    """Keys of results count a package by its version: where this fails, raise the version in the package's
    pyproject.toml and in the project's, and record it with the digest in tests/data/packages.json.
    """
    version = tomllib.loads((ROOT / f"packages/{part}/pyproject.toml").read_text())["project"]["version"]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    recorded = json.loads((ROOT / "tests/data/packages.json").read_text())[part]
    assert f"{part}=={version}" in wanted
    assert {"version": version, "code": digest_of(part)} == recorded


def test_trl_trains_on_the_grader(tmp_path: Path) -> None:
    """TRL's trainer asks for rewards of stored outputs, and steps."""
    save_tiny_model(tmp_path, seed=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, padding_side="left")
    outputs = ["3 + 4 = 7, so \\boxed{7}", "\\boxed{8}"]
    rewards: list[float | None] = []

    def reward(**given: Any) -> list[float | None]:
        rewards.extend(trl_reward(**given))
        return rewards[-len(given["completions"]) :]

    def stored(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [tokenizer(outputs[place % 2])["input_ids"] for place in range(len(prompts))]
        return {
            "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": ids,
            "logprobs": None,
        }

    settings = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=64,
        max_steps=1,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    data = Dataset.from_dict({"prompt": ["What is 3 + 4?"] * 2, "answer": ["7"] * 2})
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    GRPOTrainer(
        model=model,
        args=settings,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=data,
        rollout_func=stored,
    ).train()
    assert rewards == [1.0, 0.0]


@pytest.mark.parametrize(("solution", "score"), [("\\boxed{0.5}", 1.0), ("0.5", 0.0), ("\\boxed{1}", 0.0)])
def test_verl_gets_a_number(solution: str, score: float) -> None:
    assert compute_score("math", solution, "\\frac{1}{2}", {"question": "Halve 1."}) == score


def test_chats_are_graded_by_their_last_message_and_question() -> None:
    prompt = [{"role": "system", "content": "Box it."}, {"role": "user", "content": "Expand $(x+1)^2$."}]
    done, copied = "\\boxed{x^2+2x+1}", "\\boxed{(x+1)^2}"
    completions = [[{"role": "assistant", "content": text}] for text in (done, copied)]
    assert trl_reward(completions, answer=["x^2+2x+1"] * 2, prompts=[prompt] * 2) == [1.0, 0.0]


@pytest.mark.parametrize(("output", "score"), [("\\boxed{14/2}", 1.0), ("The answer is 7.", 1.0), ("8", 0.0)])
def test_lm_evaluation_harness_gets_a_score(output: str, score: float) -> None:
    assert process_results({"question": "What is 3 + 4?", "answer": 7}, [output]) == {"mathverdict": score}


def test_lighteval_gets_a_metric() -> None:
    """Skipped where lighteval is not installed: it is in no lock file."""
    pytest.importorskip("lighteval")
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc

    doc, metric = Doc(query="What is 3 + 4?", choices=["7"], gold_index=0), lighteval_metric()
    outputs = ["\\boxed{14/2}", "\\boxed{8}"]
    found = [metric.compute_sample(doc=doc, model_response=ModelResponse(text=[text])) for text in outputs]
    assert found == [{"mathverdict": 1.0}, {"mathverdict": 0.0}]


def test_inspect_ai_gets_a_scorer(tmp_path: Path) -> None:
    """Skipped where inspect_ai is not installed: it is in no lock file."""
    inspect = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    outputs = [ModelOutput.from_content("mockllm/model", text) for text in ("\\boxed{14/2}", "\\boxed{8}")]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it asks a hub
    samples = [Sample(input="What is 3 + 4?", target="7")] * 2
    (log,) = inspect.eval(
        inspect.Task(dataset=samples, scorer=inspect_scorer()),
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        max_connections=1,
    )
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
