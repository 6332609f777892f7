"""The vLLM engine against transformers on the same weights, on a tiny random Llama model (CPU, fp32)."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from socket import create_connection
from threading import Thread

import pytest
import torch
from browser import browser

from pipeline.cli.chat.model import Asked, Chat
from pipeline.cli.chat.page import Server
from pipeline.config.evaluate import EvaluateSection
from pipeline.core.errors import InputError
from pipeline.core.manifest import SCHEMA
from pipeline.training.model import load_model
from tests.tiny_model import log_probs, save_tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"), seed=0)


@pytest.fixture(scope="module")
def generator(folder: Path):
    from pipeline.training.engine import start_process_group
    from pipeline.training.generation import Generator

    start_process_group()  # before vLLM starts one that later tests could not train in
    engine = Generator(folder, dtype="float32", max_model_len=320, max_sequences=16)
    yield engine
    engine.close()


def prompts(count: int, length: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(length)
    return torch.randint(4, 90, (count, length), generator=random).tolist()


def largest_gap(model, prompt: list[int], sample) -> float:
    expected = log_probs(model, prompt, sample.token_ids)
    return (torch.tensor(sample.logprobs) - expected).abs().max().item()


def test_sampled_log_probabilities_equal_those_of_transformers(generator, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = prompts(3, 250)
    groups = generator.generate(texts, n=4, max_tokens=24, seeds=[0, 10, 20], logprobs=True)
    for prompt, group in zip(texts, groups, strict=True):
        for sample in group:
            assert len(sample.logprobs) == len(sample.token_ids) > 0
            assert largest_gap(model, prompt, sample) <= 5e-5


def test_the_sampler_computes_logits_in_fp32_as_training_does(folder: Path) -> None:
    from pipeline.training.generation import Generator

    engine = Generator(folder, dtype="bfloat16", max_model_len=64)
    config = engine.llm.llm_engine.model_config
    assert (config.dtype, config.head_dtype) == (torch.bfloat16, torch.float32)
    engine.close()


def test_a_sample_depends_on_its_prompt_and_seed_alone(generator) -> None:
    texts, seeds = prompts(5, 40), [0, 100, 200, 300, 400]
    together = generator.generate(texts, n=3, max_tokens=20, seeds=seeds, logprobs=True)
    reverse = generator.generate(texts[::-1], n=3, max_tokens=20, seeds=seeds[::-1], logprobs=True)[::-1]
    alone = [
        generator.generate([text], n=3, max_tokens=20, seeds=[seed], logprobs=True)[0]
        for text, seed in zip(texts, seeds, strict=True)
    ]
    assert together == reverse == alone
    assert len({tuple(sample.token_ids) for sample in together[0]}) == 3


def test_after_new_weights_the_samples_come_from_them(generator, tmp_path: Path) -> None:
    """Prompts span several cache blocks, so that stale cached keys and values would change the result."""
    from transformers import AutoModelForCausalLM

    texts = prompts(2, 250)
    generator.generate(texts, max_tokens=4)
    other = AutoModelForCausalLM.from_pretrained(save_tiny_model(tmp_path, seed=1), dtype=torch.float32)
    weights = dict(other.named_parameters()) | {"lm_head.weight": other.lm_head.weight}
    generator.load_weights(((name, value.detach()) for name, value in weights.items()), version=1)
    assert generator.version == 1
    for prompt, (sample,) in zip(
        texts, generator.generate(texts, max_tokens=24, seeds=[1, 2], logprobs=True), strict=True
    ):
        assert largest_gap(other, prompt, sample) <= 5e-5


def test_greedy_samples_are_the_most_likely_tokens_and_stops_hold(generator) -> None:
    (text,) = prompts(1, 30)
    ((sample,),) = generator.generate([text], temperature=0.0, max_tokens=12)
    assert sample.finish_reason == "length" and len(sample.token_ids) == 12
    third = sample.token_ids[2]
    ((stopped,),) = generator.generate([text], temperature=0.0, max_tokens=12, stop_token_ids=[third])
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == sample.token_ids[: sample.token_ids.index(third) + 1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_sleeping_sampler_frees_its_memory_and_samples_the_same_with_the_weights_loaded_again(
    folder: Path,
) -> None:
    from pipeline.training.generation import Generator

    engine = Generator(folder, dtype="bfloat16", max_model_len=256, gpu_memory=0.3, sleep=True)
    texts = prompts(2, 40)
    before = engine.generate(texts, temperature=0.0, max_tokens=8)
    free, _ = torch.cuda.mem_get_info()
    engine.sleep()
    assert torch.cuda.mem_get_info()[0] > free + 2**30
    with pytest.raises(RuntimeError, match="the sampler has no weights"):
        engine.generate(texts, temperature=0.0, max_tokens=8)
    model = load_model(folder, "bf16")
    weights = dict(model.named_parameters()) | {"lm_head.weight": model.lm_head.weight}
    engine.load_weights(((name, value.detach()) for name, value in weights.items()), version=1)
    assert engine.generate(texts, temperature=0.0, max_tokens=8) == before
    engine.close()


def test_weights_that_are_loaded_again_anyway_are_not_kept_while_the_sampler_sleeps(
    generator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked of vLLM, whose CPU build cannot sleep."""
    asked = []
    monkeypatch.setattr(generator.llm, "sleep", lambda level: asked.append(("sleep", level)))
    monkeypatch.setattr(generator.llm, "wake_up", lambda: asked.append("wake"))
    monkeypatch.setattr(generator, "can_sleep", True)
    monkeypatch.setattr(generator, "version", 3)
    for _ in range(2):
        generator.sleep()
    assert asked == [("sleep", 2)] and generator.version == -1
    with pytest.raises(RuntimeError, match="the sampler has no weights"):
        generator.generate(prompts(1, 40), max_tokens=2)
    model = load_model(folder)
    weights = dict(model.named_parameters()) | {"lm_head.weight": model.lm_head.weight}
    generator.load_weights(((name, value.detach()) for name, value in weights.items()), version=4)
    assert asked == [("sleep", 2), "wake"] and generator.version == 4 and not generator.asleep


def test_ranks_that_share_a_sampler_add_up_without_vllms_own_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot open memory of expandable segments, which training asks for, and ends the process."""
    from pipeline.training import generation

    asked = []
    monkeypatch.setattr(generation, "LLM", lambda **options: asked.append(options) or 1 / 0)
    with pytest.raises(InputError, match="vLLM cannot open it .ZeroDivisionError"):
        generation.Generator(folder, dtype="float32", max_model_len=320, tensor_parallel=2)
    assert asked[0]["tensor_parallel_size"] == 2 and asked[0]["disable_custom_all_reduce"]
    assert "expandable_segments:True" in os.environ["PYTORCH_ALLOC_CONF"]


def test_a_machine_without_lscpu_is_told_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.training.generation import Generator

    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(InputError, match="^lscpu: not found; vLLM asks it .*: install util-linux$"):
        Generator(folder, dtype="float32", max_model_len=320)


@pytest.fixture(scope="module")
def chat(generator, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Chat:
    """A chat with the model as one of a run's whose evaluation had settings of its own."""
    run = tmp_path_factory.mktemp("results") / "run"
    for place in ("rl/tiny", "evaluate/tiny"):
        (run / place).mkdir(parents=True)
    (run / "rl/tiny/data").symlink_to(folder)
    section = EvaluateSection(max_tokens=12, suffix={"en": "Go."}, tool_suffix={"en": "Write a program."})
    manifest = {
        "schema": SCHEMA,
        "files": {},
        "stage": "evaluate",
        "instance": "tiny",
        "fingerprint": "0",
        "config": section.model_dump(mode="json"),
    }
    (run / "evaluate/tiny/manifest.json").write_text(json.dumps(manifest))
    talked = Chat(str(run / "rl/tiny/data"))
    talked.sampler.__dict__["engine"] = generator
    return talked


def test_a_chat_puts_questions_as_the_evaluation_did(chat: Chat, generator) -> None:
    tokenizer = chat.model.tokenizer
    for mode, suffix in (("cot", "Go."), ("tool", "Write a program.")):
        prompt = chat.prompt("What is 1 + 1?", mode)
        assert tokenizer.decode(prompt) == f"<s>User: What is 1 + 1?\n{suffix}\n\nAssistant:"
    ((sample,),) = generator.generate([chat.prompt("What is 1 + 1?", "cot")], temperature=0.0, max_tokens=12)
    answer = chat.answer("What is 1 + 1?", Asked())
    assert answer.text == tokenizer.decode(sample.token_ids, skip_special_tokens=True)
    assert (answer.tokens, answer.finish_reason) == (12, "length")
    assert chat.answer("What is 1 + 1?", Asked(temperature=1.0, seed=1)).text != answer.text


def test_the_page_of_a_chat_shows_its_answers_and_refuses_other_sites(chat: Chat, tmp_path: Path) -> None:
    server, seen = Server(chat, 0, Asked("tool", 0.5)), []

    def visit() -> None:
        try:
            # A browser opens connections that it may never use; they must not hold up the others.
            with create_connection(server.server_address), browser(tmp_path) as tab:
                assert b"Chat" in urllib.request.urlopen(server.address, timeout=30).read()
                tab.open(server.address, "document.querySelector('h1').textContent === 'tiny'")
                seen.append(tab.js("[fields.mode.value, fields.temperature.value]"))
                tab.js("fields.mode.value = 'cot'; fields.temperature.value = 0")
                tab.js("document.querySelector('textarea').value = 'What is 1 + 1? <b>'")
                tab.js("document.querySelector('form').requestSubmit()")
                tab.wait("document.querySelector('.answer small')")
                seen.append(tab.js("document.querySelector('.question').textContent"))
                seen.append(tab.js("document.querySelector('.answer').textContent"))
                for address in (
                    server.address.replace("127.0.0.1:", "elsewhere:"),
                    server.address[:-1] + "x/",
                ):
                    request = urllib.request.Request(address.replace("elsewhere", "127.0.0.1"))
                    request.add_header("Host", address.split("/")[2])
                    with pytest.raises(urllib.error.HTTPError) as refused:
                        urllib.request.urlopen(request)
                    seen.append(refused.value.code)
        except BaseException as error:  # told below, in the thread of the test
            seen.append(error)
        finally:
            server.shutdown()

    visitor = Thread(target=visit)
    visitor.start()
    server.serve_forever()
    visitor.join()
    answer = chat.answer("What is 1 + 1? <b>", Asked())
    ended = "" if answer.finish_reason == "stop" else f" · {answer.finish_reason}"
    if isinstance(seen[-1], BaseException):
        raise seen[-1]
    said = f"{answer.text.strip()}{answer.tokens} tokens{ended}"
    assert seen == [["tool", "0.5"], "What is 1 + 1? <b>", said, 403, 404]


def test_an_engine_that_died_says_so(generator) -> None:
    """Without its scheduler the engine fails as a crashed one does. No later test can use it."""
    from pipeline.training.generation import EngineDied

    generator.llm.llm_engine.engine_core.engine_core.scheduler = None
    with pytest.raises(EngineDied, match="the sampling engine died: AttributeError"):
        generator.generate(prompts(1, 10), max_tokens=4)
