"""Reads configuration files as Snakemake does, for the programs that run outside the workflow."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from pipeline.common.errors import InputError
from pipeline.common.manifest import ROOT

DEFAULTS = ROOT / "configs/default.yaml"


def read_config(files: Iterable[str | Path]) -> dict[str, Any]:
    """Configuration files as Snakemake reads them: later ones win, mappings merge."""

    def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        for key, value in above.items():
            both = isinstance(value, dict) and isinstance(below.get(key), dict)
            below[key] = merge(below[key], value) if both else value
        return below

    values: dict[str, Any] = {}
    for file in files:
        try:
            content = yaml.safe_load(Path(file).read_text())
        except OSError as error:
            raise InputError(f"{file}: {error.strerror}") from error
        except yaml.YAMLError as error:
            raise InputError(f"{file}: not YAML ({str(error).splitlines()[0]})") from error
        if not isinstance(content or {}, dict):
            raise InputError(f"{file}: expected a mapping")
        merge(values, content or {})
    return values
