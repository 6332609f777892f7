"""The signed shards of all extraction jobs, for the jobs that share `exact`: none of these names them all.

Writes `shards.json`: where the shards are and the digest of each.
"""

import sys
from pathlib import Path

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.signed import SignedShards
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage


def check_files(shards: SignedShards) -> None:
    """Raise InputError if two shards hold pages of the same WARC file."""
    seen: set[str] = set()
    for folder in shards.folders:
        files = set((folder / "files.txt").read_text().splitlines())
        if files & seen:
            raise InputError(
                f"{folder}: pages of {min(files & seen)} are in another shard, too; give each file once"
            )
        seen |= files


def given_shards(stage: Stage[CrawlSection]) -> SignedShards:
    """The shards given as `--input sign=FOLDER`, in this order. Raises InputError if a file is in two."""
    folders = [Path(folder) for folder in stage.inputs.get("sign", [])]
    if not folders:
        raise InputError("no signatures given: use --input sign=FOLDER, for each folder that sign wrote")
    shards = SignedShards(folders, stage.identity["inputs"]["sign"])
    check_files(shards)
    return shards


def run(stage: Stage[CrawlSection]) -> Counts:
    """List the shards; returns their number and that of their pages."""
    shards = given_shards(stage)
    shards.list(stage)
    return {"shards": len(shards), "pages": shards.pages}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
