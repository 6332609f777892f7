"""The links `results/<run>/<stage>/<instance>`, which lead to the results of today's configuration.

They are for people and for programs that read a run by names; nothing in the workflow reads them. A program
moves that of its own result when it starts and when it ends. What no job moves, because the results are there
already, is moved before the first job: the rule `links` gives each configuration a job that is missing unless
the links are its own.
"""

from collections.abc import Iterable
from pathlib import Path

from pipeline.config.root import ConfigError
from pipeline.core.manifest import fingerprint
from pipeline.core.stages import PROGRAMS
from workflow.keys import Keys

CURRENT = "current"  # folder of the one file that says whose links these are


def file_of_run(keys: Keys) -> Path:
    """Name the file whose being there says that all links are those of this configuration."""
    return keys.run / CURRENT / fingerprint({name: keys.key(name) for name in keys.graph.nodes})


def move_links(keys: Keys) -> None:
    """Do what a job of the rule `links` does, for results that no workflow made."""
    leave_stale_links(keys)
    file_of_run(keys).parent.mkdir(exist_ok=True)
    file_of_run(keys).touch()


def leave_stale_links(keys: Keys) -> None:
    """Move each instance's link to today's result, or remove it where that is not made yet."""
    own = file_of_run(keys)
    for file in own.parent.glob("*"):
        if file != own:
            file.unlink(missing_ok=True)
    for name in keys.graph.nodes:
        entry = keys.entry(name)
        if entry.linked:
            continue
        if entry.made:
            entry.make_current()
        else:
            entry.leave_others()


def forced(keys: Keys, words: Iterable[str]) -> set[str]:
    """Find the instances that words of `--forcerun` name: by stage, rule, link or file; `all` is each.
    Raises ConfigError for one that is pinned: Snakemake would remove it first.
    """
    asked, found = set(words), set()
    modules = {program.module for program in PROGRAMS if program.rule in asked}
    for name, node in keys.graph.nodes.items() if asked else ():
        entry = keys.entry(name)
        names = {"all", node.stage, str(entry.link), str(entry.manifest), str(entry.data)}
        if names & asked or node.module in modules:
            if keys.pinned(name):
                raise ConfigError(refusal(keys, name))
            found.add(name)
    return found


def refusal(keys: Keys, name: str) -> str:
    """Say why a pinned instance is not made again."""
    return f"config key pins.{name}: {keys.key(name)} is pinned, so it cannot be made again; remove the pin"
