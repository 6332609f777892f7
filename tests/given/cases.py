"""Tables of cases, as rows of a data file."""

from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[1] / "data"


def cases(name: str) -> dict[str, Any]:
    """Return the tables of `tests/data/<name>.yaml` by name."""
    return yaml.safe_load((DATA / f"{name}.yaml").read_text())
