"""What a run would be refused for hours after its start, found in the configuration before it starts.

`snakemake` (also with `-n`) and `dsm plan` ask the same function. Programs check again, because they can be
started alone.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.config.root import Config, ModelNode
from pipeline.core.errors import InputError
from pipeline.core.launch.section import LaunchSection
from workflow.forecast.shapes import shape_of


def refusals(config: Config) -> list[str]:
    """One line for each setting that its stage's program would refuse, beginning with the key."""
    checks = {"cpt": _cpt, "sft": _sft, "reward": _reward, "rl": _rl}
    return [
        f"models.{name}.{line}"
        for name, node in config.models.items()
        if node.train and node.stage in checks
        for line in checks[node.stage](config, node, config.model_sections[name])
    ] + [
        f"models.{name}.launch.{line}"
        for name, node in config.models.items()
        if node.train and node.stage == "rl"
        for line in _sampler(config, name, config.launch_of("rl", name))
    ]


def _cpt(config: Config, node: ModelNode, section: Any) -> Iterator[str]:
    if not section.tokens >= section.batch_tokens >= section.context:
        yield (
            f"batch_tokens: {section.batch_tokens} is not between context ({section.context}) and "
            f"tokens ({section.tokens})"
        )


def _sft(config: Config, node: ModelNode, section: Any) -> Iterator[str]:
    if not section.data:
        yield "data: missing"


def _reward(config: Config, node: ModelNode, section: Any) -> Iterator[str]:
    if not section.prompts:
        yield "prompts: missing"
    parent = config.models.get(node.parent)
    if parent is not None and parent.stage == "reward" and parent.train:
        before = config.model_sections[node.parent].target
        if before != section.target:
            yield f"target: {section.target}, but {node.parent} has {before}"


def _rl(config: Config, node: ModelNode, section: Any) -> Iterator[str]:
    if not (section.prompts or section.rollouts):
        yield "prompts: missing"
    if section.rewards.model and not node.reward_model:
        yield "reward_model: missing, but rewards.model is not 0"
    if section.supervision == "process":
        if not section.rewards.model:
            yield "supervision: process, but rewards.model, the weight of its scores, is 0"
        judge = config.models.get(node.reward_model)
        if judge is not None and judge.train and config.model_sections[node.reward_model].target != "process":
            yield f"supervision: process, but {node.reward_model} is an outcome reward model"


def _sampler(config: Config, name: str, launch: LaunchSection) -> Iterator[str]:
    split = launch.tensor_parallel
    if launch.ranks % split:
        yield f"tensor_parallel: {split} does not divide {launch.ranks} ranks"
    if split > 1 and config.model_sections[name].mode == "tool":
        yield "tensor_parallel: has to be 1 in rl.mode tool, where ranks share no sampler"
    try:
        heads = shape_of(config, name).heads
    except InputError:  # a model that is not here yet
        return
    if heads % split:
        yield f"tensor_parallel: {split} does not divide {heads} attention heads"
