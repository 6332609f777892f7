"""The corpus loop on a pool of a few dozen pages: real fastText, one iteration after another."""

import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from given.corpora import MATH, NEWS, ROOT, command, iterate, lists_of, make_pool, metrics, run
from given.instances import graph_of
from killing import survives_kills, survives_loss_and_kills

from pipeline.core.data.shards import read_table
from pipeline.corpus import classifier
from pipeline.corpus.classifier import ZEROED_MEMORY, PageScorer
from workflow.instances import Instance


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path)


def test_the_loop_finds_the_unseen_host_stops_and_passes_through(tmp_path: Path, pool: Path) -> None:
    first = iterate(tmp_path, pool, 1)
    second = iterate(tmp_path, pool, 2, first)
    third = iterate(tmp_path, pool, 3, second)
    kept = read_table(second[1] / "kept.parquet").to_pylist()
    assert {row["host"] for row in kept} == {"seed.example", "other.example"}
    assert len(kept) == 40
    assert metrics(second[1])["stopped"] and not metrics(second[1])["passed_through"]
    assert metrics(first[1])["seed_growth"] == 0 and metrics(second[1])["overlap_with_previous"] == 1
    assert not metrics(second[1])["converged"], "the same seed finds the same pages"
    assert metrics(second[1])["settings"]["dimension"] == 8 and metrics(third[1])["held_out"]["sources"]
    assert metrics(second[1])["positives"] >= 10
    assert metrics(third[1])["passed_through"] and metrics(third[1])["iteration"] == 3
    assert (third[1] / "kept.parquet").read_bytes() == (second[1] / "kept.parquet").read_bytes()
    assert (third[0] / "scores.parquet").read_bytes() == (second[0] / "scores.parquet").read_bytes()


def test_a_list_whose_urls_are_not_in_the_pool_is_an_error_that_names_the_key(
    tmp_path: Path, pool: Path
) -> None:
    (tmp_path / "seed.txt").write_text("https://nowhere.example/\n")
    with pytest.raises(AssertionError, match="corpus.seed_urls: none of its URLs is a page of the pool"):
        iterate(tmp_path, pool, 1)


def test_pages_that_opted_out_or_that_a_reviewer_rejected_are_never_kept(tmp_path: Path, pool: Path) -> None:
    (tmp_path / "list").write_text("# robots\nother.example\nhttps://seed.example/q/\n")
    (tmp_path / "annotations.tsv").write_text(
        "prefix\tverdict\nother.example\tmath\nnews.example/p\tnot_math\n"
    )
    lists = lists_of(tmp_path)
    trained = run(tmp_path, "train", 1, {"pool": pool} | lists)
    scored = run(tmp_path, "score", 1, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"})
    reviews = {"opt_out": tmp_path / "list", "annotations": tmp_path / "annotations.tsv"}
    inputs = {"train": trained, "score": scored, "pool": pool} | reviews | lists
    selected = run(tmp_path, "select", 1, inputs, threshold=-1e9, reviewed="all")
    excluded = read_table(selected / "excluded.parquet").to_pylist()
    assert {(row["reason"], row["url"].split("/")[2]) for row in excluded} == {
        ("opt_out", "other.example"),
        ("opt_out", "seed.example"),
        ("not_math", "news.example"),
    }
    found = metrics(selected)
    assert found["excluded_pages"] == {"not_math": 30, "opt_out": 30}
    kept = read_table(selected / "kept.parquet")["url"].to_pylist()
    assert len(kept) == found["kept_pages"] == 40
    assert {url.rsplit("/", 1)[0] for url in kept} == {"https://seed.example/p", "https://news.example/q"}
    domains = {domain["domain"]: (domain["pages"], domain["kept"]) for domain in found["domains"]}
    assert domains == {"seed.example": (10, 10), "news.example": (30, 30)}


def test_a_new_round_of_review_teaches_the_next_classifier_even_after_convergence(
    tmp_path: Path, pool: Path
) -> None:
    rounds = [tmp_path / "1.tsv", tmp_path / "2.tsv"]
    rounds[0].write_text("prefix\tverdict\n")
    verdicts = {"other.example/q": "math", "news.example/p": "not_math", "seed.example/q/9": "not_math"}
    rounds[1].write_text("prefix\tverdict\n" + "".join(f"{key}\t{word}\n" for key, word in verdicts.items()))
    lists = lists_of(tmp_path)
    trained = run(tmp_path, "train", 1, {"pool": pool} | lists)
    scored = run(tmp_path, "score", 1, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"})
    inputs = {"train": trained, "score": scored, "pool": pool, "annotations": rounds[0]} | lists
    selected = run(tmp_path, "select", 1, inputs)
    assert metrics(selected)["seed_growth"] == 0
    (selected.parent / "manifest.json").unlink()
    (selected / "metrics.json").write_text(json.dumps(metrics(selected) | {"stopped": True}))
    before = {"previous": selected, "new_round": rounds[1]}
    inputs = {"pool": pool, "annotations": rounds[1], "previous_score": scored} | lists | before
    trained = run(tmp_path, "train", 2, inputs, reviewed="all")
    notes = json.loads((trained / "train.json").read_text())
    assert notes["new_round"] == {"seed_urls": 10, "not_math_urls": 31} and notes["positives"] == 19
    grown = (trained / "seed_urls.txt").read_text().split()
    assert (
        grown == [*(tmp_path / "seed.txt").read_text().split()[:9], *sorted(grown[9:])] and len(grown) == 19
    )
    scored = run(tmp_path, "score", 2, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"} | before)
    inputs = {"train": trained, "score": scored, "pool": pool, "annotations": rounds[1]} | lists | before
    selected = run(tmp_path, "select", 2, inputs, reviewed="all")
    assert metrics(selected)["seed_pages"] == 19 and metrics(selected)["seed_growth"] == 0
    assert metrics(selected)["stopped"] and metrics(selected)["converged"], "the seed had grown"
    assert (selected / "seed_urls.txt").read_text().split() == grown


def test_a_new_round_of_review_changes_no_instance_before_its_iteration(tmp_path: Path) -> None:
    for name in ("a.warc.gz", "1.tsv", "2.tsv"):
        (tmp_path / name).write_bytes(b"")

    def instances(count: int, rounds: list[str]) -> dict[str, Instance]:
        annotations = [str(tmp_path / name) for name in rounds]
        keys = {"iterations": count, "annotations": annotations}
        return graph_of(crawl={"warc": str(tmp_path / "a.warc.gz")}, corpus=keys).nodes

    before, after = instances(1, ["1.tsv"]), instances(3, ["1.tsv", "2.tsv"])
    first = [name for name in before if name.startswith(("crawl/", "corpus/"))]
    assert len(first) >= 9 and {name: before[name] for name in first} == {name: after[name] for name in first}
    new = {name for name, node in after.items() if "new_round" in dict(node.inputs)}
    assert new == {f"corpus/iteration-2/{part}" for part in ("train", "score-0000", "select")}
    read = [source for key, source in after["corpus/iteration-3/select"].inputs if key == "annotations"]
    assert read == [str(tmp_path / "1.tsv"), str(tmp_path / "2.tsv")]
    assert {"annotations", "previous_score"} <= dict(after["corpus/iteration-2/train"].inputs).keys()
    assert "annotations" not in dict(after["corpus/iteration-3/train"].inputs)


def test_the_tenth_round_of_review_comes_after_the_ninth(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.warc.gz", *(f"{number}.tsv" for number in (1, 2, 9, 10)))]
    for path in paths:
        path.write_bytes(b"")
    keys = {"iterations": 4, "annotations": str(tmp_path / "*.tsv")}
    select = graph_of(crawl={"warc": str(paths[0])}, corpus=keys).nodes["corpus/iteration-4/select"]
    assert [source for role, source in select.inputs if role == "annotations"] == list(map(str, paths[1:]))


def test_what_learns_from_pages_or_makes_a_corpus_knows_who_opted_out(tmp_path: Path) -> None:
    for name in ("a.warc.gz", "list"):
        (tmp_path / name).write_bytes(b"")
    keys = {"opt_out": str(tmp_path / "list"), "blocklists": str(tmp_path / "list")}
    sources = {name: {"data": f"corpus/{name}"} for name in ("formulas", "pool")}
    mixtures = {"all": {"tokenizer": "corpus", "sources": sources}}
    nodes = graph_of(crawl={"warc": str(tmp_path / "a.warc.gz")}, corpus=keys, mixtures=mixtures).nodes
    told = {name for name, node in nodes.items() if keys.items() <= dict(node.inputs).items()}
    loop = {f"corpus/iteration-{number}/{part}" for number in range(1, 5) for part in ("train", "select")}
    assert told == loop | {"corpus/formulas", "decontaminate/pool/clean-0000"}


def test_training_after_much_memory_was_used_has_no_nan_and_the_same_bits(tmp_path: Path) -> None:
    program = """
import hashlib, sys
from pathlib import Path
from pipeline.core.stage import InputError
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import train
from pipeline.corpus.training_set import LabelledPage
words = ["lemma proof field", "goal team match"]
pages = [LabelledPage(f"u{n}", "h", " ".join([words[n % 2]] * (n + 3)), n % 2 == 0) for n in range(40)]
config = CorpusSection(dimension=16, learning_rate=0.5, epochs=5, min_count=1, buckets=20000)
if sys.argv[2] == "used":
    import fasttext
    blocks = [bytearray(b"\\xff" * 60000) for _ in range(200)]
    del blocks
model = train(pages, config, Path(sys.argv[1]))
print(hashlib.sha256(model.get_input_matrix().tobytes()).hexdigest())
"""
    runs = [
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "labelled.txt"), memory],
            cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | ZEROED_MEMORY,
        ).stdout
        for memory in ("fresh", "used")
    ]  # fmt: skip
    assert runs[0] == runs[1] and len(runs[0]) == 65


@pytest.mark.parametrize(
    "settings", [{}, {"word_ngrams": 1, "min_count": 80}, {"subwords": (2, 4), "word_ngrams": 4}]
)
def test_scores_are_the_log_odds_of_fasttext_itself(
    tmp_path: Path, pool: Path, settings: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fasttext

    lists = lists_of(tmp_path)
    trained = run(tmp_path, "train", 1, {"pool": pool} | lists, folds=0, **settings)
    model = fasttext.load_model(str(trained / "classifier.bin"))
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices([*MATH, *NEWS, "unseen", "\\frac", "数", "naïve"], k=40)) for _ in range(50)
    ]
    texts += ["", "unseen", "数 新", "x " * 500, "goal"]
    vectors = np.array([model.get_sentence_vector(text) for text in texts], np.float64)
    labels = dict(zip(model.get_labels(), model.get_output_matrix(), strict=True))
    expected = vectors @ (labels[classifier.MATH] - labels[classifier.OTHER])
    assert np.ptp(expected) > 0.1
    score = PageScorer(model)
    found = [score(text) for text in texts]
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)  # fastText adds up in single precision
    monkeypatch.setattr(classifier, "MOST_WORDS", 3)  # words are forgotten and looked up again
    again = PageScorer(model)
    assert [again(text) for text in reversed(texts)] == found[::-1]


def test_a_killed_run_leaves_nothing_half_made_and_is_repeated_to_the_byte(
    tmp_path: Path, pool: Path
) -> None:
    lists, work, out = lists_of(tmp_path), tmp_path / "killed-work", tmp_path / "out"
    moments = ["fold-*.txt", "partial/.held_out.parquet.*.partial", "labelled.txt", "partial/classifier.bin"]
    survives_kills(command("train", 1, {"pool": pool} | lists, work, out, {}), out, work, moments)
    inputs = {"train": out / "data", "shard": pool / "pool/0000.jsonl.zst"}
    scored = run(tmp_path, "score", 1, inputs)
    (scored.parent / "manifest.json").unlink()
    survives_loss_and_kills(partial(run, tmp_path, "score", 1, inputs), scored, numbers=(1, 2))
    inputs = {"train": out / "data", "score": scored, "pool": pool} | lists
    inputs["annotations"] = tmp_path / "annotations.tsv"
    selected = run(tmp_path, "select", 1, inputs)
    (selected.parent / "manifest.json").unlink()
    survives_loss_and_kills(partial(run, tmp_path, "select", 1, inputs), selected)
