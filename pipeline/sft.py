"""Supervised fine-tuning (paper section 3.2): chat examples, concatenated at random up to the context length.

Inputs: `parent` or `init` (folder or hub id), `data` (sft-format files or hub ids). Output: a model folder.
Of what the paper leaves open: the loss is on the assistant's words and EOS only, what a tool printed is
context, and examples that share a sequence do not see each other.
"""

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipeline.common.chat import CHAT_TEMPLATE, encode_chat, language_of
from pipeline.common.loop import Plan, train
from pipeline.common.model import TokenLogprobs, export_model, load_model, load_tokenizer, parameter_count
from pipeline.common.packing import Row, concatenate, make_row
from pipeline.common.rows import read_rows
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.common.training import build_engine, constant, settings_from, use_threads
from pipeline.config.sft import SftSection

Example = tuple[np.ndarray, np.ndarray]  # token ids, and whether each is the assistant's own


def with_suffix(row: dict[str, Any], section: SftSection) -> list[dict[str, str]]:
    """The example's messages, its user turns followed by the instruction of its format and language."""
    suffixes = section.suffix.get(row.get("format", "cot"), {})
    messages = []
    for message in row["messages"]:
        suffix = suffixes.get(row.get("lang") or language_of(message["content"]), "")
        if message["role"] == "user" and suffix:
            message = message | {"content": f"{message['content']}\n{suffix}"}
        messages.append(message)
    return messages


def encode_examples(sources: list[str], tokenizer: Any, section: SftSection) -> Iterator[Example | None]:
    """Every example as token ids; None for one that is longer than the context, where that is allowed."""
    for source in sources:
        for place, row in read_rows(source):
            try:
                ids, own = encode_chat(tokenizer, with_suffix(row, section))
            except InputError as error:
                raise InputError(f"{place}: {error}") from error
            except (KeyError, TypeError, AttributeError) as error:
                raise InputError(f"{place}: not an example; expected messages of role and content") from error
            if not any(own):
                raise InputError(f"{place}: no assistant message to learn from")
            if len(ids) <= section.context:
                yield np.array(ids), np.array(own)
            elif section.too_long == "skip":
                yield None
            else:
                raise InputError(f"{place}: {len(ids)} tokens, sft.context is {section.context}")


class Epochs:
    """Rows of training by number; each pass over the examples has an order of its own, from the seed
    alone."""

    def __init__(self, examples: list[Example], context: int, pad: int, seed: int) -> None:
        self.examples, self.context, self.pad, self.seed = examples, context, pad, seed
        self.lengths = np.array([len(ids) for ids, _ in examples])
        self.rows: list[list[int]] = []  # all passes so far, one after the other
        self.passes = 0

    def row(self, n: int) -> Row:
        """Row `n`, counted over all passes."""
        while n >= len(self.rows):
            order = np.random.default_rng([self.seed, self.passes]).permutation(len(self.examples))
            packed = concatenate(self.lengths[order].tolist(), self.context)
            self.rows += [order[row].tolist() for row in packed]
            self.passes += 1
        return make_row([self.examples[index] for index in self.rows[n]], self.context, self.pad)


def run(stage: Stage[SftSection]) -> Counts:
    """Train and export; returns what was used, left out and seen."""
    section = stage.config
    use_threads(stage.launch)
    found = [path for name in ("parent", "init") for path in stage.inputs.get(name, [])]
    if len(found) != 1:
        raise InputError(f"sft {stage.instance}: needs one --input parent or init, got {len(found)}")
    tokenizer, sources = load_tokenizer(found[0]), stage.inputs.get("data", [])
    encoded = list(encode_examples(sources, tokenizer, section))
    examples = [example for example in encoded if example is not None]
    if not examples:
        raise InputError(
            f"sft {stage.instance}: no example to train on in {', '.join(sources) or 'sft.data'}"
        )
    model = load_model(found[0], section.precision)
    if section.context > model.config.max_position_embeddings:
        longest = model.config.max_position_embeddings
        raise InputError(f"sft.context: {section.context} tokens; {found[0]} was made for {longest}")
    if stage.launch.get("activation_checkpointing"):
        model.gradient_checkpointing_enable()
    engine = build_engine(
        TokenLogprobs(model, section.precision == "mixed"), settings_from(section, stage.launch)
    )
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    rows = Epochs(examples, section.context, pad, section.seed)
    schedule = constant(section.learning_rate, section.warmup_steps)
    plan = Plan(rows.row, section.steps, section.batch, schedule, section.save_every, ["examples"])
    totals = train(stage, engine, plan)
    tokenizer.chat_template = CHAT_TEMPLATE  # an init may have come with another; this is what was trained
    export_model(engine, tokenizer, stage.partial)
    return {
        "examples": len(examples),
        "too_long": len(encoded) - len(examples),
        "steps": section.steps,
        "passes": rows.passes,
        "parameters": parameter_count(model),
        **totals,
    }


if __name__ == "__main__":
    run_stage("sft", SftSection, run)
