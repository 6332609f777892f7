"""Base of all configuration sections, and the one way to declare a key.

Each section is declared once. From the declarations `python -m pipeline.config` writes `configs/default.yaml`
(every key with its meaning, unit and the paper's value) and `workflow/schemas/config.schema.json`.
"""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

REQUIRED = PydanticUndefined


class Section(BaseModel):
    """A group of keys; unknown keys are refused.

    `version` is part of the fingerprint: raise it when the meaning of a key or of a default changes.
    `trains`: the stage makes a model, so an edit of its code does not make its results stale.
    `reads_manifests`: the stage reads the manifests of other results, not only their data.
    """

    version: ClassVar[int] = 1
    trains: ClassVar[bool] = False
    reads_manifests: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


def key(default: Any, meaning: str, *, paper: str | None = None, **constraints: Any) -> Any:
    """Declare a key.

    `default` is the paper's value where it states one, else ours (`REQUIRED`: no default); `meaning` says
    what the key is and in which unit; `paper` gives the paper's value and section, None if the paper states
    none; `constraints` are pydantic's (`ge`, `gt`, `le`, `min_length`, ...).
    """
    return Field(
        default, description=meaning, json_schema_extra={"paper": paper} if paper else None, **constraints
    )
