"""What the page's tables of accuracies are made of; each chapter fills its own."""

from dataclasses import dataclass
from typing import Any

from pipeline.report.compare import Difference, Task

# The benchmarks of the generated web, explained where a page first names them.
GENERATED = {
    "miniweb": "arithmetic word problems of the generated web, of the kinds that training shows",
    "heldout": "word problems of kinds that training never shows",
}


@dataclass(frozen=True)
class Cell:
    """A number in percent (or points), perhaps with its interval; `value` None prints as a dash."""

    value: float | None = None
    ci95: tuple[float, float] | None = None
    signed: bool = False

    @property
    def sign(self) -> str:
        """Where the interval of a signed number lies: above, below or across zero."""
        if not self.signed or self.ci95 is None:
            return ""
        return "above" if self.ci95[0] > 0 else "below" if self.ci95[1] < 0 else "across"


@dataclass(frozen=True)
class Row:
    """A line of a table: whose it is (`paper`, `ours` or `gain`), a label, a remark and its cells."""

    kind: str
    label: str
    remark: str
    cells: list[Cell]


def share(value: float | None, ci95: Any = None, *, signed: bool = False) -> Cell:
    """Return a share, and perhaps its interval, in percent."""
    if value is None:
        return Cell(signed=signed)
    return Cell(100 * value, (100 * ci95[0], 100 * ci95[1]) if ci95 else None, signed)


def accuracy(score: dict[str, Any] | None) -> Cell:
    """Greedy accuracy of a stored score; none where nothing was checked."""
    if not score or score.get("not_checked") == score["n"]:
        return Cell()
    return share(score["accuracy"], score["ci95"])


def official(score: dict[str, Any] | None) -> Cell:
    """Greedy accuracy by the paper's own program, where the evaluation has it."""
    return accuracy((score or {}).get("official"))


def gain(difference: Difference | None) -> Cell:
    """Return a paired difference in points."""
    return share(difference.mean, difference.ci95, signed=True) if difference else Cell(signed=True)


def task_of(table: dict[str, Any], benchmark: str) -> Task:
    """Return what a column of one of the paper's tables measures: `kinds` says so of single columns, else
    `kind`.
    """
    return benchmark, table.get("kinds", {}).get(benchmark, table.get("kind", "cot"))


def title(paper: dict[str, Any], benchmark: str, kind: str = "cot") -> str:
    """Return a benchmark's name in print, with the kind of solution unless that is chain of thought."""
    name = paper["benchmarks"].get(benchmark, benchmark)
    return name if kind == "cot" else f"{name} ({kind})"


def size(parameters: int | None) -> str:
    """Parameters as 1.9M or 6.9B."""
    if not parameters:
        return ""
    units = ((1e9, "B"), (1e6, "M"), (1e3, "K"), (1, ""))
    unit, name = next((unit, name) for unit, name in units if parameters >= unit)
    return f"{parameters / unit:.3g}{name}"
