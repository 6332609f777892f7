"""The command line that all stage programs share."""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from pipeline.core.addresses import public, quoted
from pipeline.core.atomic import atomic_write
from pipeline.core.errors import InputError
from pipeline.core.identity import data_of
from pipeline.core.section import Section

S = TypeVar("S", bound=Section)


def parser(stage: str, section: type[Section], about: str = "") -> argparse.ArgumentParser:
    """Return the options of a stage program; `about` says what it does, reads and writes."""
    keys = "\n".join(f"  {name}: {info.description}" for name, info in section.model_fields.items())
    parser = argparse.ArgumentParser(
        description=f"One instance of stage {stage!r}.\n\n{about}",
        epilog=f"keys of --config (JSON):\n{keys}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--instance", help="name of this instance, e.g. a model's name; --result names it too"
    )
    parser.add_argument("--config", default="{}", help="the section as JSON, or @FILE")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="KEY=PATH",
        help="an input, or @@FILE with a line for each; may repeat",
    )
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--output", type=Path, help="final folder; appears only when complete")
    place.add_argument(
        "--result",
        type=Path,
        metavar="MANIFEST",
        help="instead of --output: RUN/store/STAGE/INSTANCE/KEY/manifest.json, for the run's store",
    )
    parser.add_argument(
        "--planned", action="store_true", help="refuse code and files that are not those of --result's KEY"
    )
    parser.add_argument(
        "--work",
        type=Path,
        help="folder for checkpoints; survives failures; default: beside the output, or work/ for --result",
    )
    parser.add_argument(
        "--manifest", type=Path, help="manifest, written last; default: manifest.json in the output"
    )
    parser.add_argument(
        "--launch", default="{}", help="JSON: how it runs (threads, micro-batch, ...), never what it is"
    )
    return parser


def read_section(text: str, stage: str, section: type[S]) -> S:
    """Return the section given as `--config`. Raises InputError that names the key."""
    try:
        values = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
        return section.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([stage, *map(str, first["loc"])])
        raise InputError(f"config key {where}: {first['msg']} (got {quoted(first['input'])})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"--config {text if text.startswith('@') else ''}: {error}") from error


def read_launch(text: str) -> dict[str, Any]:
    """Return the mapping given as `--launch`. Raises InputError."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise InputError(f"--launch: expected a JSON object, got {text!r}") from error


def read_inputs(pairs: list[str]) -> dict[str, list[str]]:
    """Read paths by key from the words of `--input`: `KEY=PATH`, or `@@` and a file with such words, one in a
    line. Raises InputError.
    """
    inputs: dict[str, list[str]] = {}
    for word in pairs:
        try:
            words = Path(word[2:]).read_text().splitlines() if word.startswith("@@") else [word]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--input {word}: not a readable file ({error})") from error
        for pair in words:
            name, separator, path = pair.partition("=")
            if not separator:
                raise InputError(f"--input {pair}: expected KEY=PATH")
            inputs.setdefault(name, []).append(data_of(path))
    return inputs


def shortened(words: list[str], folder: Path, longest: int = 60_000) -> tuple[list[str], str]:
    """Return the words, or, if they are more than `longest` characters or may hold a secret, one that names a
    file in `folder` with a line for each: the system takes no argument of 128 KiB, and a shell's command is
    one. Also the text of that file, which `keep` writes.
    """
    if sum(map(len, words)) <= longest and words == list(map(public, words)):
        return words, ""
    text = "\n".join(words)
    return [f"@@{folder / hashlib.sha256(text.encode()).hexdigest()[:16]}"], text


def keep(word: str, text: str) -> None:
    """Write the file that a word of `shortened` names; only its owner may read it."""
    with atomic_write(Path(word.removeprefix("@@")), secret=True) as partial:
        partial.write_text(text)
