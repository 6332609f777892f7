"""Rewards of outputs: the grader's verdict, the form, and a learned reward model, in weighted sum.

The verdict comes from the grader that the evaluation uses, so reward and metric cannot disagree, except that
here an answer must stand in a box. `undecided` earns no reward and is counted apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.rl import RewardWeights
from pipeline.evaluate.answers import Verdict, extract
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.grading import grade_answers
from pipeline.reward.model import Scorer, score_steps


@dataclass(frozen=True)
class Reward:
    """The reward of one output: its parts before weighting, their weighted sum, and the grader's verdict."""

    total: float
    parts: dict[str, float]
    verdict: Verdict


def output_score(scores: Sequence[float], target: str) -> float:
    """A reward model's score of a whole output: its weakest step's, or the outcome; 0 without any step."""
    if not scores:
        return 0.0
    return min(scores) if target == "process" else scores[-1]


def score_outputs(
    items: Sequence[Item],
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    texts: Sequence[str],
    finished: Sequence[bool],
    weights: RewardWeights,
    scorer: Scorer | None,
) -> list[Reward]:
    """Rewards of outputs (tokens and their text) to the questions `items`; `finished`: not cut off."""
    answers = [extract(text, boxed_only=True) for text in texts]
    verdicts = grade_answers(list(zip(items, answers, strict=True)), label=None)
    parts = [{"accuracy": float(verdict.right)} for verdict in verdicts]
    if weights.format:
        for part, answer, done in zip(parts, answers, finished, strict=True):
            part["format"] = float(done and answer is not None)
    if scorer is not None:
        steps = score_steps(scorer, prompts, outputs)
        for part, scored in zip(parts, steps, strict=True):
            part["model"] = output_score([score for _, score in scored], scorer.settings["target"])
    return [
        Reward(sum(getattr(weights, name) * value for name, value in part.items()), part, verdict)
        for part, verdict in zip(parts, verdicts, strict=True)
    ]
