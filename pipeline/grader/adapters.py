"""The grader in the form that other projects call: rewards for TRL and verl.

A reward is 1 or 0 by the rules of RL (`grade` with `boxed_only`): the answer is the last box, and it earns
nothing if another box differs, if its sentence denies it, or if it copies a formula of the question.
"""

from collections.abc import Sequence
from typing import Any

from .answers import Verdict, grade


def _text(completion: str | Sequence[dict[str, str]]) -> str:
    return completion if isinstance(completion, str) else completion[-1]["content"]


def _question(prompt: str | Sequence[dict[str, str]] | None) -> str | None:
    if prompt is None or isinstance(prompt, str):
        return prompt
    return next((message["content"] for message in reversed(prompt) if message["role"] == "user"), None)


def _reward(verdict: Verdict) -> float | None:
    return None if verdict.verdict == "failed" else float(verdict.right)


def trl_reward(
    completions: Sequence[Any], answer: Sequence[str], prompts: Sequence[Any] | None = None, **_: Any
) -> list[float | None]:
    """Reward completions as TRL's trainers ask: `answer` is a column of the dataset. The reward is None,
    which TRL leaves out, where the grader itself failed.
    """
    asked = prompts or [None] * len(completions)
    return [
        _reward(grade(reference, _text(completion), question=_question(prompt), boxed_only=True))
        for completion, reference, prompt in zip(completions, answer, asked, strict=True)
    ]


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> float:
    """Score a solution as verl's reward manager asks; `extra_info` may hold the `question`."""
    question = (extra_info or {}).get("question")
    return _reward(grade(ground_truth, solution_str, question=question, boxed_only=True)) or 0.0
