"""Tool-integrated answers (paper 8.2), of the evaluation and of RL: the model writes until it asks for a
program's output, the program runs, its output is appended, and the model continues.

A continuation's context is the very tokens that the model has drawn, so that RL trains on those; what a tool
wrote is tokenised apart, as in fine-tuning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sealedpy.pool import Outcome

from pipeline.evaluate.programs import OUTPUT_FENCE, show_result, tool_program
from pipeline.training.chat import encode

if TYPE_CHECKING:
    from pipeline.training.generation import Sample

ROUNDS_USED = "rounds"
Spans = list[tuple[int, int]]  # [first, end) of tokens that a tool wrote
Draw = Callable[[list[int], list[list[int]], int], "list[list[Draft]]"]


@dataclass
class Draft:
    """An answer that is written in parts, by the model and by a tool, whose tokens have log-probability 0.

    A tool's last words are in the text, but have no tokens unless the model went on after them.
    `finish_reason`: stop, length, or rounds (the model asked for an output after its last round). `asks`: it
    stopped where it opened the fence of an output. `status`: of its last program.
    """

    text: str
    tokens: list[int]
    logprobs: list[float]
    finish_reason: str
    asks: bool
    status: str | None = None
    tool_spans: Spans = field(default_factory=list)

    def tell(self, result: str, status: str) -> None:
        """Append what the model sees of a program's result."""
        self.text += OUTPUT_FENCE + result
        self.status, self.finish_reason, self.asks = status, ROUNDS_USED, False

    def go_on(self, told: list[int], parts: "list[Draft]") -> None:
        """Append the tokens of a result and the model's next part; none: there was no room for one."""
        if not parts:
            self.finish_reason = "length"
            return
        (part,) = parts
        start = len(self.tokens)
        self.tool_spans.append((start, start + len(told)))
        self.tokens += [*told, *part.tokens]
        if part.logprobs:
            self.logprobs += [*[0.0] * len(told), *part.logprobs]
        self.text += part.text
        self.finish_reason, self.asks = part.finish_reason, part.asks


def count_own(tokens: Sequence[int], spans: Spans) -> int:
    """Count the tokens that the model wrote."""
    return len(tokens) - sum(end - first for first, end in spans)


def draft_of(tokenizer: Any, sample: "Sample") -> Draft:
    """Return a sample as a draft; only its tokens have the fence at which it stopped."""
    whole = tokenizer.decode(sample.token_ids, skip_special_tokens=True)
    text = whole if sample.text is None else sample.text
    asks = sample.finish_reason == "stop" and OUTPUT_FENCE in whole and OUTPUT_FENCE not in text
    return Draft(text, list(sample.token_ids), list(sample.logprobs), sample.finish_reason, asks)


def write_with_tools(
    drafts: Sequence[Draft],
    prompts: Sequence[list[int]],
    draw: Draw,
    run: Callable[[Sequence[str]], list[Outcome]],
    tokenizer: Any,
    rounds: int,
    result: int,
) -> None:
    """Run the programs of `drafts`, the first parts of answers to `prompts`, and let the model go on, until
    none asks or each has `rounds` parts; the program of the last one still runs.

    `draw` samples (indices of drafts, contexts, rounds left) -> a list with the next part of each, empty
    where there is no room; `run` runs programs; `result`: characters shown of an output.
    """
    for left in reversed(range(rounds)):
        asked = {
            index: program
            for index, draft in enumerate(drafts)
            if draft.asks and (program := tool_program(draft.text)) is not None
        }
        results = []
        for index, outcome in zip(asked, run(list(asked.values())), strict=True):
            results.append(f"\n{show_result(outcome, result)}\n```")
            drafts[index].tell(results[-1], outcome.status)
        if not left or not asked:
            return
        told = dict(zip(asked, encode(tokenizer, results), strict=True))
        contexts = [[*prompts[index], *drafts[index].tokens, *words] for index, words in told.items()]
        for (index, words), parts in zip(told.items(), draw(list(told), contexts, left), strict=True):
            drafts[index].go_on(words, parts)
