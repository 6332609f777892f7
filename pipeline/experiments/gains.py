"""Print the table of `make pretrained`: each model beside rules without a model, prompting and controls.

python -m pipeline.experiments.gains results/pretrained [--page docs/measured.md] [--picture docs/gains.svg]

`--page` writes the table into a page, between `<!-- gains -->` and `<!-- end of gains -->`; `--picture` draws
accuracy over the steps of RL (`curves.py`). Models that differ in their seed are one row. Intervals draw
groups of question variants, those that share `VARIANT` words in a row, numbers masked: SVAMP's questions are
far fewer stories. Gains are paired by question; those cover seeds too, by the spread that reports assume
where there is one.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.config.report import ReportSection
from pipeline.experiments.curves import picture
from pipeline.intervals import Estimate, by_cluster, estimate_effect, in_percent, share_interval
from pipeline.problems import group_variants
from pipeline.protocol.errors import InputError
from pipeline.report.baselines import rights
from pipeline.report.collect import open_run, read_json
from pipeline.report.compare import Answers, Results
from pipeline.report.scores import markdown, show_table
from pipeline.report.selection import families, family_name

MARKS = ("<!-- gains -->", "<!-- end of gains -->")
VARIANT = 8  # words
SPREAD = ReportSection().seed_spread  # over seeds, of what has one
MODES = {
    "chat_cot": "in words",
    "chat_pal": "by programs",
    "few_shot_cot": "in words, after examples",
    "few_shot_pal": "by programs, after examples",
}
KEPT_APART = (
    "Of {read:,} problems, {like_a_benchmark:,} were left out for a run of words, numbers masked, that a test"
    " question has, and {like_test:,} for one of the test part. {sft:,} are for SFT, {rl:,} for RL."
)
Rights = dict[str, float]  # 1 where the answer is right, by question id


@dataclass(frozen=True)
class Way:
    """A way to answer a benchmark: a rule or the seeds of a model in a mode, and where each seed is right."""

    name: str
    seeds: list[Rights]
    models: tuple[str, ...] = ()
    mode: str = ""

    def array(self, questions: list[str]) -> np.ndarray:
        """Rights as (seeds, questions)."""
        return np.array([[float(seed[key]) for key in questions] for seed in self.seeds])


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its question ids, the group of variants of each, and the ways to answer it."""

    name: str
    questions: list[str]
    variants: list[int]
    rules: list[Way]
    models: list[Way]
    starts: dict[str, str | None]  # the parent of each model

    @property
    def best_rule(self) -> list[Way]:
        """The rule that is right most often, if there are any."""
        return sorted(self.rules, key=lambda way: -sum(way.seeds[0].values()))[:1]

    def share(self, way: Way) -> str:
        """Return how many answers are right, in percent, with the interval."""
        values = way.array(self.questions)
        if len(values) == 1:
            bounds = share_interval(values[0] == 1, map(str, self.variants))
        else:
            bounds = self.estimate(way).interval()
        return in_percent(values.mean(), [min(1.0, max(0.0, bound)) for bound in bounds])

    def estimate(self, better: Way, worse: Way | None = None) -> Estimate:
        """Estimate `better` minus `worse`, or minus nothing. Rules and what `better` started from do not vary
        with its seed; a control does with its own.
        """
        first = better.array(self.questions)
        second = worse.array(self.questions) if worse else np.zeros((1, len(self.questions)))
        sides = by_cluster(first, self.variants), by_cluster(second, self.variants)
        parents = tuple(self.starts[name] for name in better.models)
        fixed = worse is None or worse.models in ((), parents, parents[:1])
        return estimate_effect([sides], matched=fixed, spread=SPREAD)


def read_benchmark(results: Results, name: str) -> Benchmark:
    """Gather all answers to a benchmark that any model was asked."""
    models, rows = [], []
    for family in families({}, results.run, every=True):
        found = [_by_mode(results, model, name) for model in family]
        for mode in found[0]:
            label = f"{family_name(family)}, {MODES.get(mode, mode)}"
            seeds = [answers[mode].accuracy() for answers in found]
            models.append(Way(label, seeds, tuple(family), mode))
            rows = rows or list(found[0][mode].rows())
    rules = [Way(f"no model: {rule}", [found]) for rule, found in rights(rows).items()]
    variants = group_variants([row.question for row in rows], VARIANT)
    starts = {model.name: model.parent for model in results.run.models.values()}
    return Benchmark(name, [row.id for row in rows], variants, rules, models, starts)


def _by_mode(results: Results, model: str, benchmark: str) -> dict[str, Answers]:
    asked = results.answers.get(model, {})
    return {answers.mode: answers for (name, _), answers in asked.items() if name == benchmark}


def opponents(results: Results, benchmark: Benchmark, way: Way) -> list[Way]:
    """Return what a model trained by RL must beat: the best rule, and in its own mode its parent and whatever
    else was fine-tuned from that.
    """
    parent = results.run.models[way.models[0]].parent
    others = [
        other
        for other in benchmark.models
        if other.mode == way.mode and results.run.models[other.models[0]].stage == "sft"
        if parent in (other.models[0], results.run.models[other.models[0]].parent)
    ]
    return [*benchmark.best_rule, *others]


def score_table(benchmarks: list[Benchmark]) -> str:
    """Return the table of right answers, a column for each benchmark."""
    titles = [
        f"{found.name}, {len(found.questions):,} questions of {len(set(found.variants)):,} groups"
        for found in benchmarks
    ]
    rows = [["right answers, %", *titles]]
    ways = {way.name: len(way.seeds) for found in benchmarks for way in [*found.rules, *found.models]}
    for name, seeds in ways.items():
        cells = [
            next((found.share(way) for way in [*found.rules, *found.models] if way.name == name), "")
            for found in benchmarks
        ]
        rows.append([f"{name}{f' ({seeds} seeds)' if seeds > 1 else ''}", *cells])
    return markdown(rows)


def gain_table(results: Results, benchmarks: list[Benchmark]) -> str:
    """Return the table of paired gains of RL, in points."""
    rows = [["gain, points", "over", "benchmark", ""]]
    for found in benchmarks:
        for way in found.models:
            if results.run.models[way.models[0]].stage == "rl":
                for other in opponents(results, found, way):
                    estimate = found.estimate(way, other)
                    points = in_percent(estimate.effect, estimate.interval(), "+")
                    rows.append([way.name, other.name, found.name, points])
    return markdown(rows, words=3)


def table(folder: Path) -> str:
    """Give the whole table of a run, as Markdown, and how many problems were kept from training."""
    results = Results(open_run(folder))
    names = dict.fromkeys(benchmark for tasks in results.answers.values() for benchmark, _ in tasks)
    benchmarks = [read_benchmark(results, name) for name in names]
    blocks = [score_table(benchmarks), gain_table(results, benchmarks)]
    manifest = folder / "problems/manifest.json"
    if manifest.is_file():
        blocks.append(KEPT_APART.format(**read_json(manifest)["counts"]) + "\n")
    return "\n".join(blocks)


def main() -> None:
    """Print the table, or write it into a page."""
    parser = argparse.ArgumentParser(description="Print the table of make pretrained.")
    parser.add_argument("run", type=Path, metavar="RUN", help="results/pretrained")
    parser.add_argument("--page", type=Path, help="write the table into this page instead")
    parser.add_argument("--picture", type=Path, help="draw accuracy over the steps of RL here, as SVG")
    words = parser.parse_args()
    try:
        if words.picture:
            words.picture.write_text(picture(words.run))
        show_table(table(words.run), words.page, MARKS)
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
