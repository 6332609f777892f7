"""Experiments: what a file asks for, what the results say of it, the page, and all of it on the small run."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from browser import browser
from conftest import ROOT
from given.cases import cases
from report_run import FakeRun

from pipeline.cli.experiment import __main__ as command
from pipeline.cli.experiment.design import Design, Experiment, make_design
from pipeline.cli.experiment.findings import Findings
from pipeline.cli.experiment.sheet import RESULTS, write_failed, write_index, write_sheet
from pipeline.config.evaluate import SUFFIX
from pipeline.core.errors import InputError
from pipeline.core.progress import duration
from workflow.keys import Keys

TABLES = cases("experiments")
LOSS = '''"""GRPO, pulled the {way} way."""
from dataclasses import replace

from pipeline.rl.methods import grpo


def loss(section, batch, logprobs_N, watched):
    return {sign}grpo.METHOD.loss(section, batch, logprobs_N, watched)


METHOD = replace(grpo.METHOD, loss=loss)
'''
RL = {"stage": "rl", "parent": "instruct", "prompts": "questions.jsonl", "benchmarks": ["miniweb"]}
CONFIG: dict[str, Any] = {
    "run": "lab",
    "benchmarks": {"miniweb": {"source": "questions.jsonl"}},
    "models": {
        "instruct": {"stage": "sft", "init": "owner/model", "data": "questions.jsonl"},
        "grpo": RL,
    },
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and a loss of a user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "my").mkdir()
    (tmp_path / "my/loss.py").write_text(LOSS.format(way="wrong", sign="-"))
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    (tmp_path / "questions.jsonl").write_text('{"id": "1", "question": "1 + 1", "answer": "2"}\n')
    return tmp_path


def designed(seeds: int = 2, **keys: Any) -> Design:
    values = {"question": "Better?", "configs": ["lab.yaml"], "baseline": "grpo", "seeds": seeds}
    return make_design("new", Experiment(**(values | {"arms": {"new": {"method": "my/loss.py"}}} | keys)))


def made(design: Design, skills: dict[str, float]) -> None:
    """Put results of trained and asked models where the design's are looked for; `skills` by arm."""
    run, keys = FakeRun(Path("made")), Keys(design.graph)
    run.model("sft/instruct", None, 3, 2.0, seed=0)
    for arm, names in design.families.items():
        for name in names:
            section = design.graph.config.model_sections[name].model_dump(mode="json")
            steps = section.pop("steps")
            run.model(f"rl/{name}", "sft/instruct", min(steps, 5), 0.1, **section)
            run.evaluation(f"rl/{name}", "chat_cot", skills[arm], 1.0, ("miniweb",))
    for name in run.inputs:
        shutil.move(run.root / name, keys.entry(name).folder)


def test_baseline_and_arms_get_the_same_seeds_and_nothing_that_was_there_is_made_again(lab: Path) -> None:
    design = designed(3)
    grpo, new = ["grpo", "grpo-1", "grpo-2"], ["new-0", "new-1", "new-2"]
    assert design.families == {"grpo": grpo, "new": new}
    sections = design.graph.config.model_sections
    assert [sections[name].seed for name in (*grpo, *new)] == [0, 1, 2] * 2
    assert {sections[name].method for name in new} == {"my/loss.py:METHOD"}
    before, after = Keys(design.plain), Keys(design.graph)
    same = {name for name in design.plain.nodes if before.key(name) == after.key(name)}
    assert design.plain.nodes.keys() - same == {"report"}
    assert design.graph.config.sections["report"].judged == ["instruct", "grpo"]


def test_an_arm_may_switch_a_key_on(lab: Path) -> None:
    design = designed(1, arms={"new": {"mask_truncated": True}})
    assert design.graph.config.model_sections["new-0"].mask_truncated


def test_seeds_that_the_configuration_has_are_taken(lab: Path) -> None:
    models = CONFIG["models"] | {"grpo": RL | {"seeds": [4, 5]}, "other": RL | {"steps": 3}}
    (lab / "lab.yaml").write_text(yaml.safe_dump(CONFIG | {"models": models}))
    assert designed(3, baseline="grpo-5").families["grpo-5"] == ["grpo-5", "grpo-4", "grpo-0"]
    assert designed(1, baseline="grpo-4").overlay["models"].keys() == {"new-4"}


def test_spare_seeds_are_those_whose_names_are_free(lab: Path) -> None:
    models = CONFIG["models"] | {"rl": RL | {"steps": 5}, "rl-1": RL | {"steps": 3}}
    (lab / "lab.yaml").write_text(yaml.safe_dump(CONFIG | {"models": models}, sort_keys=False))
    assert designed(3, baseline="rl").families == {
        "rl": ["rl", "rl-2", "rl-3"],
        "new": ["new-0", "new-2", "new-3"],
    }


def test_patterns_of_judged_models_take_in_no_new_one(lab: Path) -> None:
    (lab / "lab.yaml").write_text(yaml.safe_dump(CONFIG | {"report": {"judged": ["grpo*"]}}, sort_keys=False))
    assert designed().graph.config.sections["report"].judged == ["grpo"]


def test_an_arm_that_is_not_trained_is_refused(lab: Path) -> None:
    plain = {"stage": "sft", "init": "owner/model", "benchmarks": ["miniweb"]}
    (lab / "lab.yaml").write_text(yaml.safe_dump(CONFIG | {"models": {"plain": plain}}))
    with pytest.raises(InputError, match="arms: new: is not trained by one of the stages cpt, sft, rl"):
        designed(baseline="plain", arms={"new": {"train": False}})


def test_an_arm_of_another_stage_starts_from_the_baselines_parent(lab: Path) -> None:
    design = designed(arms={"longer": {"stage": "sft", "data": "questions.jsonl", "steps": 9}})
    nodes = design.graph.config.models
    assert {design.training(name) for name in design.families["longer"]} == {"sft/longer-0", "sft/longer-1"}
    assert nodes["longer-0"].parent == nodes["grpo"].parent == "instruct"


def test_an_arm_with_the_weights_of_the_baseline_is_no_effect(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.5, "new": 0.5})
    keys = Keys(design.graph)
    for model, digest in (("grpo", "a" * 64), ("new-0", "a" * 64)):
        path = keys.entry(f"rl/{model}").manifest
        manifest = json.loads(path.read_text())
        manifest["files"]["model.safetensors"] = [1, digest]
        path.write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="no effect: the weights of new are those of grpo"):
        command.refuse_untouched(design)


def test_an_arm_named_like_the_baseline_is_refused(lab: Path) -> None:
    with pytest.raises(InputError, match="arms: grpo is the baseline's own name; rename the arm"):
        designed(arms={"grpo": {"steps": 3}})


@pytest.mark.parametrize(("words", "message"), TABLES["mistaken"])
def test_an_experiment_that_cannot_be_is_one_line_and_leaves_nothing(
    lab: Path, words: str, message: str
) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["new", "lab.yaml", *words.split()])
    assert str(end.value).startswith(f"error: {message}") and "\n" not in str(end.value)
    assert not (lab / "experiments").exists() and not (lab / "work").exists()


def test_a_file_that_is_damaged_is_named_with_its_key(lab: Path) -> None:
    (lab / "experiments").mkdir()
    (lab / "experiments/new.yaml").write_text("question: Better?\nbaselin: grpo\n")
    with pytest.raises(SystemExit, match="experiments/new.yaml: config key baselin: unknown; did you mean"):
        command.main(["new"])
    with pytest.raises(SystemExit, match="experiments/new.yaml is there; edit it"):
        command.main(["new", "--baseline", "grpo"])


@pytest.mark.parametrize(("skill", "expected", "verdict", "meaning"), TABLES["verdicts"])
def test_verdicts_of_variants_of_known_skill(
    lab: Path, skill: float, expected: str, verdict: str, meaning: str
) -> None:
    design = designed(expected=expected)
    made(design, {"grpo": 0.5, "new": skill})
    found = Findings(design, {})
    row = found.row("new")
    assert row["verdict"] == verdict and meaning in row["meaning"]
    assert row["ci95"][0] < row["difference"] < row["ci95"][1]
    assert verdict == "open" or (row["difference"] > 0) == (skill > 0.5)
    assert f"{100 * row['detectable']:.1f} points" in row["meaning"] or verdict != "open"


def test_a_baseline_that_older_code_made_is_one_side_with_its_new_seeds(lab: Path) -> None:
    design = designed(3)
    made(design, {"grpo": 0.5, "new": 0.9})
    before = Findings(design, {}).row("new")
    file = Keys(design.graph).entry("rl/grpo").manifest
    manifest = json.loads(file.read_text())
    del manifest["config"]["mode"], manifest["config"]["fields"]
    file.write_text(json.dumps(manifest | {"config": manifest["config"] | {"suffix": SUFFIX}}))
    after = Findings(design, {}).row("new")
    assert len(after["comparisons"]) == 1
    assert {key: after[key] for key in ("difference", "ci95", "verdict")} == {
        key: before[key] for key in ("difference", "ci95", "verdict")
    }


def test_what_shares_no_benchmark_is_not_measured(lab: Path) -> None:
    design = designed(benchmarks=["other"])
    made(design, {"grpo": 0.5, "new": 0.9})
    row = Findings(design, {}).row("new")
    assert row["verdict"] == "not measured" and "difference" not in row


def test_answers_on_which_the_grader_failed_give_no_verdict(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.5, "new": 0.9})
    path = Keys(design.graph).entry("evaluate/new-0").data / "miniweb.chat_cot.jsonl"
    rows = list(map(json.loads, path.read_text().splitlines()))
    for row in rows[::20]:
        row["greedy"]["verdict"] = "failed"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    row = Findings(design, {}).row("new")
    assert row["verdict"] == "not measured"
    assert row["meaning"] == "the grader failed on 5% of the answers of new-0 on miniweb."


def test_an_arm_far_behind_after_one_seed_gets_no_other(lab: Path) -> None:
    design = designed(2, stop=0.1)
    made(design, {"grpo": 0.8, "new": 0.1})
    stopped = command.hopeless(design)
    assert "too far behind what is expected: miniweb -" in stopped["new"]
    found = Findings(design, stopped)
    assert found.verdict("new") == "stopped" and found.families == {"grpo": ["grpo"], "new": ["new-0"]}
    made_equal = designed(2, stop=0.1, arms={"other": {"steps": 7}})
    made(made_equal, {"grpo": 0.8, "other": 0.8})
    assert command.hopeless(made_equal) == {}


def test_the_page_and_its_json_outlive_file_and_results(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.3, "new": 0.8})
    page = write_sheet(Findings(design, {})).read_text()
    shutil.rmtree("results/lab")
    shutil.rmtree("my")
    result = json.loads((RESULTS / "new/result.json").read_text())
    assert result["own_files"]["my/loss.py"] == LOSS.format(way="wrong", sign="-")
    assert result["file"]["matters"] == 0.02 and result["baseline"]["models"].keys() == {"grpo", "grpo-1"}
    (arm,) = result["arms"]
    model = arm["models"]["new-1"]
    assert model["configuration"]["seed"] == 1 and model["configuration"]["group_size"] == 64
    assert model["key"] in page and model["evaluation"] in page and "GRPO, pulled the wrong way." in page
    assert "my/loss.py:METHOD" in page
    assert f"new, held: {100 * arm['difference']:+.1f} points (95 % interval" in page
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    assert [trace["name"] for trace in figures["accuracy"]["data"]] == ["grpo", "grpo-1", "new-0", "new-1"]
    colours = [trace["line"]["color"] for trace in figures["accuracy"]["data"]]
    assert colours == ["@1", "@1", "@2", "@2"]
    assert set(re.findall(r'data-figure="(.+?)"', page)) == figures.keys()
    assert "<script>alert" not in page


def test_flipped_questions_are_shown_with_an_answer_of_each_side(lab: Path) -> None:
    design = designed(1)
    made(design, {"grpo": 0.4, "new": 0.6})
    found = Findings(design, {})
    flips = found.flips("new")
    (comparison,) = found.judgements["new"].comparisons
    assert sum(flip.gained for flip in flips) == comparison.gained > 0
    assert sum(not flip.gained for flip in flips) == comparison.lost > 0
    for flip in flips:
        before, after = (flip.answers[name] for name in ("grpo", "new-0"))
        assert (after.verdict == "right") == flip.gained != (before.verdict == "right")
        assert before.text and flip.question


def test_the_index_lists_all_experiments_failures_too(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.3, "new": 0.8})
    write_sheet(Findings(design, {}))
    write_failed(make_design("fails", design.experiment), "the run ended with <code 1>.")
    page = write_index().read_text()
    assert page.count("<li>") == 2 and 'href="new/index.html">new</a><br>new, held: ' in page
    assert 'href="fails/result.json">fails</a><br>new, failed: the run ended with &lt;code 1&gt;.' in page


def test_a_run_that_fails_leaves_what_the_same_file_found_before(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.3, "new": 0.8})
    page = write_sheet(Findings(design, {}))
    before = page.read_bytes(), (RESULTS / "new/result.json").read_bytes()
    assert write_failed(design, "the run ended with code 1.") == page
    assert (page.read_bytes(), (RESULTS / "new/result.json").read_bytes()) == before
    result = write_failed(designed(matters=0.05), "the run ended with code 1.")
    assert json.loads(result.read_text())["arms"][0]["verdict"] == "failed" and not page.exists()


def test_a_profile_says_itself_how_many_cores_it_has(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(command, "conduct", lambda design, options: asked.append(options) or 0)
    for words in ([], ["--profile", "profiles/slurm"], ["--cores", "4"]):
        with pytest.raises(SystemExit, match="0"):
            command.main(["new", "lab.yaml", "--baseline", "grpo", "--set", "steps=3", *words])
        (lab / "experiments/new.yaml").unlink()
    assert asked == [[], ["--profile", "profiles/slurm"], ["--cores", "4"]]


def test_the_forecast_takes_the_baselines_times_for_what_was_never_made(lab: Path) -> None:
    design = designed(2)
    lines = command.forecast_lines(design)
    assert re.match(r"\d+ jobs of a kind that was never timed here", lines[-1]), lines
    keys = Keys(design.graph)
    run = FakeRun(Path("made"))
    run.model("sft/instruct", None, 3, 2.0, seed=0)
    run.model("rl/grpo", "sft/instruct", 3, 0.1, seed=0)
    run.evaluation("rl/grpo", "chat_cot", 0.5, 1.0, ("miniweb",))
    for name in run.inputs:
        shutil.move(run.root / name, keys.entry(name).folder)
    seconds = {}
    for name in ("rl/grpo", "evaluate/grpo"):
        file = keys.entry(name).manifest.with_name("run.json")
        seconds[name] = json.loads(file.read_text())["seconds"]
    lines = command.forecast_lines(design)
    assert lines[-1].startswith(f"6 jobs: {duration(3 * sum(seconds.values()))} one after another"), lines
    assert "never timed" not in lines[-1]


def test_page_and_index_open_in_a_browser_without_an_error(lab: Path) -> None:
    design = designed()
    made(design, {"grpo": 0.3, "new": 0.8})
    pages = [write_sheet(Findings(design, {})), write_index()]
    with browser(lab / "profile") as chromium:
        for page in pages:
            chromium.open(page.absolute().as_uri(), "document.querySelector('h1')")
            assert chromium.js("document.documentElement.scrollWidth <= innerWidth")
        chromium.open(pages[0].absolute().as_uri(), "document.querySelector('.plot .main-svg')")
