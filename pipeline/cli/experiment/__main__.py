"""Compare variants of a model with a baseline: `dsm experiment NAME --baseline MODEL --method my/loss.py`.

Writes experiments/NAME.yaml, says what will run and how long that takes, runs it, and ends with one page and
result.json in results/experiments/NAME. Where the file is there already, `dsm experiment NAME` runs it again.
"""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from pipeline.cli.experiment.design import FILES, Design, Experiment, checked, make_design, read_experiment
from pipeline.cli.experiment.findings import Findings
from pipeline.cli.experiment.sheet import tell, write_failed, write_index, write_sheet
from pipeline.cli.status import summary
from pipeline.config.__main__ import keys_as_yaml
from pipeline.config.root import ConfigError, check_name
from pipeline.core.atomic import atomic_write
from pipeline.core.errors import InputError
from pipeline.core.identity import read_manifest
from pipeline.core.overlays import merge
from pipeline.core.progress import duration
from workflow.keys import Keys
from workflow.links import move_links
from workflow.reasons import Reasons
from workflow.timing import Timing

HEAD = "# Written by `dsm experiment {name}`, which runs it again after an edit.\n"
MAKES = ("baseline", "method", "reward", "set", "seeds", "question", "expected", "matters", "stop")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(
        prog="dsm experiment", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("name", help="of the experiment, and of its arm; a file may have several arms")
    found.add_argument("configs", nargs="*", metavar="CONFIG", help="configuration files [configs/demo.yaml]")
    found.add_argument("--baseline", metavar="MODEL", help="what it is compared with, as grpo")
    found.add_argument("--method", "--loss", metavar="FILE.py[:NAME]", help="an RL method; NAME: [METHOD]")
    found.add_argument("--reward", metavar="FILE.py:NAME[=WEIGHT]", help="a part of the reward; [1]")
    found.add_argument("--set", action="append", metavar="KEY=VALUE", help="a key, as kl_coefficient=0.04")
    found.add_argument("--seeds", type=int, help="trainings of each side [3]")
    found.add_argument("--question", help="what is asked, in a sentence")
    found.add_argument("--expected", choices=["higher", "lower"], help="accuracy of the arm [higher]")
    found.add_argument("--matters", type=float, help="smallest effect that matters, a share [0.02]")
    found.add_argument("--stop", type=float, help="so far behind after a seed, an arm gets no other; a share")
    found.add_argument("-n", "--dry-run", action="store_true", help="say what would run, write nothing")
    found.add_argument("--cores", help="of this machine [all, or as a profile has it]")
    found.add_argument("--profile", help="of Snakemake, as profiles/gpu")
    return found


def change_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the keys that an arm changes, as the command line says them. Raises InputError."""
    change: dict[str, Any] = {"method": given.method} if given.method else {}
    if given.reward:
        function, _, weight = given.reward.partition("=")
        try:
            change["rewards"] = {"functions": {function: float(weight or 1)}}
        except ValueError as error:
            raise InputError(f"--reward {given.reward}: {weight!r} is no weight") from error
    for word in given.set or []:
        name, separator, text = word.partition("=")
        if not name or not separator:
            raise InputError(f"--set {word}: expected KEY=VALUE")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"--set {word}: the value is not YAML") from error
        for part in reversed(name.split(".")):
            value = {part: value}
        change = merge(change, value)
    if not change:
        raise InputError("nothing changes; give --method, --reward or --set")
    return change


def asked_experiment(given: argparse.Namespace, path: Path) -> Experiment:
    """Return the experiment of the file, or a new one of the command line. Raises InputError."""
    own = [name for name in MAKES if getattr(given, name) is not None]
    if path.exists():
        if own or given.configs:
            raise InputError(f"{path} is there; edit it and give no other words, or take another name")
        return read_experiment(path)
    if not given.baseline:
        raise InputError(f"{path}: no such experiment; a new one needs --baseline MODEL")
    change = change_of(given)
    words = ", ".join(f"{key}: {value}" for key, value in change.items())
    values: dict[str, Any] = {
        "question": f"Is {given.baseline} with {words} better than without?",
        "baseline": given.baseline,
        "arms": {given.name: change},
    }
    values |= {"configs": given.configs} if given.configs else {}
    values |= {name: getattr(given, name) for name in own if name in Experiment.model_fields}
    return checked(values, path)


def forecast_lines(design: Design) -> list[str]:
    """Say what will run and how long that takes."""
    keys = Keys(design.graph)
    wanted, pending = set(), design.targets()
    while pending:
        if (name := pending.pop()) not in wanted:
            wanted.add(name)
            pending += keys.before(name)
    reasons = Reasons(keys)
    reasons.made |= design.graph.nodes.keys() - wanted
    jobs = wanted - reasons.made
    timing = Timing(keys, jobs, set())
    baseline = design.experiment.baseline
    models = [model for names in design.families.values() for model in names]
    # What was never made takes about as long as the baseline.
    timing.liken([*map(design.training, models)], design.training(baseline))
    timing.liken([f"evaluate/{model}" for model in models], f"evaluate/{baseline}")
    seconds, unknown = timing.left(0.0)
    never = "of a kind that was never timed here (`dsm plan` forecasts GPUs)"
    told = f"{len(jobs)} jobs {never}"
    if unknown < len(jobs):
        told = f"{len(jobs)} jobs: {duration(seconds)} one after another, by the times of such jobs before"
        told += f", and {unknown} {never}" if unknown else ""
    return [*summary(reasons), *([told] if jobs else [])]


def run_targets(design: Design, targets: list[str], options: list[str]) -> int:
    """Run `dsm run` for some results; returns its exit code. An interrupt is left to it: it ends its jobs."""
    words = [*design.experiment.configs, str(design.path), *targets, *options]
    process = subprocess.Popen([sys.executable, "-m", "pipeline", "run", *words])
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def refuse_untouched(design: Design) -> None:
    """Raise InputError where an arm's first model has the baseline's weights: the change touched nothing."""
    keys = Keys(design.graph)
    weights = {}
    for arm, names in design.families.items():
        files = read_manifest(keys.entry(design.training(names[0])).manifest)["files"]
        weights[arm] = {name: digest for name, (_, digest) in files.items() if name.endswith(".safetensors")}
    baseline = design.experiment.baseline
    if same := [arm for arm in design.experiment.arms if weights[arm] == weights[baseline]]:
        raise InputError(
            f"{design.name}: no effect: the weights of {', '.join(same)} are those of {baseline}, so the "
            "change touched nothing, as clips do at `updates: 1`; change something else in "
            f"{FILES / design.name}.yaml"
        )


def hopeless(design: Design) -> dict[str, str]:
    """Tell which arms are too far behind after their first seed, and by how much."""
    experiment = design.experiment
    first = {arm: names[:1] for arm, names in design.families.items()}
    found, stopped = Findings(replace(design, families=first), {}), {}
    for arm, judgement in found.judgements.items():
        for effect in judgement.effects:
            behind = [row for row in effect.comparisons if row.ci95[1] < -(experiment.stop or 0)]
            if len(behind) == len(effect.comparisons):
                text = ", ".join(f"{row.benchmark} {' to '.join(row.points[1:])}" for row in behind)
                stopped[arm] = f"stopped after one seed, too far behind what is expected: {text} points."
    return stopped


def conduct(design: Design, options: list[str]) -> int:
    """Run an experiment to its page; returns the exit code of the run."""
    stopped: dict[str, str] = {}
    code = 0
    try:
        code = run_targets(design, [design.training(names[0]) for names in design.families.values()], options)
        if not code:
            refuse_untouched(design)
        if not code and design.experiment.stop is not None and design.experiment.seeds > 1:
            code = run_targets(design, design.targets(slice(1)), options)
            stopped = {} if code else hopeless(design)
        going = {arm: names for arm, names in design.families.items() if arm not in stopped}
        if not code and len(going) > 1:
            code = run_targets(design, replace(design, families=going).targets(), options)
    finally:
        plain = Keys(design.plain)
        if all(map(plain.made, design.plain.nodes)):
            move_links(plain)  # results/<run>/report is the configuration's own again
    if code:
        reason = f"the run ended with code {code}; `dsm experiment {design.name}` goes on."
        print(f"{design.name}: {reason}", file=sys.stderr)
        page = write_failed(design, reason)
    else:
        found = Findings(design, stopped)
        page = write_sheet(found)
        print("\n".join(tell(found.row(arm)) for arm in found.arms))
    print(f"Experiment: {page}\nAll experiments: {write_index()}")
    return code


def main(argv: list[str] | None = None) -> None:
    """Do what the command line says."""
    given = parser().parse_args(argv)
    path = FILES / f"{given.name}.yaml"
    try:
        check_name(given.name, "name")
        experiment = asked_experiment(given, path)
        design = make_design(given.name, experiment)
        print("\n".join(forecast_lines(design)), flush=True)
        if given.dry_run:
            return
        if not path.exists():
            with atomic_write(path) as partial:
                partial.write_text(
                    HEAD.format(name=given.name) + keys_as_yaml(Experiment, "", values=experiment)
                )
        design.write_overlay()
        place = {"--cores": given.cores, "--profile": given.profile}
        code = conduct(design, [word for pair in place.items() if pair[1] for word in pair])
    except (InputError, ConfigError) as error:
        sys.exit(f"error: {error}")
    sys.exit(code)


if __name__ == "__main__":
    main()
