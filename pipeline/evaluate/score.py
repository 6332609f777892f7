"""Score outputs that exist: `python -m pipeline.evaluate.score --benchmark NAME --outputs F --output F`."""

import argparse
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from pipeline.common.manifest import ROOT, write_json
from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.config.evaluate import BenchmarkNode
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.grading import grade_responses
from pipeline.evaluate.scores import accuracy, at_k

HELP = """\
Outputs, one JSON object per line: "id" or "question" of a reference, and "samples": [text, ...].
References are in bench format: "id", "question", "answer", optionally "choices".
Result: "accuracy" (mean over questions of the share of right samples), "ci95", "n", "maj@k" and "pass@k" for
K = 1, 2, 4, ... up to the number of samples, "undecided" (answers that no rule decided; they count as not
right), "missing" (references without output; they do not count)."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.evaluate.score",
        description="Extraction, grading and metrics for outputs that exist already.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--benchmark", required=True, help="name of the benchmark")
    parser.add_argument(
        "--references", help="bench-format file or hub id; default: the benchmark's source in --config"
    )
    parser.add_argument(
        "--config", type=Path, default=ROOT / "configs/default.yaml", help="where benchmarks are named"
    )
    parser.add_argument("--mode", choices=("cot",), default="cot", help="how answers are taken from outputs")
    parser.add_argument("--profile", choices=("strict",), default="strict", help="rules of comparison")
    parser.add_argument(
        "--outputs", type=Path, required=True, help="the model's outputs, JSON lines (.gz allowed)"
    )
    parser.add_argument("--output", type=Path, required=True, help="scores, JSON")
    return parser


def references(name: str, source: str | None, config: Path) -> list[Item]:
    """The benchmark's questions, from `source` or from where the configuration says."""
    if source is not None:
        return load(name, BenchmarkNode(source=source), [source])
    named = (yaml.safe_load(config.read_text()) or {}).get("benchmarks") or {}
    if name not in named:
        raise InputError(
            f"unknown benchmark {name!r}; {config} names: {', '.join(named) or 'none'}; or give --references"
        )
    node = BenchmarkNode.model_validate(named[name])
    return load(name, node, [node.source] if isinstance(node.source, str) else node.source)


def read_outputs(path: Path, items: list[Item]) -> dict[str, list[str]]:
    """Samples by the id of their reference."""
    by_id = {item.id: item.id for item in items}
    by_question = {item.question.strip(): item.id for item in items}
    found: dict[str, list[str]] = {}
    for place, row in read_rows(str(path)):
        key = (
            by_id.get(str(row["id"]))
            if "id" in row
            else by_question.get(str(row.get("question", "")).strip())
        )
        samples = row.get("samples")
        if key is None:
            raise InputError(f"{place}: no reference has this {'id' if 'id' in row else 'question'}")
        if not isinstance(samples, list) or not samples or not all(isinstance(text, str) for text in samples):
            raise InputError(f"{place}: `samples` must be a list of texts, at least one")
        if key in found:
            raise InputError(f"{place}: second output for reference {key!r}")
        found[key] = samples
    if not found:
        raise InputError(f"{path}: no outputs")
    return found


def score(items: list[Item], outputs: dict[str, list[str]]) -> dict[str, Any]:
    """Grade all samples and compute the metrics over the questions that have outputs."""
    scored = [item for item in items if item.id in outputs]
    flat = [(item, text) for item in scored for text in outputs[item.id]]
    verdicts = iter(grade_responses([item for item, _ in flat], [text for _, text in flat]))
    samples = [[next(verdicts) for _ in outputs[item.id]] for item in scored]
    fewest = min(map(len, samples))
    shares = [fmean(verdict.right for verdict in row) for row in samples]
    return {
        **accuracy(shares),
        **at_k(scored, samples, sorted({2**power for power in range(fewest.bit_length())} | {fewest})),
        "undecided": sum(verdict.verdict == "undecided" for row in samples for verdict in row),
        "missing": len(items) - len(scored),
    }


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    try:
        items = references(arguments.benchmark, arguments.references, arguments.config)
        write_json(arguments.output, score(items, read_outputs(arguments.outputs, items)))
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
