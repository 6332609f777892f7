"""Progress of long loops: a live bar on a terminal, a plain line every few seconds in a log."""

import sys
import time

from tqdm import tqdm

from pipeline.core.ending import say

SECONDS_BETWEEN_LINES = 10.0


def duration(seconds: float) -> str:
    """Seconds as `1h02m`, `3m05s` or `42s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


class Progress:
    """Counts units of work and estimates the time left.

    Use as a context manager; `update(n, **values)` adds `n` units and shows `values` (numbers) beside them.
    `initial` units were done before a resume and do not count in the speed.
    """

    def __init__(self, label: str, total: int | None, unit: str = "step", initial: int = 0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = self.initial = initial
        self.values: dict[str, float] = {}
        self.started = self.last_line = time.monotonic()
        self.bar = tqdm(total=total, initial=initial, desc=label, unit=unit) if sys.stderr.isatty() else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif kind is None and self.total != 0:
            self._line()

    def update(self, n: int = 1, **values: float) -> None:
        self.done += n
        self.values |= values
        if self.bar is not None:
            self.bar.set_postfix({name: f"{value:.4g}" for name, value in self.values.items()}, refresh=False)
            self.bar.update(n)
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self._line()

    def _line(self) -> None:
        self.last_line = time.monotonic()
        seconds = self.last_line - self.started
        speed = (self.done - self.initial) / seconds if seconds > 0 else 0.0
        goes_on = self.total and speed and self.done < self.total
        left = f", {duration((self.total - self.done) / speed)} left" if goes_on else ""
        shown = "".join(f", {name} {value:.4g}" for name, value in self.values.items())
        of = f"/{self.total:,}" if self.total else ""
        say(f"{self.label}: {self.done:,}{of} {self.unit}s in {duration(seconds)}{left}{shown}")
