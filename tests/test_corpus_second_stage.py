"""The second stage of selection, grades, seeds of texts: what they teach, and that nothing else changes."""

import json
import random
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
from given.instances import graph_of, open_stage
from given.lines import write_lines
from safetensors.numpy import save_file
from test_corpus import MATH, NEWS, pool, run  # noqa: F401
from tokenizers import Tokenizer, models, pre_tokenizers

from pipeline.config.corpus import CorpusSection
from pipeline.corpus import second_stage
from pipeline.corpus.features import Embeddings
from pipeline.corpus.normalise import normalise
from pipeline.corpus.training_set import LabelledPage, example_texts, graded_pages, like_a_page
from pipeline.data.shards import read_table
from pipeline.protocol.stage import InputError


@pytest.fixture(scope="module")
def pages() -> list[LabelledPage]:
    rng = random.Random(0)
    return [
        LabelledPage(
            f"u{number}",
            f"h{number % 7}",
            " ".join(rng.choices(MATH if number % 3 else NEWS, k=30)),
            number % 3 > 0,
        )
        for number in range(60)
    ]


@pytest.fixture(scope="module")
def embeddings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model2vec folder in which the words of mathematics, two of them unseen, look alike."""
    folder = tmp_path_factory.mktemp("embeddings")
    words = {word: place for place, word in enumerate(["[UNK]", *MATH, *NEWS, "corollary", "bakery"])}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = np.random.default_rng(0).normal(0, 0.3, (len(words), 4)).astype(np.float32)
    table[:, 0] = [1.0 if word in {*MATH, "corollary"} else -1.0 for word in words]
    save_file({"embeddings": table}, folder / "model.safetensors")
    return folder


def test_the_ridge_is_the_closed_form_of_words_pairs_and_embeddings(
    pages: list[LabelledPage], embeddings: Path
) -> None:
    for model in (None, Embeddings(embeddings)):
        ridge = second_stage.train_ridge(pages, model)
        matrix = np.zeros((len(pages), len(ridge.features)))
        for row, page in zip(matrix, pages, strict=True):
            columns, values = ridge.features.of(page.text)
            row[columns] = values
        assert np.allclose((matrix[:, : len(ridge.features.keys)] ** 2).sum(1), 1)
        labels = np.array([1.0 if page.math else -1.0 for page in pages])
        kernel = matrix @ matrix.T + second_stage.RIDGE_PENALTY * np.eye(len(pages))
        weights = matrix.T @ np.linalg.solve(kernel, labels - labels.mean())
        assert np.allclose(ridge.weights, weights, atol=1e-5)
        assert np.allclose([ridge(page.text) for page in pages], matrix @ weights + labels.mean(), atol=1e-4)
    assert ridge("corollary") > ridge.bias > ridge("bakery")  # words that no page has
    alone = second_stage.train_ridge(pages, None)
    assert alone("corollary") == alone("bakery") == alone.bias


def test_the_blend_is_what_held_out_pages_say_and_neither_score_counts_negatively(
    pages: list[LabelledPage],
) -> None:
    rng = np.random.default_rng(0)
    many = [replace(page) for page in pages * 20]
    truth = np.array([1.0 if page.math else -1.0 for page in many])
    first, second = truth + rng.normal(0, 2, len(many)), truth + rng.normal(0, 1, len(many))
    found = second_stage.blend(many, first, second)
    assert found.second / found.first == pytest.approx(4, rel=0.3)  # the inverse of the noises' variances
    chances = 1 / (1 + np.exp(-(found.bias + found.first * first + found.second * second)))
    assert chances.mean() == pytest.approx((truth > 0).mean(), abs=1e-6)
    assert second_stage.blend(many, -truth + rng.normal(0, 1, len(many)), second).first == 0


def test_a_folder_without_a_model_is_one_line(tmp_path: Path, embeddings: Path) -> None:
    with pytest.raises(InputError, match="no model of static embeddings"):
        Embeddings(tmp_path)
    save_file({"other": np.zeros((2, 2), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").write_bytes((embeddings / "tokenizer.json").read_bytes())
    with pytest.raises(InputError, match="has none of embeddings"):
        Embeddings(tmp_path)


def test_texts_of_another_extractor_look_like_pages_and_as_many_as_wanted_are_drawn(tmp_path: Path) -> None:
    page = "Let $x$ be a root.\n\n$$x^2 + 1 = 0$$\n\nThen"
    for other in (
        r"Let \(x\) be a root. \[x^2 + 1 = 0\] Then",
        r"Let $x$ be a root. \begin{equation}x^2 + 1 = 0\end{equation} Then",
    ):
        assert [
            word for word in like_a_page(other).split() if word not in ("\\begin", "\\end", "equation")
        ] == (normalise(page).split())
    rows = [{"text": f"lemma {number}", "url": f"https://h{number}.example/"} for number in range(50)]
    inputs = {"seed_texts": [str(write_lines(tmp_path / "seed.jsonl", [*rows, {"text": "no url"}]))]}
    few, all_ = (example_texts(inputs, CorpusSection(positives=count)) for count in (20, 99))
    assert len(few) == 20 and len(all_) == 51 and {page.url for page in few} < {page.url for page in all_}
    assert all(page.math for page in few)
    (one, *_) = example_texts({"background_texts": inputs["seed_texts"]}, CorpusSection())
    assert not one.math
    (tmp_path / "bad.jsonl").write_text('{"body": "no text"}\n')
    with pytest.raises(InputError, match="bad.jsonl: line 1: corpus.background_texts needs rows with `text`"):
        example_texts({"background_texts": [str(tmp_path / "bad.jsonl")]}, CorpusSection())


def test_the_second_stage_learns_grades_and_none_of_a_held_out_host(
    tmp_path: Path,
    pool: Path,  # noqa: F811
) -> None:
    text = " ".join(MATH[:6] + NEWS[:6])
    rows = [{"url": f"http://other.example/p/{n}", "grade": 5} for n in range(20, 40, 2)]
    rows += [{"url": f"https://news.example/p/{n}#top", "grade": 1.0} for n in range(40, 60, 2)]
    rows += [{"text": text, "grade": 3, "other": 0}, {"url": "https://gone.example/", "grade": 9}]

    def graded(rows: list[dict]) -> list[LabelledPage]:
        inputs = {"pool": pool, "grades": write_lines(tmp_path / "grades.jsonl", rows)}
        work = Path(mkdtemp(dir=tmp_path))
        return graded_pages(open_stage(work, CorpusSection(), inputs))

    found = graded(rows[1:])
    grades = {page.url: page.grade for page in found}
    assert grades.pop("https://other.example/p/22") == 1 and grades.pop("https://news.example/p/40") == -1
    assert sorted(grades.values()) == [-1] * 9 + [0] + [1] * 8
    ridge = second_stage.train_ridge(found, None)
    assert ridge.bias == pytest.approx(-1 / 20) and ridge(" ".join(MATH)) > 0.5 > -0.5 > ridge(" ".join(NEWS))
    pages = [LabelledPage(f"https://{host}.example/1", "", text, True) for host in ("other", "www.elsewhere")]
    held_out, whole = second_stage.cross_validated(pages, [0, 1], None, found)
    without = [page for page in found if page.host != "other.example"]
    assert len(without) == 11 and whole == ridge(text)
    assert held_out == second_stage.train_ridge(without, None)(text) != whole
    with pytest.raises(InputError, match="grade pages of more hosts"):
        second_stage.cross_validated(pages, [0, 1], None, found[1:9])
    for bad in ({"grade": "5", "text": "a"}, {"grade": True, "text": "a"}, {"grade": 2}, {"text": "a"}):
        with pytest.raises(InputError, match="grades.jsonl: line 1: .* needs rows with a number as `grade`"):
            graded([bad])
    with pytest.raises(InputError, match="1 pages found, all of one grade"):
        graded(rows[:1])


@pytest.mark.slow
def test_two_stages_on_a_seed_of_texts_find_the_mathematics_of_the_pool(
    tmp_path: Path,
    pool: Path,  # noqa: F811
    embeddings: Path,
) -> None:
    rng = random.Random(2)
    rows = [{"text": " ".join(rng.choices(MATH, k=60)), "url": f"https://web{n}.example/"} for n in range(20)]
    rows[0]["url"] = "https://news.example/p/40"  # a page of the pool: never a negative
    write_lines(tmp_path / "seed.jsonl", rows)
    keys = {"second_stage": {"enabled": True, "reach": 0.0}, "negatives": 30}
    model = {"embeddings": embeddings}
    trained = run(tmp_path, "train", 1, {"pool": pool, "seed_texts": tmp_path / "seed.jsonl"} | model, **keys)
    notes = json.loads((trained / "train.json").read_text())
    assert notes["positives"] == 20 and notes["negatives"] == 30 and notes["features"] > 50
    used = {row["url"]: row["math"] for row in read_table(trained / "trained.parquet").to_pylist()}
    assert len(used) == 50 and used["https://news.example/p/40"]
    scored = run(
        tmp_path, "score", 1, {"train": trained, "shard": pool / "pool/0000.jsonl.zst"} | model, **keys
    )
    table = read_table(scored / "scores.parquet").to_pylist()
    both, first = ({row["url"]: row[name] for row in table} for name in ("score", "first"))
    judged = [url for url in both if first[url] >= 0]
    order = [url for url in sorted(both, key=both.get) if url not in judged]
    assert order == sorted(order, key=first.get) and 0 < len(judged) < len(both)
    selected = run(tmp_path, "select", 1, {"train": trained, "score": scored, "pool": pool}, **keys)
    kept = read_table(selected / "kept.parquet").to_pylist()
    assert {row["host"] for row in kept} >= {"seed.example", "other.example"}


def test_the_graph_gives_texts_to_training_and_the_random_seed_is_another_key(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"")
    (tmp_path / "seed.jsonl").write_text('{"text": "lemma"}\n')
    keys = {"seed_texts": [str(tmp_path / "seed.jsonl"), "hub:open-web-math/open-web-math:train"], "seed": 7}
    keys["second_stage"] = {"enabled": True, "grades": "hub:someone/grades:train"}
    sections = {"crawl": {"warc": [str(tmp_path / "a.warc.gz")]}, "corpus": keys | {"iterations": 1}}
    graph = graph_of(**sections)
    given = [source for key, source in graph.nodes["corpus/iteration-1/train"].inputs if key == "seed_texts"]
    assert given == keys["seed_texts"] and graph.nodes["corpus/iteration-1/train"].section["seed"] == 7
    assert "seed_texts" not in dict(graph.nodes["corpus/iteration-1/select"].inputs)
    named = [
        name for name, node in graph.nodes.items() if ("grades", "hub:someone/grades:train") in node.inputs
    ]
    assert named == ["corpus/iteration-1/train"]
