"""Print a run's scores, gains and verdicts as its report has them: `make demo` and others end so.

python -m pipeline.report.scores results/compare/report/summary.json
python -m pipeline.report.scores results/demo/report/summary.json --readme README.md
python -m pipeline.report.scores results/compare/report/summary.json --methods docs/measured.md
python -m pipeline.report.scores --corpus results/real/report/summary.json

The second writes a table of right answers into a page, between the marks `<!-- scores -->` and
`<!-- end of scores -->`; the third, between `<!-- methods -->` and `<!-- end of methods -->`, a table of RL
methods. The fourth, at the end of `make real`, tells how good the corpus's classifier is.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.intervals import in_percent
from pipeline.report.baselines import best

MEASURES = {
    "average_precision": "average precision",
    "recall_at_precision_0.9": "recall at precision 90",
    "precision": "precision at the cut",
    "recall": "recall at the cut",
}
MARKS = ("<!-- scores -->", "<!-- end of scores -->")
METHODS = ("<!-- methods -->", "<!-- end of methods -->")


def lines(summary: dict[str, Any]) -> list[str]:
    """Scores in percent and paired gains in points, with 95 % intervals; the same of RL methods, as means
    over their seeds; then the verdict on each claim that was measured.
    """
    methods = aligned(_methods(summary["methods"])) if summary["methods"] else []
    return _models(summary) + methods + _verdicts(summary)


def _measured(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [claim for claim in summary["claims"] if claim["verdict"] != "not measured"]


def _verdicts(summary: dict[str, Any]) -> list[str]:
    return [f"{claim['verdict']}: {claim['statement']} {claim['evidence']}" for claim in _measured(summary)]


def _models(summary: dict[str, Any]) -> list[str]:
    rows = [("model", "benchmark", "mode", "questions", "greedy", "Maj@k / Pass@k")]
    for model, benchmarks in summary["models"].items():
        for benchmark, modes in benchmarks.items():
            for mode, score in modes.items():
                unchecked = score.get("not_checked") == score["n"]
                greedy = "not checked" if unchecked else in_percent(score["accuracy"], score["ci95"])
                rows.append((model, benchmark, mode, f"{score['n']:,}", greedy, _sampled(score)))
    for benchmark, rules in summary.get("baselines", {}).items():
        rule, share = best(rules)
        rows.append((f"best rule: {rule}", benchmark, "", "", f"{100 * share:.1f}", ""))
    return aligned(rows) + [
        f"{gain['better']} over {gain['worse']}, {gain['benchmark']} {gain['kind']}: "
        + in_percent(gain["mean"], gain["ci95"], "+")
        for gain in summary["comparisons"]
    ]


def _methods(methods: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows = [("method", "seeds", "rate", "benchmark", "greedy", "Maj@k", "Pass@k", "gain over its start")]
    for method in methods:
        means = [_mean(method[name], method["seeds"]) for name in ("accuracy", "maj@k", "pass@k")]
        gain = in_percent(*method["gain"], "+") if method["gain"] else ""
        rate = "" if method["learning_rate"] is None else f"{method['learning_rate']:g}"
        task = f"{method['benchmark']} {method['kind']}"
        rows.append((method["method"], str(method["seeds"]), rate, task, *means, gain))
    return rows


def _mean(found: list[Any] | None, seeds: int) -> str:
    if found is None:
        return ""
    return in_percent(*found) if seeds > 1 else f"{100 * found[0]:.1f}"


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table with columns of equal width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _sampled(score: dict[str, Any]) -> str:
    if "maj@k" not in score:
        return ""
    largest = max(score["maj@k"], key=int)
    return f"{100 * score['maj@k'][largest]:.1f} / {100 * score['pass@k'][largest]:.1f} of {largest}"


def readme_table(summary: dict[str, Any]) -> str:
    """Give a Markdown table of right answers without tools to the benchmark with the most questions: models
    with few right answers first.
    """
    asked = [(name, modes) for models in summary["models"].values() for name, modes in models.items()]
    sizes = {name: score["n"] for name, modes in asked for score in modes.values()}
    benchmark = max(sizes, key=lambda name: sizes[name])
    scores = {
        model: score["accuracy"]
        for model, benchmarks in summary["models"].items()
        for mode, score in benchmarks.get(benchmark, {}).items()
        if mode.endswith("_cot")
    }
    rows = [["model", f"right answers to {sizes[benchmark]:,} questions"]]
    ranked = sorted(scores, key=lambda name: scores[name])
    rows += [[f"`{model}`", f"{100 * scores[model]:.1f} %"] for model in ranked]
    if rules := summary.get("baselines", {}).get(benchmark):
        rows.append(["best rule without a model", f"{100 * best(rules)[1]:.1f} %"])
    return markdown(rows)


def methods_table(summary: dict[str, Any]) -> str:
    """Give a Markdown table of RL methods, and below it the verdict on each claim that was measured, to the
    first semicolon. A method has one row: answers to its first benchmark, votes on the first with samples.
    """
    head, *rows = _methods(summary["methods"])
    found: dict[str, dict[str, str]] = {}
    for cells in (dict(zip(head, row, strict=True)) for row in rows):
        first = found.setdefault(cells["method"], cells)
        first |= {name: first[name] or cells[name] for name in ("Maj@k", "Pass@k")}
    shown = [name for name in head if name != "benchmark"]
    table = markdown([shown, *([row[name] for name in shown] for row in found.values())], words=3)
    verdicts = []
    for claim in _measured(summary):
        effect = "" if claim["effect"] is None else f" ({in_percent(claim['effect'], claim['ci95'], '+')})"
        verdicts.append(f"- {claim['verdict']}{effect}: {claim['statement'].partition(';')[0].rstrip('.')}\n")
    return f"{table}\n{''.join(verdicts)}"


def markdown(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a Markdown table below its first row; columns but the first `words` are numbers."""
    head, *others = (f"| {' | '.join(row)} |\n" for row in rows)
    places = ["---"] * words + ["---:"] * (len(rows[0]) - words)
    return "".join([head, f"|{'|'.join(places)}|\n", *others])


def show_table(table: str, page: Path | None, marks: tuple[str, str]) -> None:
    """Print a table, or write it between the marks of a page."""
    if page:
        write_table(page, table, marks)
    else:
        print(table, end="")


def write_table(page: Path, table: str, marks: tuple[str, str] = MARKS) -> None:
    """Put the table between the marks of a page. Raises SystemExit where the page lacks them."""
    before, start, rest = page.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not end:
        raise SystemExit(f"error: {page}: no {' and '.join(marks)}: write both where the table is to stand")
    page.write_text(f"{before}{start}\n{table}{end}{after}")


def classifier_lines(summary: dict[str, Any]) -> list[str]:
    """Say how good the last classifier is on labelled pages that it was never trained on, in percent with
    intervals over hosts, and what the cut promises; nothing without truth.
    """
    rows = summary.get("corpus", {}).get("iterations", [])
    truth = rows[-1].get("truth", {}) if rows else {}
    scopes = [(name, found) for name, found in sorted(truth.items()) if "hosts" in found]
    if not scopes:
        return []
    table = [f"{'pages (math), last iteration':36}" + "".join(f"{title:>25}" for title in MEASURES.values())]
    for name, found in scopes:
        head = f"{name.replace('_', ' ')}: {found['pages']} ({found['math']})"
        table.append(f"{head:36}" + "".join(f"{_cell(found, measure):>25}" for measure in MEASURES))
    if promise := rows[-1].get("promise"):
        values = in_percent(promise["precision"], promise["ci95"])
        table.append(f"The cut promises precision {values}, by {promise['pages']} {promise['sample']}.")
    return table


def _cell(found: dict[str, Any], measure: str) -> str:
    if found[measure] is None:
        return "-"
    return in_percent(found[measure], found[f"{measure}_ci95"])


def main() -> None:
    """Print the scores or the classifier's quality, or write a table of scores into a page."""
    parser = argparse.ArgumentParser(description="Print the scores of a run.")
    parser.add_argument("summary", type=Path, metavar="SUMMARY", help="summary.json beside a report")
    parser.add_argument("--readme", type=Path, metavar="PAGE", help="write a table into this page instead")
    parser.add_argument("--methods", type=Path, metavar="PAGE", help="likewise a table of RL methods")
    parser.add_argument("--corpus", action="store_true", help="the quality of the classifier instead")
    words = parser.parse_args()
    summary = json.loads(words.summary.read_text())
    if words.readme:
        write_table(words.readme, readme_table(summary))
    elif words.methods:
        write_table(words.methods, methods_table(summary), METHODS)
    else:
        print("\n".join((classifier_lines if words.corpus else lines)(summary)))


if __name__ == "__main__":
    main()
