"""Keys of supervised fine-tuning."""

from typing import Literal

from pipeline.config.cpt import PRECISION, Precision
from pipeline.config.evaluate import SUFFIX
from pipeline.config.section import Section, key

TOOL_SUFFIX = {
    "en": "Please integrate natural language reasoning with programs to solve the problem above, "
    "and put your final answer within \\boxed{}.",
    "zh": "请结合自然语言和Python程序语言来解答问题，并把最终答案放置于\\boxed{}中。",
}


class SftSection(Section):
    """Training on chat examples, loss on the assistant's words only."""

    data: str | list[str] | None = key(
        None,
        "sft-format files (globs, miniweb:<file>) or hub:<id>[/<config>]:<split>",
        paper="776K examples (3.1)",
    )
    suffix: dict[Literal["cot", "pot", "tool"], dict[str, str]] = key(
        {"cot": SUFFIX, "pot": TOOL_SUFFIX, "tool": TOOL_SUFFIX},
        "instruction appended to an example's questions, by format and language",
        paper="as here; none given for pot (8.2)",
    )
    steps: int = key(500, "optimiser steps", paper="500 (3.2)", ge=1)
    batch: int = key(256, "packed sequences per step", paper="256, unit not stated (3.2)", ge=1)
    context: int = key(4096, "length of a packed sequence; tokens", paper="4K (3.2)", ge=8)
    too_long: Literal["skip", "error"] = key(
        "skip", "an example longer than the context is left out and counted, or stops the run"
    )
    learning_rate: float = key(5e-5, "constant after the warm-up", paper="5e-5 (3.2)", gt=0)
    warmup_steps: int = key(0, "linear rise; steps", ge=0)
    beta1: float = key(0.9, "AdamW's first moment", paper="0.9 (2.2)", ge=0, lt=1)
    beta2: float = key(0.95, "AdamW's second moment", paper="0.95 (2.2)", ge=0, lt=1)
    epsilon: float = key(1e-8, "AdamW's epsilon", gt=0)
    weight_decay: float = key(0.1, "AdamW's, on matrices; norms do not decay", paper="0.1 (2.2)", ge=0)
    gradient_clipping: float = key(1.0, "largest gradient norm", gt=0)
    precision: Precision = key("bf16", PRECISION)
    save_every: int = key(100, "steps between two checkpoints", ge=1)
    seed: int = key(0, "seed of the order of examples")
