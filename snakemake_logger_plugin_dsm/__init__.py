"""Snakemake's logger plugin `--logger dsm`: a line when a job starts or ends, instead of Snakemake's own.

Snakemake finds it by its name where it is started as `python -m snakemake` in the repository. It imports what
formats the lines only when it is chosen, because every job of a cluster loads all plugins.
"""

import logging
import signal
import sys

from snakemake_interface_logger_plugins.base import LogHandlerBase


class LogHandler(LogHandlerBase):
    """Writes to the terminal. With `--verbose`, `-p` or `--debug-dag` in Snakemake's own words."""

    writes_to_stream = True
    writes_to_file = needs_rulegraph = has_filter = has_formatter = False

    def __post_init__(self) -> None:
        said = self.common_settings
        self.stream = sys.stdout if said.stdout else sys.stderr
        if not (said.verbose or said.printshellcmds or said.debug_dag):
            from workflow.terminal import Terminal

            self.has_filter = self.has_formatter = True
            terminal = Terminal()
            self.setFormatter(terminal)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where SIGINT is ignored
                signal.signal(signal.SIGINT, terminal.interrupt)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's lines; those of no use have none."""
        try:
            if (text := self.format(record)) not in ("", "None"):
                print(text, file=self.stream, flush=True)
        except Exception:  # as all of `logging` does: it is told, and ends no workflow
            self.handleError(record)
