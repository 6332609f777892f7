"""Tables of signs, words and commands: the TOML files of this package."""

import tomllib
from pathlib import Path
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """Read the file `<name>.toml` beside this module."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def inverse(table: dict[str, str]) -> dict[str, str]:
    """Return the key of each word in a table's values."""
    return {word: key for key, words in table.items() for word in words.split()}
