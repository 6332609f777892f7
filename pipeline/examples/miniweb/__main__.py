"""Stage `miniweb`: the demo's generated web, the truth about it, and the data sets made of its problems.

Replaces Common Crawl, OpenWebMath and the benchmarks, so that the demo needs no network (ours; the paper has
no such step). Equal seeds give equal bytes.
"""

import random
from dataclasses import replace
from pathlib import Path

from pipeline.config.miniweb import WARC_FILES, MiniwebSection
from pipeline.core.progress import Progress
from pipeline.core.stage import Stage, run_stage
from pipeline.examples.miniweb import datasets
from pipeline.examples.miniweb.problems import Problem, distinct_problems, drill_problems
from pipeline.examples.miniweb.responses import Labelled, crawl
from pipeline.examples.miniweb.texts import write_texts
from pipeline.examples.miniweb.truth import write_labels, write_lists
from pipeline.examples.miniweb.warc import Position, write_warc
from pipeline.examples.miniweb.world import Leak, build_pages

# Weights of solution styles in examples of one, two, three operations. Long problems mostly have direct
# answers, so that RL can change a habit instead of adding an ability.
STYLES = ({"cot": 0.7, "direct": 0.3}, {"cot": 0.7, "direct": 0.3}, {"cot": 0.25, "direct": 0.75})
CHINESE = 0.25  # share in every data set
DEV, HELDOUT, DRILL = 300, 500, 60  # questions
LEAKS = {"test": 20, "heldout": 4, "drill": 6}  # questions that are planted in the web


def write_datasets(folder: Path, config: MiniwebSection) -> dict[str, list[Problem]]:
    """Write SFT examples, RL prompts and the benchmarks; returns the problems of each benchmark by name."""
    train = distinct_problems(config.seed, "train", max(config.sft, config.rl), CHINESE)
    datasets.write_sft(folder / "sft.jsonl", train[: config.sft], STYLES, config.seed)
    worked = folder / "sft_worked.jsonl"  # examples without the habit of guessing
    datasets.write_sft(worked, train[: config.sft], STYLES, config.seed, without=("direct",))
    datasets.write_sft(folder / "sft_tool.jsonl", train[:6_000], [{"tool": 1.0}] * 3, config.seed)
    datasets.write_benchmark(folder / "rl.jsonl", train[: config.rl])  # a subset, as in section 4.2
    tested = distinct_problems(config.seed, "test", config.test + DEV, CHINESE)
    dev = [replace(problem, split="dev") for problem in tested[config.test :]]  # to choose settings by
    benchmarks = {
        "test": tested[: config.test],
        "heldout": distinct_problems(config.seed, "heldout", HELDOUT, CHINESE),
        "drill": drill_problems(config.seed, DRILL, CHINESE),
    }
    for name, problems in {**benchmarks, "dev": dev}.items():
        datasets.write_benchmark(folder / f"{name}.jsonl", problems)
    return benchmarks


def choose_leaks(benchmarks: dict[str, list[Problem]], seed: int) -> list[Leak]:
    """Return the items to plant."""
    rng = random.Random(f"{seed}/leaked")
    return [
        Leak(datasets.identifier(problems[number], number), problems[number])
        for name, problems in benchmarks.items()
        for number in sorted(rng.sample(range(len(problems)), min(LEAKS[name], len(problems))))
    ]


def write_web(folder: Path, crawled: list[Labelled]) -> list[Position]:
    """Write the responses to WARC files."""
    folder.mkdir()
    positions = []
    size = -(-len(crawled) // WARC_FILES)
    with Progress("miniweb", len(crawled), unit="record") as bar:
        for number in range(WARC_FILES):
            part = [response for response, _ in crawled[number * size : (number + 1) * size]]
            positions += write_warc(folder / f"miniweb-{number:05d}.warc.gz", part, "2024-03-04T06:00:00Z")
            bar.update(len(part))
    return positions


def run(stage: Stage[MiniwebSection]) -> dict[str, int | float | str]:
    """Generate everything; returns counts of records, pages, lists and data sets."""
    config, folder = stage.config, stage.partial
    benchmarks = write_datasets(folder, config)
    write_texts(folder, config.seed, config.texts)
    pages = build_pages(config.seed, config.scale, choose_leaks(benchmarks, config.seed))
    crawled = crawl(pages, config.seed)
    positions = write_web(folder / "warc", crawled)
    write_labels(folder / "labels.jsonl", crawled, positions)
    return {
        "records": len(crawled),
        "pages": len(pages),
        "math_pages": sum(page.article.math for page in pages),
        "hosts": len({page.site.host for page in pages}),
        **write_lists(folder, pages, config.seed),
        "sft": config.sft,
        "rl": config.rl,
        "dev": DEV,
        **{name: len(problems) for name, problems in benchmarks.items()},
    }


if __name__ == "__main__":
    run_stage("miniweb", MiniwebSection, run)
