"""Base of all configuration sections, and the one way to declare a key.

A section is declared once, here; `python -m pipeline.config` writes from it `configs/default.yaml` (every key
with its meaning, unit and the paper's value) and `workflow/schemas/config.schema.json`.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

REQUIRED = PydanticUndefined


class Section(BaseModel):
    """A group of keys; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def key(default: Any, meaning: str, *, paper: str | None = None, **constraints: Any) -> Any:
    """Declare a key.

    `default` is the paper's value where it states one, else ours (`REQUIRED`: no default); `meaning` says
    what it is and in which unit; `paper` gives the paper's value and section, None meaning that the choice is
    ours; `constraints` are pydantic's (`ge`, `gt`, `le`, `min_length`, ...).
    """
    return Field(
        default, description=meaning, json_schema_extra={"paper": paper} if paper else None, **constraints
    )
