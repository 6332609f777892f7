"""What is wrong with the words of Snakemake's command line and the files they name.

Where a configuration file is missing, has a tab or is no UTF-8, Snakemake has a traceback or names no file
before it reads a rule. `dsm run` asks `problem` before that; the rules ask it for plain Snakemake.
"""

import argparse
import difflib
import shlex
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.core.overlays import read_config

SUFFIXES = (".yaml", ".yml", ".json")


def problem(words: list[str]) -> str | None:
    """Find what is wrong with cores, keys and configuration files of a command line, in one line."""
    found = _parsed(words)
    if found.cores == "0":  # Snakemake would wait for ever
        return "--cores 0: no job could start; give 1 or more, or all"
    for word in found.config:
        name, separator, value = word.partition("=")
        if not name or not separator:
            return f"--config {word}: expected KEY=VALUE"
        if "." in name:
            section, _, key = name.partition(".")
            right = shlex.quote(f"{section}={{{key}: {value or 'VALUE'}}}")
            return f"--config {word}: keys of a section stand in braces: --config {right}"
    if told := _lacks_plugin(found.executor, found.profile):
        return told
    given = found.configfile
    files = [file for group in given for file in group]
    if len(given) > 1:
        return f"--configfile stands twice, and only the last counts: --configfile {shlex.join(files)}"
    for place, file in enumerate(files):
        if place and not Path(file).exists() and not file.endswith(SUFFIXES):
            right = f"--configfile {shlex.join(files[:place])} -- {shlex.join(files[place:])}"
            return f"{file}: no configuration file; targets stand behind `--`: {right}"
    try:
        read_config(files)
    except InputError as error:
        return str(error)
    return None


def configuration(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the configuration files and the words of `--config` of a command line."""
    found = _parsed(words)
    return [file for group in found.configfile for file in group], found.config


def _parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--configfile", "--configfiles", nargs="*", action="append", default=[])
    parser.add_argument("--config", "-C", nargs="*", action="extend", default=[])
    parser.add_argument("--cores", "-c", nargs="?")
    parser.add_argument("--executor", "-e")
    parser.add_argument("--profile")
    return parser.parse_known_args(words)[0]


def _lacks_plugin(executor: str | None, profile: str | None) -> str | None:
    """Find a missing package of the executor that the words or the profile name; Snakemake would list its
    options instead.
    """
    for file in sorted(Path(profile).glob("*.yaml")) if profile and not executor else []:
        executor = read_config([file]).get("executor")
    plugin = f"snakemake-executor-plugin-{executor}"
    if not executor or executor in ("local", "dryrun", "touch") or find_spec(plugin.replace("-", "_")):
        return None
    where = f"--profile {profile}" if profile else f"--executor {executor}"
    return f"{where}: jobs go to {executor} by {plugin}, which is not installed: pip install {plugin}"


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Suggest the closest of the known names, with a prefix; empty if none is close."""
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
