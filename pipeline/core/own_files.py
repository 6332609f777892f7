"""What users define in Python files of their own: rewards, RL methods, filters of pages."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pipeline.core.errors import InputError


def load_attribute(name: str, key: str) -> Any:
    """Load what `FILE.py:NAME` names; `key`: of the configuration, for the InputError where there is none."""
    file, _, attribute = name.rpartition(":")
    if not Path(file).is_file():
        raise InputError(f"{key}: {file}: no such file")
    spec = spec_from_file_location(f"{key} {file}", file)
    module = sys.modules[spec.name] = module_from_spec(spec)  # dataclasses look up their module by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{key}: {file}: cannot be imported ({type(error).__name__}: {error})") from error
    if not hasattr(module, attribute):
        raise InputError(f"{key}: {file}: has no {attribute!r}")
    return getattr(module, attribute)
