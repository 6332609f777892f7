"""Targets of `dsm run`: names of results become their links, which are rules to Snakemake."""

import re
import sys
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from pipeline.config.root import ConfigError
from pipeline.core.errors import InputError
from pipeline.core.stages import NAMES, PROGRAMS
from pipeline.core.store import STORE
from workflow.arguments import configuration, nearest
from workflow.graph import Graph, read_graph

# Options whose values name targets, at once or in the words after them, and those before a target.
NAMING = re.compile(r"(--(?:forcerun|until|omit-from|prioritize)=?|-[npkfF]*[RUOP]=?)(.*)", re.DOTALL)
FLAG = re.compile(r"-[npkfFt]+|--(?:dry-?run|printshellcmds|keep-going|force|forceall|touch)")
TARGETS = ("all", "links", *NAMES)  # rules
STAGES = {program.rule: program.stage for program in PROGRAMS}


class Targets:
    """The words of a command line for Snakemake, whose configuration is read where a word needs it."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    @cached_property
    def graph(self) -> Graph:
        """The graph of the command line's configuration. Raises SystemExit for one that cannot be meant."""
        try:
            return read_graph(*configuration(self.words))
        except (ConfigError, InputError) as error:
            sys.exit(f"error: {error}")

    def linked(self) -> list[str]:
        """Replace results (`rl/grpo`, or a file of it) by their links, among targets and as values of options
        that name them. Raises SystemExit for a word that names nothing.
        """
        start = self.words.index("--") if "--" in self.words else len(self.words)
        options, naming = [], ""
        for word in self.words[:start]:
            match = NAMING.fullmatch(word)
            if match and match[2]:
                word = match[1] + self._link(match[2], (*TARGETS, *STAGES))
            elif naming and not word.startswith("-"):
                word = self._link(word, (*TARGETS, *STAGES) if naming == "rules" else TARGETS)
            elif self._is_result(word):
                word = self._link(word)  # behind the value of another option
            if word.startswith("-"):
                naming = "rules" if match and not match[2] else "targets" if FLAG.fullmatch(word) else ""
            options.append(word)
        return [
            *options,
            *self.words[start : start + 1],
            *(self._link(one) for one in self.words[start + 1 :]),
        ]

    def _is_result(self, word: str) -> bool:
        """Whether a word that no option asks for is a result of the run, or a file of one."""
        if word.partition("/")[0] in NAMES:
            return "/" in word and word in self.graph.nodes
        return word.startswith("results/") and word.startswith(f"results/{self.graph.config.run}/")

    def _link(self, word: str, rules: Collection[str] = TARGETS) -> str:
        if word in rules:
            return word
        if word in STAGES:
            sys.exit(
                f"error: {word}: a rule of many jobs; name its stage, {STAGES[word]}, or one result of it"
            )
        nodes, run = self.graph.nodes, Path("results") / self.graph.config.run
        path = Path(word).relative_to(Path.cwd()) if Path(word).is_relative_to(Path.cwd()) else Path(word)
        path = path.relative_to(run) if path.is_relative_to(run) else path
        if path.parts[:1] == (STORE,):
            return word
        if name := next((str(one) for one in (path, *path.parents) if str(one) in nodes), None):
            return f"{run}/{name}"
        sys.exit(f"error: {word}: no such target{nearest(str(path), [*rules, *nodes])}")
