"""Keys of reinforcement learning: method, prompts, sampling, rewards, objective, and optimisation."""

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from pipeline.config.evaluate import FIELDS, SUFFIX, TOOL_SUFFIX
from pipeline.config.lora import LORA, Lora
from pipeline.config.optimizer import Optimizer
from pipeline.core.section import LARGEST_SEED, Section, key

TOOL_KEYS = ("tool_rounds", "tool_seconds", "tool_result")  # for mode tool the workflow takes evaluate's
OWN_METHOD = re.compile(r".+\.py(:[A-Za-z_]\w*)?")
METHODS = Path(__file__).resolve().parents[1] / "rl/methods"  # a module each; listed here, not imported


def known_methods() -> list[str]:
    """Return what `rl.method` may be."""
    return sorted(path.stem for path in METHODS.glob("[!_]*.py"))


def _known_method(name: str) -> str:
    """Accept a known method or `FILE.py:NAME`; `FILE.py` alone means its `METHOD`."""
    if OWN_METHOD.fullmatch(name):
        return name if not name.endswith(".py") else f"{name}:METHOD"
    if name not in (known := known_methods()):
        told = "unknown method; known: {known}, or a file of yours, FILE.py:NAME"
        raise PydanticCustomError("method", told, {"known": ", ".join(known)})
    return name


class RewardWeights(Section):
    """An output's reward is the weighted sum of these parts; parts of weight 0 are not computed."""

    accuracy: float = key(
        1.0,
        "weight of the grader's verdict: 1 for a right answer (see `answer`), else 0",
        paper="the reward model's labels come from this rule (5.2.1)",
    )
    model: float = key(
        0.0,
        "weight of the reward model's score, 0 to 1, of the whole output; needs the node's `reward_model`",
        paper="1, the only part (4.1)",
    )
    functions: dict[Annotated[str, Field(pattern=r"^.+\.py:[A-Za-z_]\w*$")], float] = key(
        {},
        "your own parts, `FILE.py:NAME: weight`; the function gets an item (`.question`, `.answer`, ...) and"
        " the output's text, and returns a number",
    )

    @property
    def by_part(self) -> dict[str, float]:
        """Weights by the names that parts have in rollouts and metrics; a function's is its own name."""
        built_in = {name: weight for name, weight in self if name != "functions"}
        return built_in | {name.rpartition(":")[2]: weight for name, weight in self.functions.items()}

    @model_validator(mode="after")
    def _names_differ(self) -> "RewardWeights":
        names = [*type(self).model_fields, *(name.rpartition(":")[2] for name in self.functions)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise PydanticCustomError("reward", "two parts are called {name}", {"name": twice})
        return self


class DpoKeys(Section):
    """Keys of method dpo. A pair is a right and a wrong output of one question."""

    beta: float = key(0.1, "strength of the pull to the reference", gt=0)
    length_normalised: bool = key(
        True, "compare means over tokens; false: sums, the standard form", paper="means (A.1.3, Eq. 12)"
    )


class PpoKeys(Section):
    """Keys of methods with a critic. It starts from the policy's weights with a new head."""

    value_learning_rate: float = key(1e-5, "the critic's, constant after the warm-up", gt=0)


class RlSection(Section):
    """Training on the policy's own outputs; the reference is the model that training starts from."""

    files: ClassVar[tuple[str, ...]] = ("prompts", "evaluation", "rollouts")
    named: ClassVar[tuple[str, ...]] = ("prompts", "evaluation")
    trains: ClassVar[bool] = True
    filled: ClassVar[tuple[str, ...]] = ("earlier_steps", *TOOL_KEYS)

    method: Annotated[str, AfterValidator(_known_method)] = key(
        "grpo",
        "grpo, rft, online_rft, dpo, ppo, or another module of pipeline/rl/methods, or `FILE.py:NAME`, yours;"
        " rft and dpo sample from the model that training starts from, the others from the policy as it is",
        paper="grpo (4); the others for comparison (5.2.1)",
    )
    supervision: Literal["outcome", "process"] = key(
        "outcome",
        "grpo: advantages from an output's reward, or from a process reward model's score of each step",
        paper="both, the better one is process (4.1.2, 4.1.3)",
    )
    iteration: int = key(
        1,
        "number i of the outer iteration (Algorithm 1, line 2): it skips the questions of the ones before",
        paper="1 to 3 in Figure 6",
        ge=1,
    )
    earlier_steps: int | None = key(
        None,
        "steps of the iterations before, by parents of stage rl; null: i - 1 times `steps`",
        ge=0,
    )
    prompts: str | list[str] | None = key(
        None,
        "bench-format files of questions with answers",
        paper="about 144K GSM8K and MATH questions (4.2)",
    )
    fields: dict[str, str] = key({}, FIELDS)
    mode: Literal["cot", "pal", "tool"] = key(
        "cot",
        "cot: an output is text; pal: it is a program, which is run as in the evaluation's chat_pal, and its"
        " printed answer is judged: one that fails earns nothing; tool: words and programs in turn, as in"
        " chat_tool with evaluate.tool_rounds: what programs printed is read, but not trained on",
        paper="cot (4.2)",
    )
    tool_rounds: int = key(2, "evaluate.tool_rounds", ge=1)
    tool_seconds: float = key(10.0, "evaluate.tool_seconds; seconds", gt=0)
    tool_result: int = key(100, "evaluate.tool_result; characters", ge=2)
    suffix: dict[str, str] | None = key(
        None,
        "instruction appended to a question, by language; null: the default of"
        " evaluate.suffix, or of evaluate.tool_suffix for pal and tool",
        paper="of 8.2",
    )
    steps: int = key(
        9000,
        "explorations: batches of questions sampled",
        paper="9,000 for one pass over 144K (derived)",
        ge=1,
    )
    token_budget: int | None = key(
        None,
        "stop after the step that reaches so many sampled tokens, to compare at equal cost; null: no limit",
        ge=1,
    )
    questions_per_step: int = key(
        16, "questions sampled per step", paper="16: batch 1024 / 64 outputs (derived)", ge=1
    )
    group_size: int = key(64, "outputs sampled per question (G)", paper="64 (4.2)", ge=2)
    rounds: int = key(
        1,
        "maximum number of rounds of questions in a step: each replaces groups whose rewards are all equal by"
        " new questions (dynamic sampling); 1: none are replaced",
        ge=1,
    )
    max_tokens: int = key(
        1024, "longest output, with what its programs printed; tokens", paper="1024 (4.2)", ge=1
    )
    answer: Literal["boxed", "any"] = key(
        "boxed",
        "the answer that the reward judges: boxed: the one in \\boxed{}, by strict rules; any: also an answer"
        " in other words, found as in the evaluation, for models that use no box",
    )
    rewards: RewardWeights = key(RewardWeights(), "weights of the parts of the reward")
    advantage_std: Literal["population", "sample", "none"] = key(
        "population",
        "standard deviation that a group's rewards are divided by; none: only subtract their mean",
        paper="divided by std, which one is not stated (4.1.2)",
    )
    mask_truncated: bool = key(
        False,
        "do not train on outputs cut at `max_tokens`; their rewards still count in their group's mean",
    )
    kl_coefficient: float = key(
        0.04, "weight of the KL term (beta); 0: no term, no reference model", paper="0.04 (4.2)", ge=0
    )
    clip: float = key(0.2, "clip range of the probability ratio", paper="epsilon, no value (Eq. 3)", gt=0)
    clip_high: float | None = key(None, "upper clip range (clip-higher); null: the same as `clip`", gt=0)
    loss_mean: Literal["output", "token", "constant"] = key(
        "output",
        "mean over an output's tokens, then over outputs; token: over all tokens; constant: sums over tokens"
        " divided by `max_tokens`, then over outputs",
        paper="output (Eq. 3)",
    )
    importance_cap: float | None = key(
        None,
        "weight each token by min(policy / sampler, this cap), to correct for a sampler whose probabilities"
        " differ from the policy's; null: off",
        gt=0,
    )
    dpo: DpoKeys = key(DpoKeys(), "keys of method dpo")
    ppo: PpoKeys = key(PpoKeys(), "keys of method ppo")
    updates: int = key(1, "optimiser steps per exploration (mu)", paper="1 (4.2)", ge=1)
    learning_rate: float = key(1e-6, "constant after the warm-up", paper="1e-6 (4.2)", gt=0)
    warmup_steps: int = key(0, "linear warm-up; steps", ge=0)
    lora: Lora | None = key(None, f"{LORA}; the model without them is the reference")
    optimizer: Optimizer = key(Optimizer(weight_decay=0.0), "AdamW, of the policy and PPO's critic")
    precision: Literal["fp32", "bf16"] = key("bf16", "weights and activations of policy and sampler")
    row_tokens: int = key(
        4096,
        "training packs a prompt and as many of its outputs as fit into rows of so many tokens; results stay"
        " the same",
        ge=1,
    )
    evaluation: str | list[str] | None = key(
        None, "bench-format files of held-out questions, answered greedily during training; null for none"
    )
    evaluation_questions: int = key(200, "first held-out questions only", ge=1)
    evaluate_every: int = key(200, "steps between two evaluations", paper="200 (Figure 5)", ge=1)
    rollouts: str | None = key(
        None,
        "folder of rollouts of an earlier run: train on them, without a sampler and evaluations",
    )
    save_every: int = key(20, "steps between two checkpoints", ge=1)
    seed: int = key(0, "seed of the order of questions and of sampling", ge=0, le=LARGEST_SEED)

    @property
    def method_file(self) -> str | None:
        """The file of the user's that defines the method, if one does."""
        return self.method.rpartition(":")[0] or None

    @property
    def runs_programs(self) -> bool:
        """Whether programs that the model writes are run."""
        return self.mode != "cot"

    @property
    def asks_with(self) -> dict[str, str]:
        """Instructions of the mode, by language."""
        if self.suffix is not None:
            return self.suffix
        return TOOL_SUFFIX if self.runs_programs else SUFFIX

    @model_validator(mode="after")
    def _no_reward_for_a_tool(self) -> "RlSection":
        if self.mode == "tool" and self.supervision == "process":
            told = (
                "mode tool has no supervision process: some steps are not the model's, but a program's output"
            )
            raise PydanticCustomError("mode", told)
        return self
