"""A model that answers one question at a time as in its evaluation: same prompt, same limits, same sandbox.

What the evaluation of a run's model asked with is read from the manifest of that evaluation. A model without
one is asked with the defaults of the section `evaluate`. Each question stands alone, as in training.
"""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sealedpy.pool import NoNamespaces, check

from pipeline.config.evaluate import EvaluateSection
from pipeline.core.code import Code
from pipeline.core.ending import say
from pipeline.core.errors import InputError
from pipeline.core.identity import data_of, read_manifest
from pipeline.evaluate.__main__ import Task, requests_of
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.prompts import chat_prompt
from pipeline.evaluate.sampling import Answer, Sampler
from pipeline.reward.model import SETTINGS
from pipeline.training.asking import fitting_context, open_model
from pipeline.training.chat import language_of

MODES = {"cot": "chat_cot", "tool": "chat_tool"}


@dataclass(frozen=True)
class Asked:
    """How to answer: `mode` of `MODES`; temperature 0 is greedy, otherwise `seed` decides the sample."""

    mode: str = "cot"
    temperature: float = 0.0
    seed: int = 0


def section_of(model: str) -> EvaluateSection:
    """Return the section of a model's evaluation: `results/<run>/<stage>/<name>/data` has it in
    `results/<run>/evaluate/<name>/manifest.json`.
    """
    folder = Path(model).absolute()
    manifest = (
        folder.parents[2] / "evaluate" / folder.parent.name / "manifest.json" if folder.is_dir() else None
    )
    if manifest is None or not manifest.is_file():
        return EvaluateSection()
    with suppress(KeyError, ValueError):
        config = read_manifest(manifest)["config"].items()  # of another version, with other keys
        return EvaluateSection(**{key: value for key, value in config if key in EvaluateSection.model_fields})
    raise InputError(f"{manifest}: not the manifest of an evaluation of this version")


class Chat:
    """A model that answers questions: a folder, a result of a run or a hub id. The engine starts with the
    first question; `weak` lets programs run where the system refuses namespaces. Raises InputError for a
    reward model, and for one without a chat template.
    """

    def __init__(self, model: str, weak: bool = False) -> None:
        model = data_of(model)
        if Path(model, SETTINGS).exists():
            raise InputError(f"{model}: a reward model, which writes no text; talk to one of cpt, sft or rl")
        self.section, self.model, self.weak = section_of(model), open_model(model), weak
        if not self.model.tokenizer.chat_template:
            raise InputError(
                f"{model}: a base model, without a chat template; talk to one that was fine-tuned"
            )

    @cached_property
    def sampler(self) -> Sampler:
        import torch

        context = self.model.context
        if not torch.cuda.is_available() and (fitting := fitting_context(self.model)) < context:
            say(f"chat: at most {fitting:,} tokens of {context:,}: a CPU's cache holds no more of this model")
            context = fitting

        def start() -> Any:
            from pipeline.training.generation import Generator

            return Generator(self.model.path, dtype=self.model.dtype, max_model_len=context, max_sequences=4)

        unused = Path()  # answers are not saved
        return Sampler(unused, self.model.tokenizer, context, 1, start, Counter(), Code(), self.weak)

    def prompt(self, question: str, mode: str) -> list[int]:
        """Token ids of a question, as the evaluation writes it."""
        item = Item("chat", question, "", lang=language_of(question))
        suffix = self.section.tool_suffix if mode == "tool" else self.section.suffix
        return chat_prompt(self.model.tokenizer, item, suffix.get(item.lang, ""), self.model.path)

    def answer(self, question: str, asked: Asked) -> Answer:
        """Return the model's answer; with `tool`, the output of each of its programs is part of it."""
        if asked.mode == "tool":
            try:
                check(self.weak)
            except NoNamespaces as error:
                raise InputError(str(error)) from error
        item = Item("chat", question, "")
        changes = {"temperature": asked.temperature, "seed": asked.seed}
        section = self.section.model_copy(update=changes)
        task = Task("chat", MODES[asked.mode], [item], [self.prompt(question, asked.mode)], (), 1)
        greedy, sampled = requests_of(task, section)
        ((found,),) = self.sampler.draw(sampled if asked.temperature > 0 else greedy)
        return found

    def close(self) -> None:
        """End the sandbox's workers."""
        if "sampler" in self.__dict__:
            self.sampler.close()
