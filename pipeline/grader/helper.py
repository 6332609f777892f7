"""Another process that answers questions, one line of JSON by another, and may be stopped at any time."""

import atexit
import json
import os
import select
import subprocess
from collections.abc import Sequence
from threading import Lock
from typing import Any


class HelperProcess:
    """Starts `command` when it is asked, again after it has ended; `options` are those of `subprocess.Popen`.

    `first`: a question that is asked after each start, and the seconds that its answer may take.
    """

    def __init__(
        self, command: Sequence[str], first: tuple[Any, float] | None = None, **options: Any
    ) -> None:
        self.command, self.first, self.options = command, first, options
        self.lock = Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        atexit.register(self.stop)

    def ask(self, question: Any, seconds: float | None = None) -> Any:
        """Return the answer; None if the process ends, or is stopped after so many seconds."""
        with self.lock:
            if self.owner != os.getpid():  # after a fork the pipes are the parent's
                self.process = None
            try:
                if self.process is None or self.process.poll() is not None:
                    self._start()
                    if self.first is not None:
                        self._exchange(*self.first)
                return self._exchange(question, seconds)
            except BaseException:  # an alarm or Ctrl-C: its answer would be taken for the next question's
                self.stop()
                raise

    def _exchange(self, question: Any, seconds: float | None) -> Any:
        if self.process is None:
            return None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            line = self.process.stdout.readline() if ready else b""
        except ConnectionError:
            line = b""
        if not line:
            self.stop()
        return json.loads(line) if line else None

    def _start(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(self.command, **pipes, start_new_session=True, **self.options)
        self.owner = os.getpid()

    def stop(self) -> None:
        """End the process if this one started it."""
        if self.process is not None and self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        self.process = None
