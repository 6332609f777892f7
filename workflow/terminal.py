"""What Snakemake says while jobs run: a line when a job starts or ends, with all that is done, what runs and
the time left (`timing.py`); last of all, why jobs failed. Its own log in `.snakemake/log` keeps the rest. The
logger plugin `dsm` writes these lines.
"""

import logging
import re
import shlex
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pipeline.core.progress import duration
from workflow.keys import Keys
from workflow.timing import Timing, tail

UNSAID = ("job_info", "shellcmd", "progress", "group_error")  # events
HIDDEN = re.compile(
    r"Reasons:|Select jobs to execute|Exiting because a job|Complete log|--keep-incomplete mode|Elapsed time"
    r"|Shutting down, this|RuleException:\s+CalledProcessError|\d+ jobs have (?:missing|outdated) provenance"
)
LOCKED = (
    "error: {} is locked: another Snakemake makes the same results, or one was killed. If none runs on any"
    " machine: {}"
)
FAILED = "At least one job did not complete successfully."
STOPPING = "Terminating processes on user request"
CAUSE = re.compile(r"error: |\w*(?:Error|Exception|Interrupt|Died)\b.*")
TAIL = 1 << 16  # bytes of a log in which its last lines are looked for
AWAITED = 0.5  # seconds
NAMED = 6  # running jobs that a line names


def cause(logs: list[str]) -> str:
    """Say why a job failed, by the first of its logs that exists, and which one that is."""
    files = [Path(log) for log in logs if Path(log).is_file()]
    if not files:
        return "it ended before it could write a log"
    lines = tail(files[0], TAIL) or ["nothing"]
    errors = [line.removeprefix("error: ") for line in lines if CAUSE.match(line)]
    found = errors[-1] if errors else f"ended without an error; it said last: {lines[-1]}"
    return f"{found} (log: {files[0]})"


@dataclass(frozen=True)
class Plan:
    """The jobs of a workflow by number, and the names of those with GPUs; `onstart` logs it as `plan`."""

    keys: Keys
    names: Mapping[int, str]
    gpus: set[str]


class Terminal(logging.Formatter):
    """Formats Snakemake's records. Before it has seen the plan it names no job."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Mapping[int, str] = {}
        self.failed: dict[str, str] = {}
        self.interrupted = False  # after Ctrl-C jobs end because they were told to
        self.stats = ""
        self.said, self.renew = "", 0.0  # the time left, and when to compute it anew

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT: note it, before Snakemake does what it would have done."""
        self.interrupted = True
        signal.default_int_handler(number, frame)

    def format(self, record: logging.LogRecord) -> str:
        """Write the lines for a record; empty for one that says nothing of use."""
        event = str(getattr(record, "event", None) or "")
        if plan := getattr(record, "plan", None):
            self.names, self.timing = plan.names, Timing(plan.keys, plan.names.values(), plan.gpus)
            return ""
        if event == "job_started":
            return self._start([self.names[job] for job in record.jobs if job in self.names])
        if event == "job_finished":
            return self._finish(self.names.get(record.job_id))
        if event == "job_error":
            return self._fail(self.names.get(record.jobid, record.rule_name), record.log)
        if getattr(record, "exception", None) == "LockException":
            return LOCKED.format(Path.cwd(), shlex.join([sys.executable, "-m", "snakemake", "--unlock"]))
        message = "" if record.msg is None else record.getMessage()
        if STOPPING in message:
            self.interrupted = True
            return "interrupted: waiting for the jobs that run to end"
        if FAILED in message and (self.failed or self.interrupted):
            told = [f"error: {name}: {why}" for name, why in self.failed.items()]
            if self.interrupted:
                told.append("error: interrupted; the same command goes on from here")
            return "\n".join(told)
        if event in UNSAID or hasattr(record, "quietness") or HIDDEN.match(message) or message == self.stats:
            return ""
        if event == "run_info":
            self.stats = message  # a dry run repeats it
        return message

    def _start(self, names: list[str]) -> str:
        timing = self.timing
        timing.running |= dict.fromkeys(names, time.monotonic())
        timing.most = max(timing.most, len(timing.running))
        for name in names:
            self.failed.pop(name, None)
        known = [(name, timing.about(name)) for name in names]
        return "\n".join(
            f"{name}: starts{f', about {duration(seconds)}' if seconds else ''}" for name, seconds in known
        )

    def _finish(self, name: str | None) -> str:
        if name is None:
            return ""
        timing = self.timing
        timing.finish(name, time.monotonic() - timing.running.pop(name))
        beside = ", ".join(timing.running) if len(timing.running) <= NAMED else f"{len(timing.running)} jobs"
        running = f", running: {beside}" if timing.running else ""
        return f"{name}: finished. {len(timing.done)} of {len(timing.seconds)} done{running}{self._left()}"

    def _fail(self, name: str, logs: list[str]) -> str:
        if name in self.names.values():
            self.timing.running.pop(name, None)
        if not (self.interrupted or self.failed):  # once: hundreds of jobs may fail together
            time.sleep(AWAITED)  # Ctrl-C reaches a job at once, this process when its main thread has a turn
        if self.interrupted:
            return f"{name}: stopped"
        self.failed[name] = cause(logs)
        return f"{name}: failed"  # the program's own line stands before it, and its cause at the end

    def _left(self) -> str:
        """Say the time left, not computed anew for each of thousands of short jobs."""
        now = time.monotonic()
        if now >= self.renew:
            seconds, unknown = self.timing.left(now)
            more = f" and {unknown} never timed" if unknown else ""
            self.said = f", about {duration(seconds)} left{more}" if seconds else ""
            self.renew = now + 20 * (time.monotonic() - now)
        return self.said
