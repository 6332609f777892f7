"""What each model of a configuration costs: training, the sampling for it, evaluation in all its modes.

Every output is assumed to be as long as the configuration allows: sampling costs are upper bounds. What the
configuration does not say is a field of `Assumptions`, or an error that names the key to set.
"""

import math
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from pipeline.config.reward import LABELLING_SHARE
from pipeline.config.root import Config
from pipeline.core.launch.section import LaunchSection
from pipeline.core.stages import MODEL_STAGES
from pipeline.rl.methods import method_of
from workflow.forecast import costs
from workflow.forecast.costs import Gpu
from workflow.forecast.shapes import Shape, shape_of
from workflow.forecast.work import Work, modes_of, questions_of, work_of

EVALUATION_SHARE = 0.9  # of a GPU's memory for vLLM, which has the GPU to itself
NOTICE_MINUTES = 10  # --signal=USR1@600 in the Slurm profile
GATHERED_BYTES = 17  # of a sampled token, sent to all ranks
SCORED_TOKENS = 16384  # that a reward model reads at once (pipeline/reward/model.py)
ROW_SECONDS = 0.0074  # in which a thread reads a row of pre-training, from a disk that has it in no cache
IDLE = ("buffers", "activations", "logits")  # parts of memory that are free while a sampler is awake


def option(default: float, meaning: str, unit: float = 1) -> Any:
    """Declare a number of the command line; `default` and what is given there are multiples of `unit`."""
    return field(default=default * unit, metadata={"default": default, "meaning": meaning, "unit": unit})


@dataclass(frozen=True)
class Assumptions:
    """What the configuration does not say. Rates are in bytes/s here, in GB/s on the command line."""

    gpu: Gpu
    mfu: float = option(
        0.0,
        "share of the GPU's bf16 FLOP/s that training reaches, compiled and without recomputation; 0: as "
        "measured on an H200 for the model's size",
    )
    decode: float = option(0.5, "share of the decoding bound that sampling reaches")
    steps: int = option(6, "steps of a solution that a reward model is trained on")
    nodes: int = option(1, "machines of launch.ranks GPUs each")
    network: float = option(50.0, "GB/s that a machine receives from others by all its ports together", 1e9)
    disk: float = option(2.0, "GB/s that the shared disk takes", 1e9)
    margin: float = option(0.1, "share of a GPU's memory that must stay free")
    warcs: int = option(90_000, "WARC files of each list that is not there yet")


@dataclass
class Forecast:
    """One line: `trained` and `sampled` tokens, `flops` of both, `times` of the work in hours of one GPU by
    what takes them, and `gpus` of the job; `moved` bytes that a GPU receives; `memory` of a GPU by part,
    `sampling` instead while a sampler that sleeps in training is awake, `main_memory` of a machine, `disk`
    that the result takes and `scratch` until it is done, in bytes; `notes` say what is unknown or would not
    work, `starved` that no sequence fits beside the sampler's weights.
    """

    model: str
    stage: str
    parameters: int
    trained: float = 0.0
    sampled: float = 0.0
    flops: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    gpus: int = 1
    moved: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    sampling: dict[str, float] = field(default_factory=dict)
    main_memory: float = 0.0
    disk: float = 0.0
    scratch: float = 0.0
    notes: list[str] = field(default_factory=list)
    starved: bool = False

    @property
    def hours(self) -> float:
        """Hours of one GPU that all of it takes."""
        return sum(self.times.values())

    @property
    def peak(self) -> float:
        """The most bytes that a GPU holds."""
        return max(sum(self.memory.values()), sum(self.sampling.values()))

    def fits(self, assumed: Assumptions) -> bool:
        """Whether the margin of the GPU's memory stays free, and the sampler has room."""
        return self.peak <= assumed.gpu.memory * (1 - assumed.margin) and not self.starved


class Planner:
    """Forecasts the models of a configuration."""

    def __init__(self, config: Config, assumed: Assumptions) -> None:
        self.config, self.assumed = config, assumed
        self.work = cache(partial(work_of, config, solution_steps=assumed.steps))

    def rows(self) -> list[Forecast]:
        """Token files, then training and evaluation of each model, in the order of the configuration."""
        found = [self._tokens(name) for name in self.config.mixtures]
        for name, node in self.config.models.items():
            if node.train:
                found.append(self.training(name, self.config.launch_of(node.stage, name)))
            if node.stage != "reward" and (node.benchmarks is None or node.benchmarks):
                found.append(self._evaluate(name, "evaluate", node.benchmarks))
            asked = self.config.sections["trajectory"].benchmarks
            if node.train and node.stage == "cpt" and asked:
                for _ in self.config.model_sections[name].keep_at:
                    found.append(self._evaluate(name, "trajectory", asked))
        return found

    def launch_of(self, row: Forecast) -> LaunchSection:
        """How the program of a line runs."""
        return self.config.launch_of(row.stage, row.model if row.stage in MODEL_STAGES else None)

    def _tokens(self, name: str) -> Forecast:
        """Files as long as the longest training on them; 2 bytes a token, 4 above a vocabulary of 65,536."""
        models = self.config.models.items()
        readers = [model for model, node in models if node.train and node.mixture == name]
        longest = max((self.config.model_sections[model].tokens for model in readers), default=0)
        wide = any(shape_of(self.config, model).vocabulary > 1 << 16 for model in readers)
        return Forecast(name, "tokens", 0, trained=longest, disk=longest * (4 if wide else 2))

    def training(self, name: str, launch: LaunchSection) -> Forecast:
        """Return the line of a model's training as `launch` says."""
        stage, section = self.config.models[name].stage, self.config.model_sections[name]
        work = self.work(name)
        row = Forecast(name, stage, work.parameters, trained=work.tokens)
        row.gpus = launch.ranks * self.assumed.nodes
        self._hold(row, work, launch, section.precision)
        self._compute(row, work, launch)
        self._label_or_explore(row, work, launch, section)
        self._move(row, work, launch, section)
        self._save(row, work, launch, section)
        if stage != "reward":
            note_filler(row, work.rows, self._micro_batches(row, work, launch)[1])
        return row

    def _micro_batches(self, row: Forecast, work: Work, launch: LaunchSection) -> tuple[int, float]:
        """Return the micro-batches of each rank in an update, and rows computed by all ranks for each row of
        the batch: ranks get equally many, and in RL the last micro-batch is as large as the others.
        """
        rows = -(-work.rows // row.gpus)
        micro_batches = -(-rows // launch.micro_batch)
        computed = micro_batches * launch.micro_batch if row.stage == "rl" else rows
        return micro_batches, computed * row.gpus / work.rows

    def _hold(self, row: Forecast, work: Work, launch: LaunchSection, precision: str) -> None:
        """Memory of training, and the checkpoints."""
        size, at_once = costs.size_of(precision), launch.micro_batch * work.row
        recomputes, compiled = launch.activation_checkpointing, is_compiled(launch)
        row.main_memory = launch.ranks * costs.PROCESS
        for weights, frozen in work.engines:
            state = (weights, precision, launch.zero_stage, row.gpus)
            for part, held in costs.training_state(*state, launch.offload_optimizer, frozen).items():
                row.memory[part] = row.memory.get(part, 0.0) + held
            row.main_memory += costs.checkpoint_copy(*state, launch.ranks)
            row.main_memory += costs.OFFLOADED * weights * launch.ranks / row.gpus * launch.offload_optimizer
            row.scratch += costs.checkpoint_disk(weights, precision)
        row.memory["activations"] = costs.activations(work.shape, at_once, precision, recomputes, compiled)
        if work.head:
            row.memory["logits"] = costs.logits(work.shape, at_once, precision, bool(work.adapter))
        row.memory["other"] = costs.OVERHEAD
        row.main_memory += work.parameters * size  # rank 0 reads the model for all, and collects the result
        row.disk = work.parameters * size + work.disk
        if frozen := (work.reference + work.judge) * size:
            share = frozen if launch.frozen == "whole" else frozen / row.gpus
            row.memory["frozen"] = share * (launch.frozen != "main_memory")
            row.main_memory += launch.ranks * share * (launch.frozen == "main_memory")
            if launch.frozen != "whole" and launch.zero_stage < 3:
                row.memory["buffers"] += min(frozen, 2 * costs.LIVE)

    def _compute(self, row: Forecast, work: Work, launch: LaunchSection) -> None:
        """Count 6 N to train weights, 4 N under adapters; 2 N to recompute, and where others read."""
        each = sum(6 * trained + 4 * frozen for trained, frozen in work.engines)
        again = sum(map(sum, work.engines)) * 2 * launch.activation_checkpointing
        slower = 1.0 if is_compiled(launch) else costs.EAGER
        reading = 2 * work.read * work.tokens
        row.flops = work.updates * each * work.tokens + reading
        micro_batches, filled = self._micro_batches(row, work, launch)
        spent = filled * (work.updates * (each + again) * work.tokens * slower + reading)
        mfu = self.assumed.mfu or costs.mfu_of(work.parameters)
        forward = work.updates * (1 + launch.activation_checkpointing) + bool(work.read)
        launched = costs.launch_hours(work.shape.layers, forward, work.updates, is_compiled(launch))
        least = launched * micro_batches * row.gpus * work.steps
        row.times["train"] = max(costs.hours(spent, self.assumed.gpu, mfu), least)
        if launch.offload_optimizer:
            step = costs.OFFLOADED * sum(trained for trained, _ in work.engines) / costs.MAIN * launch.ranks
            row.times["train"] += work.steps * work.updates * step / 3600

    def _label_or_explore(self, row: Forecast, work: Work, launch: LaunchSection, section: Any) -> None:
        """Forecast sampling before a reward model is trained, or in ranks that train, samplers asleep."""
        if not work.sampled:
            return
        training, engines = dict(row.memory), sum(own for *_, own in work.sampled)
        share, split = (
            (launch.gpu_memory, launch.tensor_parallel) if row.stage == "rl" else (LABELLING_SHARE, 1)
        )
        if engines > 1:
            share = launch.gpu_memory / engines
        given = (
            section.questions_per_step * section.group_size * split / row.gpus if row.stage == "rl" else None
        )
        for shape, length, tokens, own in work.sampled:
            self._sample(row, shape, section.precision, length, tokens, share, split, own, given)
        alone = row.stage == "reward" and engines == 1  # it samples before the model is loaded
        if alone or (row.stage == "rl" and launch.sleep):
            away = (*IDLE, "weights", "gradients", "optimiser") if alone else IDLE
            row.sampling = {part: held for part, held in row.memory.items() if part not in away}
            row.memory = training | {"vllm": costs.VLLM_OVERHEAD}
        if row.stage == "reward":
            questions = work.sampled[0][2] / section.max_tokens / section.solutions
            note_item(row, "label_batch", row.times["sample"] * section.label_batch / questions)

    def _move(self, row: Forecast, work: Work, launch: LaunchSection, section: Any) -> None:
        """Time that ranks wait for each other's weights and gradients. ZeRO 3 and split frozen models move
        weights while they compute.
        """
        ranks, size = row.gpus, costs.size_of(section.precision)
        steps, share = work.steps * work.updates, (row.gpus - 1) / row.gpus
        micro, _ = self._micro_batches(row, work, launch)
        kind = (section.precision, launch.zero_stage, ranks, micro, launch.activation_checkpointing)
        engine = steps * sum(costs.moved(trained, *kind, frozen) for trained, frozen in work.engines)
        judged = math.ceil(work.tokens / work.steps / ranks / SCORED_TOKENS)
        frozen = work.steps * size * (work.reference * micro + work.judge * judged) * share
        frozen *= launch.frozen != "whole"
        other = GATHERED_BYTES * work.tokens * share if row.stage == "rl" else 0.0
        if row.stage == "rl" and launch.zero_stage == 3 and method_of(section).online:
            other += work.steps * work.parameters * size * share  # the sampler's new weights
        row.moved = engine + frozen + other
        link = self.assumed.gpu.link
        rate = 3600 / ranks * (link if self.assumed.nodes == 1 else min(link, self.assumed.network))
        hidden = frozen + engine * (launch.zero_stage == 3)
        row.times["network"] = (row.moved - hidden) / rate + max(0.0, hidden / rate - row.times["train"])

    def _save(self, row: Forecast, work: Work, launch: LaunchSection, section: Any) -> None:
        """Time for which training stops to copy a checkpoint, to wait for the disk, and for rows of text."""
        turn = row.hours / row.gpus  # hours on the clock
        every = turn / work.steps * (section.save_every if row.stage == "rl" else 1)
        every = every if row.stage == "rl" else max(every, launch.save_minutes / 60)
        writing = row.scratch / costs.CHECKPOINTS / self.assumed.disk / 3600
        own = (12 / row.gpus + costs.size_of(section.precision) * (launch.zero_stage < 3)) * work.engines[0][
            0
        ]
        each = own / costs.COPY / 3600 + max(0.0, writing - every)
        row.times["save"] = each * turn / every * row.gpus if turn else 0.0
        if row.stage == "cpt":
            reading = work.tokens / work.row * ROW_SECONDS / 3600
            row.times["data"] = max(0.0, reading - row.times["train"])

    def _place_engines(self, row: Forecast) -> None:
        """Count GPUs and main memory of an engine in each rank."""
        ranks = self.launch_of(row).ranks
        row.gpus, row.main_memory = ranks * self.assumed.nodes, ranks * costs.PROCESS + 2 * row.parameters

    def _evaluate(self, name: str, stage: str, names: list[str] | None) -> Forecast:
        """Forecast the evaluation on the benchmarks `names`, null for all; greedy in stage trajectory."""
        section, shape = self.config.sections["evaluate"], shape_of(self.config, name)
        row = Forecast(name, stage, shape.parameters)
        self._place_engines(row)
        answers = most = 0
        for benchmark in names if names is not None else self.config.benchmarks:
            node, questions = self.config.benchmarks[benchmark], questions_of(self.config, benchmark)
            if questions is None:
                row.notes.append(f"{benchmark} not counted: set its limit")
                continue
            for mode in modes_of(self.config, name, benchmark):
                samples = 0 if stage == "trajectory" else section.samples_of(node, mode)
                most = max(most, min(section.batch, questions) * max(1, samples))
                answers += questions * (1 + samples) * (section.tool_rounds if mode.endswith("tool") else 1)
        length = section.max_tokens
        self._sample(row, shape, "bf16", length, answers * length, EVALUATION_SHARE)
        note_item(row, "evaluate.batch", row.hours * most / max(1, answers))
        return row

    def _sample(
        self,
        row: Forecast,
        shape: Shape,
        precision: str,
        length: int,
        tokens: float,
        share: float,
        split: int = 1,
        own: bool = True,
        given: float | None = None,
    ) -> None:
        """Add sampling of `tokens` in outputs of `length` with `share` of the memory of `split` GPUs, in an
        engine of its `own` or one that is counted already, which is `given` so many outputs at a time (None:
        enough).
        """
        gpu = self.assumed.gpu
        most = costs.MAX_SEQUENCES if given is None else given
        bound = costs.decode_rate(shape, precision, gpu, share, length, split, most)
        rate = bound * self.assumed.decode
        row.sampled += tokens
        row.flops += 2 * shape.parameters * tokens
        if own:
            cache = costs.cache_tokens(shape, precision, gpu, share, split)
            held = cache * costs.cache_bytes(shape, precision) / split
            row.memory["cache"] = row.memory.get("cache", 0.0) + held
            row.memory["vllm"] = row.memory.get("vllm", 0.0) + share * gpu.memory - held
        row.times["sample"] = row.times.get("sample", 0.0) + (tokens / rate / 3600 if rate else 0.0)
        if not rate:
            row.starved = True
            row.notes.append(
                f"vLLM's {share * gpu.memory / 1e9:.0f} GB hold no sequence: raise launch.gpu_memory"
            )


def note_item(row: Forecast, key: str, hours: float) -> None:
    """Note an item of work of `hours` that takes longer than Slurm's notice of a time limit gives."""
    if hours * 60 > NOTICE_MINUTES:
        row.notes.append(
            f"{key}: a batch takes up to {hours * 60:.0f} minutes, but a time limit is told "
            f"{NOTICE_MINUTES} minutes before; lower it"
        )


def note_filler(row: Forecast, rows: int, filled: float) -> None:
    """Note that ranks compute filler to have equally many rows, if that is 1 % of their time."""
    idle = 1 - 1 / filled
    if idle >= 0.01:
        row.notes.append(f"{rows:,} rows a step on {row.gpus} ranks: {idle:.1%} of their time is filler")


def is_compiled(launch: LaunchSection) -> bool:
    """Whether layers are compiled on a GPU (see `compile_layers`)."""
    return launch.compile and launch.zero_stage < 3
