"""Keys of the optimiser, shared by the stages that train language models."""

from typing import Literal

from pipeline.core.section import Section, key

Precision = Literal["fp32", "mixed", "bf16"]
PRECISION = (
    "fp32; mixed: weights in fp32, products in bf16; bf16: weights too, with fp32 copies in the optimiser"
)


class Optimizer(Section):
    """AdamW; its learning rate belongs to the stage. Its moments decay by the paper's 0.9 and 0.95 (2.2)."""

    weight_decay: float = key(0.1, "on matrices; norms do not decay", paper="0.1 (2.2)", ge=0)
