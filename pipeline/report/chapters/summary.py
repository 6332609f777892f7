"""The page's opening: key numbers, paper and ours side by side, the verdicts on the paper's claims."""

from collections import Counter
from typing import Any

from pipeline.core.progress import duration
from pipeline.intervals import estimate_effect
from pipeline.report.baselines import best
from pipeline.report.claims import HELD, NOT_MEASURED, VERDICTS
from pipeline.report.collect import STAGES
from pipeline.report.compare import Answers, Results, Task, arrays
from pipeline.report.material import Material
from pipeline.report.page import count, percent
from pipeline.report.selection import families, family_name
from pipeline.report.tables import GENERATED, Cell, Row, accuracy, gain, official, share, size, title
from pipeline.report.truth import headline

CORPUS = "decontaminate/corpus"
LANGUAGES, MOST_LANGUAGES = {"en": "English", "zh": "Chinese"}, 4
OTHER_DATA = ("miniweb", "problems")  # stages that no run of the paper's has


def subtitle(material: Material) -> str:
    """Return what ran and what came out, in a sentence or two."""
    if material.corpus_only:
        return _corpus(material)
    run, best = material.run, material.results.headline
    stages = len({result.stage for result in run.finished.values()})
    seconds = duration(material.cost["seconds"])
    ran = f"{len(run.finished)} results of {stages} stages; their jobs took {seconds} together."
    if best is None:
        return ran
    parameters, seeds = size(run.models[best.better[0]].parameters), len(best.better)
    words = [f"{parameters} parameters" if parameters else "", f"mean of {seeds} seeds" if seeds > 1 else ""]
    remark = ", ".join(filter(None, words))
    model = family_name(best.better) + (f" ({remark})" if remark else "")
    mean, low, high = best.gain.points
    better, worse = map(percent, best.gain.values)
    about = GENERATED.get(best.gain.benchmark)
    benchmark = f"{best.gain.benchmark} ({about})" if about else best.gain.benchmark
    return (
        f"{model} solves {better} of {benchmark}, and {family_name(best.worse)}, the model that it"
        f" started from, {worse}: {mean} points (95 % interval {low} to {high}). {ran}"
    )


def _corpus(material: Material) -> str:
    """Say what the corpus holds and where it lies."""
    last, run = material.iterations[-1], material.run
    pages = sum(material.languages.values()) or last["kept_pages"]
    hosts = f" of {count(material.hosts)} hosts" if material.hosts else ""
    found = _languages(material)
    shares = [f"{LANGUAGES.get(name, name)} {percent(number / pages, 0)}" for name, number in found]
    languages = f": {', '.join(shares)}" if shares else ""
    clean = CORPUS in run.finished
    place = f"{CORPUS}/data/corpus" if clean else f"corpus/iteration-{last['iteration']}/select/data"
    return (
        f"{count(pages)} pages{hosts}, some {size(last['kept_tokens'])} {material.unit}{languages}."
        f" {'The clean corpus' if clean else 'The list of kept pages'} is results/{run.name}/{place}."
    )


def _languages(material: Material) -> list[tuple[str, int]]:
    return list(material.languages.items())[:MOST_LANGUAGES]


def _corpus_tiles(material: Material) -> list[tuple[str, str, str]]:
    """Key numbers of a corpus: how much there is, and how good it is."""
    last, languages = material.iterations[-1], _languages(material)
    pages = sum(material.languages.values()) or last["kept_pages"]
    tiles = [
        (count(pages), "pages in the corpus", f"{count(material.hosts)} hosts" if material.hosts else "")
    ]
    tiles.append((size(last["kept_tokens"]), material.unit, "before decontamination"))
    if languages:
        remark = ", ".join(f"{LANGUAGES.get(name, name)} {count(number)}" for name, number in languages)
        tiles.append((count(len(material.languages)), "languages", remark))
    if promise := last.get("promise"):
        low, high = (percent(bound, 0) for bound in promise["ci95"])
        tiles.append((percent(promise["precision"], 0), "precision that the cut promises", f"{low} … {high}"))
    return tiles


def _tiles(material: Material, tally: Counter[str]) -> list[tuple[str, str, str]]:
    """Key numbers, what came out first: value, what it is, remark."""
    rows, tiles = material.iterations, _corpus_tiles(material) if material.corpus_only else []
    if material.corpus_only:
        tally = Counter()  # the models are those of another run
    elif best := material.results.headline:
        mean, low, high = best.gain.points
        what = f"points, {family_name(best.better)} over {family_name(best.worse)}"
        tiles.append((mean, what, f"{best.gain.benchmark}, {low}\u00a0…\u00a0{high}"))
    if rows and not material.corpus_only:
        tokens = size(rows[-1]["kept_tokens"])
        tiles.append((count(rows[-1]["kept_pages"]), "pages in the corpus", f"{tokens} tokens"))
    if rows and "truth" in rows[-1]:
        first, last = (row["truth"][headline(row["truth"])] for row in (rows[0], rows[-1]))
        recall = f"{percent(first['recall'], 0)} → {percent(last['recall'], 0)}"
        tiles.append(
            (recall, "recall of math pages never trained on", f"at precision {percent(last['precision'], 0)}")
        )
    if measured := tally.total() - tally[NOT_MEASURED]:
        tiles.append((f"{tally[HELD]} of {measured}", "measured claims held", "of the paper's"))
    return tiles


def _paper_rows(paper: dict[str, Any], benchmarks: list[str]) -> list[Row]:
    """Return the paper's models, and the gain of each over the one before."""
    rows: list[Row] = []
    before: list[float] = []
    for entry in paper["headline"]:
        numbers = [entry["accuracy"][name] for name in benchmarks]
        rows.append(Row("paper", entry["model"], entry["section"], [Cell(number) for number in numbers]))
        if before:
            gains = [Cell(new - old, signed=True) for new, old in zip(numbers, before, strict=True)]
            rows.append(Row("gain", "gain", "", gains))
        before = numbers
    return rows


def _mean_accuracy(results: Results, names: list[str], task: Task) -> Cell:
    """Greedy accuracy of a model, or the mean of its seeds with an interval that covers questions and seeds;
    none if any seed has none.
    """
    cells = [accuracy(results.score(name, task)) for name in names]
    if len(cells) == 1 or any(cell.value is None for cell in cells):
        return cells[0] if len(cells) == 1 else Cell()
    found = results.values(names, task, Answers.accuracy) or []
    sides = arrays(found, [dict.fromkeys(found[0], 0.0)])
    if sides is None:
        return Cell()
    mean = estimate_effect([sides])
    low, high = mean.interval()
    return share(mean.effect, (max(0.0, low), min(1.0, high)))


def _headline(material: Material, benchmarks: list[str]) -> list[Row]:
    """Return a row for each model, the seeds of one together, and kind of solution, with its paired gain over
    the model it started from.
    """
    results, rows = material.results, []
    evaluated = [
        names for names in families({}, material.run, every=True) if results.answers.keys() >= set(names)
    ]
    for names in evaluated:
        starts = results.starts(names)
        seeds = f"mean of {len(names)} seeds" if len(names) > 1 else ""
        for kind in dict.fromkeys(kind for _, kind in results.answers[names[0]]):
            tasks = [(benchmark, kind) for benchmark in benchmarks]
            cells = [_mean_accuracy(results, names, task) for task in tasks]
            remarks = [size(material.run.models[names[0]].parameters), seeds, "" if kind == "cot" else kind]
            rows.append(Row("ours", family_name(names), ", ".join(filter(None, remarks)), cells))
            theirs = [official(results.score(names[0], task)) for task in tasks]
            if len(names) == 1 and any(cell.value is not None for cell in theirs):
                rows.append(Row("ours", names[0], "graded by the paper's program", theirs))
            gains = [results.compare(names, starts, task, Answers.accuracy) for task in tasks if starts]
            if any(gains):
                rows.append(Row("gain", f"gain over {family_name(starts)}", "paired", list(map(gain, gains))))
    return rows + _rules(material.baselines, benchmarks)


def _rules(baselines: dict[str, dict[str, float]], benchmarks: list[str]) -> list[Row]:
    """Return a row with the best rule of each benchmark that has any: what a model has to beat."""
    chosen = {name: best(baselines[name]) for name in benchmarks if name in baselines}
    remark = "; ".join(dict.fromkeys(rule for rule, _ in chosen.values()))
    cells = [share(chosen[name][1]) if name in chosen else Cell() for name in benchmarks]
    return [Row("paper", "best rule without a model", remark, cells)] if chosen else []


def chapter(material: Material) -> dict[str, Any]:
    """Key numbers, headline table and claims."""
    run, results, paper = material.run, material.results, material.paper
    tally = Counter(judgement.verdict for judgement in material.claims)
    benchmarks = list(dict.fromkeys(name for name, _ in results.tasks))
    of_paper = [
        name for name in paper["benchmarks"] if all(name in row["accuracy"] for row in paper["headline"])
    ]
    return {
        "tiles": _tiles(material, tally),
        "corpus_only": material.corpus_only,
        "headline": _headline(material, benchmarks),
        "columns": [title(paper, name) for name in benchmarks],
        "paper": _paper_rows(paper, of_paper),
        "paper_columns": [title(paper, name) for name in of_paper],
        "generated": {name: GENERATED[name] for name in benchmarks if name in GENERATED},
        "claims": [judgement for judgement in material.claims if judgement.effects],
        "unmeasured": [judgement for judgement in material.claims if not judgement.effects],
        "spread": material.section.seed_spread,
        "tally": {verdict: tally[verdict] for verdict in VERDICTS},
        "absent": [
            name.lower() for stage, name in STAGES.items() if not run.of(stage) and stage not in OTHER_DATA
        ],
        "pinned": [name for name in material.section.pins if name in run.finished],
        "older": [result.name for result in run.finished.values() if result.code_is_older],
    }
