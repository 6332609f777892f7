"""Continued pre-training (paper 2.2, 2.3): next-token prediction on a mixture, from a model or from scratch.

Inputs: `tokens` (a mixture's token files), and `parent` or `init` (folder or hub id) unless it starts from
scratch. Output: a model folder. Departures: the paper states neither gradient clipping nor AdamW's epsilon,
these are ours; so is keeping the documents of a sequence apart (`isolate_documents`).
"""

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

from typing import Any

from torch import nn

from pipeline.common.loop import Plan, train
from pipeline.common.model import (
    TokenLogprobs,
    export_model,
    load_tokenizer,
    new_model,
    parameter_count,
)
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.common.training import build_engine, multi_step, prepare, settings_from, start_from, use_threads
from pipeline.config.cpt import CptSection
from pipeline.tokens.mixture import Mixture


def initial_model(stage: Stage[CptSection], tokenizer: Any) -> nn.Module:
    """The model that training starts from: `parent`, `init`, or a new one of the configured architecture."""
    section = stage.config
    found = [path for name in ("parent", "init") for path in stage.inputs.get(name, [])]
    if not found:
        shape = section.architecture.model_dump()
        return new_model(shape, tokenizer, section.context, section.precision, section.seed)
    (source,) = found
    if load_tokenizer(source).get_vocab() != tokenizer.get_vocab():
        raise InputError(
            f"{source}: its tokenizer is not the mixture's; set mixtures.<name>.tokenizer to {source}"
        )
    return start_from(source, tokenizer, stage)


def run(stage: Stage[CptSection]) -> Counts:
    """Train and export; returns sizes and what was seen."""
    section, folder = stage.config, stage.input("tokens")
    use_threads(stage.launch)
    batch = section.batch_tokens // section.context
    steps = section.tokens // (max(batch, 1) * section.context)
    if not (batch and steps):
        raise InputError(
            f"cpt {stage.instance}: expected tokens >= batch_tokens >= context, got {section.tokens}, "
            f"{section.batch_tokens}, {section.context}"
        )
    tokenizer = load_tokenizer(folder / "tokenizer")
    mixture = Mixture(folder, section.context, section.seed, section.isolate_documents)
    model = initial_model(stage, tokenizer)
    prepare(model, stage.launch)
    engine = build_engine(
        TokenLogprobs(model, section.precision == "mixed"), settings_from(section, stage.launch)
    )
    schedule = multi_step(section.learning_rate, steps, section.warmup_steps, section.drops)
    plan = Plan(mixture.row, steps, batch, schedule, mixture.names)
    totals = train(stage, engine, plan)
    export_model(engine, tokenizer, stage.partial)
    passes = zip(mixture.names, mixture.counts(steps * batch), mixture.windows, strict=True)
    return {
        "steps": steps,
        "parameters": parameter_count(model),
        **totals,
        **{f"passes.{name}": round(rows / windows, 4) for name, rows, windows in passes},
    }


if __name__ == "__main__":
    run_stage("cpt", CptSection, run)
