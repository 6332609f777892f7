"""Each example of docs/data.md goes through the reader of the program that it is written for, and those of
docs/evaluation.md give the outputs that the page shows. The reward in CONTRIBUTING.md is valid.
"""

import json
import re
from pathlib import Path
from textwrap import indent
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from conftest import ROOT, WEAK
from crawl_warcs import html, record, write_warc
from given.examples import EXAMPLES
from mathverdict.answers import compare

from pipeline.config.corpus import CorpusSection
from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.rl import RewardWeights
from pipeline.config.root import Config, validated
from pipeline.config.tokens import MixtureNode
from pipeline.core.data.database import database
from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import read_documents, write_table
from pipeline.core.overlays import DEFAULTS, read_config
from pipeline.corpus.candidates import add_blocked
from pipeline.corpus.training_set import example_texts
from pipeline.corpus.url_lists import Survivors
from pipeline.crawl import extract, filter
from pipeline.crawl.annotations import add_annotations, add_prefixes, covered
from pipeline.crawl.index import read_index
from pipeline.crawl.opted_out import read_urls
from pipeline.crawl.sources import expand
from pipeline.decontaminate import pages
from pipeline.evaluate import grade, sandbox
from pipeline.evaluate import score as score_outputs
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import choose_exemplars, few_shot_text, read_layout
from pipeline.examples import problems
from pipeline.examples.problems import solve
from pipeline.report.collect import Run
from pipeline.report.truth import pages_by_scope
from pipeline.tokens.texts import read_texts
from pipeline.training.conversations import READERS, read_messages

PAGE = (ROOT / "docs/data.md").read_text()


@pytest.fixture
def example(tmp_path: Path) -> Any:
    """Write the example of this name to a file; returns its path."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.write_text(EXAMPLES[name])
        return path

    return write


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(str(path))]


def no_duplicates(folder: Path) -> Survivors:
    write_table(folder / "duplicates.parquet", [], filter.DUPLICATES)
    return Survivors([folder / "duplicates.parquet"], folder, {})


def test_word_problems_are_worked_out_as_the_program_says() -> None:
    solution, program, answer = solve("25000 - (1500 * 8)", "13000")
    assert indent(solution, " " * 4) in str(problems.__doc__) and answer == "13000"
    assert program.splitlines()[1] in str(problems.__doc__)
    assert solve("x=( 76.0 - 25.0 )", "51.0")[-1] == "51"


def test_every_example_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert EXAMPLES and all(f'"{name}"' in source for name in EXAMPLES)


def test_fine_tuning_rows(example: Any, tmp_path: Path) -> None:
    from tiny_model import save_tiny_model

    from pipeline.config.sft import SftSection
    from pipeline.sft import encode_examples
    from pipeline.training.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(save_tiny_model(tmp_path / "model", seed=0))
    path = example("sft.jsonl")
    assert {row["format"] for row in rows(path)} == set(SftSection().suffix)
    too_long: list[str] = []
    found = list(encode_examples([str(path)], tokenizer, SftSection(context=4096), too_long))
    assert len(found) == len(rows(path)) and not too_long
    ids, own = found[-1]  # tool: what the program printed is not learnt
    learnt = tokenizer.decode(ids[own])
    assert "print(7 + 8)" in learnt and "```output\nThe answer" in learnt.replace("\n\n", "\n")
    assert "15\n```" not in learnt


def test_rows_of_other_projects(example: Any) -> None:
    found = rows(example("foreign.jsonl"))
    assert len({str(read_messages(row, form)) for row, form in zip(found, READERS, strict=True)}) == 1


def test_bench_format(example: Any) -> None:
    path = example("benchmark.jsonl")
    items = load("sums", BenchmarkNode(source=str(path)), [str(path)])
    assert [item.answer for item in items] == ["15", "B", "AC", "B", "15", "\\frac{3}{4}"]
    assert items[0].labels == {"subject": "sums", "level": 1} and items[4].id == "sums-4"
    assert all(item.solution for item in (items[0], *items[4:]))
    node = validated(BenchmarkNode, yaml.safe_load(example("benchmark.yaml").read_text()), "benchmarks.sums")
    assert load("sums", node, [str(path)])[0] == items[0]


def test_rows_of_code_and_of_proofs(example: Any) -> None:
    path = example("code.jsonl")
    proof = {"question": "Show it.", "solution": "So.", "formal_statement": "theorem", "header": "h"}
    path.write_text(path.read_text() + json.dumps(proof))
    code, proved = load("x", BenchmarkNode(source=str(path)), [str(path)])
    exec(f"{code.start}    return 2 * x\n\n{code.tests}", {})
    assert (proved.formal, proved.header, proved.solution) == ("theorem", "h", "So.")
    assert proved.labels == {"subject": "other"} and code.answer == proved.answer == "-"


def test_prompt_layout_gives_the_prompt_that_is_shown(example: Any) -> None:
    layout = read_layout(example("layout.yaml"))
    shots = choose_exemplars(layout, [], 1, "benchmarks.sums")
    prompt = few_shot_text(layout, shots, Item("sum-1", "What is 7 + 8?", "15"))
    assert prompt + "\n" == EXAMPLES["prompt.txt"]


def test_reward_function(example: Any) -> None:
    from pipeline.rl.rewards import load_function

    path = example("brevity.py")
    function = load_function(f"{path}:brevity")
    assert function(Item("sum-1", "What is 7 + 8?", "15"), "15" * 50) == 0.5
    weights = validated(RewardWeights, yaml.safe_load(example("rewards.yaml").read_text()), "rl.rewards")
    assert list(weights.functions.values()) == [0.2]


def test_mixture(example: Any) -> None:
    node = validated(MixtureNode, yaml.safe_load(example("mixture.yaml").read_text()), "mixtures.math")
    assert node.sources["code"].text == "content"
    texts = list(read_texts(str(example("mixture.jsonl"))))
    assert texts[0].startswith("A document") and texts[1] == "User: What is 7 + 8?\n\nAssistant: 15"


def test_lists_and_indexes_of_warc_files(example: Any) -> None:
    paths = expand([str(example("warc.paths"))], "https://host/")
    assert [path.startswith("https://") for path in paths] == [True, True]
    assert paths[1].startswith("https://host/crawl-data/")
    cdxj, rows = (list(read_index(str(ROOT / "tests/data" / name))) for name in ("index.cdxj", "index.jsonl"))
    assert cdxj == rows != []


def test_the_recipe_of_a_range_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Successful records of the listed hosts, in the form that `crawl.warc` reads."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "url": f"https://www.{host}/",
            "url_host_registered_domain": host,
            "fetch_status": status,
            "content_mime_detected": "text/html",
            "warc_filename": f"crawl-data/{host}.warc.gz",
            "warc_record_offset": status,
            "warc_record_length": 50,
        }
        for host in ("a.org", "b.org")
        for status in (200, 404)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "index.parquet")
    Path("hosts.csv").write_text("host\na.org\n")
    (sql,) = re.findall("^```sql\n(.*?)^```$", (ROOT / "docs/corpus.md").read_text(), re.M | re.S)
    duckdb.execute(re.sub("'s3://.*?'", "'index.parquet'", sql))
    records = [(one.url, one.filename, one.offset, one.length) for one in read_index("ranges.parquet")]
    assert records == [("https://www.a.org/", "crawl-data/a.org.warc.gz", 200, 50)]


def test_texts_instead_of_web_pages(example: Any) -> None:
    section = Config(read_config([DEFAULTS, example("texts.yaml")])).sections["crawl"]
    assert section.texts == ["data/*.parquet"]
    assert section.fields == {"text": "content", "id": "doc_id"}


def test_url_lists(example: Any) -> None:
    assert len(read_urls(example("seed_urls.txt"))) == 2
    assert read_urls(example("opt_out.txt")) == ["example.net", "https://example.org/private/"]


def test_seeds_of_texts_and_blocklists(example: Any, tmp_path: Path) -> None:
    first, second = example_texts({"seed_texts": [str(example("seed.jsonl"))]}, CorpusSection())
    assert {first.host, second.host} >= {"example.org"} and all(
        "\\formula" in page.text for page in (first, second)
    )
    with database(tmp_path / "join", {}) as joins:
        add_prefixes(joins, "none", [])
        joins.execute("CREATE TABLE pages AS SELECT 1 AS id, 'https://www.casino.example/a' AS url")
        add_blocked(joins, [example("blocklist.txt")])
        assert joins.execute("SELECT id FROM blocked").fetchall() == [(1,)]


def verdicts(path: Path, url: str) -> list[tuple[str, str]]:
    """(prefix, verdict) of a URL by an annotation file."""
    with database(path.parent / "join", {}) as joins:
        add_annotations(joins, "annotations", path)
        joins.execute("CREATE TABLE pages AS SELECT 1 AS id, ? AS url", [url])
        found = covered("pages", "annotations")
        return joins.execute(f"SELECT prefix, verdict FROM ({found})").fetchall()


@pytest.mark.slow
def test_annotations_and_the_review_queue(example: Any) -> None:
    page = "https://example.org/algebra/rings.html"
    assert verdicts(example("annotations.tsv"), page) == [("example.org/algebra", "math")]
    queue = example("annotations.tsv")
    queue.write_text(queue.read_text().splitlines()[0] + "\nexample.org/\t\t\t\t12 of 40 pages kept\n")
    assert verdicts(queue, page) == []
    queue.write_text(queue.read_text().replace("\t\t", "\tmath\t", 1))
    assert verdicts(queue, "https://example.org/about") == [("example.org", "math")]


def test_labelled_pages(example: Any) -> None:
    run = Run("mine", {}, {"truth": [example("labels.jsonl")]})
    assert [(page.is_math, len(page.urls)) for page in pages_by_scope(run)["all"]] == [(True, 2), (False, 1)]


def warc(path: Path) -> Path:
    write_warc(path, [record("https://example.org/rings", html("A ring has two operations. " * 9))])
    return path


@pytest.mark.slow
def test_corpus_shard(example: Any, tmp_path: Path) -> None:
    shard = tmp_path / "0000.jsonl.zst"
    shard.write_bytes(zstandard.compress(example("corpus.jsonl").read_bytes()))
    (page,) = read_documents(shard)
    extract.main(["--warc", str(warc(tmp_path / "one.warc.gz")), "--output", str(tmp_path / "out")])
    (written,) = read_documents(tmp_path / "out/pages.jsonl.zst")
    assert page.metadata.keys() == written.metadata.keys() | {"score", "iteration", "tokens"}


def test_columns_of_the_table_of_pages() -> None:
    section = PAGE.split("\n## What became of each page\n")[1].split("\n#")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert [name for cell in cells for name in re.findall(r"`(\w+)`", cell)] == pages.PAGES.names


def test_grading_pairs_gives_the_verdicts_that_are_shown(example: Any, tmp_path: Path) -> None:
    grade.main(["--input", str(example("pairs.jsonl")), "--output", str(tmp_path / "out.jsonl")])
    assert rows(tmp_path / "out.jsonl") == rows(example("verdicts.jsonl"))


def test_the_table_of_verdicts_is_the_graders() -> None:
    table = (ROOT / "docs/evaluation.md").read_text().split("| reference | answer |")[1].split("\n\n")[0]
    lines = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (\w+) \| ([\w ]+)", table, re.MULTILINE)
    found = [(reference, answer, compare(reference, answer)) for reference, answer, *_ in lines]
    assert len(lines) == 10
    assert [(a, b, verdict.verdict, verdict.reason) for a, b, verdict in found] == [
        (a, b, verdict, reason.strip()) for a, b, verdict, reason in lines
    ]


def test_scoring_outputs_gives_the_scores_on_record(example: Any, tmp_path: Path) -> None:
    arguments = ["--benchmark", "mine", "--references", str(example("references.jsonl"))]
    arguments += ["--outputs", str(example("outputs.jsonl")), "--output", str(tmp_path / "out.json")]
    score_outputs.main(arguments)
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(EXAMPLES["score.json"])


@pytest.mark.slow
def test_running_programs_gives_the_results_on_record(example: Any, tmp_path: Path) -> None:
    arguments = ["--input", str(example("programs.jsonl")), "--output", str(tmp_path / "out.jsonl")]
    sandbox.main([*arguments, "--timeout", "2", "--workers", "1", *["--weak"] * WEAK])
    assert rows(tmp_path / "out.jsonl") == rows(example("results.jsonl"))
