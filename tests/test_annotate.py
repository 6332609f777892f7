"""Grades of pages by a language model: the sample, the marks, and the stage with vLLM on a tiny model."""

import json
import sys
from pathlib import Path

import pytest
from datatrove.data import Document
from given.cases import cases
from given.instances import graph_of, open_stage
from given.lines import read_lines
from given.plans import forecast_of
from killing import survives_kills

from pipeline.annotate import BATCH, check_marks, draw_sample, mark_of
from pipeline.config.annotate import PAGE_BYTES, AnnotateSection
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.training_set import graded_pages
from pipeline.data.shards import DocumentWriter, read_table
from pipeline.protocol.stage import InputError
from workflow.first_rows import faulty_rows
from workflow.instances import Result

TABLES = cases("marks")
LONG = 7  # the number of a page that does not fit into the tiny model's context
TEXTS = {"": "a sum", "s": "a shop"}  # by the beginning of a host
ANSWERS = {"": " It adds.\nMark: 4", "s": " It sells.\nMark: 0"}


@pytest.mark.parametrize(("answer", "mark"), TABLES["marks"])
def test_a_mark_is_one_number_of_the_scale_on_a_line_of_its_own(answer: str, mark: int | None) -> None:
    assert mark_of(answer) == mark


def write_pool(folder: Path, pages: int, shards: int) -> Path:
    """Pages of two kinds, the first half of each shard shops, and one page that is long."""
    for shard in range(shards):
        with DocumentWriter(folder / f"pool/{shard:04d}.jsonl.zst") as writer:
            for number in range(shard * pages // shards, (shard + 1) * pages // shards):
                kind = "s" if number % 2 else ""
                metadata = {"url": f"https://{kind}web.example/{number}", "host": f"{kind}web.example"}
                text = TEXTS[kind] if number != LONG else "数" * PAGE_BYTES
                writer.write(Document(text, f"w:{number}", [], metadata))
    return folder


def urls_of(folder: Path, pool: Path, **keys: int) -> list[str]:
    stage = open_stage(folder, AnnotateSection(**keys), {"pool": pool})
    draw_sample(stage)
    table = read_table(folder / "pages.parquet")
    assert max(len(text.encode()) for text in table["text"].to_pylist()) <= PAGE_BYTES
    return table["url"].to_pylist()


def test_the_sample_is_decided_by_the_seed_and_not_by_shards_and_a_larger_one_holds_it(
    tmp_path: Path,
) -> None:
    one, four = (write_pool(tmp_path / f"pool-{shards}", 200, shards) for shards in (1, 4))
    few = urls_of(tmp_path / "a", one, pages=40)
    assert len(few) == 40 and few == urls_of(tmp_path / "b", four, pages=40)
    assert set(few) < set(urls_of(tmp_path / "c", one, pages=80))
    assert set(few) != set(urls_of(tmp_path / "d", one, pages=40, seed=1))
    assert len(urls_of(tmp_path / "e", four, pages=1000)) == 200


def test_a_model_that_gives_no_marks_is_refused_after_the_first_thousand_answers() -> None:
    check_marks(1000, 200)
    with pytest.raises(InputError, match=r"annotate.model: 201 of 1,000 answers have no line `Mark: N`"):
        check_marks(1000, 201)


def test_a_prompt_without_a_place_for_the_page_is_refused_before_the_first_job(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    (tmp_path / "a.warc.gz").write_bytes(b"")
    keys = {"model": "org/model", "prompt": str(prompt)}
    for text in (b"Give a mark.", b"{page} or {page}", b"\xff{page}"):
        prompt.write_bytes(text)
        graph = graph_of(crawl={"warc": [str(tmp_path / "a.warc.gz")]}, annotate=keys)
        (told,) = faulty_rows(graph, [graph.nodes["annotate"]])
        assert told.startswith(f"config key annotate.prompt: {prompt}: ")


@pytest.mark.slow
def test_killed_runs_end_with_the_bytes_of_one_that_was_not_and_the_second_stage_learns_the_grades(
    tmp_path: Path,
) -> None:
    from test_evaluate_stage import memorise
    from tiny_model import save_tiny_model

    pool, out = write_pool(tmp_path / "pool", 2 * BATCH + 8, 2), tmp_path / "out"
    (tmp_path / "prompt.txt").write_text("Mark {page}")
    texts = [f"<s>User: Mark {TEXTS[kind]}\n\nAssistant:{ANSWERS[kind]}" for kind in TEXTS]
    memorise(save_tiny_model(tmp_path / "model", seed=0), *texts, steps=200)
    inputs = {"pool": pool, "model": tmp_path / "model", "prompt": tmp_path / "prompt.txt"}
    words = [word for role, path in inputs.items() for word in ("--input", f"{role}={path}")]
    command = [sys.executable, "-m", "pipeline.annotate", *words, "--output", str(out)]
    survives_kills(command, out, out.with_name(".out.work"), ["pages.parquet", "answers/*.jsonl"])
    rows = read_lines(out / "grades.jsonl")
    assert {(row["grade"], row["answer"]) for row in rows} == {(4, ANSWERS[""]), (0, ANSWERS["s"])}
    assert all((row["grade"] == 0) == row["url"].startswith("https://s") for row in rows)
    (left,) = read_lines(out / "ungraded.jsonl")
    assert left == {"url": f"https://sweb.example/{LONG}", "ended": "prompt_too_long", "answer": ""}
    counts = json.loads((out / "manifest.json").read_text())["counts"]
    assert (counts["pages"], counts["graded"], counts["ungraded"]) == (520, 519, 1)
    assert counts["graded_4"] == 260 and counts["graded_0"] == 259
    asked = json.loads((out / "run.json").read_text())["counters"]["vllm.requests"]
    assert asked in (BATCH + 8, 8), "what a killed run had answered is not asked again"
    given = {"pool": pool, "grades": out / "grades.jsonl"}
    found = graded_pages(open_stage(tmp_path / "train", CorpusSection(), given), set())
    assert len(found) == 519 and {(page.text, page.grade) for page in found} == {("a sum", 1), ("a shop", -1)}


def test_the_grades_of_the_run_reach_its_classifiers(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"")
    corpus = {"iterations": 1, "second_stage": {"enabled": True, "grades": "annotate:grades.jsonl"}}
    sections = {"crawl": {"warc": [str(tmp_path / "a.warc.gz")]}, "corpus": corpus}
    nodes = graph_of(**sections, annotate={"model": "org/model", "launch": {"ranks": 8}}).nodes
    assert ("grades", Result("annotate", "grades.jsonl")) in nodes["corpus/iteration-1/train"].inputs
    assert dict(nodes["annotate"].inputs)["pool"] == Result("crawl/dedup")
    assert nodes["annotate"].launch.ranks == 8


def test_the_forecast_of_35_million_pages_and_a_7b_is_the_hand_worked_one() -> None:
    """Reading: 2 N x 35M x (300 + 4,000 / 3.3 tokens) at 40 % of 989 TFLOP/s. Writing: 128 tokens a page, 256
    pages at a time, each step reading 15.2 GB of weights and 56 KB for each of 256 x 1,576 tokens; at half of
    3.35 TB/s.
    """
    changes = {"annotate": {"model": "Qwen/Qwen2.5-7B-Instruct", "pages": 35_000_000}}
    row = forecast_of([], changes)["Qwen2.5-7B-Instruct", "annotate"]
    weights = 7_615_616_512
    assert row.parameters == weights and row.sampled == 35e6 * 128
    reading = 2 * weights * 35e6 * (300 + 4000 / 3.3) / (989e12 * 0.4 * 3600)
    step = 2 * weights + 256 * 1576 * 57_344
    writing = 35e6 * 128 / (0.5 * 256 * 3.35e12 / step) / 3600
    assert row.hours == pytest.approx(reading + writing, rel=0.001)
    assert reading == pytest.approx(566, rel=0.001) and writing == pytest.approx(111.3, rel=0.001)
    assert not row.notes and forecast_of([], changes, nodes=2)["Qwen2.5-7B-Instruct", "annotate"].gpus == 2
