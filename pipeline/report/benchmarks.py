"""One section per benchmark: every model on it, by level and subject, without leaked questions, and rates."""

from typing import Any

from markupsafe import Markup

from pipeline.report.collect import read_lines
from pipeline.report.compare import Results
from pipeline.report.tables import Cell, Row
from pipeline.report.tex import to_html

RATES = {
    "undecided": "undecided",
    "no_answer": "no answer",
    "truncated": "cut off",
    "prompt_too_long": "prompt too long",
    "failed": "program failed",
}
Asked = tuple[str, str, dict[str, Any]]  # model, mode, its scores


def _cell(score: dict[str, Any] | None) -> Cell:
    if score is None:
        return Cell()
    low, high = score["ci95"]
    return Cell(100 * score["accuracy"], (100 * low, 100 * high))


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
        size = max(groups[value]["n"] for groups in found if value in groups)
        rows.append(Row("ours", value, f"n = {size}", [_cell(groups.get(value)) for groups in found]))
    return rows


def _leaks(asked: list[Asked]) -> list[Row]:
    """Accuracy of all questions, without those that stand in the collected pages, and on those alone."""
    rows = []
    for model, mode, score in asked:
        parts = score.get("contamination")
        if parts:
            cells = [_cell(score), _cell(parts.get("clean")), _cell(parts.get("leaked"))]
            rows.append(Row("ours", model, f"{_words(mode)}, {parts['items']} leaked", cells))
    return rows


def _words(mode: str) -> str:
    return mode.replace("_", " ")


def _rates(asked: list[Asked]) -> tuple[list[str], list[Row]]:
    """Names and rows of the shares of greedy answers that went wrong in form; only what occurs somewhere."""
    names = [name for name in RATES if any(score.get(name) for _, _, score in asked)]
    rows = [
        Row(
            "ours",
            model,
            _words(mode),
            [Cell(100 * score[name] / score["n"] if name in score else None) for name in names],
        )
        for model, mode, score in asked
    ]
    return [RATES[name] for name in names], rows


def _exemplars(results: Results, benchmark: str, asked: list[Asked]) -> list[dict[str, Any]]:
    """The exemplars of each few-shot mode, as the models saw them."""
    found: dict[str, list[dict[str, Markup]]] = {}
    for model, mode, _ in asked:
        path = results.run.nodes[f"evaluate/{model}"].data / f"{benchmark}.{mode}.exemplars.jsonl"
        if mode not in found and (rows := list(read_lines(path))):
            found[mode] = [
                {name: Markup(to_html(row[name] or "")) for name in ("question", "solution", "answer")}
                for row in rows
            ]
    return [{"mode": _words(mode), "rows": rows} for mode, rows in found.items()]


def sections(results: Results, titles: dict[str, str]) -> list[dict[str, Any]]:
    """What the template shows of each benchmark, in the order in which they were asked."""
    names = list(dict.fromkeys(name for scores in results.scores.values() for name in scores))
    found = []
    for name in names:
        asked = [
            (model, mode, score)
            for model, scores in results.scores.items()
            for mode, score in scores.get(name, {}).items()
        ]
        rates, rate_rows = _rates(asked)
        found.append(
            {
                "id": f"benchmark-{name}",
                "title": titles.get(name, name),
                "questions": max(score["n"] for _, _, score in asked),
                "columns": [f"{model} ({_words(mode)})" for model, mode, _ in asked],
                "overall": Row("ours", "all", "", [_cell(score) for _, _, score in asked]),
                "outputs": [
                    (model, 100 * score["program_accuracy"])
                    for model, _, score in asked
                    if "program_accuracy" in score
                ],
                "level": _groups(asked, "level"),
                "subject": _groups(asked, "subject"),
                "leaks": _leaks(asked),
                "rates": rates,
                "rate_rows": rate_rows,
                "exemplars": _exemplars(results, name, asked),
            }
        )
    return found
