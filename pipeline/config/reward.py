"""Keys of the reward models: how step labels are made, and how the model is trained on them."""

from typing import ClassVar, Literal

from pipeline.config.evaluate import FIELDS, SUFFIX
from pipeline.config.optimizer import Optimizer
from pipeline.core.section import LARGEST_SEED, Section, key

TEMPERATURE = 0.7  # of solutions and completions
LABELLING_SHARE = 0.8  # of a GPU's memory for vLLM, on which there is only a process group then


class RewardSection(Section):
    """An outcome or process reward model from labels made as in Math-Shepherd (arXiv 2312.08935)."""

    files: ClassVar[tuple[str, ...]] = ("prompts",)
    trains: ClassVar[bool] = True

    prompts: str | list[str] | None = key(
        None,
        "bench-format files of questions with answers",
        paper="about 144K GSM8K and MATH questions (4.2)",
    )
    questions: int | None = key(None, "first questions only; null means all", ge=2)
    fields: dict[str, str] = key({}, FIELDS)
    suffix: dict[str, str] = key(
        SUFFIX, "instruction appended to a question, by language", paper="as here (8.2)"
    )
    solutions: int = key(
        16,
        "solutions the policy samples per question; `dsm plan` says what the labels cost, often more than RL",
        paper="Math-Shepherd 15 from each of 2 models",
        ge=1,
    )
    completions: int = key(8, "completions of each step prefix (N)", paper="Math-Shepherd N = 8", ge=1)
    max_tokens: int = key(
        1024, "longest solution, and longest completed solution; tokens", paper="1024 (4.2)", ge=1
    )
    target: Literal["process", "outcome"] = key(
        "process", "what is learnt: each step's label, or the final answer's only"
    )
    labels: Literal["hard", "soft"] = key(
        "hard",
        "hard: some completion is right; soft: the share that is",
        paper="Math-Shepherd: hard, little difference",
    )
    replay: float = key(
        0.1,
        "with a reward model as parent: share of the training solutions that come from earlier rounds",
        paper="10 % (4.1.4)",
        ge=0,
        lt=1,
    )
    held_out: float = key(
        0.1, "share of the questions held out for measuring, the same ones in all rounds", gt=0, lt=1
    )
    label_batch: int = key(
        64, "questions that a rank labels between two saves: the item of work that ranks share out", ge=1
    )
    epochs: int = key(1, "passes over the labelled solutions", ge=1)
    batch: int = key(256, "solutions per optimiser step", ge=1)
    context: int = key(4096, "longest sequence, and length of a packed row; tokens", ge=16)
    learning_rate: float = key(2e-5, "constant after the warm-up", paper="2e-5 (4.2)", gt=0)
    optimizer: Optimizer = key(Optimizer(weight_decay=0.0), "AdamW")
    precision: Literal["fp32", "bf16"] = key("bf16", "weights and activations")
    seed: int = key(0, "seed of sampling, split and order", ge=0, le=LARGEST_SEED)
