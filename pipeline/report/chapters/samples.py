"""Questions and answers for the page's sample browser.

All models of a task show the same questions, a fair sample chosen by a hash of their ids, so that two models
can be compared answer by answer.
"""

import hashlib
import json
from collections import Counter
from typing import Any

from pipeline.report.collect import read_lines
from pipeline.report.compare import Results, Task
from pipeline.report.material import Material
from pipeline.report.tex import to_html

MAX_BYTES = 7_000_000  # of JSON in the page, so that it opens quickly
MAX_ANSWERS = 8


def _rank(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _cut(text: str, limit: int) -> str:
    return to_html(text if len(text) <= limit else f"{text[:limit]} […]")


def _votes(samples: list[dict[str, Any]]) -> list[list[Any]]:
    """Sampled final answers with their number and verdict, most frequent first."""
    counts = Counter((sample["extracted"], sample["verdict"]) for sample in samples)
    return [
        [to_html(answer or "no answer"), count, verdict[0]]
        for (answer, verdict), count in counts.most_common(MAX_ANSWERS)
    ]


def _remarks(greedy: dict[str, Any]) -> str:
    """Why an answer ended, unless it simply stopped, and how its last program ended."""
    reason, program = greedy.get("finish_reason", "stop"), greedy.get("program")
    found = [] if reason == "stop" else [{"length": "cut off"}.get(reason, reason.replace("_", " "))]
    return " · ".join([*found, *([f"program: {program}"] if program else [])])


def _answer(row: dict[str, Any], limit: int) -> dict[str, Any]:
    greedy, samples = row.get("greedy") or {}, row.get("samples") or []
    return {
        "verdict": greedy.get("verdict", "undecided"),
        "extracted": to_html(greedy.get("extracted") or ""),
        "reason": greedy.get("reason", ""),
        "text": _cut(greedy.get("text", ""), limit),
        "tokens": greedy.get("tokens"),
        "remarks": _remarks(greedy),
        "right": sum(sample["verdict"] == "right" for sample in samples),
        "drawn": len(samples),
        "votes": _votes(samples),
    }


def _task(results: Results, task: Task, count: int, limit: int) -> dict[str, Any]:
    benchmark, _ = task
    models = [name for name, tasks in results.answers.items() if task in tasks]
    ids = sorted({key for name in models for key in results.answers[name][task].greedy}, key=_rank)
    chosen = set(ids[:count])
    questions: dict[str, dict[str, Any]] = {}
    for name in models:
        mode = results.answers[name][task].mode
        path = results.run.finished[f"evaluate/{name}"].data / f"{benchmark}.{mode}.jsonl"
        for row in read_lines(path):
            if row["id"] in chosen:
                about = [str(row[key]) for key in ("subject", "level") if row.get(key) is not None]
                question = {"id": row["id"], "question": _cut(row["question"], limit), "answers": {}}
                question |= {"reference": to_html(str(row["reference"])), "about": " · ".join(about)}
                questions.setdefault(row["id"], question)["answers"][name] = _answer(row, limit)
    lead = results.headline
    pair = (
        [lead.better, lead.worse] if lead and {lead.better, lead.worse} <= set(models) else models[-2:][::-1]
    )
    found = {"benchmark": benchmark, "kind": task[1], "models": models, "pair": pair}
    return found | {"total": len(ids), "questions": list(questions.values())}


def browser(results: Results, count: int, limit: int) -> list[dict[str, Any]]:
    """At most `count` questions per task with all models' answers; fewer if the page would grow too large."""
    while True:
        tasks = [_task(results, task, count, limit) for task in results.tasks]
        size = len(json.dumps(tasks, ensure_ascii=False).encode())
        if size <= MAX_BYTES or count == 0:
            return tasks
        count = int(count * 0.95 * MAX_BYTES / size)


def chapter(material: Material) -> dict[str, Any] | None:
    """The browser's controls, if any model was evaluated; the page's script fills them."""
    return {} if material.results.scores else None
