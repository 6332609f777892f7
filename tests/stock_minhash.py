"""datatrove's own MinHash stages: what tests and benchmarks compare deduplication with."""

from collections.abc import Sequence
from pathlib import Path

from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets, MinhashDedupCluster
from datatrove.utils.hashing import HashConfig

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.signature_store import record_file
from pipeline.crawl.signatures import SHINGLE

READ_AHEAD = 1000  # signatures read at once from each file


def minhash_config(config: CrawlSection) -> MinhashConfig:
    """The settings as datatrove's stages take them."""
    return MinhashConfig(
        n_grams=SHINGLE,
        num_buckets=config.buckets,
        hashes_per_bucket=config.hashes_per_bucket,
        seed=config.seed,
        hash_config=HashConfig(precision=32),
    )


def link_signatures(work: Path, signed: Sequence[Path], config: CrawlSection) -> None:
    """Put the signatures of shards where stage 2 looks for them."""
    for rank, shard in enumerate(signed):
        for bucket in range(config.buckets):
            target = work / f"signatures/bucket_{bucket:03d}/{rank:05d}.minhash.sig"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to((shard / record_file(bucket)).resolve())


def run_stages(work: Path, config: CrawlSection, clusters: bool = False) -> Path:
    """Run stages 2 and 3 on the linked signatures; returns the folder of `.remove` files, and of `.clusters`
    if asked for.
    """
    settings = minhash_config(config)
    for bucket in range(config.buckets):
        block = MinhashDedupBuckets(
            str(work / "signatures"), str(work / "pairs"), config=settings, lines_to_buffer=READ_AHEAD
        )
        block.run(rank=bucket, world_size=config.buckets)
    MinhashDedupCluster(
        str(work / "pairs"),
        str(work / "clusters"),
        config=settings,
        save_cluster_id=clusters,
        lines_to_buffer=READ_AHEAD,
    ).run()
    return work / "clusters"
