"""Pages with the URL or the text of an earlier page, in a range of hashes: a part of the work of `exact`.

`urls-<number>` and `texts-<number>` have as many parts of all hashes as `crawl.bucket_jobs` says. Texts are
compared among the pages that no job of `urls` removes, so each job of `texts` reads what all of these found.

Writes `pairs` (removed page, the page that stays, kind; sorted by page).
"""

import sys
from pathlib import Path

import numpy as np

from pipeline.config.crawl import CrawlSection
from pipeline.crawl.exact import Bits, repeats
from pipeline.crawl.pairs import PairSorter, merged
from pipeline.crawl.signed import HASH_END, TEXT, URL, SignedShards, number_of
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, run_stage

RULE_OF = {"urls": URL, "texts": TEXT}


def run(stage: Stage[CrawlSection]) -> Counts:
    """Apply a rule to the hashes of a range; returns how many pages it removes."""
    program, jobs = stage.instance.partition("-")[0], stage.config.exact_jobs
    if program not in RULE_OF:
        raise InputError(f"--instance {stage.instance}: expected urls-<number> or texts-<number>")
    urls = [Path(folder) / "pairs" for folder in stage.inputs.get("urls", [])]
    if len(urls) != (jobs if program == "texts" else 0):
        raise InputError(f"--input urls: {len(urls)} folders; texts needs all {jobs}, urls none")
    number, shards = number_of(stage, jobs), SignedShards.of(stage.input("shards"))
    bounds = np.linspace(0, HASH_END, jobs + 1).astype(np.int64).tolist()
    span, removed = (bounds[number], bounds[number + 1]), None
    if urls:
        removed = Bits(stage.work / "removed.bits", shards.pages)
        for pairs in merged(urls, shards.pages):
            removed.set(pairs["page"].astype(np.int64))
    found = PairSorter(stage.work / "pairs")
    with Progress(f"crawl {stage.instance}", None, unit="range") as bar:
        for pairs in repeats(shards, RULE_OF[program], span, removed):
            found.add(pairs)
            bar.update(1)
    return {f"same_{RULE_OF[program]}": found.write(stage.partial / "pairs")}


if __name__ == "__main__":
    run_stage("crawl", CrawlSection, run, sys.argv[1:])
