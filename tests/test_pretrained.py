"""A published model in our stages and out again, beside tiny ones of other families.

`make test-pretrained` runs all of it; the whole suite only what needs neither the model nor an engine.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from given.single_gpu import save_model as save_qwen2_model
from given.tokenizers import TEXTS, save_deepseek_tokenizer
from programs import ROOT, finished, start
from tiny_model import CHAT_TEMPLATE, tiny_llama

from pipeline.config.root import Config
from pipeline.core.overlays import read_config
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.prompts import chat_prompt
from pipeline.examples.recipes import pretrained, real
from pipeline.examples.recipes.published import DIGESTS, digest
from pipeline.training.tokenizer import load_tokenizer, probe_ids
from workflow.graph import Graph, Result

PUBLISHED = ROOT / "work/published/SmolLM2-135M-Instruct"
QUESTIONS = [
    "Mary has 45 stamps and gives 39 of them to Tom. How many stamps has Mary left?",
    "A box holds 12 eggs. How many eggs are in 7 boxes?",
    "What is the capital of France?",
    "There are 96 pupils in 4 classes of the same size. How many pupils are in a class?",
    "求 12 加 7 的和。",
    r"Compute $\frac{3}{4} + \frac{1}{8}$.",
]
ROWS = [
    {
        "id": f"q{number}",
        "question": question,
        "answer": "6",
        "messages": [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "45 - 39 = 6\nThe answer is $\\boxed{6}$."},
        ],
    }
    for number, question in enumerate(QUESTIONS)
]
REWARD = "def length(item, text):\n    return len(text) / 100\n"  # differs among the outputs of any model


def save_llama_model(folder: Path) -> None:
    """A tiny Llama model with DeepSeek's kind of tokenizer and a chat template of two special tokens."""
    from transformers import LlamaForCausalLM

    save_deepseek_tokenizer(folder)
    tokenizer = load_tokenizer(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = tiny_llama(len(tokenizer), initializer_range=0.2, **ends)
    LlamaForCausalLM(config).save_pretrained(folder)


MAKERS = {"llama": save_llama_model, "qwen2": save_qwen2_model}
# In the whole suite test_single_gpu.py runs a model of Qwen2's kind through all stages.
ALL = ["llama", *(pytest.param(name, marks=pytest.mark.pretrained) for name in ("qwen2", "published"))]


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of the family that the test names."""
    if request.param == "published":
        return PUBLISHED
    folder = tmp_path_factory.mktemp(request.param)
    MAKERS[request.param](folder)
    return folder


@pytest.fixture(scope="module")
def generator(model: Path) -> Iterator[Any]:
    with open_generator(model) as engine:
        yield engine


@contextmanager
def open_generator(folder: Path) -> Iterator[Any]:
    from pipeline.training.engine import start_process_group
    from pipeline.training.generation import Generator

    start_process_group()  # before vLLM starts one that later tests could not train in
    engine = Generator(folder, dtype="float32", max_model_len=256, max_sequences=8)
    try:
        yield engine
    finally:
        engine.close()


def prompts(tokenizer: Any) -> list[list[int]]:
    return [chat_prompt(tokenizer, Item("q", text, "6"), "Think.", "model") for text in QUESTIONS]


def greedy(folder: Path, asked: list[list[int]], tokens: int) -> list[list[int]]:
    """What transformers' own `generate` writes, one prompt at a time, in fp32."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    found = []
    for prompt in asked:
        ids = torch.tensor([prompt])
        options = {"max_new_tokens": tokens, "do_sample": False, "temperature": None}
        output = reference.generate(
            ids, attention_mask=torch.ones_like(ids), top_p=None, top_k=None, **options
        )
        found.append(output[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("model", ALL, indirect=True)
def test_texts_and_questions_come_back_from_their_tokens(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    for text in TEXTS:
        assert tokenizer.decode(probe_ids(tokenizer, text)) == text
    for question, prompt in zip(QUESTIONS, prompts(tokenizer), strict=True):
        messages = [{"role": "user", "content": f"{question}\nThink."}]
        whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert tokenizer.decode(prompt) == whole and f"{question}\nThink." in whole
        answered = [*messages, {"role": "assistant", "content": "6"}]
        ended = tokenizer.apply_chat_template(answered, tokenize=False)
        assert ended.startswith(whole.rstrip()) and tokenizer.eos_token in ended[len(whole.rstrip()) :]


def written(monkeypatch: pytest.MonkeyPatch, program: Any, output: Path, *words: object) -> dict[str, Any]:
    """The overlay that a program of the Makefile writes."""
    monkeypatch.setattr(sys, "argv", ["program", *map(str, words), "--output", str(output)])
    program.main()
    return read_config([output])


def test_local_files_take_the_place_of_the_hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, output = tmp_path / "bench", tmp_path / "overlay.yaml"
    bench.mkdir()
    for name in ("mawps_asdiv_train.jsonl", "svamp_test.jsonl"):
        (bench / name).write_text(json.dumps(ROWS[0]) + "\n")
    words = ("--model", "some/model", "--bench", bench)
    with pytest.raises(SystemExit, match="gsm8k_test.jsonl.gz: not found"):
        written(monkeypatch, pretrained, output, *words)
    with gzip.open(bench / "gsm8k_test.jsonl.gz", "wt") as file:
        file.write(json.dumps(ROWS[0]) + "\n")
    written(monkeypatch, pretrained, output, *words)
    graph = Graph(Config(read_config([ROOT / "configs/pretrained.yaml", output])))
    sources = [
        source for node in graph.nodes.values() for _, source in node.inputs if isinstance(source, str)
    ]
    assert not [source for source in sources if source.startswith("hub:")] and "some/model" in sources
    asked = {name: graph.nodes[name].section["mode"] for name in graph.names("rl")}
    assert asked == {"rl/grpo-words-0": "cot"} | {f"rl/grpo-programs-{seed}": "pal" for seed in range(3)}
    for file in ("sft.jsonl", "sft-programs.jsonl"):
        assert ("data", Result("problems", file)) in graph.nodes["sft/instruct"].inputs
    of_hub = written(monkeypatch, pretrained, output, "--model", "some/model")
    assert of_hub == {"models": {"published": {"init": "some/model"}}}
    graph = Graph(Config(read_config([ROOT / "configs/pretrained.yaml", output])))
    assert ("source", "hub:MU-NLPC/Calc-mawps:train") in graph.nodes["problems"].inputs


def test_the_full_run_adds_models_and_changes_none() -> None:
    names = [ROOT / f"configs/{name}.yaml" for name in ("pretrained", "pretrained-full")]
    whole, full = (Graph(Config(read_config(chosen))) for chosen in (names[:1], names))
    assert full.nodes["problems"].section == whole.nodes["problems"].section
    for name in (*whole.names("sft"), *whole.names("rl")):
        assert full.nodes[name] == whole.nodes[name]
    assert len(full.names("rl")) == len(whole.names("rl")) + 5


def test_real_pages_come_with_the_models_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a.warc.gz", "seed_urls.txt", "background_urls.txt", "annotations.tsv")
    names += ("gsm8k_test.jsonl", "math500.jsonl")
    for name in names:
        (tmp_path / name).write_text(json.dumps(ROWS[0]) + "\n")
    models = ["results/pretrained/sft/instruct", "results/pretrained/rl/grpo-0"]
    words = ("--web", tmp_path, "--bench", tmp_path, "--models", *models)
    overlay = written(monkeypatch, real, tmp_path / "overlay.yaml", *words)
    found = {name: (node["stage"], node["init"]) for name, node in overlay["models"].items()}
    assert found == {"instruct": ("sft", f"{models[0]}/data"), "grpo-0": ("rl", f"{models[1]}/data")}


@pytest.mark.pretrained
def test_the_published_model_is_the_one_that_the_index_holds() -> None:
    listed = dict(line.split()[::-1] for line in (PUBLISHED / "SHA256SUMS").read_text().splitlines())
    assert {name: digest(PUBLISHED / name) for name in listed} == listed
    assert DIGESTS.items() <= listed.items() and {"LICENSE", "README.md", "generation_config.json"} <= set(
        listed
    )
    config = json.loads((PUBLISHED / "config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "bfloat16"
    tokenizer = load_tokenizer(PUBLISHED)
    digits = [tokenizer.decode([token]) for token in probe_ids(tokenizer, "1234")]
    assert digits == list("1234") and len(probe_ids(tokenizer, "a\n\n4")) == 3
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")


@pytest.mark.pretrained
@pytest.mark.parametrize("model", ALL, indirect=True)
def test_the_sampler_writes_what_transformers_does(model: Path, generator: Any) -> None:
    tokenizer, theirs = load_tokenizer(model), generator.llm.get_tokenizer()
    assert all(probe_ids(theirs, text) == probe_ids(tokenizer, text) for text in [*TEXTS, *QUESTIONS])
    asked = prompts(tokenizer)
    found = generator.generate(asked, temperature=0.0, max_tokens=40)
    assert [sample.token_ids for (sample,) in found] == greedy(model, asked, 40)


@pytest.mark.pretrained
@pytest.mark.parametrize("model", ["published"], indirect=True)
def test_answers_end_with_the_stop_token(model: Path, generator: Any) -> None:
    tokenizer = load_tokenizer(model)
    ((sample,),) = generator.generate(prompts(tokenizer)[2:3], temperature=0.0, max_tokens=64)
    assert sample.finish_reason == "stop" and sample.token_ids[-1] == tokenizer.eos_token_id
    assert "Paris" in tokenizer.decode(sample.token_ids)


STEPS = {
    "sft": {"steps": 1, "batch": 2, "context": 160, "precision": "mixed", "learning_rate": 1e-4},
    "rl": {
        "steps": 1,
        "questions_per_step": 2,
        "group_size": 4,
        "max_tokens": 16,
        "kl_coefficient": 0,
        "precision": "fp32",
        "learning_rate": 1e-5,
    },
}


@pytest.mark.pretrained
@pytest.mark.parametrize("stage", STEPS)
@pytest.mark.parametrize("model", ALL, indirect=True)
def test_a_trained_model_is_a_hub_folder_for_transformers_and_the_sampler(
    model: Path, stage: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    rows, reward = tmp_path / "rows.jsonl", tmp_path / "reward.py"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    reward.write_text(REWARD)
    config, inputs = dict(STEPS[stage]), {"init": model, "data" if stage == "sft" else "prompts": rows}
    if stage == "rl":
        config["rewards"] = {"functions": {f"{reward}:length": 1.0}}
        inputs["reward"] = reward
    finished(start(stage, tmp_path / "run", config, {"zero_stage": 1, "micro_batch": 2}, inputs))
    result, weights = tmp_path / "run/data", {}
    for file in model.glob("*.safetensors"):
        weights |= load_file(file)
    trained = {
        name: value for file in result.glob("*.safetensors") for name, value in load_file(file).items()
    }
    assert trained.keys() == weights.keys()
    assert any(not torch.equal(trained[name].float(), weights[name].float()) for name in weights)
    ours, before = load_tokenizer(result), load_tokenizer(model)
    assert all(probe_ids(ours, text) == probe_ids(before, text) for text in [*TEXTS, *QUESTIONS])
    ends = json.loads((result / "generation_config.json").read_text())["eos_token_id"]
    assert before.eos_token_id in (ends if isinstance(ends, list) else [ends])
    asked = prompts(ours)[:3]
    with open_generator(result) as engine:
        found = engine.generate(asked, temperature=0.0, max_tokens=12)
    assert [sample.token_ids for (sample,) in found] == greedy(result, asked, 12)
