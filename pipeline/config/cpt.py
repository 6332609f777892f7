"""Keys of continued pre-training."""

from typing import ClassVar

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from pipeline.config.optimizer import PRECISION, Optimizer, Precision
from pipeline.core.section import LARGEST_SEED, Section, key


class Architecture(Section):
    """Shape of a Llama that starts from scratch; not used with a parent or an init."""

    hidden_size: int = key(4096, "width of the residual stream", paper="4096, 7B", ge=1)
    intermediate_size: int = key(11008, "width of the MLP", paper="11008, 7B", ge=1)
    num_hidden_layers: int = key(30, "layers", paper="30, 7B", ge=1)
    num_attention_heads: int = key(32, "attention heads", paper="32, 7B", ge=1)
    num_key_value_heads: int = key(32, "key-value heads", paper="32, 7B", ge=1)
    tie_word_embeddings: bool = key(False, "one matrix for input and output embeddings", paper="false, 7B")


class CptSection(Section):
    """Training on a mixture's documents: next-token prediction over packed sequences."""

    version: ClassVar[int] = 2  # the peak comes after `warmup_steps`, not at the last of them
    trains: ClassVar[bool] = True

    architecture: Architecture = key(Architecture(), "shape of a model with init: scratch")
    tokens: int = key(
        500_000_000_000, "length of training; tokens", paper="500B (2.3); 150B, 1.3B (2.2)", ge=1
    )
    batch_tokens: int = key(10_000_000, "one optimiser step; tokens", paper="10M (2.3); 4M, 1.3B (2.2)", ge=1)
    context: int = key(4096, "length of a packed sequence; tokens", paper="4K (2.2, 2.3)", ge=8)
    learning_rate: float = key(4.2e-4, "peak", paper="4.2e-4 (2.3); 5.3e-4, 1.3B (2.2)", gt=0)
    warmup_steps: int = key(
        2000, "linear rise, the peak comes after it; steps", paper="2,000, shape not stated (2.2)", ge=0
    )
    keep_at: list[int] = key(
        [],
        "tokens after which a copy of the model is kept, rounded up to a step; section `trajectory` asks it",
        paper="Figure 3: many between 0 and 150B",
    )
    drops: list[tuple[float, float]] = key(
        [(0.8, 0.316), (0.9, 0.1)],
        "[share of training done, share of the peak from then on]",
        paper="31.6 % after 80 %, 10 % after 90 % (2.2)",
    )
    optimizer: Optimizer = key(Optimizer(), "AdamW")
    precision: Precision = key("bf16", PRECISION)
    seed: int = key(0, "seed of new weights and of the order of sequences", ge=0, le=LARGEST_SEED)

    @property
    def step_tokens(self) -> int:
        """Tokens of an optimiser step: whole sequences."""
        return self.batch_tokens // self.context * self.context

    @property
    def kept(self) -> dict[int, int]:
        """Steps after which the model is kept, and the tokens that each stands for."""
        return {-(-tokens // max(self.step_tokens, 1)): tokens for tokens in self.keep_at}

    @model_validator(mode="after")
    def _kept_models_differ(self) -> "CptSection":
        if not all(0 < tokens < self.tokens for tokens in self.keep_at):
            raise PydanticCustomError("keep_at", "every value of `keep_at` lies between 0 and `tokens`")
        if len(self.kept) < len(self.keep_at):
            raise PydanticCustomError("keep_at", "two values of `keep_at` lie in one step")
        return self
