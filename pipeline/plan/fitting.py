"""Launch keys with which the training of a model fits: the smallest change, and the fastest setting."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from pipeline.plan.forecast import Forecast, Planner

MACHINES = (1, 2, 4, 8, 16, 32, 64)
Setting = tuple[dict[str, Any], Forecast]  # the keys that differ from the configuration's, and what it takes


def settings(planner: Planner, name: str, main_memory: float = float("inf")) -> Iterator[Setting]:
    """All settings of a model's training that its program takes and that fit, also into `main_memory`."""
    config, work = planner.config, planner.work(name)
    stage = config.models[name].stage
    now = config.launch_of(stage, name)
    zero = [{"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3}]
    zero = [one | {"offload_optimizer": False} for one in zero]
    zero.append({"zero_stage": 3, "offload_optimizer": True})
    choices: dict[str, Any] = {
        "micro_batch": {now.micro_batch, 1, 2, 4, 8},
        "activation_checkpointing": (False, True),
    }
    if stage == "rl" or len({own for *_, own in work.sampled}) and config.models[name].completer:
        choices["gpu_memory"] = {now.gpu_memory, *(share / 20 for share in range(3, 18))}
    if stage == "rl":
        choices["sleep"] = (False, True)
        heads = [n for n in (1, 2, 4, 8) if now.ranks % n == 0 and work.shape.heads % n == 0]
        choices["tensor_parallel"] = {now.tensor_parallel, *heads}
        if work.reference + work.judge:
            choices["frozen"] = ("whole", "split", "main_memory")
    for first, *rest in product(zero, *map(sorted, choices.values())):
        chosen = first | dict(zip(choices, rest, strict=True))
        row = planner.training(name, now.model_copy(update=chosen))
        if row.fits(planner.assumed) and row.main_memory <= main_memory:
            yield {key: value for key, value in chosen.items() if value != getattr(now, key)}, row


def smallest(planner: Planner, name: str, main_memory: float = float("inf")) -> tuple[int, Setting] | None:
    """Return the setting with the fewest changed keys, of these the fastest, and on how many machines; None
    if the model fits on none of `MACHINES`.
    """
    for nodes in (number for number in MACHINES if number >= planner.assumed.nodes):
        larger = Planner(planner.config, replace(planner.assumed, nodes=nodes))
        found = min(
            settings(larger, name, main_memory), key=lambda one: (len(one[0]), one[1].hours), default=None
        )
        if found is not None:
            return nodes, found
    return None
