"""Step labels as in Math-Shepherd: a step's label estimates the chance to reach the right answer from it.

The policy samples solutions. Each prefix that ends with a step is completed N times, and the grader of RL and
evaluation judges the completions. Hard label: at least one completion is right. Soft label: the share that is
right. The last step's label is the solution's own verdict. Equal prefixes of one question are completed once.
Math-Shepherd uses a separate completer; here the policy completes. For an outcome model a solution is one
step, and nothing is completed. What the grader itself fails on (`failed`) labels nothing: neither completions
nor solutions count.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from mathverdict.answers import Verdict

from pipeline.config.reward import TEMPERATURE, RewardSection
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.sampling import sample_seed
from pipeline.reward.steps import locate_steps
from pipeline.training.asking import draw_in_context

Prefix = tuple[int, tuple[int, ...]]  # index of the question, tokens of a solution up to the end of a step


@dataclass(frozen=True)
class Solution:
    """A labelled solution.

    `prompt`, `tokens`: what the policy saw and sampled; `ends`: each step's last token, an index in `tokens`;
    `hard`, `soft`: labels of the steps; `count`: how often it was sampled.
    """

    id: str
    question: str
    reference: str
    prompt: list[int]
    tokens: list[int]
    steps: list[str]
    ends: list[int]
    hard: list[int]
    soft: list[float]
    right: bool
    extracted: str | None
    count: int


class SolutionSampler:
    """A model that samples; `start` makes its `Generator` when first needed, `context` limits a sequence.

    What is sampled is added to `counters`.
    """

    def __init__(
        self,
        start: Callable[[], Any],
        tokenizer: Any,
        section: RewardSection,
        context: int,
        counters: Counter[str] | None = None,
    ) -> None:
        self.start, self.tokenizer, self.section, self.context = start, tokenizer, section, context
        self.counters = Counter() if counters is None else counters

    @cached_property
    def engine(self) -> Any:
        return self.start()

    def release(self) -> None:
        """Free the GPU's memory for good, where vLLM can."""
        if "engine" in self.__dict__:
            self.engine.sleep()

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def sample(self, prompts: Sequence[list[int]], seeds: Sequence[int], n: int) -> list[list[list[int]]]:
        """Return token ids of `n` outputs for each prompt (see `draw_in_context`)."""
        section = self.section
        drawn = draw_in_context(
            self.engine,
            prompts,
            [min(section.max_tokens, self.context - len(prompt)) for prompt in prompts],
            seeds,
            self.counters,
            n=n,
            temperature=TEMPERATURE,
        )
        return [[list(sample.token_ids) for sample in samples] for samples in drawn]


class Labeller:
    """Makes labelled solutions."""

    def __init__(self, section: RewardSection, policy: SolutionSampler) -> None:
        self.section, self.policy = section, policy

    def start(self) -> None:
        """Start the engine. vLLM makes groups of all ranks then, so every rank calls it or none."""
        _ = self.policy.engine

    def label(self, items: Sequence[Item], prompts: Sequence[list[int]]) -> list[Solution]:
        """Return labelled solutions of all items; equal ones appear once, those without text not at all."""
        seeds = [sample_seed(self.section.seed, "solutions", item.id) for item in items]
        drawn = self.policy.sample(prompts, seeds, self.section.solutions)
        sampled = Counter(
            (index, self._without_special(tokens)) for index, row in enumerate(drawn) for tokens in row
        )
        steps = {solution: self._steps(solution[1]) for solution in sampled}
        prefixes = list(
            dict.fromkeys(
                (index, tokens[: end + 1])
                for (index, tokens), found in steps.items()
                for _, end in found[:-1]
            )
        )
        potentials = self._potentials(items, prompts, prefixes)
        chosen = [solution for solution in sampled if steps[solution]]
        verdicts = self._verdicts(items, [(index, self.policy.text(tokens)) for index, tokens in chosen])
        labelled = []
        for (index, tokens), verdict in zip(chosen, verdicts, strict=True):
            ends = [end for _, end in steps[index, tokens]]
            soft = [potentials[index, tokens[: end + 1]] for end in ends[:-1]] + [_share([verdict])]
            if None in soft:
                continue
            labelled.append(
                Solution(
                    id=items[index].id,
                    question=items[index].question,
                    reference=items[index].answer,
                    prompt=list(prompts[index]),
                    tokens=list(tokens),
                    steps=[text for text, _ in steps[index, tokens]],
                    ends=ends,
                    hard=[int(share > 0) for share in soft],
                    soft=soft,
                    right=verdict.right,
                    extracted=verdict.extracted,
                    count=sampled[index, tokens],
                )
            )
        return labelled

    def _steps(self, tokens: Sequence[int]) -> list[tuple[str, int]]:
        """Return (text, index of its last token) of the steps to label; for an outcome model one step."""
        steps = locate_steps(self.policy.tokenizer, tokens)
        if self.section.target == "outcome" and steps:
            return [("".join(text for text, _ in steps), steps[-1][1])]
        return steps

    def _without_special(self, tokens: Sequence[int]) -> tuple[int, ...]:
        special = set(self.policy.tokenizer.all_special_ids)
        return tuple(token for token in tokens if token not in special)

    def _potentials(
        self, items: Sequence[Item], prompts: Sequence[list[int]], prefixes: Sequence[Prefix]
    ) -> dict[Prefix, float | None]:
        """Return each prefix's share of completions that reach the reference; 0 if it leaves no room, None if
        none could be judged.
        """
        if not prefixes:
            return {}
        starts = [[*prompts[index], *tokens] for index, tokens in prefixes]
        seeds = [sample_seed(self.section.seed, items[index].id, str(tokens)) for index, tokens in prefixes]
        drawn = self.policy.sample(starts, seeds, self.section.completions)
        wholes = [
            [self.policy.text([*prefix, *tokens]) for tokens in outputs]
            for (_, prefix), outputs in zip(prefixes, drawn, strict=True)
        ]
        jobs = [(index, whole) for (index, _), row in zip(prefixes, wholes, strict=True) for whole in row]
        verdicts = iter(self._verdicts(items, jobs))
        return {
            prefix: _share([next(verdicts) for _ in row]) if row else 0.0
            for prefix, row in zip(prefixes, wholes, strict=True)
        }

    def _verdicts(self, items: Sequence[Item], texts: Sequence[tuple[int, str]]) -> list[Verdict]:
        """Grade (index of the question, text); as in RL, only a boxed answer counts."""
        return [items[index].grade(text, boxed_only=True) for index, text in texts]


def _share(verdicts: Sequence[Verdict]) -> float | None:
    """Return the share of right ones among those that the grader did not fail on; None without any."""
    judged = [verdict.right for verdict in verdicts if verdict.verdict != "failed"]
    return fmean(judged) if judged else None
