"""Pages as extraction writes them, and their deduplication by the programs of the crawl in turn."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from datatrove.data import Document

from pipeline.config.crawl import CrawlSection
from pipeline.core.data.shards import DocumentWriter
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.crawl import buckets, dedup, exact, filter, sign, survivors


def write_pages(folder: Path, pages: Iterable[tuple[str, str]], name: str = "a") -> Path:
    """Write the (URL, text) of pages of the WARC file `name` as extraction does; ids are name and place."""
    with DocumentWriter(folder / "pages.jsonl.zst") as writer:
        for place, (url, text) in enumerate(pages):
            metadata = {"url": url, "warc_file": f"{name}.warc.gz", "offset": place}
            writer.write(Document(text, f"{name}:{place}", metadata=metadata))
    return folder


def run_program(
    program: Callable[[Stage[CrawlSection]], Counts],
    output: Path,
    config: dict[str, Any] | None = None,
    threads: int = 1,
    **inputs: list[Path],
) -> Path:
    """Run a program of the crawl here; returns its result."""
    words = ["--config", json.dumps(config or {}), "--launch", json.dumps({"threads": threads})]
    words += [f"--input={key}={path}" for key, paths in inputs.items() for path in paths]
    run_stage("crawl", CrawlSection, program, [*words, "--instance", output.name, "--output", str(output)])
    return output


def deduplicate_into(folder: Path, pages: list[Path], threads: int = 1, **config: Any) -> Path:
    """Deduplicate results of extraction; each program's result is in `folder`, the pool in `dedup`."""
    section = CrawlSection.model_validate(config)

    def made(program: Any, name: str, **inputs: list[Path]) -> Path:
        return run_program(program.run, folder / name, config, threads, **inputs)

    signed = [made(sign, f"sign-{rank:04d}", extract=[one]) for rank, one in enumerate(pages)]
    same = [made(exact, "exact", sign=signed)]
    pairs = [made(buckets, f"buckets-{job:04d}", exact=same) for job in range(section.bucket_jobs)]
    removed = made(survivors, "survivors", exact=same, buckets=pairs) / "removed"
    kept = [
        made(
            filter,
            f"filter-{number:04d}",
            extract=[pages[rank] for rank in part],
            removed=[removed / f"{rank:05d}.parquet" for rank in part],
        )
        for number, part in enumerate(section.pool_parts(len(pages)))
    ]
    return made(dedup, "dedup", filter=kept)
