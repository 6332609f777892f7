"""What became of each page: by parts of the pool as by one job, and as a plain look-up says it."""

import json
import random
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
import pytest
from given.instances import graph_of, open_stage
from given.lines import write_lines
from killing import bytes_of, survives_loss_and_kills

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.core.data.shards import read_table, tables, write_table
from pipeline.core.errors import InputError
from pipeline.core.stage import run_stage
from pipeline.corpus.candidates import EXCLUDED
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.score import SCORES
from pipeline.crawl.extract import RECORDS
from pipeline.crawl.filter import DUPLICATES
from pipeline.decontaminate import pages
from workflow.graph import Graph
from workflow.instances import Result

SHARDS, RECORD = 4, 40  # of extraction and of the pool; records of each
PARTS = (range(0, 2), range(2, 4))
Row = dict[str, Any]


def record(shard: int, number: int, draw: random.Random) -> tuple[Row, Row]:
    """A record and what a reader of all tables would say of it."""
    url, file = f"https://h{number % 7}.example/{shard}/{number}", f"{shard}.warc.gz"
    row = dict.fromkeys(RECORDS.names) | {"id": f"{file}:{number * 100}", "url": url, "status": "extracted"}
    row |= {"warc_file": file, "offset": number * 100, "digest": "sha1:A"}
    page = dict.fromkeys(pages.PAGES.names) | {
        name: row[name] for name in ("url", "warc_file", "offset", "digest")
    }
    page["status"] = draw.choice(["rejected", "duplicate", "excluded", "below_cut", "contaminated", "kept"])
    match page["status"]:
        case "rejected":
            row |= {"status": "rejected", "reason": "too_short"}
            return row, page | {"reason": "too_short"}
        case "duplicate":
            page |= {"reason": draw.choice(["url", "exact", "near"]), "duplicate_of": f"{url}?copy"}
        case "excluded":
            page["reason"] = "opt_out"
        case "below_cut":
            page |= {"reason": "score", "score": -1.0 * number}
        case "contaminated":
            page |= {"reason": "10-gram", "score": 2.0, "iteration": 1, "contaminated_by": "gsm8k/q1"}
        case "kept":
            page |= {"score": 1.0 * number, "iteration": 2}
            page |= draw.choice([{}, {"reason": "segments removed", "contaminated_by": "math/'7'"}])
    row["language"] = page["language"] = "en"
    return row, page


def write(folder: Path, shard: int, found: list[tuple[Row, Row]]) -> None:
    """The tables of a shard of the pool, and its log of removals, in which a page's first line counts."""
    own = {status: [] for status in ("duplicate", "excluded", "below_cut", "contaminated", "kept")}
    for row, page in found:
        own.get(page["status"], []).append(row | page)
    write_table(folder / f"extract-{shard}/records.parquet", (row for row, _ in found), RECORDS)
    rows = [
        row | {"kind": row["reason"], "duplicate_of_url": row["duplicate_of"]} for row in own["duplicate"]
    ]
    write_table(folder / f"filter-{shard}/removed.parquet", named(rows, DUPLICATES), DUPLICATES)
    pool = [row for status in list(own)[1:] for row in own[status]]
    scored = [row | {"score": 9.0 if row["score"] is None else row["score"]} for row in pool]
    write_table(folder / f"score-{shard}/scores.parquet", named(scored, SCORES), SCORES)
    lines = []
    for row in own["contaminated"] + [row for row in own["kept"] if row["reason"]]:
        names = dict(zip(("benchmark", "item"), row["contaminated_by"].split("/"), strict=True))
        removed = "page" if row["status"] == "contaminated" else "segment"
        lines.append({"id": row["id"], "rule": "10-gram", "removed": removed} | names)
        lines.append(lines[-1] | {"rule": "exact", "item": "another"})
    (folder / f"clean-{shard}").mkdir()
    write_lines(folder / f"clean-{shard}/log.jsonl", lines)


def named(rows: list[Row], schema: pa.Schema) -> list[Row]:
    return [{name: row.get(name) for name in schema.names} for row in rows]


@pytest.fixture
def crawl(tmp_path: Path) -> tuple[Path, list[Row]]:
    """All tables of four shards, and the rows that are expected."""
    draw, every = random.Random(0), []
    for shard in range(SHARDS):
        found = [record(shard, number, draw) for number in range(RECORD)] if shard != 1 else []
        write(tmp_path, shard, found)
        every.append(found)
    rows = [row | page for found in every for row, page in found]
    kept = [row for row in rows if row["status"] in ("kept", "contaminated")]
    out = [row for row in rows if row["status"] == "excluded"]
    write_table(tmp_path / "kept.parquet", named(kept, KEPT), KEPT)
    write_table(tmp_path / "excluded.parquet", named(out, EXCLUDED), EXCLUDED)
    return tmp_path, [page for found in every for _, page in found]


def inputs(folder: Path, part: range) -> dict[str, list[Path]]:
    return {
        "extract": [folder / f"extract-{shard}" for shard in part],
        "duplicates": [folder / f"filter-{shard}/removed.parquet" for shard in part],
        "score": [folder / f"score-{shard}" for shard in part],
        "kept": [folder / "kept.parquet"],
        "excluded": [folder / "excluded.parquet"],
        "removals": [folder / f"clean-{shard}/log.jsonl" for shard in part],
    }


def made(folder: Path, name: str, given: dict[str, list[Path]]) -> partial[None]:
    """Run the program in this process; returns what runs it again."""
    words = [f"--input={key}={path}" for key, paths in given.items() for path in paths]
    words += ["--instance", name, "--output", str(folder / name)]
    run = partial(run_stage, "decontaminate", DecontaminateSection, pages.run, words)
    run()
    return run


@pytest.mark.slow
def test_jobs_of_parts_say_what_one_job_says_and_one_lost_or_killed_is_made_again_alone(
    crawl: tuple[Path, list[Row]],
) -> None:
    folder, expected = crawl
    made(folder, "pages", inputs(folder, range(SHARDS)))
    assert read_table(folder / "pages/pages.parquet").to_pylist() == expected
    parts = [inputs(folder, part) for part in PARTS]
    runs = [made(folder, f"pages-{number:04d}", given) for number, given in enumerate(parts)]
    first = bytes_of(folder / "pages-0000")
    survives_loss_and_kills(runs[1], folder / "pages-0001")
    assert bytes_of(folder / "pages-0000") == first
    made(folder, "together", {"part": [folder / "pages-0000", folder / "pages-0001"]})
    found = tables(folder / "together", "pages")
    assert [path.name for path in found] == ["0000.parquet", "0001.parquet"]
    assert [row for path in found for row in read_table(path).to_pylist()] == expected
    counts = [
        json.loads((folder / f"{name}/manifest.json").read_text())["counts"] for name in ("pages", "together")
    ]
    assert counts[0] == counts[1] and counts[0]["pages"] == len(expected) and len(counts[0]) == 7


def test_one_table_of_the_duplicates_of_all_parts_gives_the_same_bytes(crawl: tuple[Path, list[Row]]) -> None:
    folder, _ = crawl
    given = inputs(folder, PARTS[1])
    made(folder, "own", given)
    every = pa.concat_tables(
        read_table(folder / f"filter-{shard}/removed.parquet") for shard in range(SHARDS)
    )
    write_table(folder / "duplicates.parquet", every.to_pylist(), DUPLICATES)
    made(folder, "pages", given | {"duplicates": [folder / "duplicates.parquet"]})
    assert (folder / "pages/pages.parquet").read_bytes() == (folder / "own/pages.parquet").read_bytes()


def test_a_page_that_was_ranked_and_has_no_score_is_named(crawl: tuple[Path, list[Row]]) -> None:
    folder, _ = crawl
    given = inputs(folder, PARTS[1])
    for change, message in (
        ({"score": given["score"][:1]}, r"score: has no score of https://h\d\.example/3/\d+; give all"),
        ({"removals": []}, "removals: none given"),
    ):
        stage = open_stage(Path(mkdtemp(dir=folder)), DecontaminateSection(), given | change)
        with pytest.raises(InputError, match=f"--input {message}"):
            pages.run(stage)


def graph(folder: Path, crawl: dict[str, Any]) -> Graph:
    """The graph of five WARC files of two dumps, in five shards of the pool at most."""
    lists = [folder / "a.paths", folder / "b.paths"]
    for path, numbers in zip(lists, (range(3), range(3, 5)), strict=True):
        path.write_text("".join(f"{folder}/{number}.warc.gz\n" for number in numbers))
    for number in range(5):
        (folder / f"{number}.warc.gz").touch()
    keys = {"files_per_shard": 1, "pool_shards": 5, "warc": list(map(str, lists)), "base_url": ""}
    return graph_of(crawl=keys | crawl, corpus={"iterations": 2})


@pytest.mark.parametrize("order", ["paper", "math_first"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_each_part_reads_the_tables_of_its_own_shards_and_all_together_read_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, jobs: int
) -> None:
    monkeypatch.setattr("pipeline.config.crawl.LEDGER_JOBS", jobs)
    nodes = graph(tmp_path, {"order": order}).nodes
    parts = [node for name, node in nodes.items() if name.startswith("decontaminate/pages-")]
    assert len(parts) == (jobs if jobs > 1 else 0)
    read: dict[str, list[Result]] = {}
    for node in parts or [nodes["decontaminate/pages"]]:
        for key, source in node.inputs:
            assert isinstance(source, Result)
            read.setdefault(key, []).append(source)
    select, pool = "corpus/iteration-2/select", [f"{number:04d}" for number in range(5)]
    for name in ("kept", "excluded"):
        assert read[name] == [Result(select, f"{name}.parquet")] * jobs
    assert [source.node for source in read["extract"]] == [name for name in nodes if "crawl/extract" in name]
    assert read["score"] == [Result(f"corpus/iteration-2/score-{number}") for number in pool]
    assert read["removals"] == [Result(f"decontaminate/clean-{number}", "log.jsonl") for number in pool]
    dumps = (5, 6) if order == "math_first" else ()  # after those of the shards of the pool
    within = [Result("crawl/dedup", f"duplicates/{number:04d}.parquet") for number in dumps]
    removed = [Result(f"crawl/filter-{number}", "removed.parquet") for number in pool]
    assert set(read["duplicates"]) == {*removed, *within} and len(read["duplicates"]) == 5 + len(within)
    if parts:
        assert nodes["decontaminate/pages"].inputs == tuple(("part", Result(node.name)) for node in parts)
