"""Supervised fine-tuning (paper section 3.2): chat examples, concatenated at random up to the context length.

Inputs: `parent` or `init` (folder or hub id), `data` (sft-format files or hub ids). Output: a model folder.
Our choices, where the paper is silent: the loss covers only the assistant's words and EOS, tool output is
context, and there is no attention across the examples of a sequence. The loss is the mean over examples of
each one's mean, as in Eq. 6; `loss_mean: token` is the mean over tokens, in which long solutions weigh more.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and deepspeed

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.sft import SftSection
from pipeline.core.data.rows import read_rows, renamed
from pipeline.core.folders import wait_for
from pipeline.core.launch.queue import first_on_rank_0
from pipeline.core.manifest import write_json
from pipeline.core.progress import Progress
from pipeline.core.stage import Counts, InputError, Stage, run_stage
from pipeline.core.store import put_in_place
from pipeline.core.watchdog import enter
from pipeline.tokens.files import TokenFile, token_type, write_tokens
from pipeline.training.chat import CHAT_TEMPLATE, encode_chat, language_of
from pipeline.training.conversations import Turns, read_messages
from pipeline.training.engine import constant, start_from, start_process_group, use_threads
from pipeline.training.next_token import TrainingPlan, train_and_export
from pipeline.training.packing import PackedRow, best_fit, concatenate, make_row
from pipeline.training.saver import flush
from pipeline.training.tokenizer import load_tokenizer, vocabulary_size

TOKENS, FACTS = "examples", "examples.json"  # names in a folder of tokenised examples
EXAMPLES_PER_BATCH = 512
Example = tuple[np.ndarray, np.ndarray]  # token ids, and whether each is the assistant's own


def with_suffix(row: dict[str, Any], turns: Turns, section: SftSection) -> Turns:
    """Return the turns, with the instruction of the row's format and language after each of the user's."""
    suffixes = section.suffix.get(row.get("format", "cot"), {})
    messages = []
    for message in turns:
        suffix = suffixes.get(row.get("lang") or language_of(message["content"]), "")
        if message["role"] == "user" and suffix:
            message = message | {"content": f"{message['content']}\n{suffix}"}
        messages.append(message)
    return messages


def encode_example(row: dict[str, Any], tokenizer: Any, section: SftSection) -> Example:
    """Return an example as token ids. Raises InputError if it is malformed or has no assistant message."""
    try:
        turns = read_messages(row, section.row_format)
        ids, own = encode_chat(tokenizer, with_suffix(row, turns, section))
    except TypeError as error:
        raise InputError("not an example; `format` and `lang` are texts") from error
    return np.array(ids), np.array(own)


def encode_examples(
    sources: list[str], tokenizer: Any, section: SftSection, too_long: list[str]
) -> Iterator[Example]:
    """Yield each example as token ids; add to `too_long` where those stand that the context does not hold.
    Raises InputError for a malformed one.
    """
    for source in sources:
        for place, row in read_rows(source):
            try:
                row = renamed(place, row, section.fields)
                ids, own = encode_example(row, tokenizer, section)
            except InputError as error:
                raise InputError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from error
            if len(ids) <= section.context:
                yield ids, own
            else:
                too_long.append(f"{place}: {len(ids)} tokens")


class Examples(Sequence[Example]):
    """The examples in a token file, in which a number is twice a token's id, plus one if the assistant wrote
    it. `too_long`: how many are not there.
    """

    def __init__(self, folder: Path) -> None:
        facts = json.loads((folder / FACTS).read_text())
        self.too_long: int = facts["too_long"]
        self.file = TokenFile(folder / TOKENS, facts["dtype"])
        self.lengths = np.diff(self.file.ends, prepend=np.uint64(0)).astype(np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:
        stop = int(self.file.ends[index])
        numbers = self.file.tokens[stop - int(self.lengths[index]) : stop]
        return (numbers >> 1).astype(np.int64), (numbers & 1).astype(bool)


def write_examples(folder: Path, sources: list[str], tokenizer: Any, section: SftSection) -> int:
    """Tokenise the examples of `sources` into `folder`, on disk when this returns; returns their number.

    Says in one line how many are too long. Raises InputError if none is left.
    """
    too_long: list[str] = []
    dtype = token_type(2 * vocabulary_size(tokenizer))
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with Progress("sft: tokenised", None, unit="example") as progress:

        def batches() -> Iterator[list[np.ndarray]]:
            examples = encode_examples(sources, tokenizer, section, too_long)
            while batch := [2 * ids + own for ids, own in islice(examples, EXAMPLES_PER_BATCH)]:
                enter("data")
                yield batch
                progress.update(len(batch))

        count, _ = write_tokens(partial / TOKENS, batches(), dtype)
    if not count:
        raise InputError(f"sft: no example to train on in {', '.join(sources) or 'sft.data'}")
    if too_long:
        print(f"sft: {len(too_long)} examples too long, first {too_long[0]}", file=sys.stderr)
    write_json(partial / FACTS, {"dtype": dtype, "too_long": len(too_long)})
    flush([*partial.iterdir(), partial])
    put_in_place(partial, folder)
    return count


def tokenised(stage: Stage[SftSection], tokenizer: Any) -> Examples:
    """Return the examples of input `data`. Rank 0 tokenises them, once a run; the others wait and read its
    files.
    """
    folder = stage.work / "examples"

    def make() -> None:
        try:
            Examples(folder)
        except (OSError, ValueError, KeyError, InputError):
            if folder.exists():
                print(f"{folder}: damaged; the examples are tokenised again", file=sys.stderr, flush=True)
            written = write_examples(folder, stage.inputs.get("data", []), tokenizer, stage.config)
            stage.counter("sft.tokenised", written)

    first_on_rank_0(make)
    wait_for(folder / FACTS)
    return Examples(folder)


class Epochs:
    """Rows of training by number; the order of each pass over the examples depends on the seed alone."""

    def __init__(
        self, examples: Examples, context: int, pad: int, seed: int, packing: str = "random"
    ) -> None:
        self.examples, self.context, self.pad, self.seed = examples, context, pad, seed
        self.packing = packing
        self.rows: list[list[int]] = []  # of all passes so far
        self.passes = 0

    def row(self, n: int) -> PackedRow:
        """Return row `n`, counted over all passes."""
        while n >= len(self.rows):
            order = np.random.default_rng([self.seed, self.passes]).permutation(len(self.examples))
            pack = best_fit if self.packing == "best_fit" else concatenate
            packed = pack(self.examples.lengths[order].tolist(), self.context)
            self.rows += [order[row].tolist() for row in packed]
            self.passes += 1
        return make_row([self.examples[index] for index in self.rows[n]], self.context, self.pad)


def run(stage: Stage[SftSection]) -> Counts:
    """Train and export; returns counts of examples, passes and tokens."""
    section = stage.config
    use_threads(stage.launch)
    start_process_group()
    parent = stage.source("parent", "init")
    tokenizer = load_tokenizer(parent)
    tokenizer.chat_template = CHAT_TEMPLATE  # an init may have another one, but this is what is trained
    examples = tokenised(stage, tokenizer)
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    rows = Epochs(examples, section.context, pad, section.seed, section.packing)
    schedule = constant(section.learning_rate, section.warmup_steps)
    by_example = section.loss_mean == "example"
    plan = TrainingPlan(rows.row, section.steps, section.batch, schedule, ["examples"], by_example)
    counts = train_and_export(stage, start_from(parent, tokenizer, stage), tokenizer, plan)
    return {
        **counts,
        "examples": len(examples),
        "too_long": examples.too_long,
        "passes": rows.passes,
    }


if __name__ == "__main__":
    run_stage("sft", SftSection, run)
