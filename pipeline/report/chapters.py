"""What each chapter of the page shows, put together from what was read and computed."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pipeline.common.progress import duration
from pipeline.config.report import ReportSection
from pipeline.report import benchmarks, corpus, corpus_figures, figures, methods, tables
from pipeline.report.claims import HELD, NOT_HELD, NOT_MEASURED, Judgement
from pipeline.report.collect import STAGES, Run, read_json
from pipeline.report.compare import Results
from pipeline.report.page import Chapter, percent

TITLES = {
    "summary": "Summary",
    "miniweb": "Generated web",
    "crawl": "Crawl",
    "corpus": "Corpus",
    "decontaminate": "Decontamination",
    "tokens": "Tokens",
    "cpt": "Pre-training",
    "sft": "Fine-tuning",
    "reward": "Reward models",
    "rl": "Reinforcement learning",
    "evaluate": "Evaluation",
    "samples": "Samples",
    "cost": "Cost",
    "provenance": "Provenance",
}
LEADS = {
    "cpt": "Next-token prediction; the learning rate drops twice, late in training (paper section 2.3).",
    "sft": "Solved problems, packed; only the answers carry loss (paper section 3.2).",
}


MAX_DOMAINS, MAX_QUEUE = 200, 40


@dataclass
class Material:
    """All that the chapters draw on; `iterations` are the corpus loop's, measured if there is a truth."""

    section: ReportSection
    run: Run
    results: Results
    paper: dict[str, Any]
    claims: list[Judgement]
    iterations: list[dict[str, Any]]

    @cached_property
    def cost(self) -> dict[str, Any]:
        return tables.cost(self.run)


def _tiles(material: Material) -> list[tuple[str, str, str]]:
    """Key numbers: value, what it is, remark."""
    tally = Counter(verdict.verdict for verdict in material.claims)
    tiles = [(duration(material.cost["seconds"]), "computing", f"{len(material.run.nodes)} results")]
    rows = material.iterations
    if rows and "truth" in rows[-1]:
        first, last = (row["truth"]["unseen"] for row in (rows[0], rows[-1]))
        recall = f"{percent(first['recall'], 0)} → {percent(last['recall'], 0)}"
        tiles.append((recall, "recall of math pages", f"at precision {percent(last['precision'], 0)}"))
    if gain := material.results.headline:
        low, high = (f"{100 * bound:+.1f}" for bound in gain.ci95)
        what = f"points, {gain.better} over {gain.worse}"
        tiles.append((f"{100 * gain.mean:+.1f}", what, f"{gain.benchmark}, {low} … {high}"))
    held = f"{tally[HELD]} of {tally[HELD] + tally[NOT_HELD]}"
    return [*tiles, (held, "measured claims held", f"{tally[NOT_MEASURED]} not measured")]


def _summary(material: Material) -> dict[str, Any]:
    run, results, paper = material.run, material.results, material.paper
    tally = Counter(verdict.verdict for verdict in material.claims)
    return {
        "tiles": _tiles(material),
        "headline": tables.headline(paper, run, results) if results.scores else [],
        "columns": [tables.title(paper, *task) for task in tables.columns(paper, results)],
        "claims": material.claims,
        "tally": {verdict: tally[verdict] for verdict in (HELD, NOT_HELD, NOT_MEASURED)},
        "absent": [TITLES[stage].lower() for stage in STAGES if not run.of(stage) and stage != "miniweb"],
        "older": [node.name for node in run.nodes.values() if node.code_is_older],
    }


def _corpus(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    last = rows[-1]
    domains = sorted(last["domains"], key=lambda domain: (-domain["kept"], domain["domain"]))
    used = [(row["iteration"], row["prefixes_used"]) for row in rows if not row["passed_through"]]
    queue = corpus.review(run)
    return {
        "rows": rows,
        "truth": all("truth" in row for row in rows),
        "measured": {"held-out hosts": last["held_out"]} if last["held_out"] else {},
        "unseen": last["out_of_distribution"],
        "last": last,
        "domains": domains[:MAX_DOMAINS],
        "used": used,
        "queue": queue[:MAX_QUEUE],
        "queued": len(queue),
        "card": corpus.card(run),
    }


def _reward(run: Run) -> dict[str, Any]:
    """Single numbers of each reward model's metrics; its curves are figures."""
    metrics = {}
    for node in run.of("reward"):
        path = node.data / "metrics.json"
        values = read_json(path) if path.exists() else {}
        metrics[node.name] = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {"metrics": metrics}


def _evaluate(material: Material) -> dict[str, Any]:
    run, results = material.run, material.results
    scores = tables.scores(results)
    ks = {row["maj"][0] for row in scores if row["maj"][0]}
    return {
        "scores": scores,
        "same_k": ks.pop() if len(ks) == 1 else None,
        "gains": results.gains,
        "scale": max((abs(bound) for gain in results.gains for bound in gain.ci95), default=1.0),
        "tasks": results.tasks,
        "benchmarks": benchmarks.sections(results, material.paper["benchmarks"]),
        "paper_tables": tables.paper_tables(material.paper, run, results),
    }


def _cost(material: Material) -> dict[str, Any]:
    cores = sorted({node.run["cores"] for node in material.run.nodes.values() if "cores" in node.run})
    return {"cost": material.cost, "cores": f"{' or '.join(map(str, cores))} cores" if cores else ""}


def chapters(material: Material) -> list[Chapter]:
    """The chapters of the stages that ran, in the order of the stages."""
    run = material.run
    contexts: dict[str, dict[str, Any]] = {"summary": _summary(material)}
    for stage in STAGES:
        if nodes := run.of(stage):
            contexts[stage] = {"list": nodes, "lead": LEADS.get(stage, "")}
    if crawl := corpus.crawl(run):
        contexts["crawl"]["crawl"] = crawl
    for stage in ("decontaminate", "corpus"):  # parts of them alone have nothing to show
        contexts.pop(stage, None)
    if removals := corpus.removals(run, material.section.removals):
        contexts["decontaminate"] = {"removals": removals}
    if material.iterations:
        contexts["corpus"] = _corpus(run, material.iterations)
    if "reward" in contexts:
        contexts["reward"] |= _reward(run)
    if "rl" in contexts:
        compared = methods.table(run, material.results)
        contexts["rl"] |= {"panels": figures.RL_PANELS, "palette": run.palette, "methods": compared}
    if material.results.scores:
        contexts["evaluate"] |= _evaluate(material)
        contexts["samples"] = {}
    contexts["cost"] = _cost(material)
    nodes = list(run.nodes.values())
    contexts["provenance"] = {"list": nodes, "packages": tables.packages(nodes)}
    return [Chapter(name, title, contexts[name]) for name, title in TITLES.items() if name in contexts]


def drawings(material: Material) -> dict[str, figures.Figure]:
    """All figures by the name that the templates use."""
    run, results, palette = material.run, material.results, material.run.palette
    found = {"cost": figures.cost(run)}
    if material.iterations:
        found |= corpus_figures.corpus([row for row in material.iterations if not row["passed_through"]])
    for stage in ("cpt", "sft", "reward"):
        if nodes := run.of(stage):
            found |= figures.training(nodes, palette)
    for node in run.of("reward"):
        found |= figures.reward(node)
    if nodes := run.of("rl"):
        found |= figures.reinforcement(nodes, palette)
        found |= methods.comparison(run, results)
    if results.scores:
        for task in results.tasks:
            found |= figures.voting(results, task, palette)
        found |= figures.paper_voting(material.paper, "math")
    return found


def subtitle(material: Material) -> str:
    """What ran and what came out, in a sentence or two."""
    run, gain = material.run, material.results.headline
    stages = len({node.stage for node in run.nodes.values()})
    seconds = duration(material.cost["seconds"])
    ran = f"{len(run.nodes)} results of {stages} stages in {seconds} of computing."
    if gain is None:
        return ran
    low, high = (f"{100 * bound:+.1f}" for bound in gain.ci95)
    size = tables.size(run.models[gain.better].parameters)
    model = f"{gain.better}, a model of {size} parameters," if size else gain.better
    return (
        f"{ran} {model} solves {percent(gain.values[0])} of {gain.benchmark}; {gain.worse}, which it started"
        f" from, {percent(gain.values[1])}: {100 * gain.mean:+.1f} points"
        f" ({low} to {high} with 95 % confidence)."
    )
