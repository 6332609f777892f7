"""Tokenizers of published models are read as they are: no class of transformers or vLLM changes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from given.tokenizers import BOS, EOS, TEXTS, save_deepseek_tokenizer
from transformers import AutoTokenizer

from pipeline.core.errors import InputError, Passing
from pipeline.training.asking import message_tokens
from pipeline.training.folder import model_config
from pipeline.training.tokenizer import load_tokenizer, probe_ids
from tests.tiny_model import save_tiny_model


def test_a_byte_level_tokenizer_that_names_a_llama_class_keeps_spaces(tmp_path: Path) -> None:
    saved = save_deepseek_tokenizer(tmp_path)
    loaded = load_tokenizer(tmp_path)
    for text in TEXTS:
        assert probe_ids(loaded, text) == saved.encode(text, add_special_tokens=False).ids
        assert loaded.decode(probe_ids(loaded, text)) == text
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == (BOS, EOS, EOS)
    loaded.save_pretrained(tmp_path / "exported")
    assert probe_ids(AutoTokenizer.from_pretrained(tmp_path / "exported"), TEXTS[0]) == probe_ids(
        loaded, TEXTS[0]
    )


TEMPLATES = {
    "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{{ date_string }}: {{ messages[0].content }}": "26 Jul 2024: 1 + 1",
    "{{ strftime_now('%Y') }}{{ messages[0].content }}{% macro day() %}{{ strftime_now('%d') }}{% endmacro %}"
    "{{ day() }}": "20241 + 126",
}
BROKEN = {
    "{{ raise_exception('only tools') }}": "its chat template fails (only tools)",
    "{% if %}": "its chat template fails (Expected an expression",
    "{{ messages[0].content.parts.first }}": "its chat template fails ('str object' has no attribute 'parts'",
    "{{ 1 / 0 }}{{ messages[0].content }}": "its chat template fails (division by zero",
    "no question": "its chat template leaves the question out",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_template_that_asks_the_clock_gets_a_fixed_date(tmp_path: Path, template: str) -> None:
    save_deepseek_tokenizer(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.decode(message_tokens(tokenizer, "1 + 1", "m")) == TEMPLATES[template]


@pytest.mark.parametrize("template", [*BROKEN, {"rag": "{{ messages[0].content }}"}])
def test_a_chat_template_that_fails_is_one_line(tmp_path: Path, template: Any) -> None:
    save_deepseek_tokenizer(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.chat_template = template
    with pytest.raises(InputError) as error:
        message_tokens(tokenizer, "1 + 1", "m")
    words = BROKEN[template] if isinstance(template, str) else "multiple chat templates with no default"
    assert str(error.value).startswith("m: ") and words in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_tokenizer_that_loses_text_is_refused(tmp_path: Path) -> None:
    save_deepseek_tokenizer(tmp_path)
    broken = json.loads((tmp_path / "tokenizer.json").read_text())
    broken["pre_tokenizer"] = {"type": "Whitespace"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(broken))
    with pytest.raises(InputError, match="its tokenizer turns 'Hello world, the answer is here.' into 'H"):
        load_tokenizer(tmp_path)


@pytest.mark.slow
def test_the_sampler_uses_the_same_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.training.engine import start_process_group
    from pipeline.training.generation import Generator

    start_process_group()  # before vLLM starts one that later tests could not train in
    for name in ("RANK", "LOCAL_RANK"):  # which a test that started the group may have taken back
        monkeypatch.setenv(name, "0")
    save_tiny_model(tmp_path, seed=0)
    save_deepseek_tokenizer(tmp_path)
    generator = Generator(tmp_path, dtype="float32", max_model_len=64, max_sequences=4)
    ours = load_tokenizer(tmp_path)
    theirs = generator.llm.get_tokenizer()
    generator.close()
    assert all(probe_ids(theirs, text) == probe_ids(ours, text) for text in TEXTS)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("results/gone/sft/instruct/data", "no such folder, and not a hub id"),
        ("owner/not-in-the-cache", "the hub cannot be reached; run `hf download owner/not-in-the-cache`"),
    ],
)
def test_a_model_that_is_not_here_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for load, what in ((load_tokenizer, "tokenizer"), (model_config, "model")):
        with pytest.raises(InputError, match=f"^{source}: no usable {what}: ") as error:
            load(source)
        assert words in str(error.value) and isinstance(error.value, Passing) == ("hub cannot" in words)
