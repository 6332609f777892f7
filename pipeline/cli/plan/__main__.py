"""Print the forecast of a run: `dsm plan configs/deepseekmath-7b.yaml`.

Nothing is loaded or downloaded; the formulas are in `costs`, `jobs` and `refusals`.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from pipeline.cli.plan.jobs import Job, Profile, data_jobs, downloads, model_jobs, orders, token_jobs
from pipeline.cli.plan.power import Simulation
from pipeline.config.root import Config, ConfigError, expand_seeds
from pipeline.core.data.rows import HUB
from pipeline.core.manifest import ROOT
from pipeline.core.overlays import DEFAULTS, merge, read_config
from pipeline.core.stage import InputError
from pipeline.report.claims import read_claims
from workflow.forecast import costs
from workflow.forecast.costs import gpu_named
from workflow.forecast.forecast import Assumptions, Forecast, Planner, is_compiled
from workflow.forecast.refusals import refusals
from workflow.forecast.shapes import known

UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1, ""))
PARTS = ("weights", "gradients", "optimiser", "buffers", "activations", "logits", "frozen", "vllm", "cache")
PARTS += ("other",)
LARGER = "take a GPU with more memory"
REMEDY = f"change its `launch` (micro_batch, activation_checkpointing, zero_stage, sleep), or {LARGER}"
TIMES = ("train", "sample", "network", "save", "data")


def short(value: float) -> str:
    """Return a number with three digits and a letter for its size."""
    size, letter = next(((size, letter) for size, letter in UNITS if value >= size), UNITS[-1])
    return f"{value / size:.3g}{letter}"


def table(head: str, rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns under the words of `head`, which `|` parts; the first two to the left."""
    lines = [head.split("|"), *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def costs_table(rows: list[Forecast], assumed: Assumptions) -> str:
    """Tokens, FLOPs, hours, memory and disk of each line, and their sums."""

    def cells(row: Forecast) -> list[str]:
        full = [f"{row.peak / 1e9:.1f}", f"{1 - row.peak / assumed.gpu.memory:.0%}"] if row.peak else ["", ""]
        numbers = [short(row.parameters), short(row.trained), short(row.sampled), f"{row.flops:.2e}"]
        numbers += [f"{row.hours:,.1f}", *full, f"{row.disk / 1e9:,.1f}", f"{row.scratch / 1e9:,.1f}"]
        return [row.model, row.stage, *numbers]

    trained = short(sum(row.trained for row in rows if row.stage != "tokens"))
    sampled, flops = short(sum(row.sampled for row in rows)), sum(row.flops for row in rows)
    total = [
        "total",
        "",
        "",
        trained,
        sampled,
        f"{flops:.2e}",
        f"{sum(row.hours for row in rows):,.1f}",
        "",
        "",
    ]
    total += [f"{sum(row.disk for row in rows) / 1e9:,.1f}", f"{max(row.scratch for row in rows) / 1e9:,.1f}"]
    head = f"model|stage|weights|trained|sampled|FLOP|{assumed.gpu.name}-hours|GB per GPU|free|disk GB"
    return table(f"{head}|checkpoints GB", [*map(cells, rows), total])


def times_table(rows: list[Forecast]) -> str:
    """Return what takes the hours of each line, and what its GPUs receive from each other."""
    lines = [
        [row.model, row.stage, *(f"{row.times.get(part, 0):,.1f}" for part in TIMES), short(row.moved) + "B"]
        for row in rows
        if row.hours
    ]
    return table(f"model|stage|{'|'.join(TIMES)}|received by a GPU", lines)


def memory_table(rows: list[Forecast]) -> str:
    """Return what fills a GPU while each model is made, in GB."""
    filled = [
        (row.model, f"{row.stage}{phase}", memory)
        for row in rows
        for phase, memory in (("", row.memory), (", sampling", row.sampling))
        if memory
    ]
    parts = [part for part in PARTS if any(memory.get(part) for _, _, memory in filled)]
    lines = [[*names, *(f"{memory.get(part, 0) / 1e9:.2f}" for part in parts)] for *names, memory in filled]
    return table("|".join(["model", "stage", *parts]), lines)


def launch_table(planner: Planner, rows: list[Forecast]) -> str:
    """How the program of each line that trains runs."""
    lines = []
    for row in rows:
        if row.memory and row.trained:
            launch = planner.launch_of(row)
            flags = [launch.activation_checkpointing, is_compiled(launch)]
            flags += [launch.offload_optimizer, launch.sleep and row.stage == "rl"]
            cells = [str(row.gpus), str(launch.zero_stage), str(launch.micro_batch)]
            cells += ["yes" if flag else "no" for flag in flags]
            lines.append([row.model, row.stage, *cells, launch.frozen if "frozen" in row.memory else ""])
    return table("model|stage|ranks|ZeRO|micro-batch|recompute|compile|offload|sleep|frozen", lines)


def jobs_table(jobs: list[Job], profile: Profile) -> str:
    """Time and main memory of each job beside what the profile gives."""
    lines = []
    for job in jobs:
        cores = 0 if job.gpus else profile.threads(job.rule)
        hours = job.hours / (cores or 1)
        limit, memory = profile.get(job.rule, "runtime"), profile.get(job.rule, "mem_mb")
        cells = [str(job.number), str(job.gpus or ""), str(cores or ""), f"{hours:,.1f}"]
        cells += [str(math.ceil(hours * 60 / limit)), f"{limit / 60:g}"] if limit else ["", ""]
        cells.append(f"{job.main_memory / 1e9:.0f}" if job.main_memory else "")
        cells += [f"{memory / 1e3:g}" if memory else "", f"{job.disk / 1e9:,.0f}" if job.disk else ""]
        lines.append([job.name, job.rule, *cells])
    return table("job|rule|jobs|GPUs|cores|hours each|turns|of hours|GB each|of GB|disk GB", lines)


def critic_table(values: dict[str, Any], planner: Planner) -> str:
    """Return what PPO's value model, as large as the policy, would cost each GRPO model (paper 4.1.1)."""
    sections = planner.config.model_sections
    trained = [name for name, node in planner.config.models.items() if node.train and node.stage == "rl"]
    names = [name for name in trained if sections[name].method == "grpo"]
    changed = {name: {"method": "ppo", "supervision": "outcome"} for name in names}
    nodes = merge(expand_seeds(values.get("models") or {}), changed)
    beside = Planner(Config(values | {"models": nodes}), planner.assumed)
    alike: dict[tuple[str, ...], list[str]] = {}  # models that cost the same are one line
    for name in names:
        cells: list[str] = []
        for one in (planner, beside):
            row = one.training(name, one.config.launch_of("rl", name))
            fits = "fits" if row.fits(planner.assumed) else "does not fit"
            cells += [f"{row.peak / 1e9:.1f}", fits, f"{row.hours:,.1f}"]
        seedless = name.removesuffix(f"-{sections[name].seed}")
        models = alike.setdefault(tuple(cells), [])
        models += [seedless] if seedless not in models else []
    if not alike:
        return ""
    lines = [[", ".join(models), "rl", *cells] for cells, models in alike.items()]
    names_of = "model|stage|GRPO: GB per GPU||hours|PPO: GB per GPU||hours"
    return f"What PPO's value model would add (section 4.1.1)\n\n{table(names_of, lines)}"


def claims_table(config: Config) -> str:
    """Return what the run will be able to say about each claim of the paper; empty if it judges none."""
    section = config.sections["report"]
    simulation = Simulation(config, read_claims(ROOT / section.claims))
    lines = []
    for found in simulation.prospects():
        effect = "" if found.effect is None else f"{100 * found.effect:+.1f}"
        chance = "" if found.chance is None else f"{found.chance:.0%}"
        seen = "never" if math.isinf(found.detectable) else f"{100 * found.detectable:+.1f}"
        lines.append([found.claim.id, found.claim.section, effect, seen, chance])
    if not lines:
        return ""
    head = (
        "Claims: the paper's effect in points, the least that this run sees in four cases of five, and how "
        f"likely it is to\nhold the claim if its models differ as the paper's do (seeds spread by "
        f"{100 * section.seed_spread:g} points: report.seed_spread)"
    )
    return f"{head}\n\n{table('claim|section|paper|seen from|held', lines)}"


def heading(assumed: Assumptions) -> str:
    """Return the assumptions behind the figures."""
    gpu = assumed.gpu
    measured = ", ".join(f"{mfu:.0%} at {short(size)}" for size, mfu in costs.MEASURED_MFU)
    mfu = f"{assumed.mfu:.0%} MFU" if assumed.mfu else f"the MFU of an H200 ({measured})"
    return (
        f"{gpu.name}: {gpu.flops / 1e12:.0f} TFLOP/s in bf16, {gpu.memory / 1e9:g} GB; training at "
        f"{mfu} where compiled and without recomputation, which costs 1/3 more;\n"
        f"not compiled {costs.EAGER - 1:.0%} more; decoding at {assumed.decode:.0%} of its bound. "
        f"A model fits if {assumed.margin:.0%} of the memory stay free.\n"
        f"A GPU receives {gpu.link / 1e9:g} GB/s from its machine, a machine {assumed.network / 1e9:g} GB/s "
        f"from others (--network); the disk takes {assumed.disk / 1e9:g} GB/s (--disk).\n"
        f"Upper bounds: outputs as long as max_tokens ({assumed.steps} steps per solution), token files "
        "without repeats"
    )


def notes(planner: Planner, rows: list[Forecast], jobs: list[Job], profile: Profile) -> list[str]:
    """Return what would be refused, is unknown, or does not fit."""
    assumed = planner.assumed
    found = [f"! {line}" for line in refusals(planner.config)]
    found += [f"! {row.model} ({row.stage}): {note}" for row in rows for note in row.notes]
    for row in (row for row in rows if not row.fits(assumed)):
        what = f"{row.peak / 1e9:.1f} GB do not fit into {assumed.gpu.memory / 1e9:.0f} GB with "
        what += f"{assumed.margin:.0%} free"
        what = "the sampler has no room" if row.starved else what
        found.append(f"! {row.model} ({row.stage}): {what}; {REMEDY if row.trained else LARGER}")
    return found + [f"! {job.name}: {note}" for job in jobs for note in job.notes(profile)]


def model_tables(planner: Planner, rows: list[Forecast]) -> list[str]:
    """Return what the models of a run take; nothing for a run without any."""
    if not rows:
        return []
    return [
        costs_table(rows, planner.assumed)
        + "\n(checkpoints: until the model is done; in total of the largest)",
        "Hours by what takes them; at ZeRO 1 and 2 GPUs wait for the network, at 3 they compute meanwhile\n\n"
        + times_table(rows),
        f"How models are trained\n\n{launch_table(planner, rows)}",
        "Memory per GPU in GB (cache: of vLLM, within launch.gpu_memory; evaluation has a card to itself)"
        f"\n\n{memory_table(rows)}",
    ]


def text(values: dict[str, Any], planner: Planner, rows: list[Forecast], profile: Profile) -> str:
    """Return the whole forecast, of the configuration `values`, as it is printed."""
    config, assumed = planner.config, planner.assumed
    data = data_jobs(config, assumed)
    jobs = [*data, *token_jobs(rows, profile), *model_jobs(rows)]
    crawl = [orders(config, assumed), downloads(config, data, profile)] if data else []
    parts = [
        heading(assumed),
        *model_tables(planner, rows),
        "Jobs: time beside the profile's limit, which GPU jobs pass in several turns; main memory in GB"
        f"\n\n{jobs_table(jobs, profile)}",
        *filter(None, [*crawl, critic_table(values, planner), claims_table(config)]),
        "\n".join(notes(planner, rows, jobs, profile)),
    ]
    return "\n\n".join(parts).rstrip()


OPTIONS = [one for one in fields(Assumptions) if one.metadata]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    usage = "%(prog)s CONFIG... [options]"
    parser = argparse.ArgumentParser(prog="dsm plan", usage=usage, description=__doc__.split("\n")[0])
    parser.add_argument("--configfile", nargs="+", required=True, help="the same as CONFIG...")
    parser.add_argument("--gpu", choices=known()["gpus"], default="H100", help="kind of GPU")
    for one in OPTIONS:
        value, meaning = one.metadata["default"], one.metadata["meaning"]
        parser.add_argument(f"--{one.name}", type=type(value), default=value, help=f"{meaning} [{value}]")
    profile = "profiles/slurm"
    parser.add_argument("--profile", default=profile, help="its time limits and memory are compared")
    parser.add_argument("--json", action="store_true", help="print the lines as JSON, in bytes and hours")
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    chosen = {one.name: getattr(arguments, one.name) * one.metadata["unit"] for one in OPTIONS}
    assumed = Assumptions(gpu_named(arguments.gpu), **chosen)
    try:
        values = read_config([DEFAULTS, *arguments.configfile])
        config = Config(values)
        crawl = config.sections["crawl"]
        if not config.models and not crawl.warc and not crawl.texts:
            raise InputError("config key models: empty, and no crawl.warc or texts: nothing to forecast")
        planner, profile = Planner(config, assumed), Profile(arguments.profile)
        rows = planner.rows()
        said = "" if arguments.json else text(values, planner, rows, profile)
    except (InputError, ConfigError) as error:
        sys.exit(f"error: {error}")
    if arguments.json:
        print(json.dumps([asdict(row) | {"hours": row.hours} for row in rows], indent=1))
    else:
        print(said)
        data = {name: source.data for name, source in crawl.text_sources.items()}
        named = {name: [one] if isinstance(one, str) else one for name, one in data.items()}
        if hub := [name for name, listed in named.items() if any(one.startswith(HUB) for one in listed)]:
            print(f"crawl.texts: {', '.join(hub)} of the hub not in it: the number of rows is not known here")


if __name__ == "__main__":
    main()
