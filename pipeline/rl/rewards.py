"""Rewards of outputs: the grader's verdict, the form, and a learned reward model, in weighted sum.

The verdict comes from the grader that the evaluation uses, so reward and metric cannot disagree, except that
here an answer must stand in a box. What the grader cannot decide within its bounds, or fails on, is
`undecided`: it earns no reward and is counted apart.

With process supervision (paper 4.1.3) a process reward model scores each step. What the paper leaves open:
the parts that judge a whole output (accuracy, format) are added to its last step, the last step reaches to
the output's last token, so that ending is judged too, and an output without any text is one step of score 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.config.rl import RewardWeights
from pipeline.evaluate.answers import Verdict, extract
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.grading import grade_answers
from pipeline.reward.model import StepScorer, score_steps


@dataclass(frozen=True)
class Reward:
    """The reward of one output: its parts before weighting, their weighted sum, and the grader's verdict.

    `step_ends`, `step_rewards`: last token and reward of each step; empty without process supervision.
    """

    total: float
    parts: dict[str, float]
    verdict: Verdict
    step_ends: list[int]
    step_rewards: list[float]


def output_score(scores: Sequence[float], target: str) -> float:
    """A reward model's score of a whole output: its weakest step's, or the outcome; 0 without any step."""
    if not scores:
        return 0.0
    return min(scores) if target == "process" else scores[-1]


def reward_steps(
    scored: Sequence[tuple[int, float]], tokens: int, weight: float, rest: float
) -> tuple[list[int], list[float]]:
    """(ends, rewards) of an output's steps: weighted scores, and `rest` on top of the last one."""
    ends, scores = [end for end, _ in scored] or [tokens - 1], [score for _, score in scored] or [0.0]
    ends[-1] = tokens - 1
    rewards = [weight * score for score in scores]
    rewards[-1] += rest
    return ends, rewards


def score_outputs(
    items: Sequence[Item],
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    texts: Sequence[str],
    finished: Sequence[bool],
    weights: RewardWeights,
    scorer: StepScorer | None,
    by_step: bool = False,
) -> list[Reward]:
    """Rewards of outputs (tokens and their text) to the questions `items`; `finished`: not cut off.

    `by_step`: also the rewards of each step (process supervision); it needs a process reward model.
    """
    answers = [extract(text, boxed_only=True) for text in texts]
    verdicts = _verdicts(list(zip(items, answers, strict=True)))
    parts = [{"accuracy": float(verdict.right)} for verdict in verdicts]
    if weights.format:
        for part, answer, done in zip(parts, answers, finished, strict=True):
            part["format"] = float(done and answer is not None)
    rest = [_weighted(part, weights) for part in parts]
    steps: list[tuple[list[int], list[float]]] = [([], [])] * len(parts)
    if scorer is not None:
        scored = score_steps(scorer, prompts, outputs)
        for part, found in zip(parts, scored, strict=True):
            part["model"] = output_score([score for _, score in found], scorer.settings["target"])
        if by_step:
            steps = [
                reward_steps(found, len(output), weights.model, extra)
                for found, output, extra in zip(scored, outputs, rest, strict=True)
            ]
    return [
        Reward(_weighted(part, weights), part, verdict, *step)
        for part, verdict, step in zip(parts, verdicts, steps, strict=True)
    ]


def _verdicts(jobs: Sequence[tuple[Item, str | None]]) -> list[Verdict]:
    """The grader's verdicts; an answer that it fails on is undecided and does not end the run."""
    try:
        return grade_answers(jobs, label=None)
    except Exception as error:
        if len(jobs) == 1:
            return [Verdict("undecided", jobs[0][1], f"the grader failed: {type(error).__name__}")]
        return [verdict for job in jobs for verdict in _verdicts([job])]


def _weighted(parts: dict[str, float], weights: RewardWeights) -> float:
    return sum(getattr(weights, name) * value for name, value in parts.items())
