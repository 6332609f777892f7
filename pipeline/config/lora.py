"""Keys of low-rank adapters (LoRA), shared by the stages that train them."""

from pipeline.core.section import Section, key

ALL_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTER = "adapter"  # its folder beside the model
LORA = (
    "train adapters of the weights instead of the weights, as in {rank: 32, alpha: 64}; needs a rate some ten"
    " times as high; null: train all weights"
)


class Lora(Section):
    """A weight W stays as it is; W + alpha / rank * B A is what the model uses, and A and B are trained."""

    rank: int = key(32, "rows of A, columns of B", ge=1)
    alpha: float = key(64.0, "scale of the adapters, times rank", gt=0)
    targets: list[str] = key(
        ALL_LINEAR,
        "last names of the linear layers that get adapters, in all blocks of the model",
        min_length=1,
    )
