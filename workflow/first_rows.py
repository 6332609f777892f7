"""The first rows of files of yours, given before the first job to the readers of the programs that will read
them: a wrong column would otherwise end a run hours after its start.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.config.evaluate import BenchmarkNode
from pipeline.config.sft import SftSection
from pipeline.core.data.rows import read_rows, renamed
from pipeline.core.errors import InputError
from pipeline.corpus.training_set import TEXT_LISTS, read_examples
from pipeline.evaluate.benchmarks import read_items
from pipeline.report.truth import read_truth
from pipeline.tokens.texts import read_texts
from pipeline.training.conversations import read_messages
from workflow.graph import Graph
from workflow.instances import Instance

ROWS = 100  # of each file
Reader = Callable[[str], Iterable[Any]]


def faulty_rows(graph: Graph, nodes: Iterable[Instance]) -> Iterator[str]:
    """Yield a line for each source of the instances whose first rows cannot be read, with key and place."""
    seen = set()
    for node in nodes:
        for role, source in node.inputs:
            where, read = _reader(graph, node, role)
            if read is None or not isinstance(source, str) or not Path(source).exists():
                continue  # a result, data of the hub, or a file that is to come
            if (where, source) not in seen:
                seen.add((where, source))
                try:
                    if told := _too_few(node, role, source, sum(1 for _ in islice(read(source), ROWS))):
                        yield f"config key {where}: {source}: {told}"
                except InputError as error:
                    yield f"config key {where}: {error}"


def _too_few(node: Instance, role: str, source: str, found: int) -> str | None:
    """Say where a file has no rows, or RL's only one fewer questions than a step asks."""
    if not found and node.stage != "tokens" and next(read_rows(source), None) is None:
        return "it has no rows; name another file"
    alone = role == "prompts" and sum(kind == role for kind, _ in node.inputs) == 1
    asked = node.section.get("questions_per_step", 0) if alone else 0
    few = found < min(asked, ROWS)
    return f"its questions are {found}, questions_per_step is {asked}: lower that" if few else None


def _reader(graph: Graph, node: Instance, role: str) -> tuple[str, Reader | None]:
    """Return the configuration key of an input and the reader of its rows; None for what has none."""
    kind, _, name = role.partition(".")
    if kind in ("benchmark", "exemplars"):
        asked = graph.config.benchmarks[name]
        if kind == "exemplars":
            asked = BenchmarkNode(source=[], language=asked.language, fields=asked.fields)
        key = "source" if kind == "benchmark" else kind
        return f"benchmarks.{name}.{key}", lambda source: read_items(name, asked, [source], ROWS)
    if kind in ("prompts", "evaluation"):
        questions = BenchmarkNode(source=[], fields=node.section["fields"])
        return f"models.{node.instance}.{kind}", lambda source: read_items(kind, questions, [source], ROWS)
    if (node.stage, kind) == ("sft", "data"):
        section = SftSection(**node.section)
        return f"models.{node.instance}.data", lambda source: _examples(source, section)
    if kind in ("reward", "filter"):
        key, names = "crawl.filters", graph.config.sections["crawl"].filters
        if kind == "reward":
            key, names = f"models.{node.instance}.rewards.functions", node.section["rewards"]["functions"]
        named = [name.rpartition(":") for name in names]
        return key, lambda source: _defined(source, [name for file, _, name in named if file == source])
    if kind == "method":
        name = node.section["method"].rpartition(":")[2]
        return f"models.{node.instance}.method", lambda source: _defined(source, [name])
    if kind in TEXT_LISTS:
        return f"corpus.{kind}", lambda source: read_examples({kind: [source]}, kind)
    if kind == "truth":
        return "report.truth", lambda source: read_truth([Path(source)])
    if node.stage == "tokens" and kind == "source":
        field = node.section["sources"][name]["text"]
        return f"mixtures.{node.instance}.sources.{name}", lambda source: read_texts(source, field)
    return "tokens.texts", read_texts if (node.name, kind) == ("tokens/tokenizer", "text") else None


def _defined(source: str, names: list[str]) -> list[str]:
    """Look for names in a file of Python, which is not run."""
    text = Path(source).read_bytes()
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{source}: no Python: {error}") from error
    for name in names:
        if not re.search(rf"\b{name}\b".encode(), text):
            raise InputError(f"{source}: has no {name!r}")
    return names


def _examples(source: str, section: SftSection) -> Iterator[Any]:
    """Read conversations as fine-tuning does, which alone has a tokenizer."""
    for place, row in read_rows(source):
        try:
            yield read_messages(renamed(place, row, section.fields), section.row_format)
        except InputError as error:
            raise InputError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from error
