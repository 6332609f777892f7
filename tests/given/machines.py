"""Machines that a run may meet."""

from typing import Any

from workflow.preflight import Machine


class Small(Machine):
    """A machine with what a test gives it."""

    def __init__(self, **has: Any) -> None:
        everything = {"gpus": [], "memory": 10**13, "disk": 10**13, "hub": "no network", "lists_cores": True}
        vars(self).update(everything | has)
