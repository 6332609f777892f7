"""The pages that a classifier learns from."""

import json
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from given.corpora import make_pool
from given.instances import Given, graph_of, open_stage
from given.lines import write_lines

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.shards import DocumentWriter, read_documents, tables, write_table
from pipeline.core.errors import InputError
from pipeline.core.manifest import SCHEMA
from pipeline.core.stage import Stage
from pipeline.corpus import training_set
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.held_out import least_like_seed
from pipeline.corpus.normalise import normalise
from pipeline.corpus.train import look_up_lists
from pipeline.corpus.training_set import (
    LabelledPage,
    Wanted,
    example_texts,
    like_a_page,
    pages_of_pool,
)
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl.filter import DUPLICATES

CONFIG = CorpusSection(positives=20, negatives=12)
INSTANCE = "iteration-2/train"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    return make_pool(tmp_path)


@pytest.fixture
def inputs(tmp_path: Path, pool: Path) -> Given:
    """Seed pages, of which one is named by a copy's URL, texts, and a selection whose pages are no
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
    rows = [{"text": "Let G be a group.", "url": "https://news.example/q/73"}, {"text": "A lemma."}]
    return {
        "pool": pool,
        "previous": previous,
        "seed_texts": write_lines(tmp_path / "texts.jsonl", rows),
    }


def learnt(stage: Stage[CorpusSection]) -> list[LabelledPage]:
    """The pages as `train` gets them, with their texts."""
    survivors, _ = look_up_lists(stage)
    texts = example_texts(stage.inputs, stage.config)
    wanted = training_set.wanted_pages(stage, survivors, texts, stage.partial)
    pages = training_set.training_pages(stage, wanted, texts)
    return [replace(page, content=page.text) for page in pages]


@pytest.mark.slow
def test_pages_are_chosen_by_lists_copies_and_hashes_whatever_shards_and_threads(
    tmp_path: Path,
    pool: Path,
    inputs: Given,
) -> None:
    one = learnt(open_stage(tmp_path / "one", CONFIG, inputs, INSTANCE))
    urls = [page.url for page in one]
    assert sum(page.math for page in one) == 13 and len(set(urls)) == len(urls) == 37
    assert "https://seed.example/q/11" in urls, "which a copy of it names"
    assert "https://news.example/p/40" not in urls, "which the selection keeps"
    pages = list(read_documents(pool / "pool/0000.jsonl.zst"))
    for number, some in enumerate((pages[:30], pages[30:])):
        with DocumentWriter(pool / f"pool/{number:04d}.jsonl.zst") as writer:
            for page in some:
                writer.write(page)
    assert learnt(open_stage(tmp_path / "two", CONFIG, inputs, INSTANCE, threads=2)) == one


@pytest.mark.slow
def test_pages_that_opted_out_teach_in_no_way(tmp_path: Path, inputs: Given) -> None:
    names = ("seed.example/q", "news.example/q/73", "a.org")
    (tmp_path / "opt_out").write_text("\n".join(names[:2]))
    (tmp_path / "blocked").write_text("a.org\n")
    more = write_lines(tmp_path / "more.jsonl", [{"text": "A ring.", "url": "https://a.org/1"}])
    texts = {"seed_texts": [inputs["seed_texts"], more]}

    def taught(name: str, **lists: Path) -> set[str]:
        pages = learnt(open_stage(tmp_path / name, CONFIG, {**inputs, **texts, **lists}, INSTANCE))
        urls = {page.url.removeprefix("https://") for page in pages}
        return {name for name in names if any(url.startswith(name) for url in urls)}

    assert taught("all") == set(names)
    assert not taught("some", opt_out=tmp_path / "opt_out", blocklists=tmp_path / "blocked")


def test_texts_without_urls_are_the_same_wherever_their_files_lie(tmp_path: Path) -> None:
    rows = [{"text": f"lemma {number}"} for number in range(30)]
    found = []
    for folder in map(Path, ("one", "two/three")):
        (tmp_path / folder).mkdir(parents=True)
        files = [write_lines(tmp_path / folder / f"{folder.name}{n}.jsonl", rows[n:]) for n in range(2)]
        found.append(example_texts({"seed_texts": list(map(str, files))}, CONFIG))
    assert found[0] == found[1] and {page.host for page in found[0]} == {"seed_texts-0", "seed_texts-1"}


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
    pool: Path,
) -> None:
    wanted = Wanted({"seed.example/p/0", "other.example/q/21"}, set(), (5, 500), everything=True)
    stages = [open_stage(tmp_path / name, CONFIG, {"pool": pool}, INSTANCE) for name in ("whole", "part")]
    samples = zip(stages, (1.0, 0.3), strict=True)
    whole, part = (pages_of_pool(stage, replace(wanted, below=below)) for stage, below in samples)
    assert [(page.url, page.text, page.math) for page in whole] == [
        (page.url, page.text, page.math) for page in part
    ]
    assert sum(page.math for page in whole) == 2 and len(whole) == 7 and len(whole[0].text.split()) == 60
    read = [(stage.work / "texts/0000.jsonl.zst").stat().st_size for stage in stages]
    assert read[1] < read[0] / 2


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


def test_the_graph_gives_texts_to_training_alone(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"")
    (tmp_path / "seed.jsonl").write_text('{"text": "lemma"}\n')
    keys = {"seed_texts": [str(tmp_path / "seed.jsonl"), "hub:open-web-math/open-web-math:train"]}
    sections = {"crawl": {"warc": [str(tmp_path / "a.warc.gz")]}, "corpus": keys | {"iterations": 1}}
    graph = graph_of(**sections)
    given = [source for key, source in graph.nodes["corpus/iteration-1/train"].inputs if key == "seed_texts"]
    assert given == keys["seed_texts"]
    assert "seed_texts" not in dict(graph.nodes["corpus/iteration-1/select"].inputs)


def test_negatives_from_the_pool_are_those_least_like_the_seed_and_no_more_than_it_has(
    tmp_path: Path,
    pool: Path,
) -> None:
    words = "dimension learning_rate word_ngrams min_count epochs buckets subwords".split()  # noqa: SIM905
    config = CorpusSection.model_validate(dict.fromkeys(words, "auto"))
    wanted = Wanted({f"other.example/p/{n}" for n in range(20, 40, 2)}, (), (500, 500), everything=True)
    stage = open_stage(tmp_path / "sample", config, {"pool": pool}, INSTANCE)
    pages = pages_of_pool(stage, wanted)
    assert sum(page.math for page in pages) == 10 and len(pages) == 100
    rejected = {"seed.example/p/0", "news.example/p/40"}
    chosen = least_like_seed(stage, pages, rejected)
    assert [page for page in chosen if page.math] == [page for page in pages if page.math]
    hosts = Counter(page.host for page in chosen if not page.math)
    assert hosts == {"news.example": 11, "seed.example": 1}, "one of either was rejected by a reviewer"


def test_a_small_pool_is_no_background(tmp_path: Path, inputs: Given) -> None:
    for size, message in ((99_999, "a pool of 99,999 pages is no general sample"), (100_000, "")):
        manifest = dict.fromkeys(("stage", "instance", "fingerprint"), "crawl") | {
            "files": {},
            "schema": SCHEMA,
        }
        (inputs["pool"] / "manifest.json").write_text(json.dumps(manifest | {"counts": {"kept": size}}))
        stage = open_stage(tmp_path / str(size), CONFIG, inputs, INSTANCE)
        with pytest.raises(InputError, match=message) if message else nullcontext():
            learnt(stage)
