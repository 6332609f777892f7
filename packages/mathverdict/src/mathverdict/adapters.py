"""The grader in the form that other projects call: rewards for TRL and verl, scores for lighteval,
lm-evaluation-harness and inspect_ai.

A reward is 1 or 0 by the rules of RL (`grade` with `boxed_only`): the answer is the last box, and it earns
nothing if another box differs, if its sentence denies it, or if it copies a formula of the question. A score
is 1 or 0 by the rules of evaluation, which also find an answer in other words.
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


def process_results(doc: dict[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Score the first output as lm-evaluation-harness asks (`process_results: !function ...` of a task).

    `doc` has an `answer` and perhaps a `question`; the metric is called `mathverdict`.
    """
    verdict = grade(str(doc["answer"]), results[0], question=doc.get("question"))
    return {"mathverdict": float(verdict.right)}


def lighteval_metric() -> Any:
    """Make a metric of lighteval 0.13 for tasks whose gold choice is the reference answer."""
    from lighteval.metrics.metrics_sample import SampleLevelComputation
    from lighteval.metrics.utils.metric_utils import SampleLevelMetric
    from lighteval.tasks.requests import SamplingMethod

    class Correct(SampleLevelComputation):
        def compute(self, doc: Any, model_response: Any, **_: Any) -> float:
            golds, text = doc.get_golds(), model_response.final_text[0]
            return float(any(grade(gold, text, question=doc.query).right for gold in golds))

    return SampleLevelMetric(
        metric_name="mathverdict",
        higher_is_better=True,
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=Correct(),
        corpus_level_fn=lambda values: sum(values) / len(values),
    )


def inspect_scorer() -> Any:
    """Make a scorer of inspect_ai; the target's text is the reference answer."""
    from inspect_ai.scorer import CORRECT, INCORRECT, Score, accuracy, scorer, stderr

    @scorer(metrics=[accuracy(), stderr()], name="mathverdict")
    def mathverdict() -> Any:
        async def score(state: Any, target: Any) -> Any:
            verdict = grade(target.text, state.output.completion, question=state.input_text)
            value = CORRECT if verdict.right else INCORRECT
            return Score(value=value, answer=verdict.extracted, explanation=verdict.reason)

        return score

    return mathverdict()
