"""Another process that answers questions, one line of JSON by another, and may be stopped at any time."""

import atexit
import json
import os
import subprocess
from collections.abc import Sequence
from threading import Lock
from typing import Any


class AnsweringProcess:
    """Starts `command` when it is asked, again after it ends; `options` are those of `subprocess.Popen`."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.lock = Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        atexit.register(self.stop)

    def ask(self, question: Any) -> Any:
        """Return the answer; None if the process ends."""
        with self.lock:
            if self.owner != os.getpid():  # after a fork the pipes are the parent's
                self.process = None
            try:
                if self.process is None or self.process.poll() is not None:
                    self._start()
                return self._exchange(question)
            except BaseException:  # an alarm or Ctrl-C: its answer would be taken for the next question's
                self.stop()
                raise

    def _exchange(self, question: Any) -> Any:
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
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
