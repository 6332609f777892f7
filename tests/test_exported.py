"""A classifier leaves the run: plain fastText loads it, and it judges as it did in the run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from given.corpora import corpus_of, rows_of, train_classifier, words
from given.texts import write
from huggingface_hub import ModelCard

from pipeline.cli import classify, export
from pipeline.core.data.shards import read_table
from pipeline.corpus.normalise import normalise

TEXTS = ["Let $f(x) = x^2 < 3$; then\nfor (;;) {\n", "Ein Text über ƒ und \\alpha, 数学", ""]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_classifier(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released") / "tellmath"
    export.main([str(trained), "--to", str(folder), "--licence", "odc-by"])
    return folder


def test_the_exported_folder_judges_as_the_iteration_does(
    tmp_path: Path,
    trained: Path,
    exported: Path,
) -> None:
    path = write(tmp_path / "a.jsonl", rows_of(trained.parents[1] / "dedup"))
    classify.main(words(exported, tmp_path / "out", path))
    classify.main(words(trained, tmp_path / "own", path))
    scores, _ = corpus_of(trained)
    assert read_table(tmp_path / "out/scores/a.jsonl.parquet")["score"].to_pylist() == scores
    kept = [(tmp_path / name / "kept/a.jsonl").read_bytes() for name in ("out", "own")]
    assert kept[0] == kept[1] and kept[0]


def test_plain_fasttext_and_the_normaliser_beside_it_need_nothing_of_this_project(
    tmp_path: Path,
    trained: Path,
    exported: Path,
) -> None:
    texts = [*TEXTS, *(row["text"] for row in rows_of(trained.parents[1] / "dedup"))]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    program = """
import json, sys, fasttext
from normalise import normalise
model, texts = fasttext.load_model("classifier.bin"), json.load(open(sys.argv[1]))
made = [normalise(text) for text in texts]
found = [model.predict(text)[0][0] for text in made]
assert not [name for name in sys.modules if name.startswith("pipeline")]
print(json.dumps([made, found]))
"""
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", program, str(tmp_path / "texts.json")]
    done = subprocess.run(command, cwd=exported, env=without, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made, found = json.loads(done.stdout)
    assert made == list(map(normalise, texts))
    scores, _ = corpus_of(trained)
    assert [label == "__label__math" for label in found[len(TEXTS) :]] == [score > 0 for score in scores]


def test_the_card_tells_training_data_curve_cut_and_seed(trained: Path, exported: Path) -> None:
    card = ModelCard.load(exported / "README.md")
    notes = json.loads((exported / "train.json").read_text())
    metrics = json.loads((trained / "select/data/metrics.json").read_text())
    assert card.data.license == "odc-by" and card.data.library_name == "fasttext"
    assert f"{notes['positives']} mathematical pages and {notes['negatives']} others" in card.text
    assert "- seed urls: seed.txt" in card.text and "- background urls: background.txt" in card.text
    assert f"from a score of {metrics['threshold']:.4f} on" in card.text
    assert "seed 0 (of fastText" in card.text
    recall, precision = notes["held_out"]["curve"][-1]
    assert f"| {100 * recall:.1f} | {100 * precision:.1f} |" in card.text
    assert str(trained.parents[1]) not in card.content


def test_an_iteration_that_copies_another_is_refused_and_a_folder_that_exists_is_left_alone(
    tmp_path: Path,
    trained: Path,
    exported: Path,
) -> None:
    copy = shutil.copytree(trained, tmp_path / "iteration-3")
    metrics = copy / "select/data/metrics.json"
    metrics.write_text(json.dumps(json.loads(metrics.read_text()) | {"passed_through": True}))
    with pytest.raises(SystemExit, match="iteration-3: a copy of the iteration before it; name the last one"):
        export.main([str(copy), "--to", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()
    before = (exported / "README.md").read_bytes()
    with pytest.raises(SystemExit, match="name a folder that does not"):
        export.main([str(trained), "--to", str(exported)])
    assert (exported / "README.md").read_bytes() == before
