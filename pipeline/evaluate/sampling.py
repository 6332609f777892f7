"""Sampling for the evaluation, saved batch by batch.

Each batch of questions is one file under the stage's work folder, named by a hash of everything that decides
its content (prompts, decoding, seeds). A batch is written whole or not at all, so that a killed run resumes
with the next batch, and a changed grader grades again without sampling. The engine starts only if something
is left to sample.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.common.batches import saved_batch
from pipeline.common.progress import Progress

PROMPT_TOO_LONG = "prompt_too_long"


@dataclass(frozen=True)
class Answer:
    """One answer as text. `finish_reason`: stop, length, or prompt_too_long (no room for an answer)."""

    text: str
    finish_reason: str
    tokens: int


@dataclass(frozen=True)
class Decoding:
    """How answers are drawn: `n` per question; temperature 0 is greedy."""

    n: int
    temperature: float
    top_p: float
    max_tokens: int
    seed: int


def sample_seed(seed: int, name: str, item: str) -> int:
    """Seed of a question's first sample: it depends on the question's id, not on its place."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}/{item}".encode()).digest()[:4]) >> 1


class Sampler:
    """Draws answers from a model; `context`: its longest sequence, `start`: makes its `Generator` on need."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        context: int,
        batch: int,
        start: Callable[[], Any],
        count: Callable[[str, int], None],
    ) -> None:
        self.folder, self.tokenizer, self.context, self.batch = folder, tokenizer, context, batch
        self.start, self.count = start, count

    @cached_property
    def engine(self) -> Any:
        return self.start()

    def sample(
        self,
        name: str,
        ids: Sequence[str],
        prompts: Sequence[list[int]],
        stop: Sequence[str],
        decoding: Decoding,
    ) -> list[list[Answer]]:
        """`decoding.n` answers to each prompt, in order. `name` names the files; `ids` decide the seeds."""
        answers: list[list[Answer]] = []
        with Progress(f"sample {name}", len(prompts), unit="question") as bar:
            for start in range(0, len(prompts), self.batch):
                part = slice(start, start + self.batch)
                answers += self._batch(f"{name}-{start:06d}", ids[part], prompts[part], stop, decoding)
                bar.update(len(prompts[part]))
        return answers

    def _batch(
        self,
        name: str,
        ids: Sequence[str],
        prompts: Sequence[list[int]],
        stop: Sequence[str],
        decoding: Decoding,
    ) -> list[list[Answer]]:
        settings = {
            "ids": ids,
            "prompts": prompts,
            "stop": stop,
            "decoding": asdict(decoding),
            "context": self.context,
        }

        def make() -> list[Any]:
            drawn = self._draw(name, ids, prompts, stop, decoding)
            return [[asdict(answer) for answer in row] for row in drawn]

        return [
            [Answer(**answer) for answer in row] for row in saved_batch(self.folder, name, settings, make)
        ]

    def _draw(
        self,
        name: str,
        ids: Sequence[str],
        prompts: Sequence[list[int]],
        stop: Sequence[str],
        decoding: Decoding,
    ) -> list[list[Answer]]:
        """Sample a batch; an answer gets what room its prompt leaves in the model's context."""
        rooms = [min(decoding.max_tokens, self.context - len(prompt)) for prompt in prompts]
        answers = [[Answer("", PROMPT_TOO_LONG, 0)] * decoding.n for _ in prompts]
        for room in sorted({room for room in rooms if room > 0}):
            here = [index for index, other in enumerate(rooms) if other == room]
            seeds = [sample_seed(decoding.seed, name.rpartition("-")[0], ids[index]) for index in here]
            drawn = self.engine.generate(
                [prompts[index] for index in here],
                n=decoding.n,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                max_tokens=room,
                seeds=seeds if decoding.temperature > 0 else None,
                stop=stop,
            )
            self.count("vllm.requests", len(here) * decoding.n)
            for index, samples in zip(here, drawn, strict=True):
                answers[index] = [self._answer(sample) for sample in samples]
                self.count("vllm.tokens", sum(len(sample.token_ids) for sample in samples))
        return answers

    def _answer(self, sample: Any) -> Answer:
        text = sample.text
        if text is None:
            text = self.tokenizer.decode(sample.token_ids, skip_special_tokens=True)
        return Answer(text, sample.finish_reason, len(sample.token_ids))
