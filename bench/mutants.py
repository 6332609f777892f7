"""`make bench-mutants`: of random one-line mutants of the code, the share that tests kill.

A mutant swaps an operator or a truth value, adds 1 to a number, adds or removes a `not`, returns None or
deletes a call, in a function of `pipeline/` or `workflow/*.py`; no line has two of those drawn. A first pass
runs each file of tests, but those of whole programs: it traces which of the drawn lines the file runs in its
own process, and leaves out tests that fail. Then a mutant gets the files that run its line, the six fastest,
until a test fails or a file takes much longer than without the mutant. So it is `not run` if no file runs its
line in its own process, though a program that a test starts may; a seventh file might kill a survivor; a test
that fails by chance kills. All is kept in work/mutants/; a killed run goes on from there.
"""

import argparse
import ast
import ctypes
import gc
import hashlib
import inspect
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest
from table import ROOT, Row, publish

MOST_FILES = 6  # of tests that a mutant gets
LIMIT = 900  # seconds for a file of tests in the first pass
MARKS = "not network and not pretrained and not slurm"
# Imported once, before the forks: none of this project but what sets variables, because its commits differ.
PACKAGES = ["pipeline.training.environment", "torch", "transformers", "pyarrow.parquet", "duckdb", "datasets"]
PACKAGES += ["datatrove", "sympy", "deepspeed", "pandas", "peft", "vllm", "snakemake.api", "fasttext"]
OURS = tuple(str(ROOT / name) for name in ("pipeline", "workflow", "tests"))
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "/"}
SWAPS |= {"/": "*", "//": "*", "%": "*", "**": "*", "+=": "-=", "-=": "+=", "and": "or", "or": "and"}
SWAPS |= {"in": "not in", "is": "is not", "not": "", "True": "False", "False": "True"}
WHOLE = {r"\s*return (.+)": "None", r"\s*(?:if|elif|while) (.+):": r"not (\1)", r"\s*([\w.]+\(.*\))": "pass"}
SAYS = re.compile(r"\s*[\w.]*\b(print|say|warn|log)\w*\(")  # such a call may go
FORK = multiprocessing.get_context("fork")


class Mutant(NamedTuple):
    """Another text of a line."""

    file: str
    line: int
    text: str

    def apply(self, source: str) -> str:
        lines = source.split("\n")
        return "\n".join([*lines[: self.line - 1], self.text, *lines[self.line :]])


def code_files(folder: Path) -> list[str]:
    """Return the paths of the code of a checkout."""
    found = [*folder.glob("pipeline/**/*.py"), *folder.glob("workflow/*.py")]
    return sorted(str(path.relative_to(folder)) for path in found)


def lines_of(code: CodeType) -> set[int]:
    """Return the lines of a code object that tracing can report, without the line of its `def`."""
    lines = {line for *_, line in code.co_lines() if line}
    return lines - {code.co_firstlineno} or lines


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Yield the mutants of a file's functions, of which some do not compile."""
    codes, lines, found = [compile(source, file, "exec")], source.split("\n"), []
    for code in codes:  # which grows
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    runs = set[int]().union(*(lines_of(code) for code in codes if code.co_flags & inspect.CO_OPTIMIZED))
    for kind, text, (number, start), (_, end), _ in tokenize.generate_tokens(io.StringIO(source).readline):
        if kind == tokenize.NUMBER or (kind in (tokenize.OP, tokenize.NAME) and text in SWAPS):
            other = repr(ast.literal_eval(text) + 1) if kind == tokenize.NUMBER else SWAPS[text]
            found.append((number, start, end, other))
    for number in sorted(runs):
        for pattern, other in WHOLE.items():
            if (match := re.fullmatch(pattern, lines[number - 1])) and not SAYS.match(match[0]):
                found.append((number, *match.span(1), match.expand(other)))
    for number, start, end, other in found:
        mutant = Mutant(file, number, (line := lines[number - 1])[:start] + other + line[end:])
        if number in runs and mutant.text != line:
            yield mutant


def draw(folder: Path, number: int) -> list[Mutant]:
    """Draw that many mutants, each of a line of its own."""
    found = [each for file in code_files(folder) for each in mutants_of(file, (folder / file).read_text())]
    drawn: dict[tuple[str, int], Mutant] = {}
    for mutant in random.Random(0).sample(found, len(found)):
        if (place := mutant[:2]) not in drawn and len(drawn) < number:
            with suppress(SyntaxError):
                compile(mutant.apply((folder / mutant.file).read_text()), mutant.file, "exec")
                drawn[place] = mutant
    return [*drawn.values()]


def files_of_tests(folder: Path) -> list[str]:
    """Name the files of tests but those that the Makefile says to run whole programs: WHOLE, once SLOW."""
    text = (folder / "Makefile").read_text().replace("\\\n", " ")
    whole = re.search(r"^(?:WHOLE|SLOW) = (.*)", text, re.MULTILINE)[1].split()
    return [
        f"tests/{each.name}" for each in sorted(folder.glob("tests/test_*.py")) if each.stem[5:] not in whole
    ]


class Watch:
    """A plugin of pytest: which tests pass and fail and, once `enter` traces, which of some lines run."""

    def __init__(self, folder: Path, lines: Iterable[tuple[str, int]]) -> None:
        self.root, self.lines = f"{folder}/", {*lines}
        self.passed, self.failed, self.ran = set[str](), set[str](), set[tuple[str, int]]()
        # Codes by their identity, because equal ones may be of two files, and their lines that have not run.
        self.codes: dict[int, tuple[CodeType, set[int]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.passed and report.when == "call"):
            (self.failed if report.failed else self.passed).add(report.nodeid)

    def enter(self, frame: FrameType, event: str, argument: Any) -> Callable | None:
        code = frame.f_code
        if (known := self.codes.get(id(code))) is None:
            file = code.co_filename.removeprefix(self.root)
            wanted = {line for line in lines_of(code) if (file, line) in self.lines}
            known = self.codes[id(code)] = code, wanted
        return self.step if known[1] else None

    def step(self, frame: FrameType, event: str, argument: Any) -> Callable:
        left = self.codes[id(frame.f_code)][1]
        if event == "line" and frame.f_lineno in left:
            left.discard(frame.f_lineno)
            self.ran.add((frame.f_code.co_filename.removeprefix(self.root), frame.f_lineno))
        return self.step


def run_here(folder: Path, scratch: Path, words: Sequence[str], lines: Sequence[tuple[str, int]]) -> None:
    """Run pytest in this fork as in a fresh process in the checkout, but for other people's packages."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # when its parent ends
    os.setsid()
    os.chdir(folder)
    output = os.open(f"{folder}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    path, tempfile.tempdir = f"{Path(sys.executable).parent}:{os.environ['PATH']}", None
    os.environ |= {"TMPDIR": str(scratch), "PYTHONPATH": str(folder), "PATH": path}
    sys.path[:] = [str(folder), *(p for p in sys.path if p != str(ROOT) and not p.startswith(OURS))]
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(OURS):
            del sys.modules[name]
    watch = Watch(folder, lines)
    if lines:
        threading.settrace(watch.enter)
        sys.settrace(watch.enter)
    code = pytest.main(["-p", "no:cacheprovider", "-m", MARKS, *words], [watch])
    sys.settrace(None)
    if watch.failed or code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        found = {"passed": [*watch.passed], "failed": [*watch.failed], "lines": [*watch.ran]}
        (scratch / "found.json").write_text(json.dumps(found))
    os._exit(0)


def run_file(
    folder: Path, file: str, limit: float, *words: str, lines: Sequence[tuple[str, int]] = ()
) -> dict[str, Any]:
    """Run a file of tests; what passed, what failed, for which the file itself may stand, which lines ran."""
    scratch, started = Path(tempfile.mkdtemp()), time.monotonic()
    fork = FORK.Process(target=run_here, args=(folder, scratch, [*words, file], lines))
    fork.start()
    fork.join(limit)
    found = {"passed": [], "failed": [file], "lines": [], "late": fork.is_alive()}
    if (result := scratch / "found.json").exists() and not found["late"]:
        found |= json.loads(result.read_text())
    with suppress(ProcessLookupError):
        os.killpg(fork.pid, signal.SIGKILL)
    for entry in Path("/proc").glob("[0-9]*/environ"):  # programs that it started, in whatever group
        with suppress(OSError):
            if f"TMPDIR={scratch}".encode() in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)
    fork.join()
    shutil.rmtree(scratch, ignore_errors=True)
    return found | {"seconds": round(time.monotonic() - started, 1)}


def learn(folder: Path, job: tuple[str, list[tuple[str, int]]]) -> dict[str, Any]:
    """Run a file as it is; learn which of the lines it runs. Where the file itself fails, no test passes."""
    file, lines = job
    found = run_file(folder, file, LIMIT, lines=lines)
    return found | {"passed": [] if file in found["failed"] else found["passed"]}


def judge(folder: Path, job: tuple[Mutant, list[tuple[str, float, list[str]]]]) -> dict[str, Any]:
    """Run a mutant's files of tests, with their usual seconds and what to leave out, until one kills it."""
    mutant, files = job
    source = (path := folder / mutant.file).read_text()
    for file, usual, failing in files:
        limit, words = 30 + 5 * usual, ["-x", *(f"--deselect={test}" for test in failing)]
        path.write_text(mutant.apply(source))
        found = run_file(folder, file, limit, *words)
        path.write_text(source)
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)  # where the mutant is compiled
        if found["failed"] and not (found["late"] and run_file(folder, file, limit, *words)["late"]):
            return {"verdict": "killed", "by": found["failed"][0], "late": found["late"]}
    return {"verdict": "survived" if files else "not run"}


def find_each(work: Callable, jobs: Sequence, kept: Path, folders: Sequence[Path]) -> list[dict]:
    """Return what `work` finds of each job, one at a time in each checkout, or what is kept of it."""
    paths = [kept / f"{hashlib.sha256(json.dumps(job).encode()).hexdigest()[:16]}.json" for job in jobs]
    left = [pair for pair in zip(jobs, paths, strict=True) if not pair[1].exists()]
    kept.mkdir(parents=True, exist_ok=True)

    def run(number: int) -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        for job, path in left[number :: len(folders)]:
            found = {"job": job} | work(folders[number], job)
            path.with_suffix(".new").write_text(json.dumps(found))
            path.with_suffix(".new").rename(path)
            print(kept.parent.name, job[0], found.get("verdict", found.get("seconds")), flush=True)

    forks = [FORK.Process(target=run, args=[number]) for number in range(len(folders))]
    for fork in forks:
        fork.start()
    if any([fork.join() or fork.exitcode for fork in forks]):
        raise SystemExit("error: a worker failed; what is finished is kept")
    return [json.loads(path.read_text()) for path in paths]


def measure(repository: Path, commit: str, work: Path, words: argparse.Namespace) -> Counter[str]:
    """Count a commit's mutants by verdict, and its tests. A mutant that a killed run left is no more."""
    for folder in (folders := [work / f"copy-{number}" for number in range(words.workers)]):
        if not folder.exists():
            subprocess.run(["git", "clone", "-q", "--shared", "-n", repository, folder], check=True)
        subprocess.run(["git", "-C", folder, "checkout", "-q", "--force", "--detach", commit], check=True)
    mutants = draw(folders[0], words.mutants)
    lines = sorted(mutant[:2] for mutant in mutants)
    learnt = find_each(learn, [(file, lines) for file in files_of_tests(folders[0])], work / "first", folders)
    runs = defaultdict[tuple[str, int], list[tuple[str, float, list[str]]]](list)
    for row in sorted((row for row in learnt if row["passed"]), key=lambda row: row["seconds"]):
        for path, line in row["lines"]:
            runs[path, line].append((row["job"][0], row["seconds"], row["failed"]))
    jobs = [(mutant, runs.get(mutant[:2], [])[:MOST_FILES]) for mutant in mutants]
    counts = Counter({key: sum(len(row[key]) for row in learnt) for key in ("passed", "failed")})
    for mutant, row in zip(mutants, find_each(judge, jobs, work / "verdicts", folders), strict=True):
        counts[row["verdict"]] += 1
        counts["beyond"] += row["verdict"] == "survived" and len(runs[mutant[:2]]) > MOST_FILES
    return counts


def rows_of(found: Mapping[str, Counter[str]]) -> list[Row]:
    """Return the table: the last commit's as `ours` and, of two, the first's as the peer."""
    from pipeline.intervals import in_percent, wilson

    rows, verdicts = [], ("killed", "survived", "not run")
    for what, part, of in (
        ("mutants killed", "killed", verdicts),
        ("the same of those whose line a test runs", "killed", verdicts[:2]),
        (f"mutants that survive {MOST_FILES} files, and that more run", "beyond", verdicts),
        ("tests left out, which fail", "failed", ("passed", "failed")),
    ):
        pairs = [(counts[part], sum(counts[key] for key in of)) for counts in found.values()]
        data = [f"{pair[1]}: {in_percent(pair[0] / max(pair[1], 1), wilson(*pair))}" for pair in pairs]
        shares = [100 * number / max(total, 1) for number, total in pairs]
        peer, name = (shares[0], next(iter(found))) if len(found) > 1 else (None, None)
        row = {"what": what, "unit": "%", "ours": shares[-1], "peer": peer, "peer_name": name}
        rows.append(row | {"ratio": None, "data": "; ".join(data)})
    return rows


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--of", nargs="+", default=["HEAD"], metavar="COMMIT", help="one, or two to compare")
    parser.add_argument("--mutants", type=int, default=200, help="of each commit")
    parser.add_argument("--workers", type=int, default=2)
    words, found = parser.parse_args(), {}
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for package in PACKAGES:
        __import__(package)
    gc.freeze()
    for name in words.of:
        command = ["git", "-C", ROOT, "rev-parse", "--short=12", f"{name}^{{commit}}"]
        commit = subprocess.check_output(command, text=True).strip()
        found[commit] = measure(ROOT, commit, ROOT / "work/mutants" / commit, words)
    publish("mutants", rows_of(found), f"{words.workers} at once")


if __name__ == "__main__":
    main()
