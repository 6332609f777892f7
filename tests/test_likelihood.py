"""Bits per byte of documents: what the model itself says; one line for what is no document."""

import json
import math
from pathlib import Path

import pytest
from given.instances import graph_of, open_stage
from given.lines import read_lines, write_lines
from tiny_model import log_probs, save_tiny_model

from pipeline.config.likelihood import FILE, LikelihoodSection
from pipeline.likelihood import load_documents, predict, run
from pipeline.protocol.stage import InputError
from pipeline.training.model import load_model
from pipeline.training.tokenizer import load_tokenizer, probe_ids

TEXTS = {"sum": "3 + 4 = 7", "word": "A proof.", "chinese": "一加二等于三。"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("likelihood") / "model", seed=3)


def test_a_document_costs_what_the_model_says_behind_bos_and_its_end_costs_nothing(
    model: Path, tmp_path: Path
) -> None:
    write_lines(tmp_path / "rows.jsonl", [{"id": name, "text": text} for name, text in TEXTS.items()])
    inputs = {"model": model, "documents": tmp_path / "rows.jsonl"}
    stage = open_stage(tmp_path / "work", LikelihoodSection(), inputs, threads=1)
    counts, found = run(stage), read_lines(stage.partial / FILE)
    tokenizer, plain = load_tokenizer(model), load_model(model)
    for row, (name, text) in zip(found, TEXTS.items(), strict=True):
        ids = probe_ids(tokenizer, text)
        expected = -float(log_probs(plain, [tokenizer.bos_token_id], ids).sum()) / math.log(2)
        assert (row["id"], row["bytes"], row["tokens"]) == (name, len(text.encode()), len(ids))
        assert row["bits"] == pytest.approx(expected, rel=1e-5)
    per_byte = sum(row["bits"] for row in found) / sum(row["bytes"] for row in found)
    assert counts["documents"] == 3 and counts["bits_per_byte"] == pytest.approx(per_byte, abs=1e-4)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "rows.jsonl: no documents"),
        ([{"id": "a"}], "line 1: a document needs an `id` and a `text`"),
        ([{"id": 3, "text": "x"}], "line 1: a document needs"),
        ([{"id": "a", "text": " "}], "line 1: a document needs"),
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "line 2: `id` 'a' stands twice"),
        ([{"id": "a", "text": "x" * 513}], "line 1: 513 tokens; .* was made for 512"),
    ],
)
def test_what_is_no_document_is_refused_with_its_place(
    model: Path, tmp_path: Path, rows: list[dict], words: str
) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=words):
        list(predict(str(model), load_documents([str(tmp_path / "rows.jsonl")])))


def test_every_model_that_writes_text_predicts_the_documents_where_there_are_any(tmp_path: Path) -> None:
    write_lines(tmp_path / "rows.jsonl", [{"id": "a", "text": "x"}])
    data = str(tmp_path / "rows.jsonl")
    init = {"init": "owner/model", "benchmarks": []}
    models = {
        "published": {"stage": "cpt", "train": False} | init,
        "tuned": {"stage": "sft", "parent": "published", "benchmarks": [], "data": data},
        "judge": {
            "stage": "reward",
            "parent": "published",
            "policy": "tuned",
            "questions": 2,
            "prompts": data,
        },
    }
    names = graph_of(models=models, likelihood={"documents": data}).names("likelihood")
    assert names == ["likelihood/published", "likelihood/tuned"]
    assert graph_of(models=models).names("likelihood") == []
