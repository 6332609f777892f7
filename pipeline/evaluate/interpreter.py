"""Runs programs that a model wrote, in its evaluation and in its rollouts; each rank has its own sandbox."""

import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from sealedpy.pool import Check, NoNamespaces, Outcome, Sandbox, check

from pipeline.core.stage import InputError, Stage
from pipeline.core.watchdog import beat
from pipeline.evaluate.programs import pal_program, printed_answer

Ran = tuple[str | None, str | None]  # status of a text's program, None without one; the answer it printed


def is_weak(stage: Stage[Any]) -> bool:
    """Whether programs may run without namespaces: `sandbox.weak` of the configuration."""
    return bool(stage.launch.get("weak_sandbox", False))


def check_namespaces(stage: Stage[Any]) -> None:
    """Raise InputError where programs could not run as the configuration wants it."""
    try:
        check(is_weak(stage))
    except NoNamespaces as error:
        raise InputError(str(error)) from error


class Interpreter:
    """Runs programs in a sandbox that starts on first use; `weak`: even without namespaces."""

    def __init__(self, counters: Counter[str], weak: bool = False) -> None:
        self.counters, self.weak = counters, weak

    @cached_property
    def sandbox(self) -> Sandbox:
        ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return Sandbox(max(1, len(os.sched_getaffinity(0)) // ranks_here), self.weak)

    def close(self) -> None:
        """End the sandbox's workers, if any were started."""
        if "sandbox" in self.__dict__:
            self.sandbox.close()

    def run(self, programs: Sequence[str | Check], seconds: float) -> list[Outcome]:
        """Outcomes in order, each after at most `seconds`; equal programs run once."""
        distinct = list(dict.fromkeys(programs))
        if not distinct:
            return []
        outcomes = {}
        for program, outcome in zip(distinct, self.sandbox.run(distinct, seconds), strict=True):
            outcomes[program] = outcome
            beat()
        self.counters["sandbox.programs"] += len(distinct)
        return [outcomes[program] for program in programs]

    def run_answers(self, texts: Sequence[str], seconds: float) -> list[Ran]:
        """Run answers that are programs (PAL): how each ended and what it printed last."""
        programs = [pal_program(text) for text in texts]
        outcomes = iter(self.run([program for program in programs if program is not None], seconds))
        found: list[Ran] = []
        for program in programs:
            outcome = None if program is None else next(outcomes)
            found.append((outcome.status, printed_answer(outcome)) if outcome else (None, None))
        return found
