"""Fine-tuning's examples: tokenised once, packed, counted or named where they cannot be used."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import save_tiny_model

from pipeline.config.sft import SftSection
from pipeline.core.stage import InputError, Stage
from pipeline.sft import (
    EXAMPLES_PER_BATCH,
    Epochs,
    Examples,
    encode_examples,
    tokenised,
    write_examples,
)
from pipeline.sft import run as run_sft
from pipeline.training.engine import start_process_group
from pipeline.training.packing import IGNORE, best_fit, concatenate
from pipeline.training.tokenizer import load_tokenizer

CONTEXT = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tiny model and 60 examples."""
    folder = tmp_path_factory.mktemp("sft")
    save_tiny_model(folder / "model", seed=1, spread=0.05)
    rows = [[("user", f"{n} + 1"), ("assistant", f"It is {n + 1}")] for n in range(60)]
    write_rows(folder / "sft.jsonl", *rows)
    return folder


def write_rows(path: Path, *examples: list[tuple[str, str]]) -> list[str]:
    rows = [{"messages": [{"role": role, "content": text} for role, text in turns]} for turns in examples]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(path)]


def test_each_batch_of_examples_that_is_tokenised_counts_as_progress(folder, tmp_path, monkeypatch):
    rows = [[("user", f"{n} + 1"), ("assistant", f"{n + 1}")] for n in range(5 * EXAMPLES_PER_BATCH)]
    source, phases = write_rows(tmp_path / "sft.jsonl", *rows), []
    monkeypatch.setattr("pipeline.sft.enter", phases.append)
    tokenizer, section = load_tokenizer(folder / "model"), SftSection(context=CONTEXT, suffix={})
    assert write_examples(tmp_path / "examples", source, tokenizer, section) == len(rows)
    assert phases == ["data"] * 5


def test_each_pass_trains_on_every_example_once_in_its_own_order(folder, tmp_path):
    tokenizer = load_tokenizer(folder / "model")
    section = SftSection(context=CONTEXT, suffix={})
    write_examples(tmp_path / "examples", [str(folder / "sft.jsonl")], tokenizer, section)
    epochs = Epochs(Examples(tmp_path / "examples"), CONTEXT, 0, seed=0)
    epochs.row(0)
    first = list(epochs.rows)
    epochs.row(len(first))
    second = epochs.rows[len(first) :]
    assert epochs.passes == 2 and first[: len(second)] != second
    for rows in (first, second):
        assert sorted(index for row in rows for index in row) == list(range(60))
    row = epochs.row(0)
    shown = tokenizer.decode(row.targets[row.targets != IGNORE])
    assert shown == "".join(f" It is {index + 1}</s>" for index in first[0])


def test_concatenation_fills_rows_and_never_overfills_them():
    lengths = np.random.default_rng(0).integers(1, 60, 3000).tolist()
    rows = concatenate(lengths, 128)
    filled = [sum(lengths[index] for index in row) for row in rows]
    assert max(filled) <= 128 and sum(filled) / (128 * len(rows)) > 0.95


def test_best_fit_leaves_nothing_out_and_fills_rows_at_least_as_well():
    generator = np.random.default_rng(0)
    lengths = np.minimum(generator.lognormal(4.5, 0.8, 5000).astype(int) + 2, 512).tolist()
    packed = {pack.__name__: pack(lengths, 512) for pack in (concatenate, best_fit)}
    for rows in packed.values():
        assert sorted(index for row in rows for index in row) == list(range(5000))
        assert max(sum(lengths[index] for index in row) for row in rows) <= 512
    fewest = -(-sum(lengths) // 512)
    assert len(packed["best_fit"]) <= min(len(packed["concatenate"]), fewest * 1.01)


def test_examples_are_tokenised_once_a_run_and_again_where_the_files_are_damaged(folder, tmp_path, capsys):
    start_process_group()
    inputs, section = {"data": [str(folder / "sft.jsonl")]}, SftSection(context=CONTEXT, suffix={})
    stage = Stage("sft", "x", section, "f", inputs, tmp_path, tmp_path / "out", tmp_path / "m.json", {})
    tokenizer, made = load_tokenizer(folder / "model"), []
    damages = (lambda path: None, lambda path: None, lambda path: os.truncate(path, 100), Path.unlink)
    for damage in damages:
        examples = tokenised(stage, tokenizer)
        made.append(stage.counters["sft.tokenised"])
        assert [len(examples), int(examples[7][1].sum())] == [60, len(" It is 8") + 1]
        damage(tmp_path / "examples/examples.bin")
    tokenised(stage, tokenizer)
    assert [*made, stage.counters["sft.tokenised"]] == [60, 60, 60, 120, 180]
    assert capsys.readouterr().err.count("damaged; the examples are tokenised again") == 2


def test_long_and_broken_examples_are_counted_or_named(folder, tmp_path):
    tokenizer, path = load_tokenizer(folder / "model"), tmp_path / "sft.jsonl"

    def encode(sources: list[str]) -> tuple[list, list[str]]:
        too_long: list[str] = []
        section = SftSection(context=30, suffix={})
        return list(encode_examples(sources, tokenizer, section, too_long)), too_long

    long = write_rows(path, [("user", "x" * 40), ("assistant", "y")])
    assert encode(long) == ([], [f"{path}: line 1: 62 tokens"])
    broken = {
        "line 2: unknown role 'tool'": [("user", "x"), ("tool", "y")],
        "line 2: no assistant message": [("user", "x")],
        "line 2: message 1 is the assistant's": [("assistant", "x")],
    }
    for words, turns in broken.items():
        source = write_rows(path, [("user", "1"), ("assistant", "2")], turns)
        with pytest.raises(InputError, match=words):
            encode(source)
    path.write_text('{"text": "x"}')
    with pytest.raises(InputError, match="line 1: not an example"):
        encode([str(path)])


def test_untrainable_inputs_are_refused_before_training(folder, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    write_rows(tmp_path / "one.jsonl", [("user", "1"), ("assistant", "2")])
    shutil.copytree(folder / "model", tmp_path / "small")
    config = json.loads((tmp_path / "small/config.json").read_text())
    (tmp_path / "small/config.json").write_text(json.dumps(config | {"vocab_size": 50}))
    for model, data, keys, words in (
        (folder / "model", "empty.jsonl", {}, "no example to train on"),
        (folder / "model", "one.jsonl", {"context": 4096}, "was made for 512"),
        (tmp_path / "small", "one.jsonl", {}, "entries, its weights are for 50"),
    ):
        inputs = {"init": [str(model)], "data": [str(tmp_path / data)]}
        section = SftSection(**({"context": CONTEXT, "suffix": {}} | keys))
        work = tmp_path / "work"
        with pytest.raises(InputError, match=words):
            run_sft(Stage("sft", "x", section, "f", inputs, work, work / "out", work / "manifest.json", {}))
