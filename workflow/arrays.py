"""What Snakemake's plugin for Slurm (2.8) leaves to be done: jobs of a rule as arrays, and when to give up.

The plugin knows arrays, but it forgets jobs that it holds back to wait for others of their rule (its issue
473), takes the state of one task for that of all where it asks `sacct`, lets each task run the first task's
job where a command line grows too long, and guesses an account from what other jobs had. `Arrays` decides
what is submitted when, and leaves each submission to the plugin.
"""

import base64
import math
import re
import sys
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import Any

from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from pipeline.core import tries

COMMAND = 120_000  # characters that sbatch takes as one word: 128 KiB less what is the same for all tasks
ENCODED = re.compile(r" base64//([\w+/]+=*)")
EMPTY = re.compile(r" --set-(?:resources|threads)(?= --)")
SHARE = 4  # a quarter of the jobs that may run at once is the most that waits for others


def wave(waiting: int, size: int, running: int, feeding: bool, more: bool) -> int:
    """How many of a rule's `waiting` jobs are submitted now.

    `size`: tasks of an array. `running`: the rule's jobs that are submitted and have not ended. `feeding`:
    jobs that run may make others of the rule ready. `more`: others are ready and wait for a place. Without
    either nobody else will come, and all go.
    """
    if not feeding and not more:
        return waiting
    if waiting >= size:
        return waiting - waiting % size
    return waiting if more and waiting * SHARE >= waiting + running else 0


def rules_before(dag: Any) -> dict[str, set[str]]:
    """By rule: the other rules whose jobs come before its jobs, directly or not."""
    direct: dict[str, set[str]] = defaultdict(set)
    for job in dag.needrun_jobs():
        direct[job.rule.name] |= {before.rule.name for before in dag.dependencies[job]}
    found = {}
    for rule in list(direct):
        seen, pending = set[str](), [rule]
        while pending:
            new = direct.get(pending.pop(), set()) - seen
            seen |= new
            pending += new
        found[rule] = seen - {rule}
    return found


def without_others(command: str, rule: str, rules: set[str]) -> str:
    """Leave out of a job's command what the profile sets for other rules: each task has its own."""

    def own(match: re.Match[str]) -> str:
        named = base64.b64decode(match[1]).decode().partition(":")[0].partition("=")[0]
        return "" if named in rules - {rule} else match[0]

    return EMPTY.sub("", ENCODED.sub(own, command))


class Arrays:
    """Submits jobs in waves, in front of the plugin's executor: they wait for others of their rule and
    attempt, because the tasks of an array ask for the same.
    """

    def __init__(self, workflow: Any, logger: Any) -> None:
        self.waiting: dict[tuple[str, int], list[Any]] = {}
        self.costs: dict[Any, int] = {}  # characters of a job in the command line of its array
        self.running: Counter[str] = Counter()
        self.coming = Counter(job.rule.name for job in workflow.dag.needrun_jobs())
        self.before = rules_before(workflow.dag)
        self.rules = {rule.name for rule in workflow.rules}
        self.waves = threading.Lock()
        self.seen: dict[tuple[str, int], int] = {}  # how many waited when Slurm was asked last
        super().__init__(workflow, logger)

    def run_jobs(self, jobs: list[Any]) -> None:
        with self.waves:
            for job in jobs:
                if self._in_arrays(job):
                    self.coming[job.rule.name] -= job.attempt == 1
                    self.costs[job] = self._cost(job)
                    self.waiting.setdefault((job.rule.name, job.attempt), []).append(job)
                else:
                    self._submit([job])
            self.submit_waves()

    def _in_arrays(self, job: Any) -> bool:
        """Not jobs with ranks, which call srun: each task of an array would run the first task's job."""
        rules = self.array_jobs & {"all", job.rule.name} if not job.is_group() else None
        return bool(rules) and job.resources.get("mpi") is None

    def submit_waves(self) -> None:
        """Submit what need not wait any longer."""
        ready = Counter(job.rule.name for job in list(self.workflow.dag.ready_jobs))
        for (rule, attempt), jobs in self.waiting.items():
            if not jobs:
                continue
            places = self.workflow.resource_settings.nodes // SHARE
            size = max(1, min(self.max_array_size, places, COMMAND // max(self.costs[job] for job in jobs)))
            more = self.coming[rule] > 0 and ready[rule] > 0
            feeding = self.coming[rule] > 0 and any(self.running[one] for one in self.before[rule])
            number = wave(len(jobs), size, self.running[rule], feeding, more)
            now, self.waiting[rule, attempt] = jobs[:number], jobs[number:]
            for start in range(0, number, size):
                self._submit(now[start : start + size])

    def format_job_exec(self, job: Any) -> str:
        command: str = super().format_job_exec(job)
        return command if job.is_group() else without_others(command, job.rule.name, self.rules)

    def _cost(self, job: Any) -> int:
        """Count what a job takes of the command line: compressed, in hexadecimal, and that in base 64."""
        packed = len(zlib.compress(self.format_job_exec(job).encode(), 9))
        return math.ceil(packed * 2 * 4 / 3) + 20

    def _submit(self, jobs: list[Any]) -> None:
        for job in jobs:
            if not job.is_group():
                self.running[job.rule.name] += 1
        if len(jobs) == 1:
            self._submit_job(jobs[0])
        else:
            self._submit_array_jobs(jobs)

    def handle_job_success(self, job: Any) -> None:
        super().handle_job_success(job)
        self._ended(job)

    def handle_job_error(self, job: Any) -> None:
        """Let Snakemake give up a job that would end the same way again."""
        super().handle_job_error(job)
        self._ended(job)
        if not job.is_group() and tries.vain(job.wildcards_dict.get("key", "")):
            job.attempt = job.restart_times + 1

    def _ended(self, job: Any) -> None:
        if not job.is_group():
            self.running[job.rule.name] -= 1

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        """Also submit what waits for nobody since the last look: of a job that failed nothing follows."""
        async for job in super().check_active_jobs(active_jobs):
            yield job
        with self.waves:
            waiting = {key: len(jobs) for key, jobs in self.waiting.items() if jobs}
            if waiting and waiting == self.seen and not any(self.running.values()):
                self.submit_waves()
            self.seen = waiting

    def get_account_arg(self, job: Any) -> Iterator[str]:
        """Without `slurm_account` the account is Slurm's own default."""
        return super().get_account_arg(job) if job.resources.get("slurm_account") else iter([""])


def with_arrays(base: type) -> type:
    """Give the plugin's executor `base` waves."""
    return type("Executor", (Arrays, base), {})


def install() -> None:
    """Let Snakemake submit to Slurm in this way, if the plugin is there."""
    plugin = ExecutorPluginRegistry().plugins.get("slurm")
    if plugin is None or hasattr(plugin.executor, "submit_waves"):
        return
    module = sys.modules[plugin.executor.__module__]
    by_sacct = module.query_job_status_sacct
    # `JobIdRaw` has other numbers for the tasks of an array than those by which the plugin looks for them.
    module.query_job_status_sacct = lambda run: by_sacct(run).replace("JobIdRaw", "JobID")
    plugin.executor = with_arrays(plugin.executor)
