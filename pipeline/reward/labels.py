"""Step labels as in Math-Shepherd: a step is as good as the chance to reach the right answer from it.

The policy samples solutions; each prefix that ends with a step is completed N times and the completions are
graded with the grader of RL and evaluation. Hard label: some completion is right. Soft label: the share that
is. The last step's label is the solution's own verdict. Equal prefixes of one question are completed once.
Departure: Math-Shepherd completes with a model of its own; here the policy completes its own solutions.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.config.reward import RewardSection
from pipeline.evaluate.answers import grade
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.sampling import sample_seed
from pipeline.reward.steps import split_steps, step_ends


@dataclass(frozen=True)
class Solution:
    """A labelled solution.

    `ends`: last token of each step in `tokens`; `hard`, `soft`: labels of the steps; `count`: how often it
    was sampled.
    """

    id: str
    question: str
    reference: str
    tokens: list[int]
    steps: list[str]
    ends: list[int]
    hard: list[int]
    soft: list[float]
    right: bool
    extracted: str | None
    count: int


class Labeller:
    """Makes labelled solutions; `start` makes the `Generator` that holds the policy, on first need."""

    def __init__(
        self, start: Callable[[], Any], tokenizer: Any, section: RewardSection, context: int
    ) -> None:
        self.start, self.tokenizer, self.section, self.context = start, tokenizer, section, context
        self.counters: Counter[str] = Counter()

    @cached_property
    def engine(self) -> Any:
        return self.start()

    def label(self, items: Sequence[Item], prompts: Sequence[list[int]]) -> list[Solution]:
        """Labelled solutions of all items, equal ones once; solutions without any text are left out."""
        seeds = [sample_seed(self.section.seed, "solutions", item.id) for item in items]
        drawn = self._sample(prompts, seeds, self.section.solutions)
        solutions = [Counter(tuple(self._without_special(tokens)) for tokens in row) for row in drawn]
        prefixes = {}
        for index, found in enumerate(solutions):
            for tokens in found:
                for end in step_ends(self.tokenizer, tokens, self.section.split)[:-1]:
                    prefixes.setdefault((index, tokens[: end + 1]), None)
        potentials = self._potentials(items, prompts, list(prefixes))
        return [
            solution
            for index, found in enumerate(solutions)
            for tokens, count in found.items()
            if (solution := self._solution(items[index], index, tokens, count, potentials)) is not None
        ]

    def _without_special(self, tokens: Sequence[int]) -> list[int]:
        special = set(self.tokenizer.all_special_ids)
        return [token for token in tokens if token not in special]

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _sample(self, prompts: Sequence[list[int]], seeds: Sequence[int], n: int) -> list[list[list[int]]]:
        """Token ids of `n` outputs for each prompt; each gets what room its prompt leaves."""
        rooms = [min(self.section.max_tokens, self.context - len(prompt)) for prompt in prompts]
        outputs: list[list[list[int]]] = [[] for _ in prompts]
        for room in sorted({room for room in rooms if room > 0}):
            here = [index for index, other in enumerate(rooms) if other == room]
            drawn = self.engine.generate(
                [prompts[index] for index in here],
                n=n,
                temperature=self.section.temperature,
                top_p=self.section.top_p,
                max_tokens=room,
                seeds=[seeds[index] for index in here],
            )
            for index, samples in zip(here, drawn, strict=True):
                outputs[index] = [list(sample.token_ids) for sample in samples]
                self.counters["vllm.tokens"] += sum(len(sample.token_ids) for sample in samples)
            self.counters["vllm.requests"] += n * len(here)
        return outputs

    def _potentials(
        self,
        items: Sequence[Item],
        prompts: Sequence[list[int]],
        prefixes: Sequence[tuple[int, tuple[int, ...]]],
    ) -> dict[tuple[int, tuple[int, ...]], float]:
        """For each (question, prefix) the share of its completions that reach the reference."""
        seeds = [sample_seed(self.section.seed, items[index].id, str(prefix)) for index, prefix in prefixes]
        starts = [[*prompts[index], *prefix] for index, prefix in prefixes]
        found = {}
        completions = self._sample(starts, seeds, self.section.completions)
        for (index, prefix), outputs in zip(prefixes, completions, strict=True):
            rights = [self._verdict(items[index], [*prefix, *tokens]).right for tokens in outputs]
            found[index, prefix] = sum(rights) / max(1, len(rights))
        return found

    def _verdict(self, item: Item, tokens: Sequence[int]) -> Any:
        text = self._text(tokens)
        return grade(item.answer, text, question=item.question, choices=item.choices, boxed_only=True)

    def _solution(
        self,
        item: Item,
        index: int,
        tokens: tuple[int, ...],
        count: int,
        potentials: dict[tuple[int, tuple[int, ...]], float],
    ) -> Solution | None:
        ends = step_ends(self.tokenizer, tokens, self.section.split)
        if not ends:
            return None
        verdict = self._verdict(item, tokens)
        soft = [potentials[index, tokens[: end + 1]] for end in ends[:-1]] + [float(verdict.right)]
        return Solution(
            id=item.id,
            question=item.question,
            reference=item.answer,
            tokens=list(tokens),
            steps=split_steps(self._text(tokens), self.section.split),
            ends=ends,
            hard=[int(share > 0) for share in soft],
            soft=soft,
            right=verdict.right,
            extracted=verdict.extracted,
            count=count,
        )
