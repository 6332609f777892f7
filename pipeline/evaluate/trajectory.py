"""Evaluate a model that pre-training kept on its way (paper Figure 3); one job for each token count.

Reads and writes what `pipeline.evaluate` does.
"""

from pipeline.config.evaluate import EvaluateSection
from pipeline.core.stage import Counts, Stage, run_stage
from pipeline.evaluate import __main__ as evaluate


def run(stage: Stage[EvaluateSection]) -> Counts:
    """Evaluate the model; returns the numbers of benchmarks, questions and answers."""
    return evaluate.run(stage)


if __name__ == "__main__":
    run_stage("trajectory", EvaluateSection, run)
