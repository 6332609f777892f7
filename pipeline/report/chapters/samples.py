"""The explorer of answers and rollouts: its controls, and where its files lie (`pipeline.report.shards`)."""

from pathlib import Path
from typing import Any

from pipeline.report.compare import Results, Task
from pipeline.report.material import Material
from pipeline.report.shards import FOLDER, shard_rollouts


def _task(results: Results, task: Task) -> dict[str, Any]:
    """Return a benchmark and kind of solution, the folder of each model's files, and the two models shown
    first.
    """
    models = {
        name: f"{FOLDER}/{name}/{task[0]}.{tasks[task].mode}"
        for name, tasks in results.answers.items()
        if task in tasks
    }
    lead, pair = results.headline, list(models)[-2:][::-1]
    if lead and {lead.better[0], lead.worse[0]} <= models.keys():
        pair = [lead.better[0], lead.worse[0]]
    return {"name": ".".join(task), "benchmark": task[0], "kind": task[1], "models": models, "pair": pair}


def data(results: Results, shards: Path) -> dict[str, Any]:
    """Return what the page's script knows of the files; writes those of the rollouts into `shards`."""
    rollouts = {}
    for result in results.run.of("rl"):
        name = f"rollouts-{result.instance}"
        if steps := shard_rollouts(result.data / "rollouts", shards, name):
            rollouts[result.instance] = {"folder": f"{FOLDER}/{name}", "steps": steps}
    return {"tasks": [_task(results, task) for task in results.tasks], "rollouts": rollouts}


def chapter(material: Material) -> dict[str, Any] | None:
    """Return the explorer's controls, if any model was evaluated; the page's script fills them."""
    rollouts = any(any((result.data / "rollouts").glob("step-*")) for result in material.run.of("rl"))
    if not material.results.scores:
        return None
    return {"rollouts": rollouts}
