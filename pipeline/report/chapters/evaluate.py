"""Evaluation: all scores, gains over parents, Maj@K and Pass@K, each benchmark, the paper's tables."""

from typing import Any

from pipeline.report.collect import read_lines
from pipeline.report.compare import VOTING, Results, Task, by_k
from pipeline.report.figures import Figure, banded, line, over_k
from pipeline.report.material import Material
from pipeline.report.tables import Cell, Row, accuracy, official, share, size, task_of, title

RATES = {
    "undecided": "undecided",
    "not_judged": "not judged, the grader failed",
    "not_checked": "not checked",
    "no_choices": "asked without its choices",
    "no_answer": "no answer",
    "truncated": "cut off",
    "prompt_too_long": "prompt too long",
    "failed": "program failed",
}
Asked = tuple[str, str, dict[str, Any]]  # model, mode, its scores


def chapter(material: Material) -> dict[str, Any]:
    """All that was scored; the figures are Maj@K and Pass@K of each task, and the paper's on MATH."""
    results, paper = material.results, material.paper
    scores = _scores(results)
    ks = {k for row in scores for k in row["ks"] if k}
    figures = _paper_voting(paper, "math")
    for task in results.tasks:
        figures |= _voting(results, task, material.run.palette)
    return {
        "scores": scores,
        "same_k": ks.pop() if len(ks) == 1 else None,
        "gains": results.gains,
        "scale": max((abs(bound) for gain in results.gains for bound in gain.ci95), default=1.0),
        "tasks": results.tasks,
        "benchmarks": _benchmarks(results, paper["benchmarks"]),
        "paper_tables": _paper_tables(material),
        "figures": figures,
    }


def _scores(results: Results) -> list[dict[str, Any]]:
    """One row per model, benchmark and mode: greedy accuracy, and Maj@K and Pass@K at the largest K."""
    found = []
    for model, benchmark, mode, score in results.scored():
        row = {"model": model, "benchmark": benchmark, "mode": _words(mode), "score": score}
        row |= {"cells": [accuracy(score)], "ks": [0]}
        for metric in VOTING:
            k, value, ci95 = max(by_k(score, metric), default=(0, None, None))
            row["cells"].append(share(value, ci95 if f"{metric}_ci95" in score else None))
            row["ks"].append(k)
        found.append(row)
    return found


def _words(mode: str) -> str:
    return mode.replace("_", " ")


def _natural(value: str) -> tuple[int, int, str]:
    """Numbers in their order, before words."""
    digits = "".join(character for character in value if character.isdigit())
    return (0, int(digits), value) if digits and len(digits) < 9 else (1, 0, value)


def _groups(asked: list[Asked], label: str) -> list[Row]:
    """Rows of a table by subject or level; its columns are `asked`."""
    found = [score.get("by", {}).get(label, {}) for _, _, score in asked]
    values = sorted({value for groups in found for value in groups}, key=_natural)
    rows = []
    for value in values:
        questions = max(groups[value]["n"] for groups in found if value in groups)
        cells = [accuracy(groups.get(value)) for groups in found]
        rows.append(Row("ours", value, f"n = {questions}", cells))
    return rows


def _leaks(asked: list[Asked]) -> list[Row]:
    """Accuracy on all questions, without those found in the collected pages, and on those alone."""
    rows = []
    for model, mode, score in asked:
        if parts := score.get("contamination"):
            cells = [accuracy(part) for part in (score, parts.get("clean"), parts.get("leaked"))]
            rows.append(Row("ours", model, f"{_words(mode)}, {parts['items']} leaked", cells))
    return rows


def _rates(asked: list[Asked]) -> tuple[list[str], list[Row]]:
    """Titles and rows: shares of greedy answers that went wrong in form, of each kind that occurs."""
    names = [name for name in RATES if any(score.get(name) for _, _, score in asked)]
    rows = []
    for model, mode, score in asked:
        cells = [share(score[name] / score["n"]) if name in score else Cell() for name in names]
        rows.append(Row("ours", model, _words(mode), cells))
    return [RATES[name] for name in names], rows


def _exemplars(results: Results, benchmark: str, asked: list[Asked]) -> list[dict[str, Any]]:
    """Return the exemplars of each few-shot mode, as the models saw them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for model, mode, _ in asked:
        folder = results.run.finished[f"evaluate/{model}"].data
        if rows := list(read_lines(folder / f"{benchmark}.{mode}.exemplars.jsonl")):
            found.setdefault(mode, rows)
    return [{"mode": _words(mode), "rows": rows} for mode, rows in found.items()]


def _benchmarks(results: Results, titles: dict[str, str]) -> list[dict[str, Any]]:
    """Return what the template shows of each benchmark, in the order in which they were asked."""
    scored: dict[str, list[Asked]] = {}
    for model, benchmark, mode, score in results.scored():
        scored.setdefault(benchmark, []).append((model, mode, score))
    found = []
    for name, asked in scored.items():
        rates, rate_rows = _rates(asked)
        found.append(
            {
                "id": f"benchmark-{name}",
                "title": titles.get(name, name),
                "questions": max(score["n"] for _, _, score in asked),
                "columns": [f"{model} ({_words(mode)})" for model, mode, _ in asked],
                "overall": Row("ours", "all", "", [accuracy(score) for _, _, score in asked]),
                "outputs": [
                    (model, 100 * score["program_accuracy"])
                    for model, _, score in asked
                    if "program_accuracy" in score
                ],
                "level": _groups(asked, "level"),
                "subject": _groups(asked, "subject"),
                "leaks": _leaks(asked),
                "leaked": any(score.get("contamination", {}).get("items") for _, _, score in asked),
                "rates": rates,
                "rate_rows": rate_rows,
                "exemplars": _exemplars(results, name, asked),
            }
        )
    return found


def _paper_tables(material: Material) -> list[dict[str, Any]]:
    """Return the paper's tables 1 to 5, each with our models of the same stage where a column was measured,
    by this project's grader and by the paper's program.
    """
    found, results = [], material.results
    for table in material.paper["tables"]:
        tasks = [task_of(table, benchmark) for benchmark in table["columns"]]
        rows = [
            Row("paper", name, "", [Cell(number) for number in numbers])
            for name, numbers in table["rows"].items()
        ]
        for model in material.run.models.values():
            cells = [accuracy(results.score(model.name, task)) for task in tasks]
            if model.stage in table["role"].split() and any(cell.value is not None for cell in cells):
                rows.append(Row("ours", model.name, size(model.parameters), cells))
                theirs = [official(results.score(model.name, task)) for task in tasks]
                if any(cell.value is not None for cell in theirs):
                    rows.append(Row("ours", model.name, "graded by the paper's program", theirs))
        names = [title(material.paper, name) for name in table["columns"]]
        ours = any(row.kind == "ours" for row in rows)
        found.append({"title": table["title"], "columns": names, "rows": rows, "ours": ours})
    return found


def _voting(results: Results, task: Task, palette: dict[str, int]) -> dict[str, Figure]:
    """Maj@K and Pass@K of all models on a task, with 95 % bands."""
    found = {}
    for metric, name in VOTING.items():
        traces: list[Figure] = []
        for model in results.answers:
            points = results.curve(model, task, metric)
            if len(points) > 1:
                traces += banded(points, model, palette[model])
        if traces:
            found[f"{metric}-{'-'.join(task)}"] = over_k(traces, name)
    return found


def _paper_voting(paper: dict[str, Any], benchmark: str) -> dict[str, Figure]:
    """Return the paper's figure 7 on a benchmark."""
    found, figure_7 = {}, paper["figure_7"]
    for metric, name in VOTING.items():
        traces = []
        for index, (model, values) in enumerate(figure_7[benchmark][metric.removesuffix("@k")].items()):
            points = [(k, value / 100) for k, value in zip(figure_7["k"], values, strict=True)]
            traces.append(line(points, model, index, mode="lines+markers"))
        found[f"paper-{metric}"] = over_k(traces, name)
    return found
