"""Evaluate a model on its benchmarks in all their modes (paper section 8): greedy accuracy, Maj@K, Pass@K.

Inputs: `model`, a folder or hub id; `benchmark.NAME`, files or a hub id; `exemplars.NAME`, bench-format files
for few-shot prompts. Writes `scores.json` {benchmark: {mode: {...}}} and, for each benchmark and mode, a file
with every question's answers and verdicts.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pipeline.common.environment  # noqa: F401 (before torch and vLLM)
from pipeline.common.manifest import ROOT, write_json
from pipeline.common.stage import InputError, Stage, run_stage
from pipeline.config.evaluate import BenchmarkNode, EvaluateSection, Mode
from pipeline.evaluate.answers import Verdict
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.grading import grade_responses
from pipeline.evaluate.prompts import chat_prompt, choose_exemplars, few_shot_prompt, read_layout
from pipeline.evaluate.sampling import PROMPT_TOO_LONG, Answer, Decoding, Sampler
from pipeline.evaluate.scores import accuracy, at_k


@dataclass(frozen=True)
class Task:
    """A benchmark in one mode, ready to be sampled."""

    benchmark: str
    mode: Mode
    items: list[Item]
    prompts: list[list[int]]
    stop: tuple[str, ...]
    samples: int

    @property
    def name(self) -> str:
        return f"{self.benchmark}.{self.mode}"


@dataclass(frozen=True)
class Model:
    """What the evaluation needs to know of a model before the engine starts; `context` in tokens."""

    path: str
    tokenizer: Any
    context: int
    dtype: str


def open_model(path: str) -> Model:
    """Read configuration and tokenizer of a model folder or hub id."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(path)
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a model folder or hub id ({str(error).splitlines()[0]})") from error
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return Model(path, tokenizer, config.max_position_embeddings, dtype)


def make_task(
    stage: Stage[EvaluateSection], name: str, node: BenchmarkNode, mode: Mode, model: Model
) -> Task:
    """Load a benchmark and write its prompts."""
    section = stage.config
    items = load(name, node, stage.inputs.get(f"benchmark.{name}", []))
    samples = section.samples if node.samples is None else node.samples
    if mode == "chat_cot":
        prompts = [
            chat_prompt(model.tokenizer, item, section.suffix.get(item.lang, ""), model.path)
            for item in items
        ]
        return Task(name, mode, items, prompts, (), samples)
    layout = read_layout(ROOT / node.prompt)
    sources = stage.inputs.get(f"exemplars.{name}", [])
    pool = (
        load(
            f"{name} exemplars",
            BenchmarkNode(source=sources, language=node.language, fields=node.fields),
            sources,
        )
        if sources
        else []
    )
    shots = choose_exemplars(layout, pool, node.shots, f"benchmarks.{name}")
    prompts = [few_shot_prompt(model.tokenizer, layout, shots, item) for item in items]
    return Task(name, mode, items, prompts, tuple(layout.stop), samples)


def make_tasks(stage: Stage[EvaluateSection], model: Model) -> list[Task]:
    """All benchmarks of the model in all their modes."""
    section = stage.config
    pairs = [
        (name, mode)
        for name, node in section.benchmarks.items()
        for mode in (node.modes if node.modes is not None else section.modes.get(section.model_stage, []))
    ]
    return [make_task(stage, name, section.benchmarks[name], mode, model) for name, mode in pairs]


def make_sampler(stage: Stage[EvaluateSection], model: Model, tasks: list[Task]) -> Sampler:
    """A sampler whose engine is as long as the longest prompt and answer need."""
    longest = max((len(prompt) for task in tasks for prompt in task.prompts), default=1)
    length = min(model.context, longest + stage.config.max_tokens)

    def start() -> Any:
        from pipeline.common.generation import Generator

        return Generator(model.path, dtype=model.dtype, max_model_len=length, seed=stage.config.seed)

    return Sampler(
        stage.work / "samples", model.tokenizer, model.context, stage.config.batch, start, stage.counter
    )


def graded(answer: Answer, verdict: Verdict) -> dict[str, Any]:
    """An answer and its verdict as they stand in the results."""
    return {
        "text": answer.text,
        "extracted": verdict.extracted,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "finish_reason": answer.finish_reason,
        "tokens": answer.tokens,
    }


def _grade(task: Task, answers: list[list[Answer]]) -> list[list[Verdict]]:
    flat = [(item, answer) for item, row in zip(task.items, answers, strict=True) for answer in row]
    found = grade_responses(
        [item for item, _ in flat], [answer.text for _, answer in flat], f"grade {task.name}"
    )
    verdicts = iter(
        Verdict("wrong", None, PROMPT_TOO_LONG) if answer.finish_reason == PROMPT_TOO_LONG else verdict
        for (_, answer), verdict in zip(flat, found, strict=True)
    )
    return [[next(verdicts) for _ in row] for row in answers]


def _write_rows(path: Path, task: Task, *passes: tuple[list[list[Answer]], list[list[Verdict]]]) -> None:
    """One line per question: greedy answer first, then samples."""
    with path.open("w") as file:
        for index, item in enumerate(task.items):
            (greedy,), samples = (
                [
                    graded(answer, verdict)
                    for answer, verdict in zip(answers[index], verdicts[index], strict=True)
                ]
                for answers, verdicts in passes
            )
            row = {"id": item.id, "question": item.text, "reference": item.answer, **item.labels}
            file.write(json.dumps({**row, "greedy": greedy, "samples": samples}, ensure_ascii=False) + "\n")


def evaluate(task: Task, section: EvaluateSection, sampler: Sampler, folder: Path) -> dict[str, Any]:
    """Sample, grade and score one task; writes its rows and returns its scores."""
    ids = [item.id for item in task.items]
    greedy = Decoding(1, 0.0, 1.0, section.max_tokens, section.seed)
    several = Decoding(task.samples, section.temperature, section.top_p, section.max_tokens, section.seed)
    answers = sampler.sample(f"{task.name}.greedy", ids, task.prompts, task.stop, greedy)
    samples = (
        sampler.sample(f"{task.name}.samples", ids, task.prompts, task.stop, several)
        if task.samples
        else [[] for _ in ids]
    )
    verdicts, sample_verdicts = _grade(task, answers), _grade(task, samples)
    _write_rows(folder / f"{task.name}.jsonl", task, (answers, verdicts), (samples, sample_verdicts))
    firsts = [answer for (answer,) in answers]
    return {
        **accuracy([float(verdict.right) for (verdict,) in verdicts]),
        **at_k(task.items, sample_verdicts, section.k),
        "undecided": sum(verdict.verdict == "undecided" for (verdict,) in verdicts),
        "no_answer": sum(verdict.extracted is None for (verdict,) in verdicts),
        "truncated": sum(answer.finish_reason == "length" for answer in firsts),
        "prompt_too_long": sum(answer.finish_reason == PROMPT_TOO_LONG for answer in firsts),
        "tokens": fmean(answer.tokens for answer in firsts),
    }


def run(stage: Stage[EvaluateSection]) -> dict[str, int | float | str]:
    """Evaluate the model; returns the numbers of benchmarks, questions and answers."""
    (path,) = stage.inputs.get("model", [""])
    model = open_model(path)
    tasks = make_tasks(stage, model)
    sampler = make_sampler(stage, model, tasks)
    scores: dict[str, dict[str, Any]] = {}
    for task in tasks:
        scores.setdefault(task.benchmark, {})[task.mode] = evaluate(
            task, stage.config, sampler, stage.partial
        )
    write_json(stage.partial / "scores.json", scores)
    return {
        "benchmarks": len(scores),
        "questions": sum(len(task.items) for task in tasks),
        "answers": sum(len(task.items) * (1 + task.samples) for task in tasks),
    }


if __name__ == "__main__":
    run_stage("evaluate", EvaluateSection, run)
