"""Stage `report`: `index.html`, one offline page, and `summary.json`, from the manifests of a run and the
files beside them.

Inputs are `--input <stage>/<instance>=<data folder>` for every result, and optionally `truth`, `seed_urls`
and `background_urls` files. Any subset of stages will do: a chapter without its stage is left out.
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.common.manifest import ROOT, write_json
from pipeline.common.progress import duration
from pipeline.common.stage import Stage, run_stage
from pipeline.config.report import ReportSection
from pipeline.report import corpus, figures, tables
from pipeline.report.claims import HELD, NOT_HELD, NOT_MEASURED, Verdict, read_claims, verdicts
from pipeline.report.collect import STAGES, Node, Run, collect, read_json
from pipeline.report.compare import Difference, Results
from pipeline.report.page import Chapter, percent, render
from pipeline.report.samples import browser

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
    "cpt": "Next-token prediction on a mixture; the learning rate drops at 80 % and 90 % of the steps (paper section 2.3).",
    "sft": "Solved problems, packed; only the answers carry loss (paper section 3.2).",
}


def _summary_context(
    run: Run, results: Results, paper: dict[str, Any], judged: list[Verdict], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    tally = Counter(verdict.verdict for verdict in judged)
    tiles = [(duration(tables.cost(run)["seconds"]), "computing", f"{len(run.nodes)} results")]
    if rows and "truth" in rows[-1]:
        first, last = (row["truth"]["unseen"] for row in (rows[0], rows[-1]))
        recall = f"{percent(first['recall'], 0)} → {percent(last['recall'], 0)}"
        tiles.append((recall, "recall of math pages", f"at precision {percent(last['precision'], 0)}"))
    if gain := _headline_gain(run, results):
        low, high = (f"{100 * bound:+.1f}" for bound in gain.ci95)
        what = f"points, {gain.better} over {gain.worse}"
        tiles.append((f"{100 * gain.mean:+.1f}", what, f"{gain.benchmark}, {low} … {high}"))
    tiles.append(
        (
            f"{tally[HELD]} of {tally[HELD] + tally[NOT_HELD]}",
            "measured claims held",
            f"{tally[NOT_MEASURED]} not measured",
        )
    )
    return {
        "tiles": tiles,
        "headline": tables.headline(paper, run, results) if results.scores else [],
        "columns": [tables.title(paper, *task) for task in tables.columns(paper, results)],
        "claims": judged,
        "tally": {verdict: tally[verdict] for verdict in (HELD, NOT_HELD, NOT_MEASURED)},
        "absent": [TITLES[stage].lower() for stage in STAGES if not run.of(stage) and stage != "miniweb"],
        "older": [node.name for node in run.nodes.values() if node.code_is_older],
    }


def _corpus_context(rows: list[dict[str, Any]]) -> dict[str, Any]:
    domains = sorted(rows[-1].get("domains", []), key=lambda domain: (-domain["kept"], domain["domain"]))[
        :200
    ]
    used = [(row["iteration"], row.get("prefixes_used", [])) for row in rows]
    return {"rows": rows, "truth": all("truth" in row for row in rows), "domains": domains, "used": used}


def _reward_metrics(nodes: list[Node]) -> dict[str, dict[str, float]]:
    """Single numbers of each reward model's metrics; curves are figures."""
    found = {}
    for node in nodes:
        path = node.data / "metrics.json"
        metrics = read_json(path) if path.exists() else {}
        found[node.name] = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    return found


def _evaluate_context(run: Run, results: Results, paper: dict[str, Any]) -> dict[str, Any]:
    scores = tables.scores(results)
    ks = {row["maj"][0] for row in scores if row["maj"][0]}
    extent = max((abs(bound) for gain in results.gains for bound in gain.ci95), default=1.0)
    return {
        "scores": scores,
        "same_k": ks.pop() if len(ks) == 1 else None,
        "gains": results.gains,
        "scale": extent,
        "tasks": results.tasks,
        "paper_tables": tables.paper_tables(paper, run, results),
    }


def _figures(
    run: Run, results: Results, paper: dict[str, Any], rows: list[dict[str, Any]]
) -> dict[str, figures.Figure]:
    found, palette = {"cost": figures.cost(run)}, run.palette
    if rows:
        found |= figures.corpus(rows)
    for stage in ("cpt", "sft", "reward"):
        if nodes := run.of(stage):
            found |= figures.training(nodes, palette)
    for node in run.of("reward"):
        found |= figures.reward(node)
    if nodes := run.of("rl"):
        found |= figures.reinforcement(nodes, palette)
    if results.scores:
        for task in results.tasks:
            found |= figures.voting(results, task, palette)
        found |= figures.paper_voting(paper, "math")
    return found


def _chapters(
    stage: Stage[ReportSection],
    run: Run,
    results: Results,
    paper: dict[str, Any],
    judged: list[Verdict],
    rows: list[dict[str, Any]],
) -> list[Chapter]:
    """The chapters of the stages that ran, in the order of the stages."""
    contexts: dict[str, dict[str, Any]] = {"summary": _summary_context(run, results, paper, judged, rows)}
    for name in STAGES:
        if nodes := run.of(name):
            contexts[name] = {"list": nodes, "lead": LEADS.get(name, "")}
    if crawl := corpus.crawl(run):
        contexts["crawl"] = {"crawl": crawl}
    if removals := corpus.removals(run, stage.config.removals):
        contexts["decontaminate"] = {"removals": removals}
    if "corpus" in contexts:
        contexts["corpus"] = _corpus_context(rows)
    if "reward" in contexts:
        contexts["reward"]["metrics"] = _reward_metrics(run.of("reward"))
    if "rl" in contexts:
        contexts["rl"] |= {"panels": figures.RL_PANELS, "palette": run.palette}
    if results.scores:
        contexts["evaluate"] = _evaluate_context(run, results, paper)
        contexts["samples"] = {}
    cores = sorted({node.run["cores"] for node in run.nodes.values() if "cores" in node.run})
    contexts["cost"] = {
        "cost": tables.cost(run),
        "cores": f"{' or '.join(map(str, cores))} cores" if cores else "",
    }
    contexts["provenance"] = {
        "list": list(run.nodes.values()),
        "packages": tables.packages(list(run.nodes.values())),
    }
    return [Chapter(name, title, contexts[name]) for name, title in TITLES.items() if name in contexts]


def _headline_gain(run: Run, results: Results) -> Difference | None:
    """What the page leads with: the gain of the last kind of training that was evaluated with its parent."""
    order = {stage: index for index, stage in enumerate(STAGES)}
    return max(results.gains, key=lambda gain: order[run.models[gain.better].stage], default=None)


def _subtitle(run: Run, results: Results) -> str:
    """What ran and what came out, in a sentence or two."""
    stages = len({node.stage for node in run.nodes.values()})
    seconds = duration(tables.cost(run)["seconds"])
    ran = f"{len(run.nodes)} results of {stages} stages in {seconds} of computing."
    gain = _headline_gain(run, results)
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


def summary(run: Run, results: Results, rows: list[dict[str, Any]], judged: list[Verdict]) -> dict[str, Any]:
    """`summary.json`: the run as other programs read it."""
    return {
        "run": run.name,
        "models": results.scores,
        "corpus": {
            "iterations": [{key: value for key, value in row.items() if key != "curve"} for row in rows]
        },
        "comparisons": [asdict(gain) for gain in results.gains],
        "claims": [verdict.row() for verdict in judged],
        "cost": tables.cost(run),
        "manifests": {node.name: node.manifest["fingerprint"] for node in run.nodes.values()},
    }


def _file(name: str) -> Path:
    """A configured file; relative paths start at the repository's root."""
    return ROOT / name


def run(stage: Stage[ReportSection]) -> dict[str, int | float | str]:
    """Write `index.html` and `summary.json`; counts say what is in them."""
    found = collect(stage.config.run, stage.inputs)
    paper, results = tables.read_paper(_file(stage.config.paper)), Results(found)
    rows = corpus.iterations(found)
    judged = verdicts(read_claims(_file(stage.config.claims)), found, results)
    chapters = _chapters(stage, found, results, paper, judged, rows)
    tasks = browser(results, stage.config.samples, stage.config.sample_characters)
    page = render(
        found.name,
        _subtitle(found, results),
        chapters,
        _figures(found, results, paper, rows),
        {"tasks": tasks},
    )
    (stage.partial / "index.html").write_text(page)
    write_json(stage.partial / "summary.json", summary(found, results, rows, judged))
    return {
        "results": len(found.nodes),
        "chapters": len(chapters),
        "claims_held": sum(verdict.verdict == HELD for verdict in judged),
        "claims_not_held": sum(verdict.verdict == NOT_HELD for verdict in judged),
    }


if __name__ == "__main__":
    run_stage("report", ReportSection, run)
