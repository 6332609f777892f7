"""The report's numbers against brute force: precision and recall, paired intervals, verdicts on claims."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest
from report_run import FakeRun, full_run

from pipeline.config.report import ReportSection
from pipeline.report import methods
from pipeline.report.chapters import evaluate, summary, trajectory
from pipeline.report.chapters.corpus import review
from pipeline.report.chapters.crawl import crawl
from pipeline.report.chapters.decontaminate import removals
from pipeline.report.claims import read_claims
from pipeline.report.collect import Run, collect, parameter_count
from pipeline.report.compare import Answers, Results, difference
from pipeline.report.judgements import judge
from pipeline.report.material import read as read_material
from pipeline.report.scores import classifier_lines
from pipeline.report.truth import (
    average_precision,
    iterations,
    labelled_pages,
    measure,
    precision_recall_curve,
)

CLAIMS = Path(__file__).resolve().parents[1] / "configs/claims.yaml"


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeRun:
    return full_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def found(fake: FakeRun) -> Run:
    return collect("test", fake.inputs)


def by_url(fake: FakeRun) -> tuple[dict[str, dict], dict[str, set[str]]]:
    """The pages of the truth by URL; the copies of each original, itself among them."""
    pages = {page["url"]: page for page in fake.pages}
    copies: dict[str, set[str]] = {}
    for url in pages:
        origin = url
        while pages[origin]["duplicate_of"]:
            origin = pages[origin]["duplicate_of"]
        copies.setdefault(origin, set()).add(url)
    return pages, copies


@pytest.mark.slow
def test_precision_and_recall_equal_a_count_by_hand(fake: FakeRun, found: Run) -> None:
    listed = {
        url
        for key in ("seed_urls", "background_urls")
        for url in Path(fake.inputs[key][0]).read_text().split()
    }
    select = Path(fake.inputs["corpus/iteration-2/select"][0])
    kept = set(parquet.read_table(select / "kept.parquet")["url"].to_pylist())
    pages, copies = by_url(fake)
    counts = {"math": [0, 0], "not_math": [0, 0], "unsure": [0, 0]}
    for origin, urls in copies.items():
        if not urls & listed:
            counts[pages[origin]["label"]][0] += 1
            counts[pages[origin]["label"]][1] += bool(urls & kept)
    (math, kept_math), (_, kept_other) = counts["math"], counts["not_math"]
    row = iterations(found)[1]["truth"]["unseen"]
    assert row["math"] == math
    assert row["recall"] == kept_math / math
    assert row["precision"] == kept_math / (kept_math + kept_other)
    assert row["recall_ci95"][0] < row["recall"] < row["recall_ci95"][1]
    trained = listed | {page["url"] for page in fake.pages[:186]}
    excluded = set(parquet.read_table(select / "excluded.parquet")["url"].to_pylist())
    ranked = [
        origin
        for origin, urls in copies.items()
        if not urls & trained and pages[origin]["label"] != "unsure" and urls - excluded
    ]
    assert excluded - trained and len(iterations(found)[1]["curve"]) == len(ranked)


@pytest.mark.slow
def test_the_headline_counts_pages_and_hosts_that_no_iteration_was_trained_on(
    fake: FakeRun, found: Run
) -> None:
    trained = {row["url"] for row in fake.pages[:186]}
    own, copies = by_url(fake)
    unseen = {
        origin: urls
        for origin, urls in copies.items()
        if not urls & trained and own[origin]["label"] != "unsure"
    }
    hosts = {url.split("/")[2] for url in trained}
    for row in iterations(found):  # the same pages in the first iteration as in the last
        scopes = row["truth"]
        assert scopes["never_trained"]["pages"] == len(unseen)
        alone = [urls for urls in unseen.values() if not {url.split("/")[2] for url in urls} & hosts]
        assert 0 < scopes["unseen_hosts"]["pages"] == len(alone) < len(unseen)
        english = [origin for origin in unseen if own[origin]["language"] == "en"]
        assert scopes["never_trained, en"]["pages"] == len(english)
        for measured in list(scopes.values())[2:]:
            for name in ("average_precision", "recall_at_precision_0.9", "precision", "recall"):
                low, high = measured[f"{name}_ci95"]
                assert 0 <= low <= measured[name] <= high <= 1 and low < high
    table = classifier_lines({"corpus": {"iterations": iterations(found)}})
    assert f"never trained: {len(unseen)} " in table[1]
    assert table[-1] == "The cut promises precision 90.0 [80.0, 95.0], by 90 pages."


def test_pages_are_not_called_untrained_where_a_result_does_not_say_what_it_was_trained_on(
    tmp_path: Path,
) -> None:
    fake = FakeRun(tmp_path)
    fake.web(hosts=9)
    del fake.inputs["corpus/iteration-2/train"]
    assert list(iterations(collect("test", fake.inputs))[-1]["truth"]) == ["unseen", "all"]


def test_a_removed_duplicate_costs_no_recall_and_unsure_pages_do_not_count() -> None:
    truth = {
        "a": {"label": "math", "duplicate_of": None},
        "a2": {"label": "math", "duplicate_of": "a"},
        "b": {"label": "math"},
        "c": {"label": "unsure"},
        "d": {"label": "not_math"},
    }
    items = labelled_pages(truth, {"b"})
    assert [(item.url, item.is_math, item.is_listed) for item in items] == [
        ("a", True, False),
        ("b", True, True),
        ("d", False, False),
    ]
    row = measure(items, {"a2", "c", "d", "unknown"})
    assert (row["recall"], row["precision"]) == (0.5, 0.5)
    assert measure(items, set())["precision"] is None


def test_pages_that_are_copies_of_each_other_count_once() -> None:
    truth = {"a": {"label": "math", "duplicate_of": "b"}, "b": {"label": "math", "duplicate_of": "a"}}
    assert sum(len(item.urls) for item in labelled_pages(truth, set())) == 2


def test_average_precision_equals_its_definition() -> None:
    draw = random.Random(0)
    truth = {f"u{index}": {"label": draw.choice(["math", "not_math"])} for index in range(60)}
    scores = {url: draw.gauss(row["label"] == "math", 1) for url, row in truth.items()}
    curve = precision_recall_curve(labelled_pages(truth, set()), scores)
    ranked = sorted(truth, key=lambda url: -scores[url])
    right = [truth[url]["label"] == "math" for url in ranked]
    by_definition = np.mean([sum(right[: rank + 1]) / (rank + 1) for rank, hit in enumerate(right) if hit])
    assert average_precision(curve) == pytest.approx(by_definition)


def test_paired_interval_covers_what_resampling_questions_gives() -> None:
    draw = np.random.default_rng(1)
    worse = {str(index): float(value) for index, value in enumerate(draw.random(500) < 0.5)}
    better = {key: float(value or draw.random() < 0.25) for key, value in worse.items()}
    found = difference(("a", "b"), ("x", "cot"), [better], [worse])
    change = np.array([better[key] - worse[key] for key in worse])
    means = change[draw.integers(0, 500, (4000, 500))].mean(axis=1)
    assert found.mean == pytest.approx(change.mean())
    assert found.ci95 == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=0.006)
    assert (found.gained, found.lost) == (int((change > 0).sum()), 0)


def test_differences_use_only_questions_that_both_answered() -> None:
    found = difference(
        ("a", "b"), ("x", "cot"), [{"1": 1.0, "2": 0.0, "3": 1.0}], [{"2": 0.0, "3": 0.0, "4": 1.0}]
    )
    assert (found.n, found.mean) == (2, 0.5)
    assert difference(("a", "b"), ("x", "cot"), [{"1": 1.0}], [{"2": 1.0}]) is None


def test_several_models_of_one_side_are_averaged_question_by_question(found: Run) -> None:
    results = Results(found)
    task = ("miniweb", "cot")
    got = results.compare(["grpo", "rft"], ["instruct"], task, Answers.accuracy)
    by_hand = []
    for key, value in results.answers["instruct"][task].accuracy().items():
        both = [results.answers[name][task].accuracy()[key] for name in ("grpo", "rft")]
        by_hand.append(sum(both) / 2 - value)
    assert got.mean == pytest.approx(np.mean(by_hand))


def test_maj_and_pass_by_question_are_as_scored(found: Run) -> None:
    results = Results(found)
    score = results.score("grpo", ("miniweb", "cot"))
    for metric in ("maj@k", "pass@k"):
        values = results.answers["grpo"]["miniweb", "cot"].at_k(metric, 8)
        assert np.mean(list(values.values())) == pytest.approx(score[metric]["8"])
    assert [k for k, _, _ in results.curve("grpo", ("miniweb", "cot"), "maj@k")] == [1, 2, 4, 8, 16]


def test_claims_select_the_models_that_they_are_about(found: Run) -> None:
    judged = {verdict.claim.id: verdict for verdict in judge(read_claims(CLAIMS), Results(found), 0.03)}
    sides = {
        name: {(row.better, row.worse) for row in verdict.comparisons} for name, verdict in judged.items()
    }
    assert sides["sft-helps"] == {("instruct", "base")}
    assert sides["grpo-helps"] == {("grpo", "instruct")}
    assert sides["voting-not-ability"] == {("grpo", "instruct"), ("instruct", "grpo")}
    assert {row.benchmark for row in judged["grpo-generalises"].comparisons} == {"heldout"}
    assert sides["online-beats-offline"] == {("online-rft", "rft")}
    recall = judged["corpus-recall"]
    assert recall.effects[0].estimate.effect > recall.claim.matters and "hosts" in recall.evidence
    assert "hosts were kept before" in judged["corpus-converges"].evidence
    unmeasured = {
        "process-beats-outcome",
        "iteration-helps",
        "tools-help",
        "corpus-quality",
        "code-before-math",
    }
    assert {judged[name].verdict for name in unmeasured} == {"not measured"}


def test_the_table_of_methods_agrees_with_the_scores(found: Run) -> None:
    results = Results(found)
    rows = {row["method"]: row for row in methods.table(found, results) if row["benchmark"] == "miniweb"}
    assert {"RFT", "Online RFT", "GRPO+OS"} <= set(rows)
    score = results.score("rft", ("miniweb", rows["RFT"]["kind"]))
    assert rows["RFT"]["seeds"] == 1 and rows["RFT"]["accuracy"][0] == score["accuracy"]
    largest = max(score["pass@k"], key=int)
    assert rows["RFT"]["pass@k"][0] == score["pass@k"][largest]
    (gain,) = (gain for gain in results.gains if (gain.better, gain.benchmark) == ("rft", "miniweb"))
    assert rows["RFT"]["gain"] == (gain.mean, gain.ci95)
    assert results.headline.better == ["grpo"]


def test_crawl_counts_every_record_once(fake: FakeRun, found: Run) -> None:
    counts = crawl(found)
    copies = sum(page["duplicate_of"] is not None for page in fake.pages)
    assert (counts.languages.total(), counts.reasons.total()) == (len(fake.pages), 97)
    assert counts.languages["zh"] == sum(page["language"] == "zh" for page in fake.pages)
    assert (counts.records, counts.pool) == (len(fake.pages) + 97, len(fake.pages) - copies)


def test_the_crawl_chapter_says_what_was_read(found: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert crawl(found).kinds == {"response record"}
    for result in found.of("crawl"):
        monkeypatch.setitem(result.run, "inputs", {"texts": ["a.parquet"]})
    assert crawl(found).kinds == {"row of texts"}


def test_sampled_removals_take_benchmarks_in_turn_and_mark_the_shared_text(found: Run) -> None:
    whole, few = removals(found, 60), removals(found, 5)
    assert whole.total == whole.pages == len(whole.sample) == 14 and whole.by_benchmark["miniweb"] == 7
    assert few.sample == whole.sample[:5] and [row["benchmark"] for row in few.sample[:2]] != ["miniweb"] * 2
    before, shared, after = whole.sample[0]["context"]
    assert (before, after) == ("It reads: ", "e gives them away")
    assert shared.startswith("<b>how many") and len(shared) == 50


def test_the_review_queue_has_prefix_evidence_and_sample_pages(found: Run) -> None:
    (row,) = review(found)
    assert row["prefix"] == "host06.example/" and row["known"] == "8 of 12 pages kept, expect 3 more"
    assert len(row["pages"]) == 2


def test_models_know_their_parents_and_mixtures(found: Run) -> None:
    assert {name: model.parent for name, model in found.models.items()} == {
        "base": None, "instruct": "base", "grpo": "instruct", "online-rft": "instruct", "rft": "instruct",
    }  # fmt: skip
    assert found.models["base"].mixture == "math"


def test_parameters_are_counted_from_the_headers_of_the_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(3, 5), "b": torch.zeros(7)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert parameter_count(tmp_path) == 22
    assert parameter_count(tmp_path / "nowhere") is None


def test_accuracy_over_tokens_ends_in_the_final_evaluation(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.node("tokens/math")
    run.model("cpt/base", None, 4, 4.2, ["tokens/math"], tokens=300)
    run.evaluation("cpt/base", "few_shot_cot", 0.5, 1.0)
    for tokens, accuracy in ((200, 0.2), (100, 0.1)):
        folder = run.node(f"trajectory/base/{tokens}", ["cpt/base"], model_stage="cpt")
        score = {"accuracy": accuracy, "ci95": [accuracy - 0.05, accuracy + 0.05], "n": 120}
        (folder / "scores.json").write_text(json.dumps({"miniweb": {"few_shot_cot": score}}))
    results = collect("test", run.inputs)
    shown = trajectory.chapter(SimpleNamespace(run=results, paper={"benchmarks": {"miniweb": "Stories"}}))
    assert shown["titles"] == {
        "trajectory-miniweb-few_shot_cot": "Stories"
    }  # held-out: one point is no curve
    (drawn,) = shown["figures"].values()
    curve = drawn["data"][-1]
    final = json.loads((results.finished["evaluate/base"].data / "scores.json").read_text())["miniweb"]
    assert list(zip(curve["x"], curve["y"], strict=True)) == [
        (100, 0.1), (200, 0.2), (300, final["few_shot_cot"]["accuracy"]),
    ]  # fmt: skip
    assert list(results.models) == ["base"]  # kept models are no models of the ledger


def test_the_papers_numbers_stand_beside_those_by_its_own_program(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.model("cpt/base", None, 4, 4.2, tokens=300)
    run.evaluation("cpt/base", "few_shot_cot", 0.5, 1.0, benchmarks=("gsm8k",))
    path = tmp_path / "evaluate/base/data/scores.json"
    scores = json.loads(path.read_text())
    scores["gsm8k"]["few_shot_cot"]["official"] = {"accuracy": 0.25, "ci95": [0.2, 0.3], "n": 120}
    path.write_text(json.dumps(scores))
    material = read_material(ReportSection(run="test"), run.inputs)
    rows = next(table["rows"] for table in evaluate.chapter(material)["paper_tables"] if table["ours"])
    mine, theirs = (row for row in rows if row.kind == "ours")
    assert mine.cells[0].value == 100 * scores["gsm8k"]["few_shot_cot"]["accuracy"]
    assert (theirs.label, theirs.remark, theirs.cells[0].value) == (
        "base",
        "graded by the paper's program",
        25,
    )
    assert theirs.cells[1].value is None
    headline = summary.chapter(material)["headline"]
    assert [row.cells[0].value for row in headline if "program" in row.remark] == [25]
