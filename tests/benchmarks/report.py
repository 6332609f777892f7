"""`make bench-report`: the report of a large run: building it, its memory, and its explorer in Chromium.

By default 10 models on 10 benchmarks of 5,000 questions with 64 samples of 300 characters each, generated:
14 GB, and as much again for the files of the explorer. Without Chromium only the building is measured.
`--keep FOLDER` keeps the page; `--page FOLDER` measures one that was kept.
"""

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import psutil

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from browser import browser  # noqa: E402
from report_run import FakeRun  # noqa: E402
from table import ROOT, publish  # noqa: E402

from pipeline.protocol.identity import Digests  # noqa: E402
from pipeline.protocol.manifest import write_json  # noqa: E402

MODELS = ["cpt/base", "sft/instruct"] + [f"rl/{name}" for name in ("rft", "online-rft", "dpo", "ppo")]
MODELS += [f"rl/grpo-{number}" for number in range(4)]
BENCHMARKS = ["gsm8k", "math", "math500", "miniweb", "cmath", "ocw", "sat", "mmlu_stem", "svamp", "asdiv"]
WORDS = ["so", "we", "add", "the", "two", "numbers", "and", "take", "away", "what", "gave", "brother", "day"]
SIZES = {"models": 10, "benchmarks": 10, "questions": 5000, "samples": 64, "characters": 300}
Numbers = list[tuple[str, str, float]]  # what, unit, value


def write_answers(path: Path, questions: int, samples: int, characters: int, skill: float, seed: str) -> int:
    """An evaluation file as the stage writes it; the number of right greedy answers."""
    draw, right = random.Random(seed), 0
    bodies = []
    for _ in range(500):
        words = " ".join(draw.choices(WORDS, k=characters // 4))[: characters - 60]
        bodies.append(f'{{"text": " {words}: ${draw.randrange(99)} + {draw.randrange(99)}$.')
    with path.open("w") as file:
        for number in range(questions):
            reference, chance = draw.randrange(1000), min(1, max(0, skill + draw.uniform(-0.4, 0.4)))
            values = [reference, *(draw.randrange(1000) for _ in range(7))]
            tails = [
                f'\\nThe answer is \\\\boxed{{{value}}}.", "extracted": "{value}", "reason": "integers",'
                f' "verdict": "{"right" if value == reference else "wrong"}", "finish_reason": "stop",'
                f' "tokens": {characters // 3}}}'
                for value in values
            ]
            weights = [chance, *((1 - chance) / 2**place for place in range(1, 8))]
            answers = [
                body + tail
                for body, tail in zip(
                    draw.choices(bodies, k=samples + 1),
                    draw.choices(tails, weights, k=samples + 1),
                    strict=True,
                )
            ]
            right += '"right"' in answers[0]
            file.write(
                f'{{"id": "{path.name.split(".")[0]}-{number}", "question": "She has {reference} apples.'
                f' {" ".join(draw.choices(WORDS, k=30))}?", "reference": "{reference}", "subject":'
                f' "subject {number % 7}", "level": {number % 5 + 1}, "greedy": {answers[0]}, "samples":'
                f" [{', '.join(answers[1:])}]}}\n"
            )
    return right


def list_files(run: FakeRun) -> None:
    """List the files of all results in their manifests, as a stage does when it ends."""
    for (path,) in run.inputs.values():
        data, manifest = Path(path), Path(path).parent / "manifest.json"
        files = {
            str(file.relative_to(data)): [file.stat().st_size, Digests().file(file)]
            for file in sorted(data.rglob("*"))
            if file.is_file()
        }
        write_json(manifest, json.loads(manifest.read_text()) | {"files": files})


def generate(root: Path, given: argparse.Namespace) -> dict[str, list[str]]:
    """A run with the evaluations of `given.models` models; the report's inputs."""
    run, files, parent = FakeRun(root), [], None
    for place, name in enumerate(MODELS[: given.models]):
        method = name.partition("/")[2].split("-0")[0].replace("-", "_")
        config: dict[str, Any] = {"method": "grpo" if "grpo" in method else method} if "rl/" in name else {}
        run.model(name, parent, 20, 2.0, **config | ({"seed": place} if config else {}))
        parent = "sft/instruct" if place else name
        folder = run.node(f"evaluate/{name.partition('/')[2]}", [name], model_stage=name.partition("/")[0])
        mode = "few_shot_cot" if "cpt/" in name else "chat_cot"
        files += [
            (folder / f"{task}.{mode}.jsonl", 0.3 + 0.05 * place) for task in BENCHMARKS[: given.benchmarks]
        ]
    size = (given.questions, given.samples, given.characters)
    with ProcessPoolExecutor() as pool:
        rights = pool.map(
            write_answers, *zip(*((path, *size, skill, str(path)) for path, skill in files), strict=True)
        )
    for (path, _), right in zip(files, rights, strict=True):
        scores = path.parent / "scores.json"
        found = json.loads(scores.read_text()) if scores.exists() else {}
        benchmark, mode, _ = path.name.split(".")
        share = right / given.questions
        curve = {str(2**power): share for power in range(7) if 2**power <= given.samples}
        found[benchmark] = {
            mode: {"accuracy": share, "ci95": [share, share], "n": given.questions, "undecided": 0}
        }
        found[benchmark][mode] |= {"maj@k": curve, "pass@k": curve}
        scores.write_text(json.dumps(found))
    list_files(run)
    return run.inputs


def build(inputs: dict[str, list[str]], page: Path) -> Numbers:
    """Run the stage; its seconds, and the most memory that it and its processes had at once."""
    words = [word for name, paths in inputs.items() for word in ("--input", f"{name}={paths[0]}")]
    words += ["--config", '{"run": "bench"}', "--output", str(page), "--work", str(page.with_name("work"))]
    spent, started, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0
    before = spent.ru_utime + spent.ru_stime
    process = psutil.Popen([sys.executable, "-m", "pipeline.report", *words], cwd=ROOT)
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            peak = max(peak, sum(member.memory_info().rss for member in family))
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.1)
    if process.returncode:
        sys.exit(process.returncode)
    seconds, spent = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = spent.ru_utime + spent.ru_stime - before
    size = sum(path.stat().st_size for path in page.rglob("*") if path.is_file())
    return [
        ("build", "seconds", seconds),
        ("build", "CPU seconds", cpu),
        ("build, all processes", "peak GB", peak / 1e9),
        ("page", "GB", size / 1e9),
    ]


# Milliseconds from the start of a page's navigation, or from a change of the form, until what it leads to is
# painted: the first task after the next frame.
PAINTED = "(then => requestAnimationFrame(() => setTimeout(() => then(performance.now()))))"
FIRST = f"""(selector => new Promise(done => {{
  const found = () => document.querySelector(selector);
  const look = (_, own) => {{ if (found()) {{ own.disconnect(); {PAINTED}(done); }} }};
  new MutationObserver(look).observe(document, {{childList: true, subtree: true}});
}}))"""
CHANGED = f"""(change => new Promise(done => {{
  const form = document.getElementById("browser"), started = performance.now();
  new MutationObserver((_, own) => {{ own.disconnect(); {PAINTED}(now => done(now - started)); }})
    .observe(document.getElementById("browser-list"), {{childList: true}});
  change(form);
  form.dispatchEvent(new Event("input", {{bubbles: true}}));
}}))"""
VIEWS = (
    ("first view, opened from disk", "", ".tile"),
    ("explorer's first view", "#samples?task=gsm8k.cot", ".sample"),
)
FILTERS = {
    "verdict": 'form => { form.verdict.value = "gained: right, other not"; }',
    "verdict, lost": 'form => { form.verdict.value = "lost: other right, this not"; }',
    "subject": 'form => { form.verdict.value = "all"; form.subject.value = "subject 3"; }',
    "level": 'form => { form.level.value = "2"; }',
    "length": "form => { form.least.value = 5; }",
    "search, first": 'form => { form.subject.value = form.level.value = ""; form.search.value = "brother"; }',
    "search, again": 'form => { form.search.value = "gave brother"; }',
    "another model": 'form => { form.search.value = ""; form.model.selectedIndex = 0; }',
}


def chromium_seconds() -> float:
    """CPU seconds that the browser has used."""
    times = [process.cpu_times() for process in psutil.Process().children(recursive=True)]
    return sum(spent.user + spent.system for spent in times)


def timed(rows: Numbers, what: str, seconds: Callable[[], float]) -> None:
    """Add the seconds that the page has measured, and the browser's CPU seconds."""
    before = chromium_seconds()
    rows += [(what, "seconds", seconds()), (what, "CPU seconds", chromium_seconds() - before)]


def browse(page: Path) -> Numbers:
    """Seconds until the page and its explorer can be read, and of each filter, by the page's own clock."""
    rows: Numbers = []
    address = (page / "index.html").as_uri()

    def view(place: str, selector: str) -> float:
        source = f"window.seen = {FIRST}({json.dumps(selector)});"
        script = tab.do("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
        tab.do("Page.navigate", url="about:blank")
        tab.open(f"{address}{place}", f"document.querySelector({json.dumps(selector)})")
        tab.do("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        return tab.js("window.seen") / 1000

    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as tab:
        tab.do("Page.enable")
        for what, place, selector in VIEWS:
            timed(rows, what, lambda place=place, selector=selector: view(place, selector))
        for what, change in FILTERS.items():
            timed(rows, f"filter: {what}", lambda change=change: tab.js(f"{CHANGED}({change})") / 1000)
        tab.wait("Boolean(document.querySelector('.answer .all'))")
        started = time.monotonic()
        tab.js("document.querySelector('.answer .all').click()")
        tab.wait("document.querySelectorAll('.drawn .answer').length")
        rows.append(("all samples of a question", "seconds", time.monotonic() - started))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--keep", type=Path, help="where to leave the page")
    parser.add_argument("--page", type=Path, help="measure this page in Chromium")
    given = parser.parse_args()
    numbers: Numbers = []
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.keep) as name:
        page = given.page or Path(name, "page")
        if not given.page:
            numbers += build(generate(Path(name, "run"), given), page)
        if shutil.which("chromium"):
            numbers += browse(page)
        if given.keep:
            shutil.move(page, given.keep / "page")
    counts = ", ".join(f"{getattr(given, name):,} {name}" for name in SIZES)
    data = "page of --page" if given.page else counts
    keys = ("what", "unit", "ours", "peer", "peer_name", "ratio", "data")
    rows = [dict(zip(keys, (*number, None, None, None, data), strict=True)) for number in numbers]
    publish("report", rows, f"{len(os.sched_getaffinity(0))} used")


if __name__ == "__main__":
    main()
