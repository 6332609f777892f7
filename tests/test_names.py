"""Names from a configuration become paths and parts of shell commands: none may leave its place in them."""

import re

import pytest
from conftest import ROOT

from pipeline.config.root import Config, ConfigError
from pipeline.core.errors import InputError

PLACES = {
    "run": lambda name: {"run": name},
    "models": lambda name: {"models": {name: {"stage": "cpt", "init": "scratch"}}},
    "mixtures": lambda name: {"mixtures": {name: {}}},
    "mixtures.m.sources": lambda name: {"mixtures": {"m": {"sources": {name: {"data": "x"}}}}},
    "benchmarks": lambda name: {"benchmarks": {name: {"source": "x.jsonl"}}},
}  # fmt: skip
# Shell code by itself: a launcher of several words from a profile, and commands made by `shlex.join`.
UNQUOTED = {"resources.launcher", "params.words"}  # words that are quoted one by one


@pytest.mark.parametrize(
    ("place", "name"),
    [
        *((place, "a;touch X;") for place in PLACES),
        ("run", "../x"),
        ("run", "a b"),
        ("run", ""),
        ("run", "-x"),
    ],
)
def test_a_name_that_is_more_than_a_name_is_refused_in_one_line(place: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"config key {re.escape(place)}") as error:
        Config(PLACES[place](name))
    assert "\n" not in str(error.value)


def test_ordinary_names_and_numbers_are_taken() -> None:
    for name in ("2024", "proof-pile-2", "gaokao_mathqa", "qwen2.5-7b", "A", 2024):
        assert Config({"run": name}).run == str(name)


def test_every_value_in_a_shell_command_is_quoted() -> None:
    files = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
    commands = 0
    for path in files:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            if not line.strip().startswith("shell:"):
                continue
            commands += 1
            indent = len(line) - len(line.lstrip())
            inside = [line.partition("shell:")[2]]
            for later in lines[number + 1 :]:
                if later.strip() and len(later) - len(later.lstrip()) <= indent:
                    break
                inside.append(later)
            for value in re.findall(r"\{([^{}]*)\}", "\n".join(inside)):
                assert value.endswith(":q") or value in UNQUOTED, f"{path}: {{{value}}}"
    assert commands > 0


ADDRESS = "https://user:SECRET@host/x.jsonl?signature=SECRET"


def test_a_message_shows_addresses_without_what_may_be_secret():
    for kind in (InputError, ConfigError):
        shown = str(kind(f"{ADDRESS}: gone (from {ADDRESS})"))
        assert shown == "https://host/x.jsonl: gone (from https://host/x.jsonl)"
