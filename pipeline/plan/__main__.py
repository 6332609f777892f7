"""Print the forecast of a run: `python -m pipeline.plan --configfile configs/deepseekmath-7b.yaml`.

Nothing is loaded or downloaded; the formulas are in `costs`. Crawl, corpus and decontaminate are left out:
they run on CPUs, and their cost depends on the web pages that the user brings.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from pipeline.common.overlays import DEFAULTS, read_config
from pipeline.common.stage import InputError
from pipeline.config.root import Config, ConfigError
from pipeline.plan.costs import Gpu
from pipeline.plan.forecast import Assumptions, Forecast, Planner
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
    head += [f"{gpu.name}-hours", "GB per GPU", "disk GB"]
    lines = []
    for row in rows:
        needed = sum(row.memory.values())
        memory = f"{needed / 1e9:.1f}{'!' if needed > gpu.memory else ''}"
        cells = [short(row.parameters), short(row.trained), short(row.sampled), f"{row.flops:.2e}"]
        lines.append([row.model, row.stage, *cells, f"{row.hours:,.1f}", memory, f"{row.disk / 1e9:,.1f}"])
    total = [short(sum(row.trained for row in rows)), short(sum(row.sampled for row in rows))]
    total += [f"{sum(row.flops for row in rows):.2e}", f"{sum(row.hours for row in rows):,.1f}"]
    total += ["", f"{sum(row.disk for row in rows) / 1e9:,.1f}"]
    return table(head, [*lines, ["total", "", "", *total]])


def memory_table(rows: list[Forecast]) -> str:
    """What fills a GPU while each model is made, in GB."""
    rows = [row for row in rows if row.memory]
    parts = [part for part in PARTS if any(row.memory.get(part) for row in rows)]
    lines = [
        [row.model, row.stage, *(f"{row.memory.get(part, 0) / 1e9:.2f}" for part in parts)] for row in rows
    ]
    return table(["model", "stage", *parts], lines)


def heading(assumed: Assumptions, config: Config) -> str:
    """The assumptions behind the figures."""
    gpu, launch = assumed.gpu, config.sections["launch"]
    checkpointing = "with" if launch.activation_checkpointing else "without"
    return (
        f"{gpu.name}: {gpu.flops / 1e12:.0f} TFLOP/s in bf16, {gpu.memory / 1e9:.0f} GB; training at "
        f"{assumed.mfu:.0%} MFU, decoding at {assumed.decode:.0%} of its bound\n"
        f"{launch.ranks * assumed.nodes} ranks, ZeRO-{launch.zero_stage}, micro-batch {launch.micro_batch}, "
        f"{checkpointing} activation checkpointing\n"
        f"Upper bounds: outputs as long as max_tokens ({assumed.steps} steps per solution), token files "
        "without repeats\nNot here: crawl, corpus and decontaminate (CPUs; as long as there are pages)"
    )


def notes(rows: list[Forecast], gpu: Gpu) -> list[str]:
    """What is unknown, and what does not fit."""
    found = [f"! {row.model} ({row.stage}): {note}" for row in rows for note in row.notes]
    for row in rows:
        if (needed := sum(row.memory.values())) > gpu.memory:
            found.append(
                f"! {row.model} ({row.stage}): {needed / 1e9:.1f} GB do not fit into "
                f"{gpu.memory / 1e9:.0f} GB: take a higher zero_stage, more ranks, a smaller micro_batch "
                "or activation_checkpointing"
            )
    return found


def text(rows: list[Forecast], assumed: Assumptions, config: Config) -> str:
    """The whole forecast as it is printed."""
    title = "Memory per GPU in GB (cache: of vLLM, within launch.gpu_memory; evaluation has a card to itself)"
    parts = [heading(assumed, config), costs_table(rows, assumed.gpu), f"{title}\n\n{memory_table(rows)}"]
    return "\n\n".join([*parts, "\n".join(notes(rows, assumed.gpu))]).rstrip()


def forecast(files: Iterable[str | Path], assumed: Assumptions) -> tuple[Config, list[Forecast]]:
    """The configuration of the files on top of the defaults, and its forecast."""
    config = Config(read_config([DEFAULTS, *files]))
    if not config.models:
        raise InputError("config key models: empty; the forecast is about models")
    return config, Planner(config, assumed).rows()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.plan", description=__doc__.split("\n")[0])
    parser.add_argument("--configfile", nargs="+", required=True, help="overlays, as for snakemake")
    parser.add_argument("--gpu", choices=known()["gpus"], default="H100", help="kind of GPU")
    parser.add_argument(
        "--mfu", type=float, default=0.4, help="share of the GPU's bf16 FLOP/s that training reaches"
    )
    parser.add_argument(
        "--decode", type=float, default=0.5, help="share of the decoding bound that sampling reaches"
    )
    parser.add_argument(
        "--steps", type=int, default=6, help="steps of a solution that a reward model is trained on"
    )
    parser.add_argument("--nodes", type=int, default=1, help="machines of launch.ranks GPUs each")
    parser.add_argument("--json", action="store_true", help="print the lines as JSON, in bytes and hours")
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = parser().parse_args(argv)
    flops, memory, bandwidth = known()["gpus"][arguments.gpu]
    gpu = Gpu(arguments.gpu, flops * 1e12, memory * 1e9, bandwidth * 1e12)
    assumed = Assumptions(gpu, arguments.mfu, arguments.decode, arguments.steps, arguments.nodes)
    try:
        config, rows = forecast(arguments.configfile, assumed)
    except (InputError, ConfigError) as error:
        sys.exit(f"error: {error}")
    print(
        json.dumps([asdict(row) for row in rows], indent=1) if arguments.json else text(rows, assumed, config)
    )


if __name__ == "__main__":
    main()
