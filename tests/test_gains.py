"""The table of `make pretrained`: rules, prompting and controls beside the models, by groups of variants."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from given.lines import write_lines
from report_run import FakeRun

from pipeline.experiments import curves, gains
from pipeline.intervals import by_cluster, estimate_effect
from pipeline.problems import group_variants
from pipeline.report.collect import open_run

STORIES = ["pens", "cups", "hats", "maps", "jars", "nuts", "owls", "pies"]


def rows(right: int) -> list[dict[str, object]]:
    """Eight stories in four variants each, of which the first `right` variants are answered right. The answer
    is the difference of the last two numbers in the first variant of each story alone.
    """
    found = []
    for variant in range(4):
        for place, thing in enumerate(STORIES):
            low, high = 3 + place, 20 + 2 * place
            question = f"On day 2 Ann keeps {low} {thing} in a box of {thing} and {high} {thing} in another."
            verdict = "right" if variant < right else "wrong"
            answer = str(high - low) if variant == 0 else str(1000 + 8 * variant + place)
            row = {"id": f"q{variant}-{place}", "question": question, "reference": answer}
            found.append(row | {"greedy": {"verdict": verdict}, "samples": []})
    return found


def evaluation(run: FakeRun, model: str, right: dict[str, int]) -> None:
    folder = run.node(f"evaluate/{model.partition('/')[2]}", [model], model_stage=model.partition("/")[0])
    for mode, number in right.items():
        write_lines(folder / f"svamp.{mode}.jsonl", rows(number))
    scores = {mode: {"accuracy": number / 4, "ci95": [0, 1], "n": 32} for mode, number in right.items()}
    (folder / "scores.json").write_text(json.dumps({"svamp": scores}))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    found = FakeRun(tmp_path / "results/pretrained")
    found.node("sft/instruct", steps=2)
    found.node("sft/longer-programs", ["sft/instruct"], steps=3)
    for seed in range(3):
        found.node(f"rl/grpo-programs-{seed}", ["sft/instruct"], mode="pal", seed=seed)
        evaluation(found, f"rl/grpo-programs-{seed}", {"chat_pal": 2 + (seed == 2)})
    evaluation(found, "sft/instruct", {"chat_cot": 0, "chat_pal": 1})
    evaluation(found, "sft/longer-programs", {"chat_pal": 2})
    problems = found.node("problems").parent / "manifest.json"
    counts = {"read": 3132, "like_a_benchmark": 145, "like_test": 9, "sft": 1200, "rl": 700}
    problems.write_text(json.dumps(json.loads(problems.read_text()) | {"counts": counts}))
    return found.root


def test_seeds_are_one_row_and_rules_and_controls_stand_beside_them(run: Path) -> None:
    lines = gains.table(run).splitlines()
    assert lines[0] == "| right answers, % | svamp, 32 questions of 8 groups |"
    cells = dict(line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| "))
    assert cells["no model: difference of the last two numbers"].startswith("25.0 [")
    assert cells["instruct, in words"].startswith("0.0 [0.0, ")
    assert cells["instruct, by programs"].startswith("25.0 [")
    assert cells["grpo-programs, by programs (3 seeds)"].startswith("58.3 [")
    found = [line for line in lines if line.startswith("| grpo-programs, by programs | ")]
    over = [line.strip("| ").split(" | ") for line in found]
    assert [(row[1], row[3].split()[0]) for row in over] == [
        ("no model: difference of the last two numbers", "+33.3"),
        ("instruct, by programs", "+33.3"),
        ("longer-programs, by programs", "+8.3"),
    ]
    assert "145 were left out" in lines[-1] and "9 for one of the test part. 1,200 are for SFT" in lines[-1]


def test_a_control_of_one_seed_is_no_parent(run: Path) -> None:
    """Its seed is chance too, so a gain over it is less sure than one over what all seeds started from."""
    rows = [line.strip("| ").split(" | ") for line in gains.table(run).splitlines()]
    found = [row for row in rows if row[0] == "grpo-programs, by programs"]
    bounds = {row[1]: re.findall(r"[+-][\d.]+", row[3]) for row in found}
    width = {name: float(high) - float(low) for name, (_, low, high) in bounds.items()}
    assert width["longer-programs, by programs"] > 2 * 100 * 1.96 * gains.SPREAD
    assert width["instruct, by programs"] < width["longer-programs, by programs"]


def test_one_seed_varies_as_reports_assume() -> None:
    answers = {str(place): float(place % 2) for place in range(4000)}
    none = dict.fromkeys(answers, 0.0)
    ways = gains.Way("rl", [answers], ("rl",)), gains.Way("base", [none], ("base",))
    starts: dict[str, str | None] = {"rl": "base", "base": None}
    found = gains.Benchmark("b", list(answers), list(range(4000)), [], list(ways), starts).estimate(*ways)
    assert found.error > gains.SPREAD


def test_the_table_is_written_between_its_marks(run: Path, tmp_path: Path, monkeypatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- gains -->\nold\n<!-- end of gains -->\nafter\n")
    monkeypatch.setattr(sys, "argv", ["gains", str(run), "--page", str(page)])
    gains.main()
    assert page.read_text() == f"before\n<!-- gains -->\n{gains.table(run)}<!-- end of gains -->\nafter\n"


def test_the_picture_has_a_point_for_each_evaluation_and_the_best_rule_of_the_same_questions(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean over three seeds; 8 of the first 16 questions are differences, which the picture names."""
    asked = [{"id": row["id"], "question": row["question"], "answer": row["reference"]} for row in rows(0)]
    write_lines(tmp_path / "dev.jsonl", asked)
    for seed in range(3):
        folder = run / f"rl/grpo-programs-{seed}"
        reached = [{"step": step, "accuracy": (step + seed) / 40} for step in (0, 5, 15)]
        write_lines(folder / "data/evaluation.jsonl", reached)
        note = json.loads((folder / "run.json").read_text())
        note["inputs"] = {"evaluation": [str(tmp_path / "dev.jsonl")]}
        (folder / "run.json").write_text(json.dumps(note))
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["config"]["evaluation_questions"] = 16
        (folder / "manifest.json").write_text(json.dumps(manifest))
    target = tmp_path / "gains.svg"
    monkeypatch.setattr(sys, "argv", ["gains", str(run), "--picture", str(target)])
    gains.main()
    drawn = ElementTree.fromstring(target.read_text())
    assert len(drawn.findall("{*}circle")) == 3
    words = [text.text for text in drawn.findall("{*}text")]
    assert {"grpo-programs", "no model: difference of the last two numbers", "15"} <= set(words)
    (points,) = curves.curves(open_run(run)).values()
    assert [step for step, _ in points] == [0, 5, 15]
    assert [share for _, share in points] == pytest.approx([0.025, 0.15, 0.4])
    heights = [float(circle.get("cy", "")) for circle in drawn.findall("{*}circle")]
    (dashed,) = [path for path in drawn.findall("{*}path") if path.get("stroke-dasharray")]
    level = float(
        dashed.get("d", "").split()[1].partition("h")[0]
    )  # of the rule, 0.5, above the last point, 0.4
    assert heights == sorted(heights, reverse=True) and level < heights[-1]


def test_a_folder_without_a_run_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gains", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        gains.main()
    assert str(end.value).startswith(f"error: {tmp_path}") and "\n" not in str(end.value)


def test_questions_that_share_eight_words_are_one_group_also_by_way_of_others() -> None:
    start, end = "a b c d e f g {0} h", "i j k l m n o p q"
    questions = [start.format(3), f"{start.format(44)} {end}", end, "r s t u v w x y z", "short", "short"]
    first, second, third, other, *short = group_variants(questions, 8)
    assert first == second == third != other and short[0] == short[1] != other


def test_intervals_of_groups_cover_where_those_of_questions_do_not() -> None:
    """Groups of very different sizes whose questions are all alike, and a true mean of one half."""
    draw, sizes = np.random.default_rng(0), np.array([1, 2, 3, 4, 10, 20] * 10)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    covered = np.zeros(2)
    for _ in range(400):
        values = np.repeat(draw.integers(0, 2, len(sizes)), sizes)[None].astype(float)
        grouped = by_cluster(values, clusters.tolist())
        assert grouped.shape == (1, len(sizes)) and np.isclose(grouped.mean(), values.mean())
        for place, side in enumerate((grouped, values)):
            low, high = estimate_effect([(side, np.zeros((1, side.shape[1])))], matched=True).interval()
            covered[place] += low <= 0.5 <= high
    assert covered[0] / 400 > 0.91 and covered[1] / 400 < 0.6
