"""Score existing outputs: `python -m pipeline.evaluate.score --benchmark NAME --outputs F --output F`.

Extraction, grading and metrics without a model, under the strict grader or other rules
(`profiles`). With those, every sample on which it and strict differ is listed with both reasons.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, get_args

from mathverdict.answers import Verdict
from pydantic import Field, StrictBool
from sealedpy.pool import Sandbox

from pipeline.config.evaluate import MOST_SAMPLES, BenchmarkNode, Rules
from pipeline.config.root import BENCHMARKS, benchmark_file, validated
from pipeline.core.data.rows import read_as
from pipeline.core.manifest import ROOT, write_json
from pipeline.core.overlays import read_config
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.commands import add_sandbox_options, make_parser, run_command, write_rows
from pipeline.evaluate.metrics import accuracy, at_k, by_label
from pipeline.evaluate.profiles import STRICT, Profile, grade_answer, grade_response, last_output
from pipeline.evaluate.programs import pal_program, printed_answer
from pipeline.intervals import paired_difference

FORMATS = """\
Outputs, one JSON object per line: "id" or "question" of a reference, and "samples": [text, ...]; optionally
"finished": [true, ...] or "finish_reason": ["stop", ...], one for each sample.
References are in bench format: "id", "question", "answer", optionally "choices", "subject", "level".
Modes: cot takes the answer from the text; tool too, or what the last program printed where the text has no
answer, and adds "program_accuracy", that of the last output alone; pal runs each sample in the sandbox.
Result: "accuracy" (mean over questions of the share of right samples), "ci95", "n", "maj@k" and "pass@k" for
K = 1, 2, 4, ... up to the number of samples, "by" (subject and level), "undecided" (answers that no rule
decided; they count as not right), "no_answer", "missing" (references without output; they do not count),
"paired" with --against. Where every row says which samples were finished: "right_and_finished".
With a profile other than strict: "strict" (its accuracy) and "differences" (rows on which the two differ)."""


def parser() -> argparse.ArgumentParser:
    about = "Extraction, grading and metrics for outputs that exist already."
    parser = make_parser("score", about, FORMATS)
    parser.add_argument("--benchmark", required=True, help="name of the benchmark")
    parser.add_argument(
        "--references",
        help="bench-format file or hub id; default: the source that configs/benchmarks/ or --config names",
    )
    parser.add_argument(
        "--config", type=Path, default=ROOT / "configs/default.yaml", help="where more benchmarks are named"
    )
    parser.add_argument(
        "--mode", choices=("cot", "pal", "tool"), default="cot", help="how answers are taken from outputs"
    )
    parser.add_argument(
        "--profile", choices=get_args(Rules), help="rules of grading; default: the benchmark's"
    )
    parser.add_argument(
        "--outputs", type=Path, required=True, help="the model's outputs, JSON lines (.gz allowed)"
    )
    parser.add_argument("--against", type=Path, help="another model's outputs, for a paired comparison")
    parser.add_argument("--verdicts", type=Path, help="write every sample's verdict here, JSON lines")
    parser.add_argument("--output", type=Path, required=True, help="scores, JSON")
    add_sandbox_options(parser)
    return parser


def references(name: str, source: str | None, config: Path) -> tuple[list[Item], Rules]:
    """Return the questions of a benchmark, from `source` or else as `configs/benchmarks/` or `config` says,
    and its profile.
    """
    if source is not None:
        profile = benchmark_file(name).get("profile", STRICT)
        return load(name, BenchmarkNode(source=source), [source]), profile
    named = read_config([config]).get("benchmarks") or {}
    if not isinstance(named, dict):
        raise InputError(f"{config}: config key benchmarks: expected a mapping")
    own = named.get(name) or {}
    values = benchmark_file(name) | own if isinstance(own, dict) else own
    if not values:
        known = sorted({*named, *(path.stem for path in BENCHMARKS.glob("*.yaml"))})
        raise InputError(f"unknown benchmark {name!r}; known: {', '.join(known)}; or give --references")
    node = validated(BenchmarkNode, values, f"benchmarks.{name}")
    sources = [node.source] if isinstance(node.source, str) else node.source
    return load(name, node, sources), node.profile


@dataclass(frozen=True)
class Row:
    """A row of outputs: samples to a question, and perhaps which were finished or why each ended."""

    samples: Annotated[list[str], Field(min_length=1)]
    id: Any = None
    question: str | None = None
    finished: list[StrictBool] | None = None
    finish_reason: list[str] | None = None

    @property
    def done(self) -> list[bool] | None:
        """Which samples were finished; None if the row does not say."""
        if self.finish_reason is None:
            return self.finished
        return [reason == "stop" for reason in self.finish_reason]


def read_outputs(path: Path, items: list[Item]) -> dict[str, Row]:
    """Return the rows of a file by the id of their reference. Raises InputError naming file and line."""
    by_id = {item.id: item.id for item in items}
    by_question = {item.question.strip(): item.id for item in items}
    found: dict[str, Row] = {}
    for place, row in read_as(Row, str(path)):
        key = by_question.get((row.question or "").strip()) if row.id is None else by_id.get(str(row.id))
        if key is None:
            raise InputError(f"{place}: no reference has this {'question' if row.id is None else 'id'}")
        if key in found:
            raise InputError(f"{place}: second output for reference {key!r}")
        if len(row.samples) > MOST_SAMPLES:
            raise InputError(f"{place}: {len(row.samples)} samples; at most {MOST_SAMPLES} can be counted")
        if row.done is not None and len(row.done) != len(row.samples):
            counts = f"{len(row.done)} samples are said to be finished or not, of {len(row.samples)}"
            raise InputError(f"{place}: {counts}")
        found[key] = row
    if not found:
        raise InputError(f"{path}: no outputs")
    return found


class Grading:
    """Grades samples in one mode; `values`: what each program printed."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.values: dict[str, str | None] = {}

    def run_programs(self, texts: Sequence[str], seconds: float, weak: bool) -> None:
        """Run the programs in these samples on all cores; `weak`: even without namespaces."""
        programs = {text: pal_program(text) for text in dict.fromkeys(texts)}
        runnable = {text: program for text, program in programs.items() if program is not None}
        self.values = dict.fromkeys(programs)
        with Sandbox(weak=weak) as sandbox, Progress("programs", len(runnable), unit="program") as bar:
            outcomes = sandbox.run(list(runnable.values()), seconds)
            for text, outcome in zip(runnable, outcomes, strict=True):
                self.values[text] = printed_answer(outcome)
                bar.update()

    def verdict(self, profile: Profile, item: Item, text: str) -> Verdict:
        """Return the verdict on one sample."""
        if self.mode == "pal":
            return grade_answer(profile, item, self.values[text])
        verdict = grade_response(profile, item, text)
        if self.mode == "tool" and verdict.extracted is None:
            return grade_answer(profile, item, last_output(text))
        return verdict

    def verdicts(
        self, profile: Profile, items: Sequence[Item], outputs: dict[str, Row], label: str
    ) -> list[list[Verdict]]:
        """Verdicts by question and sample; equal samples of a question are graded once."""
        found = []
        with Progress(label, sum(len(outputs[item.id].samples) for item in items), unit="sample") as bar:
            for item in items:
                samples = outputs[item.id].samples
                known = {text: self.verdict(profile, item, text) for text in dict.fromkeys(samples)}
                found.append([known[text] for text in samples])
                bar.update(len(samples))
        return found


def shares(samples: Sequence[Sequence[Verdict]]) -> list[float]:
    """Share of right samples of each question."""
    return [fmean(verdict.right for verdict in row) for row in samples]


def differences(
    items: Sequence[Item], samples: Sequence[Sequence[Verdict]], strict: Sequence[Sequence[Verdict]]
) -> list[dict[str, Any]]:
    """Return the samples on which profile and strict differ, with both verdicts."""
    return [
        {"id": item.id, "sample": place, "reference": item.answer}
        | {"profile": asdict(ours), "strict": asdict(theirs)}
        for item, row, strict_row in zip(items, samples, strict, strict=True)
        for place, (ours, theirs) in enumerate(zip(row, strict_row, strict=True))
        if ours.right != theirs.right
    ]


def score(
    items: list[Item], outputs: dict[str, Row], grading: Grading, profile: Profile
) -> tuple[dict[str, Any], list[list[Verdict]]]:
    """Grade all samples and compute the metrics over the questions that have outputs."""
    scored = [item for item in items if item.id in outputs]
    samples = grading.verdicts(profile, scored, outputs, "grade")
    fewest = min(map(len, samples))
    result = {
        **accuracy(shares(samples)),
        **at_k(scored, samples, sorted({2**power for power in range(fewest.bit_length())} | {fewest})),
        "by": by_label(scored, shares(samples)),
        "undecided": sum(verdict.verdict == "undecided" for row in samples for verdict in row),
        "no_answer": sum(verdict.extracted is None for row in samples for verdict in row),
        "missing": len(items) - len(scored),
    }
    done = [outputs[item.id].done for item in scored]
    if None not in done:
        pairs = zip(samples, done, strict=True)
        both = [[verdict.right and end for verdict, end in zip(*row, strict=True)] for row in pairs]
        result["right_and_finished"] = fmean(map(fmean, both))
    if grading.mode == "tool":
        runs = [
            [grade_answer(profile, item, last_output(text)) for text in outputs[item.id].samples]
            for item in scored
        ]
        result["program_accuracy"] = fmean(shares(runs))
    if profile.rules != STRICT:
        strict = grading.verdicts(Profile(STRICT), scored, outputs, "grade strictly")
        result["strict"] = accuracy(shares(strict))
        result["differences"] = differences(scored, samples, strict)
    return result, samples


def compare_models(
    items: list[Item],
    ours: dict[str, Row],
    theirs: dict[str, Row],
    grading: Grading,
    profile: Profile,
) -> dict[str, Any]:
    """Accuracy of the first model minus that of the other over shared questions, and which flipped."""
    both = [item for item in items if item.id in ours and item.id in theirs]
    if not both:
        raise InputError("--against: no question has outputs of both models")
    first, second = (shares(grading.verdicts(profile, both, outputs, "paired")) for outputs in (ours, theirs))
    flips = [item.id for item, one, other in zip(both, first, second, strict=True) if one != other]
    return {**paired_difference(second, first), "flipped": flips}


def write_verdicts(path: Path, items: Sequence[Item], samples: Sequence[Sequence[Verdict]]) -> None:
    """Write every sample's verdict, JSON lines."""
    lines = [
        {"id": item.id, "sample": place} | asdict(verdict)
        for item, row in zip(items, samples, strict=True)
        for place, verdict in enumerate(row)
    ]
    write_rows(path, lines, len(lines), "verdict")


def score_files(options: argparse.Namespace) -> None:
    """Score the outputs in files, and write what is asked for."""
    items, usual = references(options.benchmark, options.references, options.config)
    profile = Profile(options.profile or usual, options.benchmark)
    outputs = read_outputs(options.outputs, items)
    others = read_outputs(options.against, items) if options.against else {}
    grading = Grading(options.mode)
    if options.mode == "pal":
        texts = [text for row in (*outputs.values(), *others.values()) for text in row.samples]
        grading.run_programs(texts, options.timeout, options.weak)
    scores, samples = score(items, outputs, grading, profile)
    if others:
        scores["paired"] = compare_models(items, outputs, others, grading, profile)
    if options.verdicts:
        write_verdicts(options.verdicts, [item for item in items if item.id in outputs], samples)
    write_json(options.output, scores)


def main(argv: list[str] | None = None) -> None:
    run_command(parser(), score_files, argv)


if __name__ == "__main__":
    main()
