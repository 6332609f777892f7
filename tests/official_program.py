"""Runs the authors' evaluation program, in the folder of a checkout of deepseek-ai/DeepSeek-Math, on rows.

Takes [extraction, comparison, question, reference, text] a line, gives a label a line. A comparison may take
as many seconds of the processor as theirs of the clock.
"""

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

SECONDS = 15  # as infer/run_cot_eval.py gives a comparison


class Program:
    """The program in a process of its own; a comparison that takes too long is wrong, as in theirs."""

    def __init__(self, folder: Path) -> None:
        self.command = [sys.executable, "-W", "ignore", __file__, str(folder)]
        self.process: subprocess.Popen | None = None

    def label(self, extraction: str, comparison: str, question: str, gold: object, text: str) -> bool:
        """The label that the program gives a row."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.process.stdin.write(json.dumps([extraction, comparison, question, gold, text]) + "\n")
        self.process.stdin.flush()
        if line := self.process.stdout.readline():
            return json.loads(line)
        if self.process.wait() != -signal.SIGPROF:
            raise RuntimeError(
                f"the authors' program ended with {self.process.returncode}: {text!r}, {gold!r}"
            )
        self.process = None
        return False

    def close(self) -> None:
        """End its process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def main() -> None:
    sys.path.insert(0, str(Path(sys.argv[1]) / "evaluation"))
    from data_processing import answer_extraction
    from eval import eval_script

    for line in sys.stdin:
        extraction, comparison, question, gold, text = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()):
            found = getattr(answer_extraction, extraction)(question, text, task="cot")
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            label = bool(getattr(eval_script, comparison)({"prediction": found, "answer": gold}))
            signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(label), flush=True)


if __name__ == "__main__":
    main()
