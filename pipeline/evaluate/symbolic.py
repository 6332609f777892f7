r"""Symbolic comparison by Math-Verify in a child process that is killed at its time limit.

Signals and threads cannot stop symbolic work reliably (off the main thread the one fails, the other leaves
the work running), so each thread that grades has a child of its own, told its deadline by the parent: past it
the child is killed and replaced, and the answer is undecided. The child also limits its own memory and,
through the kernel, its processor time, so that it ends even if the parent is killed. Only the ANTLR grammar
of latex2sympy2 reads the text; Python's parser never does.
"""

import json
import os
import resource
import selectors
import subprocess
import sys
import threading
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import IO

SECONDS_PER_COMPARISON = 5.0
SECONDS_TO_START = 120.0
MEMORY_BYTES = 2 << 30


class Child:
    """One worker process; `ask` is not thread-safe."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.buffer = b""
        if self._line(SECONDS_TO_START) is None:
            self.close()
            raise RuntimeError("the symbolic grading process did not start; is math-verify installed?")

    def _line(self, seconds: float) -> bytes | None:
        """The child's next line, or None if it ended or the time is over."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not self.selector.select(left):
                return None
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                return None
            self.buffer += part
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def ask(self, reference: str, answer: str, seconds: float) -> tuple[str, str] | None:
        """(outcome, reason), or None if the child died or ran past `seconds`; it is then of no more use."""
        try:
            self.process.stdin.write(json.dumps([reference, answer, seconds]).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        line = self._line(seconds)
        return tuple(json.loads(line)) if line is not None else None

    def close(self) -> None:
        """Kill the child and wait for its end."""
        self.process.kill()
        self.process.wait()
        self.selector.close()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()

    def __del__(self) -> None:
        if hasattr(self, "selector") and self.process.returncode is None:
            self.close()


_local = threading.local()


def compare(reference: str, answer: str, seconds: float = SECONDS_PER_COMPARISON) -> tuple[str, str]:
    """(right | wrong | undecided, reason) for two final answers in LaTeX or plain notation."""
    return _compare(reference, answer, seconds)


@lru_cache(maxsize=4096)
def _compare(reference: str, answer: str, seconds: float) -> tuple[str, str]:
    child = getattr(_local, "child", None) or Child()
    _local.child = None
    started = time.monotonic()
    result = child.ask(reference, answer, seconds)
    if result is None:
        timed_out = time.monotonic() - started >= seconds * 0.95
        child.close()
        return (
            "undecided",
            f"symbolic comparison took over {seconds:g} s" if timed_out else "symbolic comparison crashed",
        )
    _local.child = child
    return result


def _parse(text: str) -> object:
    """Cleaned LaTeX as a sympy object; raises if the grammar refuses any part of it."""
    from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex

    rules = NormalizationConfig(
        basic_latex=True, units=True, malformed_operators=True, nits=True, boxed="none", equations=False
    )
    text = normalize_latex(text, config=rules)
    return latex2sympy(
        text, is_real=not should_treat_as_complex(text), convert_degrees=False, normalization_config=None
    )


def _decide(reference: str, answer: str) -> tuple[str, str]:
    from math_verify import verify

    try:
        expected = _parse(reference)
    except Exception:  # the grammar raises anything
        return "undecided", "reference not understood"
    try:
        given = _parse(answer)
    except Exception:
        return "undecided", "answer not understood"
    same = verify(expected, given, timeout_seconds=None)
    return ("right" if same else "wrong"), "symbolic"


def _serve(requests: IO[str], replies: IO[str]) -> None:
    """The child: read requests, write verdicts, one line each, until the parent closes the pipe."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    _decide("x+1", "1+x")  # pays for the imports before the first deadline
    print("ready", file=replies, flush=True)
    for line in requests:
        reference, answer, seconds = json.loads(line)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        ceiling = int(usage.ru_utime + usage.ru_stime + seconds) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (ceiling, resource.RLIM_INFINITY))
        try:
            result = _decide(reference, answer)
        except (Exception, RecursionError) as error:  # sympy raises anything
            result = "undecided", f"symbolic comparison failed: {type(error).__name__}"
        print(json.dumps(result), file=replies, flush=True)


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    _serve(sys.stdin, sys.stdout)
