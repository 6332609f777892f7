"""Continued pre-training (paper 2.2, 2.3): next-token prediction on a mixture, from a model or from scratch.

Inputs: `tokens` (a mixture's token files), and `parent` or `init` (folder or hub id) unless training starts
from scratch. Output: a model folder. Our choices, where the paper is silent: gradient clipping, AdamW's
epsilon, and no attention across the documents of a sequence.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

from typing import Any

from torch import nn

from pipeline.config.cpt import CptSection
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.tokens.mixture import Mixture
from pipeline.training.engine import multi_step, start_from, use_threads
from pipeline.training.model import new_model
from pipeline.training.next_token import TrainingPlan, train_and_export
from pipeline.training.tokenizer import load_tokenizer

DEEPSEEK_LLM = {"rms_norm_eps": 1e-6, "initializer_range": 0.02}  # beside the shape, of a model from scratch


def initial_model(stage: Stage[CptSection], tokenizer: Any) -> nn.Module:
    """Return the model to start from: `parent`, `init`, or a new one of the configured architecture."""
    section = stage.config
    if not (stage.inputs.get("parent") or stage.inputs.get("init")):
        shape = section.architecture.model_dump() | DEEPSEEK_LLM
        return new_model(shape, tokenizer, section.context, section.precision, section.seed)
    source = stage.source("parent", "init")
    if load_tokenizer(source).get_vocab() != tokenizer.get_vocab():
        raise InputError(
            f"{source}: its tokenizer is not the mixture's; set mixtures.<name>.tokenizer to {source}"
        )
    return start_from(source, tokenizer, stage)


def run(stage: Stage[CptSection]) -> Counts:
    """Train and export; returns sizes, tokens seen, and passes over each source."""
    section, folder = stage.config, stage.input("tokens")
    use_threads(stage.launch)
    batch = section.batch_tokens // section.context
    steps = section.tokens // max(section.step_tokens, 1) if batch else 0
    if not (batch and steps):
        raise InputError(
            f"cpt {stage.instance}: expected tokens >= batch_tokens >= context, got {section.tokens}, "
            f"{section.batch_tokens}, {section.context}"
        )
    tokenizer = load_tokenizer(folder / "tokenizer")
    mixture = Mixture(folder, section.context, section.seed)
    schedule = multi_step(section.learning_rate, steps, section.warmup_steps, section.drops)
    kept = {step: str(tokens) for step, tokens in section.kept.items()}
    plan = TrainingPlan(mixture.row, steps, batch, schedule, mixture.names, kept=kept)
    counts = train_and_export(stage, initial_model(stage, tokenizer), tokenizer, plan)
    passes = zip(mixture.names, mixture.counts(steps * batch), mixture.windows, strict=True)
    return counts | {f"passes.{name}": round(rows / windows, 4) for name, rows, windows in passes}


if __name__ == "__main__":
    run_stage("cpt", CptSection, run)
