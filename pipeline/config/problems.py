"""Keys of the word problems that are split into parts for fine-tuning, RL and development."""

from typing import ClassVar

from pipeline.config.evaluate import FIELDS, BenchmarkNode
from pipeline.core.section import LARGEST_SEED, Section, key


class ProblemsSection(Section):
    """Word problems with equations, without copies and without those of the benchmarks, in parts."""

    filled: ClassVar[tuple[str, ...]] = ("benchmarks", "seed")

    source: str | list[str] | None = key(
        None,
        "files or hub:<org>/<name>[/<config>]:<split> whose rows have `question`, `answer` and `equation`",
    )
    fields: dict[str, str] = key({}, FIELDS)
    kept_out: list[str] | None = key(
        None, "benchmarks whose questions are kept out; null: all of the run that are no part of these"
    )
    test: int = key(0, "problems that no training sees: `problems:test.jsonl`", ge=0)
    dev: int = key(200, "problems for choosing learning rates and checkpoints: `problems:dev.jsonl`", ge=1)
    rl: int = key(700, "problems for RL: `problems:rl.jsonl`; the rest are `problems:sft.jsonl`", ge=1)
    seed: int = key(0, "seed of the order in which problems are given to the parts", ge=0, le=LARGEST_SEED)
    benchmarks: dict[str, BenchmarkNode] = key({}, "the benchmarks kept out")

    @property
    def files(self) -> list[str]:
        """Every file that is made; `problems:<file>` names one."""
        written = ["sft.jsonl", "rl.jsonl", "sft-programs.jsonl", "rl-programs.jsonl", "dev.jsonl"]
        return [*written, "test.jsonl"] if self.test else written
