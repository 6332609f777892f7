"""The ranking of the pool: the plain sort, made in parts."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.common.shards import read_table
from pipeline.config.corpus import CorpusSection
from pipeline.corpus import ranking as ranking_module
from pipeline.corpus.candidates import top
from pipeline.corpus.cut import within_budget
from pipeline.corpus.ranking import rank, table_in_order
from pipeline.corpus.score import SCORES


def write_scores(folder: Path, shards: int, pages: int) -> list[Path]:
    """Score tables of random pages, many with equal scores, both zeros among them; some share the hash."""
    rng, paths = np.random.default_rng(0), []
    folder.mkdir(exist_ok=True)
    for shard in range(shards):
        ties = rng.integers(2**64, size=pages, dtype=np.uint64)
        ties[::3] = 2**63
        columns = {
            "id": [f"{shard}:{page:05d}" for page in range(pages)],
            "url": [f"https://h{page % 7}.example/{shard}/{page}" for page in range(pages)],
            "host": [f"h{page % 7}.example" for page in range(pages)],
            "shard": [f"{shard:04d}"] * pages,
            "score": rng.choice([-0.0, 0.0, 1.5, -2.5, 1e300, *rng.normal(size=20)], pages),
            "tie": ties,
            "tokens": rng.integers(0, 50, pages),
        }
        paths.append(folder / f"scores-{shard}.parquet")
        pq.write_table(pa.table(columns, SCORES), paths[-1])
    return paths


def test_the_ranking_made_in_parts_is_the_plain_sort_whatever_the_order_of_the_shards(
    tmp_path: Path,
) -> None:
    paths = write_scores(tmp_path, 5, 400)
    plain = table_in_order(pa.concat_tables(map(read_table, paths))).to_pylist()
    assert plain == sorted(plain, key=lambda row: (-row["score"], row["tie"], row["id"]))
    for part, order in ((10**6, paths), (150, paths), (7, paths[::-1])):
        ranking = rank(order, tmp_path / "work", lambda pages: pages, part)
        assert [row for batch in ranking for row in batch.to_pylist()] == plain
        assert [row for batch in top(ranking, 333) for row in batch.to_pylist()] == plain[:333]
        tokens = np.cumsum([row["tokens"] for row in plain])
        for budget in (0, 1, 20_000, int(tokens[-1])):
            config = CorpusSection(budget_tokens=[budget])
            size = within_budget((batch["tokens"].to_numpy() for batch in ranking), config, 1)
            assert size == (tokens <= budget).sum()


def peak_of_ranking(folder: Path, shards: int) -> int:
    """Most bytes that Arrow and Python hold while pages are ranked and read."""
    paths = write_scores(folder, shards, 10_000)
    before, memory = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(memory)
    tracemalloc.start()
    try:
        ranking = rank(paths, folder / "work", lambda pages: pages, 10_000)
        assert sum(len(batch) for batch in ranking) == shards * 10_000
        return memory.max_memory() + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def test_memory_of_the_ranking_does_not_grow_with_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranking_module, "SAMPLE", 2000)
    peak_of_ranking(tmp_path / "warm", 1)
    few, many = (peak_of_ranking(tmp_path / str(shards), shards) for shards in (4, 24))
    assert many < 1.5 * few
