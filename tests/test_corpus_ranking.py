"""The ranking of the pool and its cut: the plain sort, whatever threads and memory."""

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
from pipeline.corpus.cut import within_budget
from pipeline.corpus.score import SCORES


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
