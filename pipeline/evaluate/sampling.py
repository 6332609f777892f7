"""Sample answers for the evaluation and save them batch by batch, with the results of their programs.

Each batch of questions is one file in a folder of the model's under `work/`, named by a hash of what else
decides its content (prompts, decoding, seeds, code, packages). Batches are the items that ranks share out.
They are written atomically: a killed run resumes with the next batch, and a changed grader needs no new
samples. Engine and sandbox start on first use.

Kinds of answers: `cot` is text; `pal` is one program, run after the answer is complete; `tool` is words and
programs in turn, in up to `rounds` parts (`pipeline.evaluate.tool_use`); `code` is the rest of a program that
is run with its tests; `proof` is text, which another program checks.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sealedpy.pool import Check

from pipeline.core.code import Code
from pipeline.core.launch.queue import Batch
from pipeline.core.manifest import fingerprint
from pipeline.core.watchdog import enter
from pipeline.evaluate.interpreter import Interpreter
from pipeline.evaluate.programs import OUTPUT_FENCE
from pipeline.evaluate.tool_use import Draft, count_own, draft_of, write_with_tools
from pipeline.training.asking import draw_in_context

PROMPT_TOO_LONG = "prompt_too_long"
PASSED = "passed"  # output of code whose tests all hold
SANDBOX = "sealedpy"
RUNS = ("pipeline/evaluate/interpreter.py", "pipeline/evaluate/programs.py")


@dataclass(frozen=True)
class Answer:
    """One answer as text; a tool-integrated one includes the outputs of its programs.

    `finish_reason`: stop, length, prompt_too_long (no room for an answer), rounds (the model asked for an
    output after its last round). `status`: of its last program (ok, error, timeout, limit) or None. `output`:
    the last line that a PAL program printed.
    """

    text: str
    finish_reason: str
    tokens: int
    status: str | None = None
    output: str | None = None


@dataclass(frozen=True)
class Decoding:
    """How answers are drawn: `n` per question; temperature 0 is greedy.

    For programs: `rounds`, `seconds` each, and `result`, the number of characters shown of an output.
    """

    n: int
    temperature: float
    max_tokens: int
    seed: int
    kind: Literal["cot", "pal", "tool", "code", "proof"] = "cot"
    rounds: int = 1
    seconds: float = 10.0
    result: int = 100


@dataclass(frozen=True)
class Request:
    """Prompts to answer. `name` names the files; `ids`, one per prompt, decide the seeds. `around`, of code:
    each program's beginning and its tests.
    """

    name: str
    ids: Sequence[str]
    prompts: Sequence[list[int]]
    stop: Sequence[str]
    decoding: Decoding
    around: Sequence[tuple[str, str]] = ()

    def part(self, start: int, size: int) -> "Request":
        """Return the request for `size` prompts from `start` on."""
        part = slice(start, start + size)
        return replace(self, ids=self.ids[part], prompts=self.prompts[part], around=self.around[part])


def sample_seed(seed: int, name: str, item: str) -> int:
    """Seed of the first sample of a question; it depends on the question's id, not its position."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}/{item}".encode()).digest()[:4]) >> 1


class Sampler:
    """Samples answers from a model; `context`: its longest sequence, `start`: makes its `Generator`.

    `code`: reads what answers are made with; `weak`: whether programs may run without namespaces.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        context: int,
        batch: int,
        start: Callable[[], Any],
        counters: Counter[str],
        code: Code,
        weak: bool = False,
    ) -> None:
        self.folder, self.tokenizer, self.context, self.batch = folder, tokenizer, context, batch
        self.start, self.counters = start, counters
        self.interpreter = Interpreter(counters, weak)
        self.code = code

    @cached_property
    def makers(self) -> dict[bool, str]:
        """Digests of the code and the packages that make answers, by whether these run programs."""
        made = self.code.record(__name__)
        files, packages = made["definitions"], made["packages"]
        texts = {name: digests for name, digests in files.items() if not name.startswith(RUNS)}
        others = {name: version for name, version in packages.items() if name != SANDBOX}
        return {False: fingerprint([others, texts]), True: fingerprint([packages, files])}

    @cached_property
    def engine(self) -> Any:
        return self.start()

    def close(self) -> None:
        """End the sandbox's workers, if any were started."""
        self.interpreter.close()

    def sample(self, request: Request) -> list[list[Answer]]:
        """`decoding.n` answers to each prompt, in order; sampled now where they are not saved."""
        rows = (row for batch in self.batches(request) for row in batch.rows())
        return [[Answer(**answer) for answer in row] for row in rows]

    def batches(self, request: Request) -> list[Batch]:
        """Return the work items of a request: the answers to `batch` prompts each."""
        starts = range(0, len(request.prompts), self.batch)
        return [
            self._batch(f"{request.name}-{start:06d}", request.part(start, self.batch)) for start in starts
        ]

    def draw(self, request: Request) -> list[list[Answer]]:
        """`decoding.n` answers to each prompt, in order; sampled now and not saved."""
        draws = {"cot": self._draw, "pal": self._draw_programs, "tool": self._draw_with_tools}
        draws |= {"code": self._draw_code, "proof": self._draw}
        return draws[request.decoding.kind](request)

    def _batch(self, file: str, request: Request) -> Batch:
        def settings() -> dict[str, Any]:
            return {
                "ids": request.ids,
                "prompts": request.prompts,
                "stop": request.stop,
                "decoding": asdict(request.decoding),
                "context": self.context,
                "around": request.around,
                "makers": self.makers[request.decoding.kind not in ("cot", "proof")],
            }

        def make() -> list[Any]:
            enter("evaluation")
            return [[asdict(answer) for answer in row] for row in self.draw(request)]

        return Batch(self.folder, file, settings, make)

    def _drafts(self, request: Request) -> list[list[Draft]]:
        """Sample a batch; the room that a prompt leaves in the context limits its answer."""
        decoding = request.decoding
        seeds = [sample_seed(decoding.seed, request.name, name) for name in request.ids]
        drawn = draw_in_context(
            self.engine,
            request.prompts,
            [min(decoding.max_tokens, self.context - len(prompt)) for prompt in request.prompts],
            seeds if decoding.temperature > 0 else None,
            self.counters,
            n=decoding.n,
            temperature=decoding.temperature,
            stop=request.stop,
        )
        return [[draft_of(self.tokenizer, sample) for sample in samples] for samples in drawn]

    def _draw(self, request: Request) -> list[list[Answer]]:
        """Sample a batch of answers at once."""
        return _answers(self._drafts(request), request.decoding.n)

    def _draw_programs(self, request: Request) -> list[list[Answer]]:
        """Answers that are programs, each with what it printed."""
        drawn = self._draw(replace(request, stop=[*request.stop, OUTPUT_FENCE]))
        texts = [answer.text for row in drawn for answer in row]
        found = iter(self.interpreter.run_answers(texts, request.decoding.seconds))

        def ran(answer: Answer) -> Answer:
            status, output = next(found)
            return replace(answer, status=status, output=output)

        return [[ran(answer) for answer in row] for row in drawn]

    def _draw_code(self, request: Request) -> list[list[Answer]]:
        """Answers that continue a program, each run beside its tests; its output says whether all passed."""
        drawn = self._draw(request)
        programs = [
            Check(f"{start}{answer.text}\n", tests, start)
            for row, (start, tests) in zip(drawn, request.around, strict=True)
            for answer in row
        ]
        outcomes = iter(self.interpreter.run(programs, request.decoding.seconds))

        def ran(answer: Answer) -> Answer:
            outcome = next(outcomes)
            return replace(answer, status=outcome.status, output=PASSED if outcome.status == "ok" else None)

        return [[ran(answer) for answer in row] for row in drawn]

    def _draw_with_tools(self, request: Request) -> list[list[Answer]]:
        """Answers continued after the output of each program, in up to `decoding.rounds` parts."""
        request = replace(request, stop=[*request.stop, OUTPUT_FENCE])
        decoding, once = request.decoding, replace(request.decoding, n=1)
        rows = self._drafts(request)
        places = [(index, number) for index, row in enumerate(rows) for number in range(len(row))]

        def draw(indices: list[int], contexts: list[list[int]], left: int) -> list[list[Draft]]:
            owners = [places[index] for index in indices]
            keys = [f"{request.ids[index]}/{number}/{left}" for index, number in owners]
            return self._drafts(replace(request, ids=keys, prompts=contexts, decoding=once))

        write_with_tools(
            [draft for row in rows for draft in row],
            [request.prompts[index] for index, _ in places],
            draw,
            lambda programs: self.interpreter.run(programs, decoding.seconds),
            self.tokenizer,
            decoding.rounds,
            decoding.result,
        )
        return _answers(rows, decoding.n)


def _answers(rows: Sequence[Sequence[Draft]], n: int) -> list[list[Answer]]:
    """Return drafts as answers; without any, `n` for which the prompt left no room."""
    none = [Answer("", PROMPT_TOO_LONG, 0)] * n
    return [
        [
            Answer(draft.text, draft.finish_reason, count_own(draft.tokens, draft.tool_spans), draft.status)
            for draft in row
        ]
        or none
        for row in rows
    ]
