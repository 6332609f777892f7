"""Puts jobs that Slurm preempted and cancelled back into the queue.

Slurm requeues a preempted job itself where the partition says `PreemptMode=REQUEUE`. With `CANCEL` the job
ends as PREEMPTED, and Snakemake's plugin waits for it for ever. Back in the queue it keeps its number, so the
plugin goes on as if nothing had happened, and no retry is spent.
"""

import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

PAUSE_SECONDS = 30  # Slurm forgets an ended job after MinJobAge, 300 seconds unless configured otherwise


def requeue(folder: Path, since: datetime) -> None:
    """Requeue the preempted jobs of this user that were submitted from `folder` after `since`."""
    query = ["squeue", "--me", "--noheader", "--states=PREEMPTED", "--format=%A|%V|%Z"]
    for line in subprocess.run(query, capture_output=True, text=True).stdout.splitlines():
        job, submitted, place = line.split("|", 2)
        if Path(place) == folder and datetime.fromisoformat(submitted) >= since:
            print(f"Job {job} was preempted and goes back into the queue.", file=sys.stderr, flush=True)
            subprocess.run(["scontrol", "requeue", job])


def watch(folder: Path) -> None:
    """Do so from now on, beside the workflow, until its process ends."""
    since = datetime.now().replace(microsecond=0)

    def loop() -> None:
        while True:
            requeue(folder, since)
            time.sleep(PAUSE_SECONDS)

    threading.Thread(target=loop, daemon=True).start()
