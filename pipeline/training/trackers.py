"""Trackers of the user's choice: W&B and trackio, whose calls are the same. Neither is a dependency.

One is used where its package is installed and one of its environment variables is set. A run has the name of
its model and the fingerprint of what is trained, so a resumed program goes on with the same run.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pipeline.core.ending import say
from pipeline.core.stage import Stage

ASKED = {
    "wandb": ("WANDB_API_KEY", "WANDB_MODE"),
    "trackio": ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"),
}


def asked(environment: dict[str, str]) -> list[str]:
    """Name the trackers that are installed and that `environment` asks for."""
    return [name for name, words in ASKED.items() if any(map(environment.get, words)) and find_spec(name)]


class Trackers:
    """The trackers that are asked for. One that fails is named in a line and left out: training goes on."""

    def __init__(self, stage: Stage[Any]) -> None:
        self.label = f"{stage.name} {stage.instance}"
        self.names = asked(dict(os.environ))
        for name in list(self.names):
            self._call(name, "init", **_run(name, stage))

    def log(self, step: int, numbers: dict[str, float]) -> None:
        """Send a step's numbers by the names of their curves."""
        for name in list(self.names) if numbers else ():
            self._call(name, "log", numbers, step=step)

    def close(self, well: bool) -> None:
        """End the runs; one that did not end `well` goes on later."""
        for name in list(self.names):
            self._call(name, "finish", **({"exit_code": int(not well)} if name == "wandb" else {}))

    def _call(self, name: str, call: str, /, *values: Any, **words: Any) -> None:
        try:
            getattr(import_module(name), call)(*values, **words)
        except Exception as error:
            self.names.remove(name)
            say(f"{self.label}: goes on without {name}: {type(error).__name__}: {error}".splitlines()[0])


def _run(name: str, stage: Stage[Any]) -> dict[str, Any]:
    """Return what `init` is told."""
    told = {
        "project": stage.entry.run.name if stage.entry else "pipeline",
        "config": stage.config.model_dump(mode="json"),
        "resume": "allow",
    }
    if name == "trackio":
        return told | {"name": f"{stage.instance}-{stage.fingerprint}", "embed": False}
    os.environ.setdefault("WANDB_SILENT", "true")
    told["project"] = os.environ.get("WANDB_PROJECT") or told["project"]
    return told | {"name": stage.instance, "id": stage.fingerprint, "dir": str(stage.work)}
