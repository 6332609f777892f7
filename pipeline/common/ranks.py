"""torchrun with an end that says what happened: `python -m pipeline.common.ranks` takes its arguments.

When a rank fails, torchrun ends the others of its node. One line then names rank, node and cause, and the
exit code is the rank's own. In a Slurm step torchrun outlives the notices that the ranks get from Slurm too.
"""

import os
import signal
import socket
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from pipeline.common.slurm import AGAIN, in_step, outlive_notices

STOP_SECONDS = 20  # between SIGTERM and SIGKILL for the ranks that are left


def cause(code: int) -> str:
    """What an exit code of `subprocess` means."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"


def main(words: list[str]) -> int:
    options = [f"--shutdown-timeout={STOP_SECONDS}"]
    if in_step(os.environ):
        outlive_notices()
        options.append("--signals-to-handle=SIGINT,SIGHUP,SIGQUIT")
    try:
        run(parse_args([*options, *words]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        code = failure.exitcode
        if code in (AGAIN, -signal.SIGUSR1):
            return AGAIN
        node = os.environ.get("SLURMD_NODENAME", socket.gethostname())
        print(f"error: rank {rank} on {node} {cause(code)}", file=sys.stderr, flush=True)
        return code if code > 0 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
