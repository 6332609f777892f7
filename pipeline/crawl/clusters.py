"""Near-duplicate clusters: datatrove's MinHash stages 2 and 3, with a check of every candidate pair between
them.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
from datatrove.pipeline.dedup.minhash import MinhashDedupBuckets, MinhashDedupCluster
from loguru import logger
from numpy.typing import NDArray

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.signatures import ShardSignatures, minhash_config, write_signatures

READ_AHEAD = 1000  # signatures that datatrove reads at once from each file


def near_duplicates(
    work: Path,
    signatures: ShardSignatures,
    candidates: NDArray[np.bool_],
    config: CrawlSection,
    count: Callable[[str, int], None],
) -> list[NDArray[np.int64]]:
    """Clusters among `candidates` (N,), each as sorted page indices, in order of their first pages.

    `work` gets `signatures/`, `candidates/`, `pairs/` and `clusters/`, all in datatrove's formats.
    """
    logger.disable("datatrove")  # its blocks log every file
    settings = minhash_config(config)
    documents = 0
    for rank in range(signatures.shards):
        documents += write_signatures(work / "signatures", rank, config, signatures, candidates)
    pairs = 0
    (work / "pairs").mkdir()
    for bucket in range(config.buckets):
        block = MinhashDedupBuckets(
            str(work / "signatures"), str(work / "candidates"), config=settings, lines_to_buffer=READ_AHEAD
        )
        block.run(rank=bucket, world_size=config.buckets)
        pairs += block.stats["total_matches"].total
        _verify(work, f"{bucket:05d}_00.dups", signatures, config.min_similarity)
    clusters = MinhashDedupCluster(
        str(work / "pairs"),
        str(work / "clusters"),
        config=settings,
        save_cluster_id=True,
        lines_to_buffer=READ_AHEAD,
    )
    with redirect_stderr(io.StringIO()):  # its progress bar cannot be switched off
        clusters.run()
    count("datatrove.minhash_documents", documents)
    count("datatrove.minhash_pairs", pairs)
    count("datatrove.minhash_clustered", clusters.stats["duplicates"].total)
    return _read_clusters(work / "clusters", signatures)


def _verify(work: Path, name: str, signatures: ShardSignatures, min_similarity: float) -> None:
    """Keep the similar pairs among one bucket's candidates.

    Stage 2 writes pages with the same band as a chain of pairs, A-B, B-C. Each such group is split around
    leaders: the first remaining page and all remaining pages similar to it form one part.
    """
    found = np.fromfile(work / "candidates" / name, "<u4").reshape(-1, 4)
    kept = [
        (*signatures.locate(leader), *signatures.locate(member))
        for group in _groups(found, signatures)
        for leader, member in _similar_pairs(group, signatures, min_similarity)
    ]
    np.array(kept, "<u4").tofile(work / "pairs" / name)


def _groups(pairs: NDArray[np.uint32], signatures: ShardSignatures) -> Iterator[NDArray[np.int64]]:
    """Page indices of each chain in `pairs` (P, 4): shard and position of one page, then of the next."""
    if not len(pairs):
        return
    pages = signatures.starts[pairs[:, [0, 2]]] + pairs[:, [1, 3]]
    breaks = np.flatnonzero(pages[1:, 0] != pages[:-1, 1]) + 1
    for chain in np.split(pages, breaks):
        yield np.append(chain[:, 0], chain[-1, 1])


def _similar_pairs(
    group: NDArray[np.int64], signatures: ShardSignatures, min_similarity: float
) -> Iterator[tuple[int, int]]:
    group = np.sort(group)
    rows = signatures.rows(group)
    while len(group) > 1:
        similar = (rows[1:] == rows[0]).mean(axis=1) >= min_similarity
        for member in group[1:][similar]:
            yield int(group[0]), int(member)
        group, rows = group[1:][~similar], rows[1:][~similar]


def _read_clusters(folder: Path, signatures: ShardSignatures) -> list[NDArray[np.int64]]:
    members: dict[int, list[int]] = {}
    for path in sorted(folder.glob("*.clusters")):
        start = int(signatures.starts[int(path.stem)])
        for document, cluster in np.fromfile(path, "<u4").reshape(-1, 2).tolist():
            members.setdefault(cluster, []).append(start + document)
    return sorted((np.array(sorted(pages)) for pages in members.values()), key=lambda pages: pages[0])
