"""Base of all configuration sections, and the one way to declare a key.

Each section is declared once. From the declarations `python -m pipeline.config` writes `configs/default.yaml`
(every key with its meaning, unit and the paper's value).
"""

from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError, PydanticUndefined

REQUIRED = PydanticUndefined
LARGEST_SEED = 2**31 - 1  # fastText's


class Section(BaseModel):
    """A group of keys; unknown keys are refused.

    `version` is part of the key: raise it when the meaning of a key or of a default changes.
    `trains`: the stage makes a model, so an edit of its code does not make its results stale.
    `shares`: the program's ranks share its work out in items and the rest make those of a rank that is lost.
    `reads_manifests`: the stage reads the manifests of other results, not only their data.
    `programs`: the keys that a program depends on, by the last part of its module; those not here read all.
    `files`: keys that only say where inputs lie: those count by their bytes. `named`: roles of inputs whose
    file names get into the result, and so count too. `filled`: keys that the workflow fills in, which no
    configuration has.
    """

    version: ClassVar[int] = 1
    trains: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    reads_manifests: ClassVar[bool] = False
    programs: ClassVar[dict[str, tuple[str, ...]]] = {}
    files: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ()
    filled: ClassVar[tuple[str, ...]] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    @classmethod
    def has_ranks(cls) -> bool:
        """Whether the program runs as `launch.ranks` processes under the launcher."""
        return cls.trains or cls.shares

    @classmethod
    def own_keys(cls) -> list[str]:
        """Name the keys that a configuration may set."""
        return [name for name in cls.model_fields if name not in cls.filled]

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1, so that `steps: true` would mean one step."""
        if _has_truth(value) and not _takes_truth(cls.model_fields[info.field_name].annotation):
            raise PydanticCustomError("bool", "true and false are no value of this key")
        return value


def _has_truth(value: Any) -> bool:
    """Whether a value is true or false, or a list or mapping that holds one."""
    if isinstance(value, list | dict):
        return any(map(_has_truth, value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool)


def _takes_truth(annotation: Any) -> bool:
    """Whether a key may hold true or false; a section inside it decides for itself."""
    own = isinstance(annotation, type) and issubclass(annotation, bool | BaseModel)
    return own or annotation is Any or any(map(_takes_truth, get_args(annotation)))


def key(default: Any, meaning: str, *, paper: str | None = None, **constraints: Any) -> Any:
    """Declare a key.

    `default` is the paper's value where it states one, else ours (`REQUIRED`: no default); `meaning` says
    what the key is and in which unit; `paper` gives the paper's value and section, None if the paper states
    none; `constraints` are pydantic's (`ge`, `gt`, `le`, `min_length`, ...).
    """
    return Field(
        default, description=meaning, json_schema_extra={"paper": paper} if paper else None, **constraints
    )


def parts_of(number: int, most: int) -> list[range]:
    """0, 1, ... `number` - 1 in at most `most` equally long parts; the last one may be shorter."""
    size = max(1, -(-number // most))
    return [range(start, min(start + size, number)) for start in range(0, number, size)]
