"""A run's results for other programs: `python -m pipeline.report --export results/<run> FOLDER`.

- `scores.csv`, `gains.csv`: every score, and every model against the one it started from;
- `table.tex`: greedy accuracies in the form of the paper's tables (booktabs), ours below the paper's;
- `samples/<model>/<benchmark>.<mode>.parquet`: a row for each answer; `sample` is empty for the greedy one;
- `results/<model>.json`: accuracies in the form of lm-evaluation-harness.

Figures are saved as SVG or PNG by their buttons in the page.
"""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import stages
from pipeline.config.report import ReportSection
from pipeline.data.rows import read_rows
from pipeline.protocol.errors import InputError
from pipeline.protocol.manifest import ROOT, write_json
from pipeline.protocol.overlays import read_yaml
from pipeline.report.collect import Run, collect
from pipeline.report.compare import VOTING, Results, by_k
from pipeline.report.tables import title

EVALUATED = (*stages.TEXT_STAGES, "evaluate")
QUESTIONS = 1000  # of a Parquet row group
SAMPLE = pa.schema(
    [
        (name, pa.string())
        for name in ("model", "benchmark", "mode", "id", "subject", "level", "question", "reference")
    ]
    + [("sample", pa.int32()), ("tokens", pa.int32())]
    + [(name, pa.string()) for name in ("text", "extracted", "verdict", "reason", "finish_reason", "program")]
)
SPECIAL = str.maketrans({character: f"\\{character}" for character in "&%$#_{}"})


def open_run(folder: Path) -> Run:
    """Return the models and evaluations of a run's folder, `results/<run>`."""
    inputs = {
        f"{stage}/{path.name}": [str(path / "data")]
        for stage in EVALUATED
        for path in sorted((folder / stage).glob("*"))
        if (path / "manifest.json").is_file()
    }
    if not any(name.startswith("evaluate/") for name in inputs):
        raise InputError(
            f"{folder}: no evaluation of a model here; expected the folder of a run, results/<run>"
        )
    return collect(folder.absolute().name, inputs)


def scored(results: Results) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """(model, benchmark, mode, its scores) of everything that was scored."""
    for model, benchmarks in results.scores.items():
        for benchmark, modes in benchmarks.items():
            for mode, score in modes.items():
                yield model, benchmark, mode, score


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, restval="")
        table.writeheader()
        table.writerows(rows)


def _score_rows(results: Results) -> list[dict[str, Any]]:
    rows = []
    for model, benchmark, mode, score in scored(results):
        row = {"model": model, "benchmark": benchmark, "mode": mode, "questions": score["n"]}
        row |= {"accuracy": score["accuracy"], "low": score["ci95"][0], "high": score["ci95"][1]}
        for metric, name in VOTING.items():
            row |= {name.replace("K", str(k)): value for k, value, _ in by_k(score, metric)}
        rows.append(row)
    return rows


def _gain_rows(results: Results) -> list[dict[str, Any]]:
    names = ("better", "worse", "benchmark", "kind", "n", "gained", "lost")
    return [
        {name: getattr(gain, name) for name in names}
        | {"difference": gain.mean, "low": gain.ci95[0], "high": gain.ci95[1]}
        for gain in results.gains
    ]


def latex(results: Results, paper: dict[str, Any]) -> str:
    """Greedy accuracies in percent as a table of the paper's form; its models where it reports a column."""
    benchmarks = list(dict.fromkeys(name for name, _ in results.tasks))
    known = [name for name in benchmarks if any(name in row["accuracy"] for row in paper["headline"])]
    lines = [rf"\begin{{tabular}}{{l{'c' * len(benchmarks)}}}", r"\toprule"]
    lines += [" & ".join(["Model", *(title(paper, name).translate(SPECIAL) for name in benchmarks)]) + r" \\"]
    for entry in paper["headline"] if known else ():
        numbers = [entry["accuracy"].get(name) for name in benchmarks]
        lines += [r"\midrule"] if entry is paper["headline"][0] else []
        lines += [_line(entry["model"], [None if number is None else number / 100 for number in numbers])]
    lines.append(r"\midrule")
    for model, tasks in results.answers.items():
        for kind in dict.fromkeys(kind for _, kind in tasks):
            found = [results.score(model, (name, kind)) for name in benchmarks]
            label = model if kind == "cot" else f"{model} ({kind})"
            lines.append(_line(label, [score and score["accuracy"] for score in found]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _line(label: str, shares: list[float | None]) -> str:
    cells = ["--" if share is None else rf"{100 * share:.1f}\%" for share in shares]
    return " & ".join([label.translate(SPECIAL), *cells]) + r" \\"


def _answers(model: str, benchmark: str, mode: str, path: Path) -> Iterator[list[dict[str, Any]]]:
    """Return the rows of each question of an evaluation's file, the greedy answer first."""
    for _, row in read_rows(str(path)):
        about = {"model": model, "benchmark": benchmark, "mode": mode, "id": row["id"]}
        about |= {
            name: row.get(name) and str(row[name]) for name in ("subject", "level", "question", "reference")
        }
        drawn = [(None, row.get("greedy")), *enumerate(row.get("samples") or [])]
        yield [about | {"sample": number} | answer for number, answer in drawn if answer]


def write_samples(results: Results, folder: Path) -> None:
    """Return a Parquet file for each model, benchmark and mode, in constant memory."""
    for model, benchmark, mode, _ in scored(results):
        source = results.run.finished[f"evaluate/{model}"].data / f"{benchmark}.{mode}.jsonl"
        target = folder / model / f"{benchmark}.{mode}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        questions = _answers(model, benchmark, mode, source)
        with pq.ParquetWriter(target, SAMPLE, compression="zstd") as file:
            while rows := [row for found in islice(questions, QUESTIONS) for row in found]:
                file.write_table(pa.Table.from_pylist(rows, schema=SAMPLE))


def harness(results: Results, model: str) -> dict[str, Any]:
    """Return a model's results in the form of lm-evaluation-harness; a task is a benchmark and mode."""
    found: dict[str, Any] = {"results": {}, "configs": {}, "versions": {}, "n-shot": {}, "n-samples": {}}
    for name, benchmark, mode, score in scored(results):
        if name == model:
            task, share, number = f"{benchmark}_{mode}", score["accuracy"], score["n"]
            error = (share * (1 - share) / max(number - 1, 1)) ** 0.5
            row = {"alias": task, "exact_match,none": share, "exact_match_stderr,none": error}
            found["results"][task] = row
            metrics = [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]
            found["configs"][task] = {"task": task, "metric_list": metrics, "output_type": "generate_until"}
            found["versions"][task] = 1
            settings = (
                results.run.finished[f"evaluate/{model}"].config.get("benchmarks", {}).get(benchmark, {})
            )
            found["n-shot"][task] = settings.get("shots", 0) if mode.startswith("few_shot") else 0
            found["n-samples"][task] = {"original": number, "effective": number}
    return found | {"config": {"model": "vllm", "model_args": model}, "model_name": model}


def front_matter(results: Results | None, model: str, about: dict[str, Any]) -> str:
    """Write what the hub reads of a model card: `about` and the results, where there are any."""
    from huggingface_hub import EvalResult, ModelCardData  # a second to import

    measured = [
        EvalResult(
            task_type="text-generation",
            dataset_type=benchmark,
            dataset_name=benchmark,
            metric_type="accuracy",
            metric_name=f"greedy, {mode.replace('_', ' ')}",
            metric_value=round(100 * score["accuracy"], 2),
        )
        for name, benchmark, mode, score in (scored(results) if results else ())
        if name == model
    ]
    named = {"model_name": model, "eval_results": measured} if measured else {}
    data = ModelCardData(**named, library_name="transformers", tags=["math"], **about)
    return f"---\n{data.to_yaml()}\n---\n\n"


def score_table(results: Results, model: str) -> list[str]:
    """Write a model's greedy accuracies with intervals, as the lines of a Markdown table."""
    lines = ["| benchmark | mode | questions | % | 95 % interval |", "|---|---|---:|---:|---|"]
    for name, benchmark, mode, score in scored(results):
        if name == model:
            low, high = (f"{100 * bound:.1f}" for bound in score["ci95"])
            cells = (benchmark, mode.replace("_", " "), score["n"], f"{100 * score['accuracy']:.1f}")
            lines.append(f"| {' | '.join(map(str, cells))} | {low} to {high} |")
    return lines


def export(run: Path, folder: Path) -> None:
    """Write all files of a run into a folder."""
    results = Results(open_run(run))
    (folder / "results").mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "scores.csv", _score_rows(results))
    _write_csv(folder / "gains.csv", _gain_rows(results))
    (folder / "table.tex").write_text(latex(results, read_yaml(ROOT / ReportSection().paper)))
    write_samples(results, folder / "samples")
    for model in results.scores:
        write_json(folder / "results" / f"{model}.json", harness(results, model))
