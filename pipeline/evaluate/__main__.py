"""Evaluate a model on its benchmarks in all their modes (paper section 8): greedy accuracy, Maj@K, Pass@K.

Inputs: `model`, a folder or hub id; `benchmark.NAME`, files or a hub id; `exemplars.NAME`, bench-format files
for few-shot prompts; `prompt.NAME` and `pal_prompt.NAME`, their layouts; `removals`, the matches that
decontamination found. Writes `scores.json` {benchmark: {mode: {...}}} and, for each benchmark and mode, a
file with all questions, answers and verdicts, and one with the exemplars of a few-shot prompt. What an
earlier evaluation of the same model has answered is not asked again. Ranks share out batches of questions,
each with an engine of its own; rank 0 grades and writes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from mathverdict.answers import Verdict

import pipeline.training.environment  # noqa: F401 (before torch and vLLM)
from pipeline.config.evaluate import BenchmarkNode, EvaluateSection, Mode
from pipeline.core.data.rows import read_rows, write_lines
from pipeline.core.ending import say
from pipeline.core.launch.queue import Queue, make_together, queue_of_ranks
from pipeline.core.manifest import ROOT, fingerprint, write_json
from pipeline.core.progress import Progress
from pipeline.core.stage import InputError, Stage, label, run_stage
from pipeline.core.watchdog import beat
from pipeline.evaluate import paper_grader
from pipeline.evaluate.benchmarks import Item, load, without_choices
from pipeline.evaluate.interpreter import check_namespaces, is_weak
from pipeline.evaluate.metrics import (
    accuracy,
    at_k,
    by_label,
    contamination,
    describe_unfinished,
    right_and_finished,
)
from pipeline.evaluate.profiles import STRICT, Profile, grade_answer, grade_response, last_output
from pipeline.evaluate.prompts import chat_prompt, choose_exemplars, few_shot_prompt, read_layout
from pipeline.evaluate.proofs import NOT_CHECKED, check_proofs
from pipeline.evaluate.reuse import SCORES, TASKS, copy_earlier, task_fingerprint
from pipeline.evaluate.sampling import PASSED, PROMPT_TOO_LONG, Answer, Decoding, Request, Sampler
from pipeline.training.asking import Model, open_model


@dataclass(frozen=True)
class Task:
    """A benchmark in one mode, ready to be sampled."""

    benchmark: str
    mode: Mode
    items: list[Item]
    prompts: list[list[int]]
    stop: tuple[str, ...]
    samples: int
    exemplars: tuple[Item, ...] = ()
    profile: Profile = Profile(STRICT)

    @property
    def name(self) -> str:
        return f"{self.benchmark}.{self.mode}"

    @property
    def kind(self) -> str:
        """The kind of its answers: cot, pal, tool, code or proof."""
        return self.mode.rpartition("_")[2]


def check_rows(name: str, items: Sequence[Item], mode: Mode) -> None:
    """Raise InputError where a question lacks what decides in `mode`, or an answer to compare with."""
    kind = mode.rpartition("_")[2]
    for item in items:
        has = "code" if item.tests is not None else "proof" if item.formal is not None else ""
        if has != (kind if kind in ("code", "proof") else ""):
            wanted = {"code": "`tests`", "proof": "a `formal_statement`"}.get(kind, "a reference answer")
            raise InputError(f"benchmark {name}, mode {mode}: question {item.id!r} has to have {wanted}")


def make_task(
    stage: Stage[EvaluateSection], name: str, node: BenchmarkNode, mode: Mode, model: Model
) -> Task:
    """Load a benchmark and write its prompts."""
    section = stage.config
    items = load(name, node, stage.inputs.get(f"benchmark.{name}", []))
    samples = section.samples_of(node, mode)
    profile = Profile(node.profile, name)
    check_rows(name, items, mode)
    if mode.startswith("chat"):
        suffix = section.suffix if mode == "chat_cot" else section.tool_suffix
        prompts = [
            chat_prompt(model.tokenizer, item, suffix.get(item.lang, ""), model.path) for item in items
        ]
        return Task(name, mode, items, prompts, (), samples, profile=profile)
    key, default = ("pal_prompt", node.pal_prompt) if mode == "few_shot_pal" else ("prompt", node.prompt)
    layout = read_layout(Path(*stage.inputs.get(f"{key}.{name}", [ROOT / default])))
    sources = stage.inputs.get(f"exemplars.{name}", [])
    own = BenchmarkNode(source=sources, language=node.language, fields=node.fields)
    wanted = node.shots and sources and not layout.exemplars
    pool = load(f"{name} exemplars", own, sources) if wanted else []
    shots = choose_exemplars(layout, pool, node.shots, f"benchmarks.{name}")
    prompts = [few_shot_prompt(model.tokenizer, layout, shots, item) for item in items]
    return Task(name, mode, items, prompts, tuple(layout.stop), samples, tuple(shots), profile)


def make_tasks(stage: Stage[EvaluateSection], model: Model) -> list[Task]:
    """All benchmarks of the model in all their modes."""
    section = stage.config
    pairs = [(name, mode) for name in section.benchmarks for mode in section.asked(name)]
    return [make_task(stage, name, section.benchmarks[name], mode, model) for name, mode in pairs]


def make_sampler(stage: Stage[EvaluateSection], model: Model, tasks: list[Task]) -> Sampler:
    """Return a sampler whose engine has room for the longest prompt and its answer."""
    section = stage.config
    longest = max((len(prompt) for task in tasks for prompt in task.prompts), default=1)
    longer = section.max_tokens
    if any(task.kind == "tool" for task in tasks):  # a character has at most four bytes, or tokens
        longer += (section.tool_rounds - 1) * (section.max_tokens + 4 * section.tool_result + 64)
    length = min(model.context, longest + longer)

    def start() -> Any:
        from pipeline.training.generation import Generator

        return Generator(model.path, dtype=model.dtype, max_model_len=length, seed=stage.config.seed)

    folder = stage.work / "samples"
    if stage.entry:  # beside the work folder, which is named after the grader's code too
        folder = stage.work.with_name("samples") / fingerprint(stage.identity["inputs"]["model"])
    made = stage.counters, stage.code, is_weak(stage)
    return Sampler(folder, model.tokenizer, model.context, section.batch, start, *made)


def result_row(answer: Answer, verdict: Verdict) -> dict[str, Any]:
    """Return an answer and its verdict as a row of the results."""
    return {
        "text": answer.text,
        "extracted": verdict.extracted,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "finish_reason": answer.finish_reason,
        "tokens": answer.tokens,
    } | ({} if answer.status is None else {"program": answer.status})


def _verdict(task: Task, item: Item, answer: Answer) -> Verdict:
    if answer.finish_reason == PROMPT_TOO_LONG:
        return Verdict("wrong", None, PROMPT_TOO_LONG)
    if task.kind == "code":
        return Verdict("right" if answer.output == PASSED else "wrong", answer.output, "tests")
    if task.kind == "pal":
        return grade_answer(task.profile, item, answer.output)
    return grade_response(task.profile, item, answer.text)


def _grade(label: str, task: Task, answers: list[list[Answer]]) -> list[list[Verdict]]:
    verdicts = []
    with Progress(f"{label}: grades {task.name}", sum(map(len, answers)), unit="answer") as bar:
        for item, row in zip(task.items, answers, strict=True):
            verdicts.append([_verdict(task, item, answer) for answer in row])
            bar.update(len(row))
            beat()
    return verdicts


def _rows(task: Task, answers: list[list[Answer]], verdicts: list[list[Verdict]]) -> Iterator[dict[str, Any]]:
    """Yield a row per question: greedy answer first, then samples."""
    for item, row, judged in zip(task.items, answers, verdicts, strict=True):
        greedy, *samples = map(result_row, row, judged)
        facts = {"id": item.id, "question": item.text, "reference": item.answer, **item.labels}
        yield {**facts, "greedy": greedy, "samples": samples}


def _write_exemplars(path: Path, exemplars: Sequence[Item]) -> None:
    """Write the exemplars of a few-shot prompt, in their order; no file without any."""
    rows = [
        {"id": item.id, "question": item.text, "solution": item.solution, "answer": item.answer}
        for item in exemplars
    ]
    if rows:
        write_lines(path, rows)


def _decoding(task: Task, section: EvaluateSection, n: int, temperature: float) -> Decoding:
    plain = Decoding(n, temperature, section.max_tokens, section.seed)
    if task.kind == "cot":
        return plain
    if task.kind == "proof":
        return replace(plain, kind="proof")
    rounds = section.tool_rounds if task.kind == "tool" else 1
    return replace(
        plain, kind=task.kind, rounds=rounds, seconds=section.tool_seconds, result=section.tool_result
    )


def requests_of(task: Task, section: EvaluateSection) -> list[Request]:
    """Return what a task asks of the model: greedy answers, and samples if it has any."""
    ids = [item.id for item in task.items]
    around = [(item.start, item.tests or "") for item in task.items] if task.kind == "code" else ()
    greedy = _decoding(task, section, 1, 0.0)
    found = [Request(f"{task.name}.greedy", ids, task.prompts, task.stop, greedy, around)]
    if task.samples:
        several = _decoding(task, section, task.samples, section.temperature)
        found.append(Request(f"{task.name}.samples", ids, task.prompts, task.stop, several, around))
    return found


def task_scores(
    items: Sequence[Item],
    answers: Sequence[Answer],
    verdicts: Sequence[Verdict],
    samples: Sequence[Sequence[Verdict]],
    ks: Sequence[int],
    flagged: set[str] | None,
) -> dict[str, Any]:
    """All numbers of `scores.json` for one task; rates are counts of greedy answers."""
    rights = [float(verdict.right) for verdict in verdicts]
    programs = [answer.status for answer in answers if answer.status is not None]
    rare = {
        "not_judged": sum(verdict.verdict == "failed" for verdict in verdicts),
        "not_checked": sum(verdict.reason == NOT_CHECKED for verdict in verdicts),
        "no_choices": len(without_choices(items)),
    }
    return {
        **accuracy(rights),
        "right_and_finished": right_and_finished(rights, [row.finish_reason == "stop" for row in answers]),
        **at_k(items, samples, ks),
        "by": by_label(items, rights),
        **({} if flagged is None else {"contamination": contamination(items, rights, flagged)}),
        "undecided": sum(verdict.verdict == "undecided" for verdict in verdicts),
        **{name: count for name, count in rare.items() if count},
        "no_answer": sum(verdict.extracted is None for verdict in verdicts),
        "truncated": sum(answer.finish_reason == "length" for answer in answers),
        "prompt_too_long": sum(answer.finish_reason == PROMPT_TOO_LONG for answer in answers),
        **({"programs": len(programs), "failed": len(programs) - programs.count("ok")} if programs else {}),
        "tokens": fmean(answer.tokens for answer in answers),
    }


def evaluate(
    task: Task, stage: Stage[EvaluateSection], sampler: Sampler, flagged: set[str] | None
) -> dict[str, Any]:
    """Grade and score the answers of one task; writes its rows and returns its scores.

    `flagged`: ids of the questions found in the training corpus; None if there is no corpus.
    """
    section, folder = stage.config, stage.partial
    drawn = map(sampler.sample, requests_of(task, section))
    answers = [[answer for part in parts for answer in part] for parts in zip(*drawn, strict=True)]
    if task.kind == "proof":
        texts = [[answer.text for answer in row] for row in answers]
        checks = f"{label(stage)}: checks {task.name}"
        verdicts = check_proofs(checks, task.items, texts, section, stage.work / "proofs")
    else:
        verdicts = _grade(label(stage), task, answers)
    write_lines(folder / f"{task.name}.jsonl", _rows(task, answers, verdicts))
    _write_exemplars(folder / f"{task.name}.exemplars.jsonl", task.exemplars)
    firsts = [row[0] for row in answers]
    found = task_scores(
        task.items,
        firsts,
        [row[0] for row in verdicts],
        [row[1:] for row in verdicts],
        section.k,
        flagged,
    )
    if line := describe_unfinished(found["accuracy"], found["right_and_finished"]):
        say(f"{label(stage)}: {task.name}: {line}; raise evaluate.max_tokens")
    if task.kind == "tool":  # the paper's second score (section 8.2): of the last program's output
        outputs = [
            item.compare(last_output(answer.text)) for item, answer in zip(task.items, firsts, strict=True)
        ]
        found["program_accuracy"] = fmean(verdict.right for verdict in outputs)
    return found | (paper_grader.scores(task.name, task.items, firsts) if section.official else {})


def flagged_items(stage: Stage[EvaluateSection], task: Task) -> set[str] | None:
    """Ids of the task's questions that decontamination found in kept pages; None without a corpus."""
    if "removals" not in stage.inputs:
        return None
    rows = (row for path in stage.inputs["removals"] for _, row in read_rows(path))
    found = {str(row["item"]) for row in rows if row["benchmark"] == task.benchmark}
    return {item.id for item in task.items} & found


def answer_all(
    stage: Stage[EvaluateSection],
    queue: Queue,
    tasks: Sequence[Task],
    sampler: Sampler,
    found: Mapping[str, Any],
) -> None:
    """Sample the answers of the tasks, without those whose scores rank 0 has `found`; all ranks call it."""
    batches = [
        None if found.get(task.name) else batch
        for task in tasks
        for request in requests_of(task, stage.config)
        for batch in sampler.batches(request)
    ]
    make_together(queue, f"{label(stage)}: samples", batches)


def score_all(
    stage: Stage[EvaluateSection], queue: Queue, tasks: Sequence[Task], sampler: Sampler
) -> dict[str, dict[str, Any]]:
    """Rank 0's part: scores of all benchmarks in all modes, from earlier results where they are there."""
    flagged = {task.name: flagged_items(stage, task) for task in tasks}
    marks = {
        task.name: task_fingerprint(stage, task.benchmark, task.mode, flagged[task.name]) for task in tasks
    }
    earlier = [entry.data for entry in stage.entry.others()] if stage.entry else []
    found = {name: copy_earlier(name, mark, earlier, stage.partial) for name, mark in marks.items()}
    answer_all(stage, queue, tasks, sampler, found)
    scores: dict[str, dict[str, Any]] = {}
    for task in tasks:
        scores.setdefault(task.benchmark, {})[task.mode] = found[task.name] or evaluate(
            task, stage, sampler, flagged[task.name]
        )
    write_json(stage.partial / SCORES, scores)
    write_json(stage.partial / TASKS, marks)
    return scores


def run(stage: Stage[EvaluateSection]) -> dict[str, int | float | str]:
    """Evaluate the model; returns the numbers of benchmarks, questions and answers."""
    if stage.config.runs_programs:
        check_namespaces(stage)
    queue = queue_of_ranks(stage.counters)
    (path,) = stage.inputs.get("model", [""])
    model = open_model(path)
    tasks = make_tasks(stage, model)
    sampler = make_sampler(stage, model, tasks)
    try:
        if stage.is_main:
            scores = score_all(stage, queue, tasks, sampler)
        else:
            answer_all(stage, queue, tasks, sampler, {})
            return {}
    finally:
        sampler.close()
    return {
        "benchmarks": len(scores),
        "questions": sum(len(task.items) for task in tasks),
        "answers": sum(len(task.items) * (1 + task.samples) for task in tasks),
    }


if __name__ == "__main__":
    run_stage("evaluate", EvaluateSection, run)
