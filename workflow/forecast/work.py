"""What the training of each model of a configuration does, however it runs."""

import math
from dataclasses import dataclass, field
from glob import glob
from typing import Any

from pipeline.config.lora import Lora
from pipeline.config.root import Config
from pipeline.core.data.rows import read_rows
from pipeline.core.stage import InputError
from pipeline.rl.methods import method_of
from workflow.forecast import costs
from workflow.forecast.shapes import Shape, known, shape_of

ROLLOUT_BYTES = 3  # of a sampled token, in the published rollouts
ROW_FILL = 0.9  # share of RL's rows that outputs fill; prompts and gaps take the rest (assumed)


@dataclass
class Work:
    """What the training of a model does, however it runs: `tokens` in `steps` of `rows`, `row` tokens in
    each; `updates` with each; weights of the `adapter` if that is trained and not the model, of the `critic`
    that is trained, too, of the frozen `reference` and of the reward model, the `judge`, and of all frozen
    models that `read` the tokens; what is `sampled`: (shape, tokens of an output, tokens, in an engine of its
    own).
    """

    shape: Shape
    tokens: float
    steps: float
    rows: int
    row: int
    updates: int = 1
    adapter: int = 0
    head: bool = True
    critic: int = 0
    reference: int = 0
    judge: int = 0
    read: int = 0
    sampled: list[tuple[Shape, int, float, bool]] = field(default_factory=list)
    disk: float = 0.0

    @property
    def parameters(self) -> int:
        """Weights of the model."""
        return self.shape.parameters if self.head else self.shape.trunk_parameters

    @property
    def engines(self) -> list[tuple[int, int]]:
        """Trained and frozen weights of the model, and of the critic if there is one."""
        own = (self.adapter, self.parameters) if self.adapter else (self.parameters, 0)
        return [own, (self.critic, 0)] if self.critic else [own]


def work_of(config: Config, name: str, solution_steps: int) -> Work:
    """Return what the training of a model does; a solution that a reward model labels has so many steps."""
    node, section = config.models[name], config.model_sections[name]
    if node.stage == "reward":
        return _reward(config, name, section, solution_steps)
    return {"cpt": _cpt, "sft": _sft, "rl": _rl}[node.stage](config, name, section)


def _cpt(config: Config, name: str, section: Any) -> Work:
    shape, batch = shape_of(config, name), max(1, section.batch_tokens // section.context)
    steps = max(1, section.tokens // (batch * section.context))
    kept = len(section.keep_at) * shape.parameters * costs.size_of(section.precision)
    return Work(shape, section.tokens, steps, batch, section.context, disk=kept)


def _sft(config: Config, name: str, section: Any) -> Work:
    tokens = section.steps * section.batch * section.context
    shape, context = shape_of(config, name), section.context
    adapter = adapter_of(shape, section.lora)
    return Work(shape, tokens, section.steps, section.batch, context, adapter=adapter)


def _reward(config: Config, name: str, section: Any, solution_steps: int) -> Work:
    """Labels: a solution, then completions after each step but the last, half as long on average; an
    outcome model needs none.
    """
    node = config.models[name]
    questions = section.questions or count_rows(section.prompts, f"models.{name}.prompts")
    solutions, length = questions * section.solutions, section.max_tokens
    completions = 0 if section.target == "outcome" else solutions * (solution_steps - 1)
    continues = node.parent is not None and config.models[node.parent].stage == "reward"
    examples = solutions * (1 - section.held_out) / (1 - section.replay if continues else 1)
    policy = shape_of(config, node.policy)
    tokens = examples * min(length, section.context) * section.epochs
    steps = max(1, examples * section.epochs / section.batch)
    rows = max(1, round(tokens / steps / section.context))
    work = Work(shape_of(config, name), tokens, steps, rows, section.context, head=False)
    work.sampled = [(policy, length, solutions * length, True)]
    work.sampled += [(policy, length, completions * section.completions * length / 2, False)]
    return work


def _rl(config: Config, name: str, section: Any) -> Work:
    """With adapters the reference is the policy without them."""
    shape, method, node = shape_of(config, name), method_of(section), config.models[name]
    outputs = section.questions_per_step * section.group_size
    sampled = section.steps * section.rounds * outputs * section.max_tokens
    if section.token_budget is not None:
        sampled = min(sampled, section.token_budget)
    judged = node.reward_model and (section.rewards.model or section.supervision == "process")
    rows = math.ceil(sampled / section.steps / section.row_tokens / ROW_FILL)
    work = Work(shape, sampled, section.steps, rows, section.row_tokens)
    work.updates, work.disk = section.updates, ROLLOUT_BYTES * sampled
    work.adapter = adapter_of(shape, section.lora)
    work.critic = shape.trunk_parameters if method.critic else 0  # as large as the policy
    work.reference = shape.parameters if method.reference(section) else 0
    work.judge = shape_of(config, node.reward_model).trunk_parameters if judged else 0
    work.read = work.reference + work.judge
    work.reference *= not work.adapter
    work.sampled = [(shape, section.max_tokens, sampled, True)]
    return work


def adapter_of(shape: Shape, lora: Lora | None) -> int:
    """Return the weights of the adapter that is trained; 0 if the model is."""
    return 0 if lora is None else shape.adapter(lora.rank, lora.targets)


def count_rows(sources: str | list[str] | None, where: str) -> int:
    """Rows of local files. Raises InputError if there are no such files yet."""
    patterns = [sources] if isinstance(sources, str) else sources or []
    files = [file for pattern in patterns for file in glob(pattern)]
    if not files or not all(glob(pattern) for pattern in patterns):
        raise InputError(
            f"config key {where}: the number of questions in {', '.join(patterns) or 'nothing'} is not "
            f"known before the files are there; set `questions`"
        )
    return sum(1 for file in files for _ in read_rows(file))


def modes_of(config: Config, name: str, benchmark: str) -> list[str]:
    """Return how a model is asked the questions of a benchmark."""
    node, own = config.benchmarks[benchmark], config.models[name].modes
    own = own.get(benchmark) if isinstance(own, dict) else own
    modes, usual = own if own is not None else node.modes, config.sections["evaluate"].modes
    return modes if modes is not None else usual.get(config.models[name].stage, [])


def questions_of(config: Config, benchmark: str) -> int | None:
    """Return the number of questions of a benchmark; None where neither a file nor anything else says it."""
    node = config.benchmarks[benchmark]
    found = node.limit or known()["questions"].get(benchmark)
    if found is None:
        try:
            found = count_rows(node.source, f"benchmarks.{benchmark}.source")
        except InputError:
            return None
    return found
