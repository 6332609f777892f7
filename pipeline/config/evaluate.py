"""Keys of the evaluation: decoding, metrics, and the benchmarks as named nodes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from pipeline.core.section import LARGEST_SEED, REQUIRED, Section, key

Mode = Literal[
    "few_shot_cot", "chat_cot", "few_shot_pal", "chat_pal", "chat_tool", "few_shot_code", "few_shot_proof"
]
Rules = Literal["strict", "official", "official-few-shot", "bbh"]

MOST_SAMPLES = 1024  # of a question: the numbers of subsets of more do not fit a float
FIELDS = "our field -> their column, e.g. {question: problem}, or a text with columns in braces"
SUFFIX = {
    "en": "Please reason step by step, and put your final answer within \\boxed{}.",
    "zh": "请通过逐步推理来解答问题，并把最终答案放置于\\boxed{}中。",
}
TOOL_SUFFIX = {
    "en": "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.",
    "zh": "请结合自然语言和Python程序语言来解答问题，并把最终答案放置于\\boxed{}中。",
}


class BenchmarkNode(Section):
    """A named benchmark: where its questions are and how they are asked."""

    files: ClassVar[tuple[str, ...]] = ("source", "prompt", "pal_prompt", "exemplars")

    source: str | list[str] = key(
        REQUIRED,
        "bench-format files (.jsonl[.gz]; globs), miniweb:<file>, or hub:<org>/<name>[/<config>]:<split>",
    )
    split: str | None = key(None, "keep only rows of this `split`")
    language: str | None = key(
        None, "keep only rows of this `lang`, and ask in it; null: each row's own, or en"
    )
    fields: dict[str, str] = key({}, FIELDS)
    limit: int | None = key(None, "first questions only; null means all", ge=1)
    modes: list[Mode] | None = key(None, "how it is asked; null: evaluate.modes of the model's stage")
    shots: int = key(
        4, "exemplars of a few-shot prompt", paper="GSM8K 8, MATH 4, CMATH 6, Gaokao 5 (8.3)", ge=0
    )
    prompt: str = key(
        "configs/prompts/problem-solution.yaml",
        "layout of a few-shot prompt, and its exemplars if it has any",
    )
    pal_prompt: str = key(
        "configs/prompts/pal-math.yaml", "the same for answers that are programs", paper="GSM8K, MATH (8.3)"
    )
    exemplars: str | list[str] | None = key(
        None, "bench-format files whose worked solutions are the exemplars"
    )
    samples: int | None = key(
        None, "samples per question, in all modes; null: evaluate.samples", ge=0, le=MOST_SAMPLES
    )
    profile: Rules = key(
        "strict",
        "rules of grading; strict: the grader itself, official: the paper's program, bbh: exact match",
    )


class TrajectorySection(Section):
    """Benchmarks of models that pre-training kept on its way (`cpt.keep_at`), greedy (Figure 3)."""

    shares: ClassVar[bool] = True

    benchmarks: list[str] = key(
        [], "benchmarks that kept models are asked", paper="GSM8K, MATH, CMATH, BBH (Figure 3)"
    )


class EvaluateSection(Section):
    """One model on all its benchmarks: a greedy pass, then K samples for Maj@K and Pass@K."""

    version: ClassVar[int] = 2
    shares: ClassVar[bool] = True
    filled: ClassVar[tuple[str, ...]] = ("model_stage", "benchmarks")

    modes: dict[Literal["cpt", "sft", "rl"], list[Mode]] = key(
        {"cpt": ["few_shot_cot"], "sft": ["chat_cot"], "rl": ["chat_cot"]},
        "how models of each stage are asked",
        paper="few-shot for base models, zero-shot chat for the others (8.1)",
    )
    suffix: dict[str, str] = key(
        SUFFIX, "instruction appended to a chat question, by language; none for others", paper="as here (8.2)"
    )
    tool_suffix: dict[str, str] = key(
        TOOL_SUFFIX,
        "the same for modes that run programs (chat_pal, chat_tool)",
        paper="as here for tools (8.2)",
    )
    tool_rounds: int = key(
        2, "generations of a tool-integrated answer; between two, programs are run", paper="2 (8.2)", ge=1
    )
    tool_seconds: float = key(10.0, "wall-clock limit of a program; seconds", paper="10 (8.1)", gt=0)
    tool_result: int = key(
        100,
        "longest program output shown to the model, cut in the middle; characters",
        paper="100 (8.2)",
        ge=2,
    )
    max_tokens: int = key(
        1024, "longest answer, or part of a tool-integrated answer; tokens", paper="1024 (8.1)", ge=1
    )
    samples: int = key(
        64,
        "samples per question for Maj@K and Pass@K, but after examples, where base models are asked; 0: none",
        paper="64 (Figure 7)",
        ge=0,
        le=MOST_SAMPLES,
    )
    temperature: float = key(
        0.7, "temperature of the samples; greedy answers have 0", paper="0.7 (Figure 7)", gt=0
    )
    k: list[Annotated[int, Field(ge=1)]] = key(
        [1, 4, 8, 16, 32, 64],
        "values of K; those above `samples` are left out, but one must be left",
        paper="as here (Figure 7)",
        min_length=1,
    )
    batch: int = key(
        64,
        "questions sampled, or whose proofs are checked, between two saves: the item that ranks share out",
        ge=1,
    )
    official: bool = key(
        False, "score greedy answers by the paper's own program too (docs/evaluation.md)", paper="as true"
    )
    proof_checker: str | None = key(
        None,
        "command that checks formal proofs (docs/evaluation.md); null: they are not checked, and none counts"
        " as right",
        paper="Isabelle 2022 by PISA (8.6)",
    )
    seed: int = key(42, "seed of sampling", paper="42 (8.1)", ge=0, le=LARGEST_SEED)
    model_stage: Literal["cpt", "sft", "rl"] = key("sft", "the model's stage")
    benchmarks: dict[str, BenchmarkNode] = key({}, "the model's benchmarks")

    def asked(self, name: str) -> list[Mode]:
        """Return the modes in which the model is asked the benchmark `name`."""
        modes = self.benchmarks[name].modes
        return self.modes.get(self.model_stage, []) if modes is None else modes

    def samples_of(self, node: BenchmarkNode, mode: Mode) -> int:
        """Return the samples of a question of a benchmark; after examples none but those that it asks for."""
        if node.samples is not None:
            return node.samples
        return 0 if mode.startswith("few_shot") else self.samples

    @property
    def runs_programs(self) -> bool:
        """Whether programs that the model writes are run."""
        kinds = {mode.rpartition("_")[2] for name in self.benchmarks for mode in self.asked(name)}
        return bool(kinds & {"pal", "tool", "code"})

    @model_validator(mode="after")
    def _some_k_is_left(self) -> "EvaluateSection":
        for samples in (self.samples, *(node.samples for node in self.benchmarks.values())):
            if samples and min(self.k) > samples:
                message = "every value of `k` is above `samples`, {samples}"
                raise PydanticCustomError("k", message, {"samples": samples})
        return self
