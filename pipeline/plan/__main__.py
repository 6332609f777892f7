"""Print the forecast of a run: `python -m pipeline.plan --configfile configs/deepseekmath-7b.yaml`.

Nothing is loaded or downloaded; the formulas are in `costs`, `jobs` and `refusals`.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pipeline.common.overlays import DEFAULTS, read_config
from pipeline.common.stage import InputError
from pipeline.config.root import Config, ConfigError
from pipeline.plan import costs
from pipeline.plan.costs import Gpu
from pipeline.plan.forecast import Assumptions, Forecast, Planner, is_compiled
from pipeline.plan.jobs import Job, Profile, data_jobs, downloads, model_jobs, orders
from pipeline.plan.refusals import refusals
from pipeline.plan.shapes import known

UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1, ""))
TRAINING = ("weights", "gradients", "optimiser", "buffers", "activations", "logits")
PARTS = (*TRAINING, "frozen", "vllm", "cache", "other")


def short(value: float) -> str:
    """A number with three digits and a letter for its size."""
    size, letter = next(((size, letter) for size, letter in UNITS if value >= size), UNITS[-1])
    return f"{value / size:.3g}{letter}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Aligned columns, the first two to the left."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [head, ["-" * width for width in widths], *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def costs_table(rows: list[Forecast], gpu: Gpu) -> str:
    """Tokens, FLOPs, hours, memory and disk of each line, and their sums."""
    head = ["model", "stage", "weights", "trained", "sampled", "FLOP"]
    head += [f"{gpu.name}-hours", "GB per GPU", "free", "disk GB"]
    lines = []
    for row in rows:
        memory = [f"{row.peak / 1e9:.1f}", f"{1 - row.peak / gpu.memory:.0%}"] if row.peak else ["", ""]
        cells = [short(row.parameters), short(row.trained), short(row.sampled), f"{row.flops:.2e}"]
        lines.append([row.model, row.stage, *cells, f"{row.hours:,.1f}", *memory, f"{row.disk / 1e9:,.1f}"])
    total = [short(sum(row.trained for row in rows)), short(sum(row.sampled for row in rows))]
    total += [f"{sum(row.flops for row in rows):.2e}", f"{sum(row.hours for row in rows):,.1f}"]
    total += ["", "", f"{sum(row.disk for row in rows) / 1e9:,.1f}"]
    return table(head, [*lines, ["total", "", "", *total]])


def memory_table(rows: list[Forecast]) -> str:
    """What fills a GPU while each model is made, in GB."""
    filled = [(row, "", row.memory) for row in rows if row.memory]
    filled += [(row, ", sampling", row.sampling) for row in rows if row.sampling]
    parts = [part for part in PARTS if any(memory.get(part) for _, _, memory in filled)]
    lines = [
        [row.model, f"{row.stage}{phase}", *(f"{memory.get(part, 0) / 1e9:.2f}" for part in parts)]
        for row, phase, memory in sorted(filled, key=lambda entry: rows.index(entry[0]))
    ]
    return table(["model", "stage", *parts], lines)


def launch_table(planner: Planner, rows: list[Forecast]) -> str:
    """How the program of each line that trains runs."""
    head = ["model", "stage", "ranks", "ZeRO", "micro-batch", "recompute", "compile", "offload", "sleep"]
    head.append("frozen")
    lines = []
    for row in rows:
        if row.trained:
            launch = planner.launch_of(row)
            flags = (
                launch.activation_checkpointing,
                is_compiled(row.stage, launch),
                launch.offload_optimizer,
                launch.sleep and row.stage == "rl",
            )
            cells = [str(row.gpus), str(launch.zero_stage), str(launch.micro_batch)]
            frozen = launch.frozen if "frozen" in row.memory else ""
            flags_said = ["yes" if flag else "no" for flag in flags]
            lines.append([row.model, row.stage, *cells, *flags_said, frozen])
    return table(head, lines)


def jobs_table(jobs: list[Job], profile: Profile) -> str:
    """Time and main memory of each job beside what the profile gives."""
    head = [
        "job",
        "rule",
        "jobs",
        "GPUs",
        "cores",
        "hours each",
        "turns",
        "of hours",
        "GB each",
        "of GB",
        "disk GB",
    ]
    lines = []
    for job in jobs:
        cores = 0 if job.gpus else profile.threads(job.rule)
        hours = job.hours / (cores or 1)
        limit, memory = profile.get(job.rule, "runtime"), profile.get(job.rule, "mem_mb")
        turns = str(math.ceil(hours * 60 / limit)) if limit else ""
        cells = [str(job.number), str(job.gpus or ""), str(cores or ""), f"{hours:,.1f}", turns]
        cells += [
            f"{limit / 60:g}" if limit else "",
            f"{job.main_memory / 1e9:.0f}" if job.main_memory else "",
        ]
        cells += [f"{memory / 1e3:g}" if memory else "", f"{job.disk / 1e9:,.0f}" if job.disk else ""]
        lines.append([job.name, job.rule, *cells])
    return table(head, lines)


def heading(assumed: Assumptions) -> str:
    """The assumptions behind the figures."""
    gpu = assumed.gpu
    return (
        f"{gpu.name}: {gpu.flops / 1e12:.0f} TFLOP/s in bf16, {gpu.memory / 1e9:g} GB; training at "
        f"{assumed.mfu:.0%} MFU where compiled and without recomputation, which costs 1/3 more;\n"
        f"not compiled {costs.EAGER - 1:.0%} more; decoding at {assumed.decode:.0%} of its bound. "
        f"A model fits if {assumed.margin:.0%} of the memory stay free.\n"
        f"Upper bounds: outputs as long as max_tokens ({assumed.steps} steps per solution), token files "
        "without repeats"
    )


def notes(
    config: Config, rows: list[Forecast], jobs: list[Job], assumed: Assumptions, profile: Profile
) -> list[str]:
    """What would be refused, what is unknown, and what does not fit."""
    found = [f"! {line}" for line in refusals(config)]
    found += [f"! {row.model} ({row.stage}): {note}" for row in rows for note in row.notes]
    gpu = assumed.gpu
    for row in rows:
        if row.peak > gpu.memory * (1 - assumed.margin):
            found.append(
                f"! {row.model} ({row.stage}): {row.peak / 1e9:.1f} GB do not fit into "
                f"{gpu.memory / 1e9:.0f} GB with {assumed.margin:.0%} free: take a higher zero_stage, more "
                "ranks, a smaller micro_batch, activation_checkpointing, sleep or offload_optimizer"
            )
    return found + [f"! {job.name}: {note}" for job in jobs for note in job.notes(profile)]


def text(config: Config, rows: list[Forecast], assumed: Assumptions, profile: Profile) -> str:
    """The whole forecast as it is printed."""
    data = data_jobs(config, assumed)
    jobs = [*data, *model_jobs(rows)]
    crawl = [orders(config, assumed), downloads(config, data, profile)] if data else []
    parts = [
        heading(assumed),
        costs_table(rows, assumed.gpu),
        f"How models are trained\n\n{launch_table(Planner(config, assumed), rows)}",
        "Memory per GPU in GB (cache: of vLLM, within launch.gpu_memory; evaluation has a card to itself)"
        f"\n\n{memory_table(rows)}",
        "Jobs: time beside the profile's limit, which GPU jobs pass in several turns; main memory in GB"
        f"\n\n{jobs_table(jobs, profile)}",
        *filter(None, crawl),
        "\n".join(notes(config, rows, jobs, assumed, profile)),
    ]
    return "\n\n".join(parts).rstrip()


def forecast(files: Iterable[str | Path], assumed: Assumptions) -> tuple[Config, list[Forecast]]:
    """The configuration of the files on top of the defaults, and its forecast."""
    config = Config(read_config([DEFAULTS, *files]))
    if not config.models and not config.sections["crawl"].warc:
        raise InputError("config key models: empty, and no crawl.warc: nothing to forecast")
    return config, Planner(config, assumed).rows()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.plan", description=__doc__.split("\n")[0])
    parser.add_argument("--configfile", nargs="+", required=True, help="overlays, as for snakemake")
    parser.add_argument("--gpu", choices=known()["gpus"], default="H100", help="kind of GPU")
    parser.add_argument(
        "--mfu",
        type=float,
        default=0.4,
        help="share of the GPU's bf16 FLOP/s that training reaches, compiled and without recomputation",
    )
    parser.add_argument(
        "--decode", type=float, default=0.5, help="share of the decoding bound that sampling reaches"
    )
    parser.add_argument(
        "--steps", type=int, default=6, help="steps of a solution that a reward model is trained on"
    )
    parser.add_argument("--nodes", type=int, default=1, help="machines of launch.ranks GPUs each")
    parser.add_argument(
        "--margin", type=float, default=0.1, help="share of a GPU's memory that must stay free"
    )
    parser.add_argument(
        "--warcs", type=int, default=90_000, help="WARC files of each list that is not there yet"
    )
    parser.add_argument(
        "--profile", default="workflow/profiles/slurm", help="its time limits and memory are compared"
    )
    parser.add_argument("--json", action="store_true", help="print the lines as JSON, in bytes and hours")
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    flops, memory, bandwidth = known()["gpus"][arguments.gpu]
    gpu = Gpu(arguments.gpu, flops * 1e12, memory * 1e9, bandwidth * 1e12)
    chosen = ("mfu", "decode", "steps", "nodes", "margin", "warcs")
    assumed = Assumptions(gpu, **{name: getattr(arguments, name) for name in chosen})
    try:
        config, rows = forecast(arguments.configfile, assumed)
        profile = Profile(arguments.profile)
    except (InputError, ConfigError) as error:
        sys.exit(f"error: {error}")
    print(
        json.dumps([asdict(row) for row in rows], indent=1)
        if arguments.json
        else text(config, rows, assumed, profile)
    )


if __name__ == "__main__":
    main()
