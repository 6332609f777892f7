"""One command in front of the others: `dsm run configs/demo.yaml`, or `python -m pipeline run ...`."""

import os
import re
import runpy
import shlex
import signal
import sys
from pathlib import Path

from workflow.arguments import SUFFIXES, nearest, problem

HELP = """\
usage: dsm COMMAND ...

  run CONFIG... [TARGET...] [OPTIONS]   make what is missing
  status CONFIG... [OPTIONS]            what is not made yet, and why
  plan CONFIG... [OPTIONS]              what a run will cost
  chat --model FOLDER [OPTIONS]         talk to a model
  review RUN [OPTIONS]                  give verdicts on the sites of a corpus
  experiment NAME [OPTIONS]             compare a variant with a baseline
  classify CLASSIFIER INPUT... OPTIONS  keep texts that a corpus would keep
  export MODEL --to FOLDER              model or classifier for others to use
  score OPTIONS                         score the outputs of a model
  grade OPTIONS                         grade pairs of answers

CONFIG: files over configs/default.yaml. TARGET: a stage or a result (rl/grpo).
OPTIONS of `run` are Snakemake's, whose command line it prints:
  -n                          only say what would run, and why
  --cores 2                   of this machine; all unless it is given
  --config seed=1             a key of the configuration
  --forcerun rl/grpo          make this again
  --profile profiles/slurm    on a cluster; profiles/gpu: on GPUs here
`dsm COMMAND --help` lists those of the others.
"""
COMMANDS = ("status", "plan", "chat", "review", "classify", "experiment", "export")
MODULES = {
    **{name: f"pipeline.cli.{name}" for name in COMMANDS},
    **{name: f"pipeline.evaluate.{name}" for name in ("score", "grade")},
}
# Snakemake as `python -m snakemake` starts it, without a traceback for Ctrl-C while it is read and plans.
QUIET = """import runpy, sys
try:
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
except KeyboardInterrupt:
    sys.exit("error: interrupted")"""
CONFIGURED = ("status", "plan")  # commands that take configuration files, and whose output may go to `head`
# Options that say where jobs run, or how many.
PLACE = re.compile(r"--(cores|jobs|profile|executor)(=.*)?|-[cje]\S*")


def snakemake(words: list[str]) -> list[str]:
    """Get the arguments for Snakemake to the words of `run`. Raises SystemExit where they cannot be meant."""
    first = next((place for place, word in enumerate(words) if word.startswith("-")), len(words))
    files = [word for word in words[:first] if word.endswith(SUFFIXES)]
    targets, options = [word for word in words[:first] if word not in files], words[first:]
    if "--" in options:
        place = options.index("--")
        targets, options = targets + options[place + 1 :], options[:place]
    late = [] if files or "--configfile" in options else [word for word in options if word.endswith(SUFFIXES)]
    if late:
        sys.exit(f"error: {late[0]}: configuration files come before options: dsm run {late[0]} ...")
    arguments = ["--logger", "dsm", *([] if any(map(PLACE.fullmatch, options)) else ["--cores", "all"])]
    arguments += [*(["--configfile", *files] if files else []), *options]
    return [*arguments, *(["--", *targets] if targets else [])]


def run(words: list[str]) -> None:
    """Replace this process by Snakemake, after a look at the configuration files: Snakemake would end in a
    traceback for one that is missing or no text.
    """
    if not Path("Snakefile").is_file():
        sys.exit("error: run dsm in the folder of the repository")
    arguments = snakemake(words)
    if told := problem(arguments):
        sys.exit(f"error: {told}")
    from workflow.targets import Targets  # the whole configuration behind it takes its time

    command = ["python", "-m", "snakemake", *Targets(arguments).linked()]
    print(shlex.join(command), file=sys.stderr, flush=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.execv(sys.executable, [sys.executable, "-c", QUIET, *command[3:]])


def main() -> None:
    """Do what the command line says, which Ctrl-C ends in one line."""
    try:
        start(*(sys.argv[1:] or ["--help"]))
    except KeyboardInterrupt:
        sys.exit("error: interrupted")


def start(command: str, *words: str) -> None:
    """Run a command with the words behind it."""
    if command in ("-h", "--help") or (command == "run" and {"-h", "--help"} & {*words}):
        print(HELP, end="")
    elif command == "run":
        run([*words])
    elif command in MODULES:
        if command in CONFIGURED:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        listed = command in CONFIGURED and words and not words[0].startswith("-")
        sys.argv = [command, *(["--configfile"] if listed else []), *words]
        runpy.run_module(MODULES[command], run_name="__main__", alter_sys=True)
    else:
        sys.exit(f"error: {command}: no command of dsm{nearest(command, ['run', *MODULES])}")


if __name__ == "__main__":
    main()
