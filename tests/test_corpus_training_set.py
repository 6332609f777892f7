"""The pages that a classifier learns from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from given.instances import Given, open_stage
from given.lines import write_lines
from test_corpus import pool  # noqa: F401  (a fixture)

from pipeline.config.corpus import CorpusSection, SecondStage
from pipeline.corpus import training_set
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.train import look_up_lists
from pipeline.corpus.training_set import (
    PURPOSE,
    TRAINING,
    LabelledPage,
    Wanted,
    example_texts,
    graded_pages,
    pages_of_pool,
)
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl.filter import DUPLICATES
from pipeline.data.shards import DocumentWriter, read_documents, tables, write_table
from pipeline.protocol.stage import Stage

CONFIG = CorpusSection(positives=20, negatives=12, second_stage=SecondStage(enabled=True))
INSTANCE = "iteration-2/train"


@pytest.fixture
def inputs(tmp_path: Path, pool: Path) -> Given:  # noqa: F811
    """Seed pages, of which one is named by a copy's URL, texts, grades, and a selection whose pages are no
    negatives. The negatives are a sample of the pool.
    """
    copies = {  # of two rows for one page the first by URL counts
        "https://www.copy.example/1/": "https://seed.example/q/13",
        "http://copy.example/1": "https://seed.example/q/11",
        "http://copy.example/2": "https://news.example/p/80",
        "http://copy.example/3": "https://news.example/p/82",
    }
    rows = [{"url": url, "duplicate_of_url": stays, "kind": "near"} for url, stays in copies.items()]
    write_table(
        pool / "duplicates.parquet", (dict.fromkeys(DUPLICATES.names) | row for row in rows), DUPLICATES
    )
    previous = tmp_path / "select"
    shards = [f"{number:04d}.jsonl.zst" for number in range(2)]  # in one part and in two it is another
    urls = [f"https://news.example/p/{number}" for number in range(40, 60, 2)]
    rows = (dict.fromkeys(KEPT.names) | {"url": url, "shard": shard} for shard in shards for url in urls)
    write_table(previous / "kept.parquet", rows, KEPT)
    (previous / "metrics.json").write_text(json.dumps({"stopped": False, "seed_pages": 10}))
    seed = [f"https://seed.example/p/{number}" for number in range(0, 20, 2)]
    (previous / "seed_urls.txt").write_text("\n".join([*seed, "https://copy.example/1"]))
    (previous / "not_math_urls.txt").write_text("https://news.example/q/71\n")
    rows = {
        "texts": [{"text": "Let G be a group.", "url": "https://news.example/q/73"}, {"text": "A lemma."}],
        "grades": [{"url": f"https://other.example/q/{number}", "grade": number} for number in range(21, 35)],
    }
    texts, grades = (write_lines(tmp_path / f"{name}.jsonl", some) for name, some in rows.items())
    given = {"pool": pool, "previous": previous, "seed_texts": texts}
    return given | {"grades": grades}


def learnt(stage: Stage[CorpusSection]) -> dict[str, list[LabelledPage]]:
    """The pages for each purpose, as `train` gets them, with their texts."""
    survivors, _ = look_up_lists(stage)
    texts = example_texts(stage.inputs, stage.config)
    asked = training_set.wanted_pages(stage, survivors, texts, stage.partial)
    found = {
        TRAINING: training_set.training_pages(stage, asked, texts),
        PURPOSE: graded_pages(stage),
    }
    return {name: [replace(page, content=page.text) for page in pages] for name, pages in found.items()}


@pytest.mark.slow
def test_pages_are_chosen_by_lists_copies_and_hashes_whatever_shards_and_threads(
    tmp_path: Path,
    pool: Path,  # noqa: F811
    inputs: Given,
) -> None:
    one = learnt(open_stage(tmp_path / "one", CONFIG, inputs, INSTANCE))
    urls = [page.url for page in one[TRAINING]]
    assert sum(page.math for page in one[TRAINING]) == 13 and len(set(urls)) == len(urls) == 25
    assert "https://seed.example/q/11" in urls, "which a copy of it names"
    assert "https://news.example/p/40" not in urls, "which the selection keeps"
    assert len(one[PURPOSE]) == 7
    pages = list(read_documents(pool / "pool/0000.jsonl.zst"))
    for number, some in enumerate((pages[:30], pages[30:])):
        with DocumentWriter(pool / f"pool/{number:04d}.jsonl.zst") as writer:
            for page in some:
                writer.write(page)
    assert learnt(open_stage(tmp_path / "two", CONFIG, inputs, INSTANCE, threads=2)) == one


@pytest.mark.slow
def test_pages_that_opted_out_teach_in_no_way(tmp_path: Path, inputs: Given) -> None:
    names = ("seed.example/q", "other.example/q/21", "news.example/q/73", "a.org")
    (tmp_path / "opt_out").write_text("\n".join(names[:3]))
    (tmp_path / "blocked").write_text("a.org\n")
    more = write_lines(tmp_path / "more.jsonl", [{"text": "A ring.", "url": "https://a.org/1", "grade": 50}])
    texts = {name: [inputs[name], more] for name in ("seed_texts", "grades")}

    def taught(name: str, **lists: Path) -> set[str]:
        found = learnt(open_stage(tmp_path / name, CONFIG, {**inputs, **texts, **lists}, INSTANCE))
        urls = {page.url.removeprefix("https://") for part in (TRAINING, PURPOSE) for page in found[part]}
        return {name for name in names if any(url.startswith(name) for url in urls)}

    assert taught("all") == set(names)
    assert not taught("some", opt_out=tmp_path / "opt_out", blocklists=tmp_path / "blocked")


def test_texts_without_urls_are_the_same_wherever_their_files_lie(tmp_path: Path) -> None:
    rows = [{"text": f"lemma {number}", "grade": number} for number in range(30)]
    found = []
    for folder in map(Path, ("one", "two/three")):
        (tmp_path / folder).mkdir(parents=True)
        files = [write_lines(tmp_path / folder / f"{folder.name}{n}.jsonl", rows[n:]) for n in range(2)]
        inputs = {"seed_texts": files, "grades": files}
        stage = open_stage(tmp_path / folder / "work", CONFIG, inputs)
        found.append([example_texts(stage.inputs, CONFIG), graded_pages(stage)])
    assert found[0] == found[1] and {page.host for page in found[0][0]} == {"seed_texts-0", "seed_texts-1"}


def test_a_listed_url_means_the_same_page_however_the_duplicates_are_cut(tmp_path: Path) -> None:
    pairs = [
        ("http://a.org/1", "b"),
        ("https://www.a.org/1/", "c"),
        ("http://a.org/1", "d"),
        ("http://e.org", "f"),
    ]
    rows = [
        dict.fromkeys(DUPLICATES.names) | {"url": url, "duplicate_of_url": f"http://{stays}.org/x"}
        for url, stays in pairs
    ]
    cuts = {"whole/duplicates": rows, "turned/duplicates": rows[::-1]}
    cuts |= {
        "parts/duplicates/0000": rows[2:],
        "parts/duplicates/0001": rows[:2],
        "parts/duplicates/0002": [],
    }
    for name, some in cuts.items():
        write_table(tmp_path / f"{name}.parquet", some, DUPLICATES)
    for name in ("whole", "turned", "parts"):
        survivors = Survivors(tables(tmp_path / name, "duplicates"), tmp_path / "work", {})
        assert survivors.keys(["http://a.org/1?utm_source=x", "http://g.org"]) == {"b.org/x", "g.org"}, name
        assert list(survivors.found) == ["a.org/1"]


def test_a_sample_of_the_pool_is_the_same_where_only_pages_with_a_low_hash_are_read(
    tmp_path: Path,
    pool: Path,  # noqa: F811
) -> None:
    asked = Wanted({"seed.example/p/0", "other.example/q/21"}, set(), everything=True, most=(5, 500))
    stage = open_stage(tmp_path / "sample", CONFIG, {"pool": pool}, INSTANCE)
    whole, part = (pages_of_pool(stage, f"{below}", replace(asked, below=below)) for below in (1.0, 0.3))
    assert [(page.url, page.text, page.math) for page in whole] == [
        (page.url, page.text, page.math) for page in part
    ]
    assert sum(page.math for page in whole) == 2 and len(whole) == 7 and len(whole[0].text.split()) == 60
    read = [(stage.work / "texts" / below / "0000.jsonl.zst").stat().st_size for below in ("1.0", "0.3")]
    assert read[1] < read[0] / 2
