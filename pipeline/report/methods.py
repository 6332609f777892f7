"""RL methods side by side, each averaged over its seeds (paper section 5.2), and what each costs.

Models that differ only in their seed are seeds of one method: their mean stands for it, with the 95 %
interval of Student's t. A method that was tried with several settings counts as one method for each.
"""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from pipeline.intervals import mean_over_seeds
from pipeline.report.collect import Finished, Run, read_lines
from pipeline.report.compare import VOTING, Answers, Bounded, Results, by_k
from pipeline.report.selection import families, family_name

NAMES = {"rft": "RFT", "online_rft": "Online RFT", "dpo": "DPO", "ppo": "PPO"}


def label(config: dict[str, Any], continued: bool = False) -> str:
    """Get a method as the paper names it, e.g. GRPO+PS, round 2; `continued`: it goes on from an RL model."""
    supervision = "PS" if config.get("supervision") == "process" else "OS"
    method = config.get("method", "grpo")
    name = f"GRPO+{supervision}" if method == "grpo" else NAMES.get(method, method)
    if method == "grpo" and config.get("rewards", {}).get("model") == 0:
        name += " by the rule alone"
    name += {"pal": " with programs", "tool": " with tools"}.get(config.get("mode"), "")
    iteration = config.get("iteration", 1)
    if continued and iteration == 1:
        return f"{name}, round 1 continued"
    return f"{name}, round {iteration}" if iteration > 1 else name


def _told_apart(titles: list[str], marks: list[str]) -> list[str]:
    """Append its mark to each title that several share whose marks differ."""
    pairs = set(zip(titles, marks, strict=True))
    shared = Counter(title for title, _ in pairs)
    return [title + mark if shared[title] > 1 else title for title, mark in zip(titles, marks, strict=True)]


def groups(run: Run) -> dict[str, list[Finished]]:
    """Return a run's RL models by method, each with its seeds; empty unless there are several to compare.
    Where two are of one method, their learning rates are named, or else what their models are called.
    """
    trained = families({"stage": "rl"}, run, every=True)
    found = [names for names in trained if all(f"rl/{name}" in run.finished for name in names)]
    models = [run.models[names[0]] for names in found]
    titles = [label(model.config, f"rl/{model.parent}" in run.finished) for model in models]
    titles = _told_apart(titles, [f", rate {model.config.get('learning_rate', 0):g}" for model in models])
    titles = _told_apart(titles, [f", {family_name(names)}" for names in found])
    titles = _told_apart(titles, [f" ({', '.join(names)})" for names in found])
    seeds = [[run.finished[f"rl/{name}"] for name in names] for names in found]
    return dict(zip(titles, seeds, strict=True)) if len(found) > 1 else {}


def _tokens(result: Finished) -> list[int]:
    """Tokens sampled before each step, and in all."""
    total, found = 0, [0]
    for row in read_lines(result.data / "metrics.jsonl"):
        total += row.get("sampled_tokens", 0)
        found.append(total)
    return found


def _start(result: Finished, run: Run) -> int:
    """Tokens sampled by the rounds before this one."""
    parent = run.models[result.instance].parent
    before = run.finished.get(f"rl/{parent}")
    return _start(before, run) + _tokens(before)[-1] if before else 0


def files_asked(run: Run) -> list[str]:
    """Return the files of held-out questions, if training was evaluated on several."""
    rows = (row for result in run.of("rl") for row in read_lines(result.data / "evaluation.jsonl"))
    return sorted({file for row in rows for file in row.get("accuracy_of", {})})


def learning_curve(seeds: Sequence[Finished], run: Run, file: str | None = None) -> list[Bounded]:
    """Held-out accuracy over sampled tokens, of all questions or those of a file, where all seeds have it."""
    curves = []
    for seed in seeds:
        tokens, start = _tokens(seed), _start(seed, run)
        rows = read_lines(seed.data / "evaluation.jsonl")
        found = [
            (row["step"], row.get("accuracy_of", {}).get(file) if file else row["accuracy"]) for row in rows
        ]
        curves.append([(start + tokens[step], value) for step, value in found if value is not None])
    points = []
    for reached in zip(*curves, strict=False):
        mean, interval = mean_over_seeds([accuracy for _, accuracy in reached])
        points.append((fmean(tokens for tokens, _ in reached), mean, interval))
    return points


def costs(run: Run) -> list[dict[str, Any]]:
    """Means over each method's seeds: sampled tokens, those sampled for the labels of its reward model, FLOP,
    seconds, and the largest memory of a process in bytes. Numbers that a run did not note are None.
    """

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    rows = []
    for name, seeds in groups(run).items():
        logs = [list(read_lines(seed.data / "metrics.jsonl")) for seed in seeds]
        labelled = [
            run.finished[model].run.get("counters", {}).get("vllm.tokens")
            for seed in seeds
            for model in seed.upstream
            if model.startswith("reward/") and model in run.finished
        ]
        memory = [seed.run.get("peak_rss_mb") for seed in seeds]
        row: dict[str, Any] = {"method": name, "seeds": len(seeds)}
        row["tokens"] = fmean(_tokens(seed)[-1] for seed in seeds)
        row["label_tokens"] = mean(labelled)
        row["flop"] = mean([sum(step["flop"] for step in log) for log in logs if log and "flop" in log[0]])
        row["seconds"] = mean([seed.run.get("seconds") for seed in seeds])
        row["memory"] = mean([None if size is None else size * 2**20 for size in memory])
        rows.append(row)
    return rows


def table(run: Run, results: Results) -> list[dict[str, Any]]:
    """Return a row for each method and task: greedy accuracy, Maj@K and Pass@K at the largest K, as means
    over seeds with their intervals, and the gain over the model that they started from, paired by question.
    """
    rows = []
    for name, seeds in groups(run).items():
        models = [seed.instance for seed in seeds]
        starts = sorted({run.models[model].parent or "" for model in models})
        for task in results.tasks:
            scores = [score for model in models if (score := results.score(model, task))]
            if not scores or len(scores) < len(models):
                continue
            row: dict[str, Any] = dict(method=name, seeds=len(models), benchmark=task[0], kind=task[1])
            row["learning_rate"] = seeds[0].config.get("learning_rate")
            row["accuracy"] = mean_over_seeds([score["accuracy"] for score in scores])
            for metric in VOTING:
                largest = [points[-1][1] for score in scores if (points := by_k(score, metric))]
                row[metric] = mean_over_seeds(largest) if len(largest) == len(scores) else None
            gain = results.compare(models, starts, task, Answers.accuracy)
            row["gain"] = (gain.mean, gain.ci95) if gain else None
            rows.append(row)
    return sorted(rows, key=lambda row: (row["benchmark"], row["kind"], row["accuracy"][0]))
