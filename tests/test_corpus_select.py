"""Selection is the plain sort of all pages, whatever shards, threads and memory."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT
from given.instances import graph_of, open_stage
from killing import bytes_of

from pipeline.config.corpus import CorpusSection
from pipeline.core.data.database import database
from pipeline.core.data.shards import read_table, write_table
from pipeline.core.errors import InputError
from pipeline.corpus import classifier, select
from pipeline.corpus.convergence import KEPT
from pipeline.corpus.cut import bins_of, find_cut, is_kept
from pipeline.corpus.score import SCORES
from pipeline.corpus.url_lists import GROWN
from pipeline.crawl.filter import DUPLICATES
from workflow.keys import Keys

KNOWN = "https://h1.example/1/0/29"  # a page of the seed, under a prefix that teaches
NAMES = [name for name in KEPT.names if name != "iteration"]


def write_scores(folder: Path, shards: int, pages: int, padding: int = 0) -> list[Path]:
    """Score tables of random pages, many with equal scores, both zeros among them; some share the hash."""
    rng, paths = np.random.default_rng(0), []
    for shard in range(shards):
        ties = rng.integers(2**64, size=pages, dtype=np.uint64)
        ties[::3] = 2**63
        hosts = [f"{'www.' * (page % 3 == 0)}h{page % 7}.example" for page in range(pages)]
        urls = [f"https://{host}/{page % 4}/{shard}/{page}{'x' * padding}" for page, host in enumerate(hosts)]
        columns = {
            "id": [f"{shard}:{page:05d}" for page in range(pages)],
            "url": urls,
            "host": hosts,
            "shard": [f"{shard:04d}.jsonl.zst"] * pages,
            "score": rng.choice([-0.0, 0.0, 1.5, -2.5, 1e300, *rng.normal(size=20)], pages),
            "tie": ties,
            "tokens": rng.integers(0, 50, pages),
            "key": [url.removeprefix("https://").removeprefix("www.") for url in urls],
        }
        paths.append(folder / f"score-{shard:04d}")
        paths[-1].mkdir()
        pq.write_table(pa.table(columns, SCORES), paths[-1] / "scores.parquet")
    return paths


@pytest.fixture
def scores(tmp_path: Path) -> list[Path]:
    """Five tables of scores beside a classifier's notes, and a copy of a page, which the seed names."""
    copy = {"url": "https://copy.example/29", "duplicate_of_url": KNOWN}
    write_table(tmp_path / "pool/duplicates.parquet", [dict.fromkeys(DUPLICATES.names) | copy], DUPLICATES)
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train.json").write_text(json.dumps(dict.fromkeys(select.TRAINED)))
    held_out = {"math": [False] * 60, "score": np.linspace(-3, 2, 60), "host": list(map(str, range(60)))}
    pq.write_table(pa.table(held_out), tmp_path / "train/held_out.parquet")
    (tmp_path / "seed.txt").write_text(f"https://h1.example/1/0/1\n{copy['url']}\n")
    (tmp_path / "notes.tsv").write_text(
        "prefix\tverdict\nh1.example/1\tmath\nwww.h2.example\tnot_math\nh3.example/9\tmath\n"
    )
    (tmp_path / "out.txt").write_text("h4.example/2\n")
    return write_scores(tmp_path, 5, 400)


def selected(
    scores: list[Path], name: str, iteration: int = 1, launch: dict[str, float] | None = None, **config: Any
) -> Path:
    """Selection from score tables in this process; returns the folder of its results."""
    folder = scores[0].parent
    inputs = {"train": folder / "train", "pool": folder / "pool", "seed_urls": folder / "seed.txt"}
    inputs |= {"annotations": folder / "notes.tsv", "opt_out": folder / "out.txt"}
    if iteration > 1:
        inputs["previous"] = folder / f"{name}-{iteration - 1}/partial"
    section = CorpusSection.model_validate(config)
    instance, work = f"iteration-{iteration}/select", folder / f"{name}-{iteration}"
    stage = open_stage(work, section, inputs | {"score": scores}, instance, **launch or {})
    select.run(stage)
    return stage.partial


def test_metrics_tell_where_a_tokenizer_counted(scores: list[Path]) -> None:
    for notes in ({}, {"tokens": {"ascii": 0.25, "other": 1.5, "pages": 9, "error": None}}):
        told = dict.fromkeys(select.TRAINED) | notes
        (scores[0].parent / "train/train.json").write_text(json.dumps(told))
        found = json.loads((selected(scores, f"counted-{len(notes)}") / "metrics.json").read_text())
        assert found.get("tokens") == notes.get("tokens")


@pytest.mark.parametrize("reviewed", ["all", "uncollected"])
def test_a_page_that_a_reviewer_rejects_leaves_the_seed(scores: list[Path], reviewed: str) -> None:
    (scores[0].parent / "notes.tsv").write_text("prefix\tverdict\nh1.example/1/0\tnot_math\n")
    for iteration in (1, 2):
        found = selected(scores, reviewed, iteration, cut="score", reviewed=reviewed)
        seed, others = ((found / f"{name}.txt").read_text().split() for name in GROWN)
        assert not seed and (KNOWN in others) == (reviewed == "all") and len(set(others)) == len(others)


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_table(folder / f"{name}.parquet").to_pylist()


def plain(scores: list[Path]) -> list[dict[str, Any]]:
    """The pages that may be kept, in rank order."""
    rows = pa.concat_tables(read_table(path / "scores.parquet") for path in scores).to_pylist()
    rows = [row for row in rows if row["host"] != "www.h2.example"]
    rows = [row for row in rows if not row["key"].startswith("h4.example/2/")]
    return sorted(rows, key=lambda row: (-row["score"], row["tie"], row["id"]))


def by_hand(scores: list[Path], iteration: int, config: dict[str, Any]) -> int:
    """How many pages the configuration keeps."""
    rows = plain(scores)
    if config["cut"] == "score":
        return sum(row["score"] >= config["threshold"] for row in rows)
    used = np.cumsum([row["tokens"] for row in rows])
    return int((used <= config["budget_tokens"][min(iteration, 2) - 1]).sum())


def check(one: Path, scores: list[Path], iteration: int, config: dict[str, Any]) -> None:
    """Assert that a selection is the top of the plain sort, and that its domains have all their pages."""
    size, kept = by_hand(scores, iteration, config), rows_of(one, "kept")
    top = [[row[name] for name in NAMES] for row in plain(scores)[:size]]
    assert sorted([row[name] for name in NAMES] for row in kept) == sorted(top)
    assert kept == sorted(kept, key=lambda row: (row["shard"], row["id"]))
    found = json.loads((one / "metrics.json").read_text())
    hosts = Counter(row["key"].partition("/")[0] for row in plain(scores))
    domains = {row["domain"]: row["pages"] for row in found["domains"]}
    assert domains == {host: hosts[host] for host in domains} and found["kept_pages"] == size > 0
    assert found["pool_pages"] == 2000 and found["kept_tokens"] == sum(row["tokens"] for row in kept)


@pytest.mark.parametrize("threshold", [-3.0, 0.0, 1.5, 1e300])
def test_selection_is_the_top_of_the_plain_sort_whatever_order_and_threads(
    scores: list[Path], threshold: float
) -> None:
    config = {"cut": "score", "threshold": threshold, "reviewed": "all"}
    one = selected(scores, "one", **config)
    check(one, scores, 1, config)
    assert bytes_of(one) == bytes_of(selected(scores[::-1], "some", 1, {"threads": 2}, **config))


def test_the_next_selection_counts_what_is_new_and_learns_by_the_urls_of_copies_too(
    scores: list[Path],
) -> None:
    config = {"cut": "tokens", "budget_tokens": [8000, 8700], "converged": 1.0}  # among pages of equal scores
    config |= {"reviewed": "all"}
    for iteration in (1, 2):
        one = selected(scores, "one", iteration, **config)
        check(one, scores, iteration, config)
    seed = (one / "seed_urls.txt").read_text().split()
    assert KNOWN not in seed and KNOWN.replace("/0/", "/1/") in seed, "the first is meant by its copy's URL"
    found, kept = json.loads((one / "metrics.json").read_text()), rows_of(one, "kept")
    before = {row["id"] for row in rows_of(scores[0].parent / "one-1/partial", "kept")}
    assert found["marginal_pages"] == len(kept) - len(before) > 0
    assert all((row["iteration"] == 1) == (row["id"] in before) for row in kept)


def test_the_token_budget_cuts_before_it_is_passed_and_the_last_one_holds_on(scores: list[Path]) -> None:
    folder, rows = scores[0].parent, plain(scores)
    used = np.cumsum([row["tokens"] for row in rows])
    budgets = [0, 1, 20_000, int(used[-1]), 10**9]
    config = CorpusSection(budget_tokens=budgets)
    with database(folder / "join", {"threads": 2}) as joins:
        joins.register("given", pa.Table.from_pylist(rows, SCORES))
        joins.execute("CREATE TABLE candidates AS SELECT * FROM given")
        for iteration, budget in enumerate([*budgets, budgets[-1]], 1):
            found = find_cut(joins, config, iteration)
            assert found.kept == (used <= budget).sum() and (found.least is None) == (found.kept == 0)
            kept = joins.execute(f"SELECT id FROM candidates WHERE {is_kept(found)}").fetchall()
            assert {page for (page,) in kept} == {row["id"] for row in rows[: found.kept]}


def test_the_least_score_of_two_zeros_is_zero_without_a_sign(scores: list[Path]) -> None:
    with database(scores[0].parent / "join", {"threads": 2}) as joins:
        joins.register("given", pa.Table.from_pylist([plain(scores)[0] | {"score": -0.0}], SCORES))
        joins.execute("CREATE TABLE candidates AS SELECT * FROM given")
        (found,) = bins_of(joins)
    assert str(found.least) == "0.0"


def test_a_selection_that_outgrows_its_memory_goes_on_on_disk_with_the_same_bytes(
    scores: list[Path], tmp_path: Path
) -> None:
    big = tmp_path / "big"
    big.mkdir()
    paths = write_scores(big, 2, 40_000, 700)  # 110 MB of addresses
    for name in ("train", "pool"):
        (big / name).symlink_to(tmp_path / name)
    for name in ("seed.txt", "notes.tsv", "out.txt"):
        (big / name).write_bytes((tmp_path / name).read_bytes())
    config = {"cut": "score", "threshold": -3.0}
    whole, small = (
        selected(paths, f"{memory}", 1, {"join_memory": memory}, **config) for memory in (4.0, 0.2)
    )
    assert bytes_of(whole) == bytes_of(small) and not (small.parent / "join").exists()
    assert json.loads((small / "metrics.json").read_text())["pool_pages"] == 80_000


@pytest.mark.parametrize(
    ("config", "seeds", "message"),
    [
        (
            {"cut": "tokens", "budget_tokens": [0]},
            0,
            r"0 of [\d,]+ pages are kept, .* has 0: raise corpus.budget",
        ),
        ({"cut": "tokens", "budget_tokens": [700]}, 60, "the seed alone has 60: raise corpus.budget_tokens"),
        ({"cut": "score", "threshold": 1.6e300}, 0, "give a seed of more sites, a background without math"),
        ({"cut": "score", "threshold": 1e300}, 400, "the seed alone has 400: give a seed of more sites"),
    ],
)
def test_an_empty_corpus_or_one_smaller_than_its_seed_is_no_result(
    scores: list[Path], config: dict[str, Any], seeds: int, message: str
) -> None:
    urls = [row["url"] for row in plain(scores)[-seeds:]] if seeds else ["https://nowhere.example/"]
    (scores[0].parent / "seed.txt").write_text("\n".join(urls))
    with pytest.raises(InputError, match=message):
        selected(scores, "few", **config)


def test_a_damaged_table_is_one_line_that_names_it(scores: list[Path]) -> None:
    path = scores[3] / "scores.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"score-0003/scores\.parquet.*\(DuckDB\)$"):
        selected(scores, "one", cut="score")


def keys_read(program: str) -> set[str]:
    """Keys of the section that a program of the room reads, in any function that it may call."""
    trees = {path.stem: ast.parse(path.read_text()) for path in (ROOT / "pipeline/corpus").glob("*.py")}
    defined: dict[str, list[ast.AST]] = {}
    for node in (node for tree in trees.values() for node in tree.body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in ("run", "main"):
            defined.setdefault(node.name, []).append(node)
    pending = [node for node in trees[program].body if getattr(node, "name", "") == "run"]
    called, keys = set[str](), set[str]()
    while pending:
        nodes = [*ast.walk(pending.pop())]
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        read = [node for node in nodes if isinstance(node, ast.Attribute)]
        keys |= {node.attr for node in read if ast.unparse(node.value) in ("config", "stage.config")}
        for name in {node.id for node in nodes if isinstance(node, ast.Name)} - own - called:
            called.add(name)
            pending += defined.get(name, [])
    return {*keys, *(classifier.NAMES if "settings" in called else ())} & CorpusSection.model_fields.keys()


@pytest.mark.parametrize("program", CorpusSection.programs)
def test_the_key_of_a_program_holds_what_it_reads_of_the_section_and_no_more(program: str) -> None:
    assert keys_read(program) == set(CorpusSection.programs[program])


def test_a_key_of_the_cut_trains_and_scores_nothing_again() -> None:
    texts = {"seed_texts": "configs/default.yaml", "background_texts": "configs/default.yaml"}
    crawl = {"warc": "miniweb:warc/miniweb-00000.warc.gz"}
    budgets, found = ([1000], [2000]), []
    for budget in budgets:
        keys = Keys(
            graph_of(miniweb={"enabled": True}, crawl=crawl, corpus={**texts, "budget_tokens": budget})
        )
        found.append({name: keys.key(name) for name in keys.graph.nodes if name.startswith("corpus/")})
    changed = {name for name in found[0] if found[0][name] != found[1][name]}
    first = {name for name in changed if "iteration-1/" in name}
    assert first == {"corpus/iteration-1/select"} and "corpus/iteration-2/train" in changed
