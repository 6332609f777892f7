"""A reward model on held-out questions: accuracy, calibration, best-of-N against majority vote."""

from collections.abc import Sequence
from math import comb
from statistics import fmean
from typing import Any

import numpy as np
from mathverdict.answers import Verdict

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import majority, pass_at_k
from pipeline.intervals import mean_interval
from pipeline.reward.labels import Solution

BINS = 10


def calibration(probabilities: Sequence[float], labels: Sequence[float]) -> list[dict[str, float]]:
    """Return non-empty equal-width bins of the predictions: size, mean prediction, true share."""
    predicted, true = np.asarray(probabilities), np.asarray(labels, dtype=float)
    places = np.minimum((predicted * BINS).astype(int), BINS - 1)
    return [
        {
            "from": number / BINS,
            "to": (number + 1) / BINS,
            "steps": int(inside.sum()),
            "predicted": float(predicted[inside].mean()),
            "true": float(true[inside].mean()),
        }
        for number in range(BINS)
        if (inside := places == number).any()
    ]


def calibration_error(bins: Sequence[dict[str, float]]) -> float:
    """Return the expected calibration error: mean |predicted - true share| of the bins, weighted by size."""
    total = sum(row["steps"] for row in bins)
    return sum(row["steps"] / total * abs(row["predicted"] - row["true"]) for row in bins)


def best_of_n(scores: Sequence[float], rights: Sequence[bool], n: int) -> float:
    """Return the chance that the best-scored of `n` random candidates is right; ties share the chance."""
    total, above, chance = len(scores), 0, 0.0
    for score in sorted(set(scores), reverse=True):
        group = [right for other, right in zip(scores, rights, strict=True) if other == score]
        best_here = comb(total - above, n) - comb(total - above - len(group), n)
        chance += best_here / comb(total, n) * sum(group) / len(group)
        above += len(group)
    return chance


def reranking(solutions: Sequence[Solution], scores: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return best-of-N, Maj@N and Pass@N over the questions, for N = 1, 2, 4, ... up to all solutions."""
    questions: dict[str, list[int]] = {}
    for index, solution in enumerate(solutions):
        questions.setdefault(solution.id, []).extend([index] * solution.count)
    fewest = min(map(len, questions.values()))
    ns = sorted({2**power for power in range(fewest.bit_length())} | {fewest})
    values: dict[str, dict[int, list[float]]] = {
        name: {n: [] for n in ns} for name in ("best_of_n", "maj@n", "pass@n")
    }
    for members in questions.values():
        chosen = [solutions[index] for index in members]
        rights = [solution.right for solution in chosen]
        verdicts = [Verdict("right" if s.right else "wrong", s.extracted, "") for s in chosen]
        votes = majority(Item(chosen[0].id, chosen[0].question, chosen[0].reference), verdicts, ns)
        ranks = [min(scores[index]) for index in members]  # a solution is its weakest step (Math-Shepherd)
        for n in ns:
            values["best_of_n"][n].append(best_of_n(ranks, rights, n))
            values["maj@n"][n].append(votes[n])
            values["pass@n"][n].append(pass_at_k(len(rights), sum(rights), n))
    result: dict[str, Any] = {"questions": len(questions)}
    for name, by_n in values.items():
        result[name] = {str(n): fmean(found) for n, found in by_n.items()}
        result[f"{name}_ci95"] = {str(n): list(mean_interval(found)) for n, found in by_n.items()}
    return result


def measure(
    solutions: Sequence[Solution], labels: Sequence[Sequence[float]], scores: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return all measures on held-out solutions; `labels` and `scores` are per step (one if by outcome)."""
    flat_labels = [label for row in labels for label in row]
    flat_scores = [score for row in scores for score in row]
    hits = [
        float((score > 0.5) == (label > 0.5)) for score, label in zip(flat_scores, flat_labels, strict=True)
    ]
    share = fmean(label > 0.5 for label in flat_labels)
    bins = calibration(flat_scores, flat_labels)
    return {
        "steps": len(flat_labels),
        "accuracy": fmean(hits),
        "accuracy_ci95": list(mean_interval(hits)),
        "always_the_commoner": max(share, 1 - share),
        "calibration_error": calibration_error(bins),
        "calibration": bins,
        **reranking(solutions, scores),
    }
