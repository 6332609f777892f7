"""Keys of supervised fine-tuning."""

from typing import ClassVar, Literal

from pipeline.config.evaluate import FIELDS, SUFFIX, TOOL_SUFFIX
from pipeline.config.lora import LORA, Lora
from pipeline.config.optimizer import PRECISION, Optimizer, Precision
from pipeline.core.section import LARGEST_SEED, Section, key


class SftSection(Section):
    """Training on chat examples, loss on the assistant's words only."""

    files: ClassVar[tuple[str, ...]] = ("data",)
    trains: ClassVar[bool] = True

    data: str | list[str] | None = key(
        None,
        "sft-format files (globs, miniweb:<file>) or hub:<id>[/<config>]:<split>",
        paper="776K examples (3.1)",
    )
    fields: dict[str, str] = key({}, FIELDS)
    row_format: Literal["chat", "sharegpt", "alpaca"] | None = key(
        None,
        "rows of another form: chat: `messages` that may begin with a system turn; sharegpt: `conversations`;"
        " alpaca: `instruction`, `input`, `output`; system texts stand before the first question",
    )
    suffix: dict[Literal["cot", "pot", "tool"], dict[str, str]] = key(
        {"cot": SUFFIX, "pot": TOOL_SUFFIX, "tool": TOOL_SUFFIX},
        "instruction appended to an example's questions, by format and language",
        paper="as here; none given for pot (8.2)",
    )
    steps: int = key(500, "optimiser steps", paper="500 (3.2)", ge=1)
    batch: int = key(256, "packed sequences per step", paper="256, unit not stated (3.2)", ge=1)
    context: int = key(4096, "length of a packed sequence; tokens", paper="4K (3.2)", ge=8)
    packing: Literal["random", "best_fit"] = key(
        "random",
        "random: each example goes into the first row with room; best_fit: into the fullest, longest first",
        paper="concatenated at random (3.2)",
    )
    loss_mean: Literal["token", "example"] = key(
        "example",
        "mean over an example's tokens, then over the examples; token: over all of a batch's tokens",
        paper="example (Eq. 6)",
    )
    learning_rate: float = key(5e-5, "constant after the warm-up", paper="5e-5 (3.2)", gt=0)
    warmup_steps: int = key(0, "linear rise; steps", ge=0)
    lora: Lora | None = key(None, LORA)
    optimizer: Optimizer = key(Optimizer(), "AdamW")
    precision: Precision = key("bf16", PRECISION)
    seed: int = key(0, "seed of the order of examples", ge=0, le=LARGEST_SEED)
