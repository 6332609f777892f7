"""Forecasts of shipped configurations, with changes."""

from pathlib import Path
from typing import Any

from conftest import ROOT

from pipeline.cli.plan.power import Simulation
from pipeline.config.root import Config
from pipeline.core.overlays import DEFAULTS, merge, read_config
from pipeline.report.claims import read_claims
from workflow.forecast.costs import gpu_named
from workflow.forecast.forecast import Assumptions, Forecast, Planner

PAPER_7B, PAPER_1B, SINGLE, DEMO = (
    [ROOT / f"configs/{name}.yaml"] for name in ("deepseekmath-7b", "deepseekmath-1.3b", "single-gpu", "demo")
)
ITERATIVE = [*PAPER_7B, ROOT / "configs/iterative.yaml"]
LORA, LORA_7B = ([*SINGLE, ROOT / f"configs/single-gpu-{name}.yaml"] for name in ("lora", "7b-lora"))
H100 = Assumptions(gpu_named("H100"))
LEDGER = read_claims(ROOT / "configs/claims.yaml")


def config_of(files: list[Path], changes: dict[str, Any] | None = None) -> Config:
    """Return the configuration of the files on top of the defaults, with `changes` on top."""
    return Config(merge(read_config([DEFAULTS, *files]), changes or {}))


def forecast_of(
    files: list[Path], changes: dict[str, Any] | None = None, **assumed: Any
) -> dict[tuple[str, str], Forecast]:
    """Return the lines of a forecast for H100s by model and stage."""
    rows = Planner(config_of(files, changes), Assumptions(H100.gpu, **assumed)).rows()
    return {(row.model, row.stage): row for row in rows}


def simulation_of(configuration: str) -> Simulation:
    """Return the simulated runs of shipped overlays, named without folder and ending."""
    return Simulation(config_of([ROOT / f"configs/{name}.yaml" for name in configuration.split()]), LEDGER)
