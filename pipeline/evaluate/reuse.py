"""Tasks that an earlier evaluation of the same model answered: a new benchmark costs only that benchmark.

`tasks.json` beside the scores holds the fingerprint of each task: of the model, the decoding, the benchmark's
files and node, its mode and the code. A later evaluation copies the answers of a task with the same one.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipeline.config.evaluate import EvaluateSection
from pipeline.core.identity import essence
from pipeline.core.manifest import fingerprint
from pipeline.core.stage import Stage

TASKS, SCORES = "tasks.json", "scores.json"


def task_fingerprint(
    stage: Stage[EvaluateSection], benchmark: str, mode: str, flagged: set[str] | None
) -> str:
    """Get what decides a task's answers and scores; `flagged`: its questions found in the training corpus."""
    keys = {"model", *(f"{key}.{benchmark}" for key in ("benchmark", "exemplars", "prompt", "pal_prompt"))}
    node, section = essence(stage.config.benchmarks[benchmark]), essence(stage.config)
    others = ("benchmarks", "modes", "model_stage")
    return fingerprint(
        {
            "benchmark": benchmark,
            "mode": mode,
            "node": {key: value for key, value in node.items() if key != "modes"},
            "section": {key: value for key, value in section.items() if key not in others},
            "version": stage.config.version,
            "inputs": {key: value for key, value in stage.identity["inputs"].items() if key in keys},
            "flagged": None if flagged is None else sorted(flagged),
            "code": stage.identity["code"],
            "packages": stage.identity["packages"],
        }
    )


def copy_earlier(name: str, mark: str, earlier: Iterable[Path], folder: Path) -> dict[str, Any] | None:
    """Return the scores of task `name` (benchmark.mode) from the first earlier result that has it, its files
    copied to `folder`; None if there is none.
    """
    for result in earlier:
        tasks, scores = result / TASKS, result / SCORES
        if tasks.is_file() and json.loads(tasks.read_text()).get(name) == mark:
            for file in (f"{name}.jsonl", f"{name}.exemplars.jsonl"):
                if (result / file).is_file():
                    shutil.copyfile(result / file, folder / file)
            benchmark, _, mode = name.rpartition(".")
            return json.loads(scores.read_text())[benchmark][mode]
    return None
