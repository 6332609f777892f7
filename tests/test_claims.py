"""Verdicts on claims: their statistics, the paper's own figures, configurations that can decide each."""

import json
import random
import re
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from conftest import ROOT
from given.cases import cases
from given.plans import LEDGER, simulation_of

from pipeline.cli.plan.power import ENOUGH, Simulation
from pipeline.core.errors import InputError
from pipeline.core.overlays import read_yaml
from pipeline.intervals import Estimate, holm
from pipeline.report.answers import Row, Sample
from pipeline.report.claims import (
    CONTRADICTED,
    HELD,
    INCONCLUSIVE,
    NOT_MEASURED,
    Claim,
    Effect,
    Judgement,
    read_claims,
)
from pipeline.report.collect import Model, Run
from pipeline.report.compare import Answers, Results
from pipeline.report.judgements import judge
from pipeline.report.selection import families, pairs
from pipeline.report.tables import task_of

TABLES = cases("claims")
RIGHT, WRONG = Sample("right", "1"), Sample("wrong", "2")
CONFIGURATIONS = [
    "demo", "ablations", "compare", "compare compare-seeds", "deepseekmath-1.3b", "deepseekmath-1.3b table-1",
    "deepseekmath-7b", "deepseekmath-7b iterative", "pretrained",
]  # fmt: skip


def claim(**keys: Any) -> Claim:
    about = dict(id="c", statement="s", section="1", test="accuracy", matters=0.01, decided_by=[])
    return Claim(**about | keys)


@pytest.mark.parametrize(("effects", "verdict"), TABLES["verdicts"])
def test_a_verdict_needs_an_effect_that_matters_and_is_sure(effects: list, verdict: str) -> None:
    found = Judgement(
        claim(), "none", [Effect(Estimate(mean, error, inf), [], "e", 0.0, 0.01) for mean, error in effects]
    )
    if effects:
        found.p, found.level = holm([found.raw_p])[0]
    assert found.verdict == verdict and ("none" in found.evidence) == (not effects)


def model(name: str, stage: str = "rl", parent: str | None = "instruct", **config: Any) -> Model:
    return Model(name, stage, parent, None, config, None)


def run_of(*models: Model) -> Results:
    """Results, without answers, of a run that trained these models."""
    run = Run("x", {})
    run.__dict__["models"] = {found.name: found for found in models}
    return Results(run)


def test_a_voting_claim_with_published_figures_needs_those_of_both_metrics(tmp_path: Path) -> None:
    keys = claim(test="voting", published=(0.7, 0.8), pass_at_k=(0.9, 0.9)).model_dump()
    (tmp_path / "claims.yaml").write_text(json.dumps([keys | {"pass_at_k": None}]))
    with pytest.raises(InputError, match="claims.yaml: claim key test: .* needs `pass_at_k` too"):
        read_claims(tmp_path / "claims.yaml")


def test_models_that_differ_in_more_than_their_seed_are_not_one_family() -> None:
    models = [model("instruct", "sft", None)]
    models += [model(f"os-{seed}", seed=seed) for seed in (0, 1)]
    models += [model(f"ps-{seed}", seed=seed, supervision="process") for seed in (0, 1)]
    models += [model(f"again-{seed}", parent=f"ps-{seed}", seed=seed, iteration=2) for seed in (0, 1)]
    models += [model("twin", seed=0)]  # the settings and seed of os-0: no second seed of it
    run = run_of(*models).run
    first = {"stage": "rl", "parent_stage": "sft"}
    assert families(first, run) == [["os-0", "os-1"], ["ps-0", "ps-1"], ["twin"]]
    (pair,) = pairs({"iteration": 2}, "parent", run, across_parents=False)
    assert (pair.better, pair.worse, pair.matched) == (["again-0", "again-1"], ["ps-0", "ps-1"], True)


def test_grpo_by_the_rule_alone_is_told_from_grpo_by_a_model() -> None:
    rewards = {
        "rule": {"accuracy": 1},
        "both": {"accuracy": 1, "model": 0.5},
        "learnt": {"accuracy": 0, "model": 1},
    }
    run = run_of(*(model(name, rewards=parts) for name, parts in rewards.items())).run
    assert families({"stage": "rl", "judge": "rule"}, run) == [["rule"]]
    assert families({"stage": "rl", "judge": "model"}, run) == [["both"], ["learnt"]]


def judged(shares: dict[str, tuple[float, float]], questions: int = 500, **keys: Any) -> Judgement:
    """A claim that model a solves more of some benchmarks than b, of each of which both solve a share."""
    results = run_of(model("a", "sft", None, data="a"), model("b", "sft", None, data="b"))
    for place, name in enumerate("ab"):
        tasks = {(benchmark, "cot"): answers(pair[place], questions) for benchmark, pair in shares.items()}
        results.answers[name] = tasks
    sides = {"better": {"data": "a"}, "worse": {"data": "b"}, "across_parents": True}
    (found,) = judge([claim(**sides | keys)], results, 0.0)
    return found


def test_models_that_solve_nothing_contradict_no_claim() -> None:
    gsm8k = {"benchmarks": ["gsm8k"]}
    assert judged({"gsm8k": (0.5, 0.5)}, **gsm8k).verdict == CONTRADICTED
    for same in (0, 1):
        found = judged({"gsm8k": (same, same)}, **gsm8k)
        assert found.verdict == NOT_MEASURED and "all answers are wrong, or all right" in found.evidence
    assert "no such pair of models" in judged({"math": (0.5, 0.5)}, **gsm8k).evidence


def test_a_benchmark_that_nobody_solves_counts_beside_one_that_is_solved() -> None:
    found = judged({"gsm8k": (0.6, 0.5), "math": (0, 0)}, benchmarks=["gsm8k", "math"])
    assert found.effects[0].estimate.effect == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("asked", "counted"),
    [(["gsm8k", "math", "math500"], ["gsm8k", "math"]), (["gsm8k", "math500"], ["gsm8k", "math500"])],
)
def test_math_500_does_not_count_beside_math_of_which_it_is_a_part(asked: list, counted: list) -> None:
    found = judged(dict.fromkeys(asked, (0.6, 0.5)), benchmarks=["gsm8k", "math", "math500"])
    assert [row.benchmark for row in found.comparisons] == counted


@pytest.mark.parametrize(("maj", "some", "verdict"), TABLES["voting"])
def test_voting_needs_a_gain_in_maj_and_none_in_pass(maj: tuple, some: tuple, verdict: str) -> None:
    results = run_of(model("b", parent=None), model("a", parent="b"))
    for name, voted, solved in zip("ba", maj, some, strict=True):
        results.answers[name] = {("gsm8k", "cot"): answers(solved, 2000, 4, majority=voted)}
    voting = {"test": "voting", "worse": "parent", "benchmarks": ["gsm8k"], "matters": 0.005, "margin": 0.01}
    (found,) = judge([claim(better={"name": "a"}, **voting)], results, 0.0)
    assert found.verdict == verdict, found.evidence


# ---- the ledger and the shipped configurations ----


def answers(
    accuracy: float, questions: int, samples: int = 0, *, majority: float | None = None, seed: str = ""
) -> Answers:
    """Answers of which a share is right, at random places. The samples of a share `majority` of the questions
    are all right; up to the share `accuracy`, questions have one right sample.
    """
    places = random.Random(seed).sample(range(questions), questions)
    right = {str(place) for place in places[: round(accuracy * questions)]}
    voted = right if majority is None else {str(place) for place in places[: round(majority * questions)]}
    rows = []
    for key in map(str, places) if samples else ():
        hits = samples if key in voted else int(key in right)
        rows.append(Row(key, "How many?", "1", samples=[RIGHT] * hits + [WRONG] * (samples - hits)))
    greedy = {str(place): "right" if str(place) in right else "wrong" for place in places}
    return Answers("", lambda: rows, greedy, samples)


@pytest.fixture(scope="module")
def plans() -> dict[str, Simulation]:
    return {name: simulation_of(name) for name in CONFIGURATIONS}


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_a_configuration_decides_the_claims_that_it_is_likely_to_hold(
    plans: dict[str, Simulation], configuration: str
) -> None:
    plan = plans[configuration]
    named = {claim.id for claim in LEDGER if configuration in claim.decided_by}
    published = {claim.id for claim in LEDGER if claim.published}
    likely = {found.claim.id for found in plan.prospects() if (found.chance or 0) >= ENOUGH}
    assert likely == named & published
    unpublished = {claim.id for claim in (*plan.claims, *plan.corpus)} - published
    assert unpublished == named - published, "they name those that have its models"


def test_the_ledger_names_no_unknown_configuration() -> None:
    assert {name for claim in LEDGER for name in claim.decided_by} <= set(CONFIGURATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS[:-1])  # pretrained.yaml judges fewer than it trains
def test_models_of_ones_own_change_no_claim(plans: dict[str, Simulation], configuration: str) -> None:
    run, models = plans[configuration].run, plans[configuration].run.models
    own = {
        f"my-{name}": replace(model, name=f"my-{name}", config=model.config | {"learning_rate": 9})
        for name, model in models.items()
    }

    def compared(models: dict[str, Model], patterns: list[str] | None) -> list:
        other = Run(run.name, {}, judged=patterns)
        other.__dict__["models"] = models
        return [
            pairs(claim.better, claim.worse, other, across_parents=claim.across_parents) for claim in LEDGER
        ]

    assert compared(models | own, run.judged) == compared(models, run.judged) == compared(models, None)
    assert compared(models | own, None) != compared(models, None)


def test_every_claim_about_models_names_its_benchmarks() -> None:
    assert all(row.benchmarks for row in LEDGER if row.test not in ("recall", "converged"))


# ---- the paper's own figures ----

SIZES = TABLES["sizes"]
ROWS = TABLES["rows"]


def corpus_loop(folder: Path, old_by_host: list[float], converged: bool = True) -> Run:
    """A run whose last iteration kept 100 pages of each host, of which a share had been kept before."""
    run, iterations = Run("loop", {}), []
    for number in (1, 2):
        data = folder / f"iteration-{number}"
        data.mkdir()
        rows = [
            {"host": f"host{place}", "iteration": 1 if page < 100 * share else number}
            for place, share in enumerate(old_by_host)
            for page in range(100)
        ]
        parquet.write_table(pa.Table.from_pylist(rows), data / "kept.parquet")
        metrics = {"iteration": number, "converged": converged and number == 2}
        iterations.append(SimpleNamespace(data=data, metrics=metrics, config={"converged": 0.98}))
    run.__dict__["iterations"] = iterations
    return run


@pytest.mark.parametrize(
    ("old_by_host", "verdict"),
    [
        ([0.98] * 300, HELD),
        ([1.0] * 294 + [0.0] * 6, HELD),  # 98 % as well, by more pages than hosts can say: see below
        ([1.0] * 49 + [0.0], INCONCLUSIVE),
        ([0.96] * 300, CONTRADICTED),  # above 95 %, and below the run's own rule
        ([0.9] * 300, CONTRADICTED),
        ([1.0], NOT_MEASURED),  # one host has no spread, and JSON no infinite interval
    ],
)
def test_a_loop_converges_by_its_own_rule_and_by_hosts(
    tmp_path: Path, old_by_host: list[float], verdict: str
) -> None:
    (asked,) = (claim for claim in LEDGER if claim.id == "corpus-converges")
    (found,) = judge([asked], Results(corpus_loop(tmp_path, old_by_host)), 0.0)
    assert found.verdict == verdict, found.evidence


def as_published(configuration: str, plan: Simulation, folder: Path) -> Results:
    """A run of the configuration that reproduces the paper to the digit."""
    paper = read_yaml(ROOT / "configs/paper.yaml")
    tables = {table["id"]: table for table in paper["tables"]}
    run = Run(configuration, {})
    run.__dict__["models"] = plan.run.models
    results = Results(run)
    for name, table_id, row in ROWS[configuration]:
        table, found = tables[table_id], results.answers.setdefault(name, {})
        for benchmark, value in zip(table["columns"], table["rows"][row], strict=True):
            if benchmark in SIZES:
                task = task_of(table, benchmark)
                found[task] = answers(value / 100, SIZES[benchmark], seed=f"{name} {task}")
    if configuration == "deepseekmath-7b":
        run.__dict__["iterations"] = corpus_loop(folder, [0.98] * 1000).iterations  # nearly 98 %
        for name, label in (("instruct", "Instruct"), ("rl", "RL")):
            for benchmark in ("gsm8k", "math"):
                maj, some = (
                    paper["figure_7"][benchmark][metric][label][-1] / 100 for metric in ("maj", "pass")
                )
                sampled = answers(some, SIZES[benchmark], 64, majority=maj, seed=f"{name} {benchmark}")
                kept = results.answers[name][benchmark, "cot"]
                kept.rows, kept.drawn = sampled.rows, sampled.drawn
    return results


@pytest.fixture(scope="module")
def published(
    plans: dict[str, Simulation], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Judgement]]:
    folder = tmp_path_factory.mktemp("corpus")
    return {name: judge(LEDGER, as_published(name, plans[name], folder), plans[name].spread) for name in ROWS}


@pytest.mark.slow
def test_the_papers_own_figures_contradict_none_of_its_claims(published: dict[str, list[Judgement]]) -> None:
    verdicts: dict[str, set[str]] = {}
    for found in chain(*published.values()):
        verdicts.setdefault(found.claim.id, set()).add(found.verdict)
    assert not [name for name, found in verdicts.items() if CONTRADICTED in found]
    of_no_table = {"corpus-recall", "grpo-no-worse-than-ppo", "negative-coefficients", "refresh-helps"}
    of_no_table |= {"later-iterations-teach-more"}
    assert {name for name, found in verdicts.items() if found == {NOT_MEASURED}} == of_no_table
    held = {name for name, found in verdicts.items() if HELD in found}
    large = {"corpus-converges", "corpus-quality", "web-beats-arxiv", "math-helps-understanding", "sft-helps"}
    assert large <= held
    small = {"grpo-beats-online-rft", "process-beats-outcome"}  # differences below the noise of the test sets
    assert not small & held


@pytest.mark.slow
def test_published_effects_are_those_of_the_papers_tables(published: dict[str, list[Judgement]]) -> None:
    measured: dict[str, set[float]] = {}
    for found in chain(*published.values()):
        measured.setdefault(found.claim.id, set()).update(row.estimate.effect for row in found.effects)
    for claim in LEDGER:
        for values in filter(None, (claim.published, claim.pass_at_k and claim.pass_at_k[::-1])):
            effects = measured[claim.id]
            assert any(abs(values[1] - values[0] - one) < 0.002 for one in effects), (claim.id, effects)


def test_the_ledger_says_what_its_quoted_figures_say() -> None:
    """Every figure with a decimal in `paper:` stands in the paper's tables."""
    paper = read_yaml(ROOT / "configs/paper.yaml")
    known = {value for table in paper["tables"] for row in table["rows"].values() for value in row if value}
    for benchmark in ("gsm8k", "math"):
        for metric in ("maj", "pass"):
            known |= {value for row in paper["figure_7"][benchmark][metric].values() for value in row}
    for claim in LEDGER:
        if claim.published:
            quoted = {float(text) for text in re.findall(r"\d+\.\d", claim.paper)}
            assert quoted <= known, (claim.id, quoted - known)
