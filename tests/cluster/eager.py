"""Snakemake whose Slurm plugin asks for the jobs' states every second instead of ever more rarely."""

import sys

from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor

Executor.next_seconds_between_status_checks = property(lambda self: 1, lambda self, seconds: None)
main(sys.argv[1:])
