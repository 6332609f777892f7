"""Random damage to files and configurations, the same for the same seed.

FUZZ_SEED=<word> draws other cases than those of CI; FUZZ_CASES=<number> changes how many a target gets;
FUZZ_ONLY=<target>/<number> repeats the one case that a failure names.
"""

import copy
import gzip
import json
import math
import os
import random
import traceback
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipeline.core.stage import run_stage

SEED, ONLY = os.environ.get("FUZZ_SEED", "0"), os.environ.get("FUZZ_ONLY")
JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 3, 2**70, -(2**70), 0.5, 1e308, math.nan, math.inf, -math.inf,
    "", " ", "\n", "a{b}", "{question}", "{0.x}", "../x", "a;b", "\ud800", "\x00", "é" * 300, "9" * 5000,
    "1e5", "null", "true", "hub:x", "miniweb:tset.jsonl", "http://", "s3://[", "*", "[", "\\boxed{", "/",
    "CC-MAIN-2024-10", ".", "2024-01-01", [], {}, [None], [[]], [{}], {"a": 1}, {"": None}, [1, 2],
]  # fmt: skip
BYTES = [
    b"\n", b"\x00", b"\xff", b"\xed\xa0\x80", b'"', b"{", b"}", b"[", b"]", b":", b",", b"\\", b"\\ud800",
    b"#", b"-", b"&a", b"\r\n", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"9" * 400, b"[" * 3000, b"\t",
    b"Content-Length: -1\r\n", b"\x1f\x8b\x08", b"NaN", b"1e999", b"null", b"://", b"WARC/1.0\r\n", b"|",
]  # fmt: skip


def _zip() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "text")
    return file.getvalue()


WHOLE = [
    b"", b"\n", b"plain text\n", b"null\n", b"[]\n", b"{}\n", b'""\n', b"1\n", b"\x00" * 512,
    b"[" * 100_000, b'{"a": ' * 50_000, b"\xff\xfea\x00", b"PAR1",
    _zip(), gzip.compress(b"text"), zstandard.compress(b"text"),
]  # fmt: skip


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three changes of single bytes, of spans, or of everything."""
    if rng.random() < 0.05:
        return rng.choice(WHOLE)
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(found) + 1)
        end = min(len(found), at + rng.choice((1, 1, 4, 40)))
        kind = rng.randrange(6)
        if kind == 0 and at < len(found):
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del found[at:end]
        elif kind == 2:
            found[at:at] = found[at:end]
        elif kind == 3:
            del found[at:]
        elif kind == 4:
            found[at:end] = rng.choice(BYTES)
        else:
            found[at:at] = rng.choice(BYTES)
    return bytes(found)


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside a tree of mappings and lists."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(below for key, part in parts for below in _places(part, (*place, key)))]


def mutate_value(rng: random.Random, value: Any) -> Any:
    """A copy of a tree in which one to three values were replaced, removed, renamed or nested."""
    tree = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        *above, key = (0, *rng.choice(_places(tree[0])))
        parent: Any = tree
        for step in above:
            parent = parent[step]
        kind = rng.random()
        if kind < 0.7 or parent is tree:
            parent[key] = copy.deepcopy(rng.choice(JUNK))
        elif kind < 0.8:
            del parent[key]
        elif kind < 0.9 and isinstance(parent, dict):
            name = rng.choice((f"{key}x", str(key)[1:], str(key).upper(), "", 1, None))
            parent[name] = parent.pop(key)
        else:
            parent[key] = [parent[key]] if rng.random() < 0.5 else {"a": parent[key]}
    return tree[0]


def mutate_lines(rng: random.Random, data: bytes) -> bytes:
    """JSON lines in which a row's values, the order of rows or the bytes were changed."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, data)
    rows = [json.loads(line) for line in data.splitlines()]
    if rng.random() < 0.1:
        rows.append(rng.choice(rows))
    at = rng.randrange(len(rows))
    rows[at] = mutate_value(rng, rows[at])
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def damaged(rng: random.Random, name: str, data: bytes) -> bytes:
    """Damage that fits the kind of file: its bytes, or what stands in its rows or values."""
    if name.endswith(".jsonl.zst") and rng.random() < 0.8:
        rows = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        return zstandard.compress(mutate_lines(rng, rows))
    if name.endswith(".json") and rng.random() < 0.6:
        return json.dumps(mutate_value(rng, json.loads(data))).encode()
    return (mutate_lines if name.endswith(".jsonl") else mutate_bytes)(rng, data)


def cases(target: str, count: int) -> list[tuple[str, random.Random]]:
    """(name, random numbers) of the cases of a target."""
    names = [f"{target}/{number}" for number in range(int(os.environ.get("FUZZ_CASES", count)))]
    return [(name, random.Random(f"{SEED}/{name}")) for name in names if ONLY in (None, name)]


def told(name: str, what: Any, error: BaseException | str) -> str:
    """How to repeat a case, what it was, and what it led to."""
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        error = f"{error!r} at {' < '.join(f'{frame.filename}:{frame.lineno}' for frame in reversed(frames))}"
    shown = repr(what) if len(repr(what)) < 3000 else f"{repr(what)[:3000]}... (cut)"
    return f"\nFUZZ_SEED={SEED} FUZZ_ONLY={name}: {error}\n  {shown}"


def one_line(error: BaseException, names: tuple[str, ...]) -> str | None:
    """What is wrong with the message of a refusal: it must be one line that names file or key."""
    message = str(error)
    if not message.strip() or len(message.splitlines()) > 1 or "Traceback" in message:
        return f"not one line: {message!r}"
    return (
        None if any(name in message for name in names) else f"names neither {' nor '.join(names)}: {message}"
    )


def failures(
    target: str, count: int, make: Callable[[random.Random], Any], use: Callable[[Any], str | None],
    refusals: tuple[type[Exception], ...], names: tuple[str, ...],
) -> list[str]:  # fmt: skip
    """Use what `make` draws for each case. A case fails by any exception but a refusal in one line that names
    one of `names`, or by what `use` returns.
    """
    found = []
    for name, rng in cases(target, count):
        what = make(rng)
        try:
            problem: Any = use(what)
        except refusals as error:
            problem = one_line(error, names)
        except Exception as error:
            problem = error
        if problem:
            found.append(told(name, what, problem))
    return found


def write(path: Path, data: bytes) -> Path:
    """Write a file, in a folder that may be new; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def program(stage: str, section: Any, run: Callable[[Any], Any]) -> Callable[[list[str]], Any]:
    """A stage's program, which takes its words."""
    return lambda words: run_stage(stage, section, run, words)


def program_failures(
    target: str, count: int, files: Sequence[Path], main: Callable[[list[str]], Any], words: Sequence[object],
    capfd: pytest.CaptureFixture[str], names: tuple[str, ...] = (),
) -> list[str]:  # fmt: skip
    """Run a program with one of its files damaged, `count` times. It makes its output and leaves nothing
    beside it, or ends with exit code 2 and one line that names the file, a key or one of `names`.
    """
    whole, found = {path: path.read_bytes() for path in files}, []
    for name, rng in cases(target, count):
        path = rng.choice(files) if len(files) > 1 else files[0]
        content, output = damaged(rng, path.name, whole[path]), files[0].parents[1] / "out" / name / "data"
        write(path, content)
        capfd.readouterr()
        problem: Any = None
        try:
            main([*map(str, words), "--output", str(output)])
            left = [
                str(path)
                for path in output.parent.rglob("*")
                if ".partial" in path.name or ".lock" in path.name
            ]
            problem = f"output {output.exists()}, left {left}" if left or not output.exists() else None
        except SystemExit as exit:
            errors = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
            named = len(errors) == 1 and any(word in errors[0] for word in (path.name, "config key", *names))
            if exit.code != 2 or not named or output.exists():
                problem = f"exit {exit.code}, output {output.exists()}, errors {errors}"
        except Exception as error:
            problem = error
        write(path, whole[path])
        if problem:
            found.append(told(name, (path.name, content), problem))
    return found
