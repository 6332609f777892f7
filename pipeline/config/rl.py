"""Keys of reinforcement learning: prompts, sampling, rewards, the GRPO objective, and its optimisation."""

from typing import Literal

from pipeline.config.evaluate import SUFFIX
from pipeline.config.section import Section, key


class RewardWeights(Section):
    """An output's reward is the weighted sum of these parts; parts of weight 0 are not computed."""

    accuracy: float = key(
        1.0,
        "weight of the grader's verdict: 1 for a right boxed answer, else 0",
        paper="the reward model's labels come from this rule (5.2.1)",
    )
    format: float = key(0.0, "weight of the form: 1 for a finished output with a boxed answer, else 0")
    model: float = key(
        0.0,
        "weight of the reward model's score, 0 to 1, of the whole output; needs the node's `reward_model`",
        paper="1, the only part (4.1)",
    )


class RlSection(Section):
    """GRPO with outcome supervision (4.1.2); the reference is the model that training starts from."""

    prompts: str | list[str] | None = key(
        None,
        "bench-format files of questions with answers",
        paper="about 144K GSM8K and MATH questions (4.2)",
    )
    suffix: dict[str, str] = key(
        SUFFIX, "instruction appended to a question, by language", paper="as here (8.2)"
    )
    steps: int = key(
        9000,
        "explorations: batches of questions sampled",
        paper="9,000 for one pass over 144K (derived)",
        ge=1,
    )
    questions_per_step: int = key(
        16, "questions sampled per step", paper="16: batch 1024 / 64 outputs (derived)", ge=1
    )
    group_size: int = key(64, "outputs sampled per question (G)", paper="64 (4.2)", ge=2)
    max_tokens: int = key(1024, "longest output; tokens", paper="1024 (4.2)", ge=1)
    temperature: float = key(1.0, "sampling temperature; the policy is trained at it too", gt=0)
    rewards: RewardWeights = key(RewardWeights(), "weights of the parts of the reward")
    advantage_std: Literal["population", "sample", "none"] = key(
        "population",
        "standard deviation that a group's rewards are divided by; none: only their mean is taken off",
        paper="divided by std, which one is not stated (4.1.2)",
    )
    kl_coefficient: float = key(
        0.04, "weight of the KL term (beta); 0 leaves the reference out", paper="0.04 (4.2)", ge=0
    )
    clip: float = key(0.2, "clip range of the probability ratio (epsilon)", gt=0)
    updates: int = key(1, "optimiser steps per exploration (mu)", paper="1 (4.2)", ge=1)
    learning_rate: float = key(1e-6, "constant after the warm-up", paper="1e-6 (4.2)", gt=0)
    warmup_steps: int = key(0, "linear warm-up; steps", ge=0)
    beta2: float = key(0.95, "AdamW's second decay rate", gt=0, lt=1)
    weight_decay: float = key(0.0, "AdamW's, on matrices", ge=0)
    gradient_clipping: float = key(1.0, "largest gradient norm", gt=0)
    precision: Literal["fp32", "bf16"] = key("bf16", "weights and activations of policy and sampler")
    row_tokens: int = key(
        4096,
        "a prompt and some of its outputs share a row of so many tokens in training; results stay the same",
        ge=1,
    )
    evaluation: str | list[str] | None = key(
        None, "bench-format files of held-out questions, answered greedily during training; null for none"
    )
    evaluation_questions: int = key(200, "first held-out questions only", ge=1)
    evaluate_every: int = key(200, "steps between two evaluations", paper="200 (Figure 5)", ge=1)
    save_every: int = key(20, "steps between two checkpoints", ge=1)
    seed: int = key(0, "seed of the order of questions and of sampling")
