"""Supervised fine-tuning (paper section 3.2): chat examples, concatenated at random up to the context length.

Inputs: `parent` or `init` (folder or hub id), `data` (sft-format files or hub ids). Output: a model folder.
Our choices, where the paper is silent: the loss covers only the assistant's words and EOS, tool output is
context, and there is no attention across the examples of a sequence. The loss is a mean over tokens, in which
long solutions weigh more; `loss_mean: example` is the mean over examples that the paper's Eq. 6 writes.
"""

import pipeline.common.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.common.chat import CHAT_TEMPLATE, encode_chat, language_of
from pipeline.common.model import load_tokenizer
from pipeline.common.next_token import TrainingPlan, train_and_export
from pipeline.common.packing import PackedRow, best_fit, concatenate, make_row
from pipeline.common.rows import read_rows
from pipeline.common.stage import Counts, InputError, Stage, run_stage
from pipeline.common.training import constant, start_from, use_threads
from pipeline.config.sft import SftSection

Example = tuple[np.ndarray, np.ndarray]  # token ids, and whether each is the assistant's own


def with_suffix(row: dict[str, Any], section: SftSection) -> list[dict[str, str]]:
    """The example's messages, with the instruction of its format and language after each user turn."""
    suffixes = section.suffix.get(row.get("format", "cot"), {})
    messages = []
    for message in row["messages"]:
        suffix = suffixes.get(row.get("lang") or language_of(message["content"]), "")
        if message["role"] == "user" and suffix:
            message = message | {"content": f"{message['content']}\n{suffix}"}
        messages.append(message)
    return messages


@dataclass
class Examples:
    """Examples of the sources, and those left out: count and first place by reason."""

    kept: list[Example] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    def leave_out(self, reason: str, place: str) -> None:
        self.left_out[reason] += 1
        self.places.setdefault(reason, place)


def encode_example(row: dict[str, Any], tokenizer: Any, section: SftSection) -> Example:
    """An example as token ids. Raises InputError if it is malformed or has no assistant message."""
    try:
        ids, own = encode_chat(tokenizer, with_suffix(row, section))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError("not an example; expected messages of role and content") from error
    if not any(own):
        raise InputError("no assistant message to learn from")
    return np.array(ids), np.array(own)


def encode_examples(sources: list[str], tokenizer: Any, section: SftSection) -> Examples:
    """All examples as token ids; the section says what happens to malformed and too long ones."""
    found = Examples()
    for source in sources:
        for place, row in read_rows(source):
            try:
                ids, own = encode_example(row, tokenizer, section)
            except InputError as error:
                if section.malformed == "error":
                    raise InputError(f"{place}: {error}") from error
                found.leave_out("malformed", f"{place}: {error}")
                continue
            if len(ids) <= section.context:
                found.kept.append((ids, own))
            elif section.too_long == "split":
                cuts = range(section.context, len(ids), section.context)
                pieces = zip(np.split(ids, cuts), np.split(own, cuts), strict=True)
                found.kept += [piece for piece in pieces if piece[1][1:].any()]
            elif section.too_long == "skip":
                found.leave_out("too_long", f"{place}: {len(ids)} tokens")
            else:
                raise InputError(f"{place}: {len(ids)} tokens, sft.context is {section.context}")
    return found


class Epochs:
    """Rows of training by number; the order of each pass over the examples depends on the seed alone."""

    def __init__(
        self, examples: list[Example], context: int, pad: int, seed: int, packing: str = "random"
    ) -> None:
        self.examples, self.context, self.pad, self.seed = examples, context, pad, seed
        self.packing = packing
        self.lengths = np.array([len(ids) for ids, _ in examples])
        self.rows: list[list[int]] = []  # of all passes so far
        self.passes = 0

    def row(self, n: int) -> PackedRow:
        """Row `n`, counted over all passes."""
        while n >= len(self.rows):
            order = np.random.default_rng([self.seed, self.passes]).permutation(len(self.examples))
            pack = best_fit if self.packing == "best_fit" else concatenate
            packed = pack(self.lengths[order].tolist(), self.context)
            self.rows += [order[row].tolist() for row in packed]
            self.passes += 1
        return make_row([self.examples[index] for index in self.rows[n]], self.context, self.pad)


def run(stage: Stage[SftSection]) -> Counts:
    """Train and export; returns counts of examples, passes and tokens."""
    section = stage.config
    use_threads(stage.launch)
    parent, sources = stage.source("parent", "init"), stage.inputs.get("data", [])
    tokenizer = load_tokenizer(parent)
    tokenizer.chat_template = CHAT_TEMPLATE  # an init may have another one, but this is what is trained
    examples = encode_examples(sources, tokenizer, section)
    if not examples.kept:
        raise InputError(
            f"sft {stage.instance}: no example to train on in {', '.join(sources) or 'sft.data'}"
        )
    if stage.is_main:
        for reason, count in examples.left_out.items():
            print(f"sft: {count} examples {reason}, first {examples.places[reason]}", file=sys.stderr)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    rows = Epochs(examples.kept, section.context, pad, section.seed, section.packing)
    schedule = constant(section.learning_rate, section.warmup_steps)
    by_example = section.loss_mean == "example"
    plan = TrainingPlan(rows.row, section.steps, section.batch, schedule, ["examples"], by_example)
    counts = train_and_export(stage, start_from(parent, tokenizer, stage), tokenizer, plan)
    return {
        **counts,
        "examples": len(examples.kept),
        "too_long": examples.left_out["too_long"],
        "malformed": examples.left_out["malformed"],
        "passes": rows.passes,
    }


if __name__ == "__main__":
    run_stage("sft", SftSection, run)
