"""Rewards of outputs: the weighted sum of the grader's verdict, the form, a reward model and the user's own.

The verdict comes from the grader of the evaluation with `boxed_only`, its stricter rules for rewards: the
answer must be in a box, and what is right here is right there (`rl.answer: any`: by the rules of the
evaluation itself, which also find an answer in other words). An answer that the grader cannot decide, or
fails on, is `undecided`: it earns nothing and is counted apart. A reward of the user is a function in a
Python file, `reward(item, text) -> float`, named in `rl.rewards.functions`.

Where outputs are programs (`rl.mode: pal`), they run as in the evaluation and the verdict is on what they
print, by the same rules; one that fails or prints nothing is wrong, and the verdict's reason says how it
ended.

With process supervision (paper 4.1.3) a process reward model scores each step. The paper leaves open what
follows: parts that judge a whole output are added to its last step; the last step includes the output's last
token, so that ending is judged too; an output without any text is one step of score 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from mathverdict.answers import Verdict

from pipeline.config.rl import RewardWeights
from pipeline.core.own_files import load_attribute
from pipeline.core.stage import InputError
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.interpreter import Ran
from pipeline.reward.model import StepScorer, score_steps

Function = Callable[[Item, str], float]
PROGRAM = "program: "  # how the reason begins for which a program has no answer


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
    """Return a reward model's score of an output: its weakest step's, or the outcome's; 0 without steps."""
    if not scores:
        return 0.0
    return min(scores) if target == "process" else scores[-1]


def reward_steps(
    scored: Sequence[tuple[int, float]], tokens: int, weight: float, rest: float
) -> tuple[list[int], list[float]]:
    """Return (ends, rewards) of an output's steps: weighted scores, and `rest` on top of the last one."""
    ends, scores = [end for end, _ in scored] or [tokens - 1], [score for _, score in scored] or [0.0]
    ends[-1] = tokens - 1
    rewards = [weight * score for score in scores]
    rewards[-1] += rest
    return ends, rewards


class Rewarder:
    """Rewards outputs by `weights`, some of which need a reward model's `scorer`.

    `by_step`: also the rewards of each step (process supervision); it needs a process reward model. `boxed`:
    only an answer in a box counts. `run`: runs outputs that are programs. Raises InputError for a function of
    the user that cannot be loaded.
    """

    def __init__(
        self,
        weights: RewardWeights,
        scorer: StepScorer | None = None,
        by_step: bool = False,
        boxed: bool = True,
        run: Callable[[Sequence[str]], list[Ran]] | None = None,
    ) -> None:
        self.boxed, self.run = boxed, run
        self.weights, self.scorer, self.by_step = weights.by_part, scorer, by_step
        self.functions = {name: load_function(name) for name, weight in weights.functions.items() if weight}

    def judge(self, items: Sequence[Item], texts: Sequence[str], boxed: bool = False) -> list[Verdict]:
        """Return the verdicts on outputs; of programs that run now, on what they print."""
        if self.run is None:
            return [item.grade(text, boxed_only=boxed) for item, text in zip(items, texts, strict=True)]
        return [_printed(item, *ran, boxed) for item, ran in zip(items, self.run(texts), strict=True)]

    def score(
        self,
        items: Sequence[Item],
        prompts: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        texts: Sequence[str],
    ) -> list[Reward]:
        """Reward outputs (tokens and their text) to the questions `items`.

        Raises InputError where a function of the user fails.
        """
        verdicts = self.judge(items, texts, self.boxed)
        parts = [{"accuracy": float(verdict.right)} for verdict in verdicts]
        for name, function in self.functions.items():
            for part, item, text in zip(parts, items, texts, strict=True):
                part[name.rpartition(":")[2]] = _call(name, function, item, text)
        for part, verdict in zip(parts, verdicts, strict=True):
            if verdict.verdict == "failed":
                part.update(dict.fromkeys(part, 0.0))
        rest = [self._total(part) for part in parts]
        steps: list[tuple[list[int], list[float]]] = [([], [])] * len(parts)
        if self.scorer is not None:
            scored = score_steps(self.scorer, prompts, outputs)
            for item, found in zip(items, scored, strict=True):
                _check_scores(item, [score for _, score in found])
            for part, found in zip(parts, scored, strict=True):
                part["model"] = output_score([score for _, score in found], self.scorer.settings["target"])
            if self.by_step:
                steps = [
                    reward_steps(found, len(output), self.weights["model"], extra)
                    for found, output, extra in zip(scored, outputs, rest, strict=True)
                ]
        return [
            Reward(self._total(part), part, verdict, *step)
            for part, verdict, step in zip(parts, verdicts, steps, strict=True)
        ]

    def _total(self, parts: dict[str, float]) -> float:
        return sum(self.weights[name] * value for name, value in parts.items())


def _printed(item: Item, status: str | None, answer: str | None, reward: bool) -> Verdict:
    """Return the verdict on the answer that a program printed; without one the reason says how it ended."""
    if answer is None:
        ended = "none" if status is None else status.replace("ok", "silent")
        return Verdict("wrong", None, PROGRAM + ended)
    return item.compare(answer, reward=reward)


def _check_scores(item: Item, scores: Sequence[float]) -> None:
    """Raise InputError unless the reward model's scores are numbers; the least of them would hide a NaN."""
    broken = [score for score in scores if not math.isfinite(score)]
    if broken:
        raise InputError(
            f"rl: question {item.id!r}: the reward model's score is {broken[0]}; its weights are unsound,"
            " train it again (its losses are in its metrics.jsonl)"
        )


def load_function(name: str) -> Function:
    """Load the function that `FILE.py:NAME` names; raises InputError where there is none."""
    function = load_attribute(name, "rl.rewards.functions")
    if not callable(function):
        raise InputError(f"rl.rewards.functions: {name}: no function, but {type(function).__name__}")
    return function


def _call(name: str, function: Function, item: Item, text: str) -> float:
    try:
        value = function(item, text)
    except Exception as error:
        raise InputError(f"reward {name}: question {item.id!r}: {type(error).__name__}: {error}") from error
    if not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"reward {name}: question {item.id!r}: expected a finite number, got {value!r}")
    return float(value)
