"""The ranking of the pool and its cut: the plain sort, whatever threads and memory; cuts by language."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.common.database import database
from pipeline.common.errors import InputError
from pipeline.common.shards import read_table
from pipeline.config.corpus import CorpusSection
from pipeline.corpus.candidates import add_pages
from pipeline.corpus.convergence import KEPT, keep, write_kept
from pipeline.corpus.cut import LANGUAGE, cut, cuts, promise, within_budget
from pipeline.corpus.out_of_distribution import recall_at
from pipeline.corpus.score import SCORES
from pipeline.corpus.train import HELD_OUT


def write_scores(folder: Path, shards: int, pages: int, padding: int = 0) -> list[Path]:
    """Score tables of random pages, many with equal scores, both zeros among them; some share the hash."""
    rng, paths = np.random.default_rng(0), []
    for shard in range(shards):
        ties = rng.integers(2**64, size=pages, dtype=np.uint64)
        ties[::3] = 2**63
        hosts = [f"h{page % 7}.example" for page in range(pages)]
        urls = [f"{host}/{shard}/{page}{'x' * padding}" for page, host in enumerate(hosts)]
        columns = {
            "id": [f"{shard}:{page:05d}" for page in range(pages)],
            "url": urls,
            "host": hosts,
            "shard": [f"{shard:04d}"] * pages,
            "score": rng.choice([-0.0, 0.0, 1.5, -2.5, 1e300, *rng.normal(size=20)], pages),
            "tie": ties,
            "tokens": rng.integers(0, 50, pages),
            "key": urls,
        }
        paths.append(folder / f"scores-{shard}.parquet")
        pq.write_table(pa.table(columns, SCORES), paths[-1])
    return paths


def keep_top(paths: list[Path], folder: Path, size: int, **launch: float) -> Path:
    with database(folder / "join", launch) as joins:
        add_pages(joins, paths, [], [])
        keep(joins, size)
        write_kept(folder / "kept.parquet", joins, None, 1)
    return folder / "kept.parquet"


def plain(paths: list[Path]) -> list[dict]:
    rows = pa.concat_tables(map(read_table, paths)).to_pylist()
    return sorted(rows, key=lambda row: (-row["score"], row["tie"], row["id"]))


def test_kept_pages_are_the_top_of_the_plain_sort_whatever_the_order_of_the_shards(tmp_path: Path) -> None:
    paths = write_scores(tmp_path, 5, 400)
    expected = plain(paths)
    names = [name for name in KEPT.names if name not in ("rank", "iteration")]
    for size, order, threads in ((2000, paths, 1), (333, paths, 2), (334, paths[::-1], 2), (0, paths, 1)):
        found = read_table(keep_top(order, tmp_path, size, threads=threads)).to_pylist()
        assert [[row[name] for name in names] for row in found] == [
            [row[name] for name in names] for row in expected[:size]
        ]
        assert [row["rank"] for row in found] == list(range(1, size + 1))


def test_the_token_budget_cuts_before_it_is_passed_and_the_last_one_holds_on(tmp_path: Path) -> None:
    paths = write_scores(tmp_path, 5, 400)
    tokens = np.cumsum([row["tokens"] for row in plain(paths)])
    budgets = [0, 1, 20_000, int(tokens[-1])]
    with database(tmp_path / "join", {"threads": 2}) as joins:
        add_pages(joins, paths[::-1], [], [])
        sizes = [within_budget(joins, CorpusSection(budget_tokens=budgets), count) for count in range(1, 6)]
    assert sizes == [(tokens <= budget).sum() for budget in [*budgets, budgets[-1]]]


def test_a_ranking_that_outgrows_its_memory_goes_on_on_disk_with_the_same_bytes(tmp_path: Path) -> None:
    paths = write_scores(tmp_path, 2, 40_000, padding=1500)  # 240 MB of addresses
    expected = keep_top(paths, tmp_path, 80_000, join_memory=4).read_bytes()
    assert keep_top(paths, tmp_path, 80_000, join_memory=0.2).read_bytes() == expected
    assert not (tmp_path / "join").exists()


def test_a_damaged_table_is_one_line_that_names_it(tmp_path: Path) -> None:
    (path,) = write_scores(tmp_path, 1, 50)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"scores-0\.parquet.*\(DuckDB\)$"):
        keep_top([path], tmp_path, 10)


# Mathematical, other and held-out other pages of a language, and the mean score of the others.
POOL = {
    "en": (600, 2000, 3000, 0),
    "zh": (400, 2000, 3000, 1.5),
    "de": (50, 300, 30, 1.5),
    None: (0, 100, 10, -5),
}


def by_language(folder: Path) -> tuple[list[Path], dict[str, bool]]:
    """Score tables of pages whose other pages score higher in Chinese and German, and held-out pages, few of
    them German; returns the tables and whether each page is mathematical.
    """
    rng, truth, rows, held_out = np.random.default_rng(0), {}, [], []
    for language, (math, other, size, shift) in POOL.items():
        scores = [*rng.normal(4, 1, math), *rng.normal(shift, 1, other)]
        for number, score in enumerate(scores):
            url = f"https://{language}.example/{number}"
            truth[url] = number < math
            row = {"id": url, "url": url, "host": f"{language}.example", "shard": "0000", "score": score}
            rows.append(row | {"tie": number, "tokens": 9, "key": url[8:], "language": language})
        own = {"math": False, "fold": 0, "language": language}
        held_out += [
            own | {"url": f"{language}{number}", "host": f"{language}{number % 90}", "score": score}
            for number, score in enumerate(rng.normal(shift, 1, size))
        ]
    pq.write_table(pa.Table.from_pylist(rows, SCORES.append(LANGUAGE)), folder / "scores.parquet")
    pq.write_table(pa.Table.from_pylist(held_out, HELD_OUT.append(LANGUAGE)), folder / "held_out.parquet")
    return [folder / "scores.parquet"], truth


def test_each_language_with_enough_held_out_pages_is_cut_where_the_precision_holds_in_it(
    tmp_path: Path,
) -> None:
    paths, truth = by_language(tmp_path)

    def precision(pages: list[dict], language: str) -> float:
        return float(np.mean([truth[row["url"]] for row in pages if row["host"] == f"{language}.example"]))

    found = {}
    for least in (0, 500):
        config = CorpusSection(cut="precision", precision=0.9, cut_language_pages=least)
        with database(tmp_path / "join", {}) as joins:
            add_pages(joins, paths, [], [])
            size = cut(joins, tmp_path, config, 1)
            promised, parts = promise(joins, tmp_path, size), cuts(joins)
            keep(joins, size)
            write_kept(tmp_path / "kept.parquet", joins, None, 1)
        found[least] = read_table(tmp_path / "kept.parquet").to_pylist()
        assert len(found[least]) == size
        assert [row["rank"] for row in found[least]] == list(range(1, size + 1))
    assert precision(found[0], "zh") < 0.85 < 0.95 < precision(found[0], "en")
    assert all(0.87 < precision(found[500], language) < 0.93 for language in ("en", "zh"))
    assert [part.language for part in parts] == ["en", "zh", None] and parts[2].pages == 450
    first, second, rest = promised["languages"]
    assert first["threshold"] < second["threshold"] and first["pages"] == 3000 and first["hosts"] == 90
    assert rest == {"language": None, "kept": 0, "threshold": None}  # 40 held-out pages prove too little
    for row in (first, second):
        assert row["ci95"][0] < 0.9 <= row["precision"] < row["ci95"][1]
    assert promised["ci95"][0] < promised["precision"] < promised["ci95"][1]
    table = {"set": ["a"] * 3, "math": [True] * 3, "score": [second["threshold"] - 0.01] * 3}
    pq.write_table(
        pa.table(table | {"language": ["en", "zh", "ja"]}), tmp_path / "out_of_distribution.parquet"
    )
    least = {part.language: part.least for part in parts}
    assert recall_at(tmp_path, 0.0, least) == {"a": round(1 / 3, 6)}
