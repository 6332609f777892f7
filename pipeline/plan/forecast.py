"""What each model of a configuration costs: training, the sampling for it, evaluation.

Every output is assumed to be as long as the configuration allows: sampling costs are upper bounds. What the
configuration does not say is a field of `Assumptions`, or an error that names the key to set.
"""

from dataclasses import dataclass, field
from glob import glob
from typing import Any

from pipeline.common.rows import read_rows
from pipeline.common.stage import InputError
from pipeline.config.root import Config
from pipeline.plan import costs
from pipeline.plan.costs import Gpu
from pipeline.plan.shapes import Shape, known, shape_of
from pipeline.rl.methods import method_of

EVALUATION_SHARE = 0.9  # of a GPU's memory for vLLM, which has the GPU to itself
ROLLOUT_BYTES = 3  # of a sampled token in the published rollouts; measured in the demo


@dataclass(frozen=True)
class Assumptions:
    """From the command line. `mfu`: of training; `decode`: reached share of the decoding bound; `steps`:
    of a solution; `nodes`: machines of `launch.ranks` GPUs each.
    """

    gpu: Gpu
    mfu: float = 0.4
    decode: float = 0.5
    steps: int = 6
    nodes: int = 1


@dataclass
class Forecast:
    """One line: `trained` and `sampled` tokens, `flops` of both, `hours` of one GPU, `memory` by part and
    `disk` in bytes; `notes` say what is unknown or does not fit.
    """

    model: str
    stage: str
    parameters: int
    trained: float = 0.0
    sampled: float = 0.0
    flops: float = 0.0
    hours: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    disk: float = 0.0
    notes: list[str] = field(default_factory=list)


class Planner:
    """Forecasts the models of a configuration."""

    def __init__(self, config: Config, assumed: Assumptions) -> None:
        self.config, self.assumed = config, assumed
        self.launch = config.sections["launch"]

    def rows(self) -> list[Forecast]:
        """Token files, then training and evaluation of each model, in the order of the configuration."""
        found = [self._tokens(name) for name in self.config.mixtures]
        for name, node in self.config.models.items():
            if node.train:
                found.append(getattr(self, f"_{node.stage}")(name))
            if node.stage != "reward" and (node.benchmarks is None or node.benchmarks):
                found.append(self._evaluate(name))
        return found

    def _tokens(self, name: str) -> Forecast:
        """Files as long as the longest training on them; 2 bytes a token, 4 above a vocabulary of 65,536."""
        models = self.config.models.items()
        readers = [model for model, node in models if node.train and node.mixture == name]
        longest = max((self.config.model_sections[model].tokens for model in readers), default=0)
        wide = any(shape_of(self.config, model).vocabulary > 1 << 16 for model in readers)
        return Forecast(name, "tokens", 0, disk=longest * (4 if wide else 2))

    def _cpt(self, name: str) -> Forecast:
        return self._next_token(name, self.config.model_sections[name].tokens)

    def _sft(self, name: str) -> Forecast:
        section = self.config.model_sections[name]
        return self._next_token(name, section.steps * section.batch * section.context)

    def _next_token(self, name: str, tokens: float) -> Forecast:
        section, shape = self.config.model_sections[name], shape_of(self.config, name)
        row = Forecast(name, self.config.models[name].stage, shape.parameters)
        self._train(row, section, tokens, 6, self.launch.micro_batch * section.context, shape)
        return row

    def _reward(self, name: str) -> Forecast:
        """Labels: a solution, then completions after each step but the last, half as long on average."""
        section, shape = self.config.model_sections[name], shape_of(self.config, name)
        questions = section.questions or count_rows(section.prompts, f"models.{name}.prompts")
        solutions = questions * section.solutions
        completions = solutions * (self.assumed.steps - 1) * section.completions
        row = Forecast(name, "reward", shape.trunk_parameters)
        new = solutions * (1 - section.held_out)
        node = self.config.models[name]
        continues = node.parent is not None and self.config.models[node.parent].stage == "reward"
        examples = new / (1 - section.replay) if continues else new
        tokens = examples * min(section.max_tokens, section.context) * section.epochs
        self._train(row, section, tokens, 6, self.launch.micro_batch * section.context, shape, head=False)
        policy, completer = (
            shape_of(self.config, model) for model in (node.policy, node.completer or node.policy)
        )
        share = self.launch.gpu_memory / (2 if node.completer else 1)
        limits = (section.precision, section.max_tokens)
        self._sample(row, policy, *limits, solutions * section.max_tokens, share)
        own = node.completer is not None
        self._sample(row, completer, *limits, completions * section.max_tokens / 2, share, engine=own)
        return row

    def _rl(self, name: str) -> Forecast:
        """Passes over a sampled token: 6 N to train, 2 N for each frozen model that reads it."""
        section, shape = self.config.model_sections[name], shape_of(self.config, name)
        row = Forecast(name, "rl", shape.parameters)
        outputs = section.steps * section.rounds * section.questions_per_step * section.group_size
        sampled = outputs * section.max_tokens
        if section.token_budget is not None:
            sampled = min(sampled, section.token_budget)
        method = method_of(section)
        reference = method.reference(section)
        per_weight = 6 * section.updates + 2 * reference
        self._train(row, section, sampled, per_weight, self.launch.micro_batch * section.row_tokens, shape)
        size = costs.size_of(section.precision)
        if reference:
            row.memory["frozen"] = shape.parameters * size
        if method.critic:  # as large as the policy
            self._add_flops(row, 6 * section.updates * shape.trunk_parameters * sampled)
            for part, bytes_ in self._state(section, shape.trunk_parameters).items():
                row.memory[part] += bytes_
        reward_model = self.config.models[name].reward_model
        if reward_model and (section.rewards.model or section.supervision == "process"):
            judge = shape_of(self.config, reward_model)
            self._add_flops(row, 2 * judge.trunk_parameters * sampled)
            row.memory["frozen"] = row.memory.get("frozen", 0.0) + judge.trunk_parameters * size
        self._sample(row, shape, section.precision, section.max_tokens, sampled, self.launch.gpu_memory)
        row.disk += ROLLOUT_BYTES * sampled
        return row

    def _evaluate(self, name: str) -> Forecast:
        section, shape = self.config.sections["evaluate"], shape_of(self.config, name)
        names = self.config.models[name].benchmarks
        row = Forecast(name, "evaluate", shape.parameters)
        answers = 0
        for benchmark in names if names is not None else self.config.benchmarks:
            node = self.config.benchmarks[benchmark]
            questions = node.limit or known()["questions"].get(benchmark)
            if questions is None:
                try:
                    questions = count_rows(node.source, f"benchmarks.{benchmark}.source")
                except InputError:
                    row.notes.append(f"{benchmark} not counted: set its limit")
                    continue
            samples = node.samples if node.samples is not None else section.samples
            answers += questions * (1 + samples)
        length = section.max_tokens
        self._sample(row, shape, "bf16", length, answers * length, EVALUATION_SHARE)
        return row

    def _state(self, section: Any, parameters: int) -> dict[str, float]:
        ranks = self.launch.ranks * self.assumed.nodes
        return costs.training_state(parameters, section.precision, self.launch.zero_stage, ranks)

    def _train(
        self,
        row: Forecast,
        section: Any,
        tokens: float,
        per_weight: int,
        at_once: int,
        shape: Shape,
        head: bool = True,
    ) -> None:
        """Add training on `tokens`, `at_once` of them in memory; `per_weight` FLOPs per weight and token."""
        row.trained += tokens
        self._add_flops(row, per_weight * row.parameters * tokens)
        checkpointing = self.launch.activation_checkpointing
        row.memory |= self._state(section, row.parameters)
        row.memory["activations"] = costs.activations(shape, at_once, section.precision, checkpointing)
        if head:
            row.memory["logits"] = costs.logits(shape, at_once, section.precision)
        row.memory["other"] = costs.OVERHEAD
        row.disk += costs.checkpoint_disk(row.parameters, section.precision)

    def _add_flops(self, row: Forecast, flops: float) -> None:
        row.flops += flops
        row.hours += costs.hours(flops, self.assumed.gpu, self.assumed.mfu)

    def _sample(
        self,
        row: Forecast,
        shape: Shape,
        precision: str,
        length: int,
        tokens: float,
        share: float,
        engine: bool = True,
    ) -> None:
        """Add sampling of `tokens` in outputs of `length` with `share` of a GPU's memory, in a new engine or
        one that is counted already.
        """
        gpu = self.assumed.gpu
        rate = costs.decode_rate(shape, precision, gpu, share, length) * self.assumed.decode
        row.sampled += tokens
        row.flops += 2 * shape.parameters * tokens
        cache = costs.cache_tokens(shape, precision, gpu, share)
        memory = {"cache": float(cache * costs.cache_bytes(shape, precision))}
        memory["vllm"] = share * gpu.memory - memory["cache"]
        if engine:
            row.memory |= {part: row.memory.get(part, 0.0) + value for part, value in memory.items()}
        if rate:
            row.hours += tokens / rate / 3600
        else:
            row.notes.append(
                f"vLLM's {share * gpu.memory / 1e9:.0f} GB hold no sequence: raise launch.gpu_memory"
            )


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
