"""The page and summary.json of a whole run, and of parts of one."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from given.reports import report
from report_run import FakeRun, full_run

from pipeline.config.report import ReportSection
from pipeline.core.stage import InputError
from pipeline.report.chapters import summary
from pipeline.report.claims import HELD, VERDICTS
from pipeline.report.material import Material
from pipeline.report.material import read as read_material
from pipeline.report.scores import MARKS, lines, methods_table, readme_table, write_table

CHAPTERS = [
    "summary", "crawl", "corpus", "decontaminate", "tokens", "cpt", "sft", "reward", "rl", "evaluate",
    "samples", "cost", "provenance",
]  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return full_run(tmp_path_factory.mktemp("run")).inputs


@pytest.fixture(scope="module")
def whole(inputs: dict[str, list[str]], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict]:
    return report(inputs, tmp_path_factory.mktemp("report"))


def without_plotly(page: str) -> str:
    """The page without the script of plotly.js, which names addresses it never loads."""
    start = max(re.finditer(r"<script[^>]*>.*?</script>", page, re.DOTALL), key=lambda match: len(match[0]))
    return page.replace(start[0], "")


@pytest.mark.slow
def test_the_page_loads_nothing_from_outside(whole: tuple[str, dict]) -> None:
    page, _ = whole
    own = without_plotly(page)
    assert not re.search(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", own)
    assert not re.search(r"@import|url\(|<link|<iframe|<img|fetch\(|XMLHttpRequest", own)
    policy = unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    assert policy.startswith("default-src 'none'") and policy.count("'sha256-") == 2
    assert page.count("plotly.js v") == 1
    assert len(page.encode()) < 15_000_000


def test_a_run_that_trains_nothing_opens_with_its_corpus(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.web()
    kept = [page for page in run.pages if page["label"] == "math"]
    rows = [{"url": page["url"], "language": page["language"], "status": "kept"} for page in kept]
    rows.append({"url": "https://other.example/", "language": "de", "status": "below_cut"})
    rows.append({"url": "https://books.invalid/0", "language": "en", "status": "kept"})  # a text without URL
    parquet.write_table(arrow.Table.from_pylist(rows), run.node("decontaminate/pages") / "pages.parquet")
    material = read_material(ReportSection(run="test"), run.inputs, None, tmp_path)
    lede = summary.subtitle(material)
    hosts = {page["url"].split("/")[2] for page in kept}
    assert lede.startswith(f"{len(kept) + 1} pages of {len(hosts)} hosts, some ") and "jobs took" not in lede
    chinese = sum(row["language"] == "zh" for row in rows)
    assert f"Chinese {100 * chinese / (len(kept) + 1):.0f} %" in lede
    assert lede.endswith("The clean corpus is results/test/decontaminate/corpus/data/corpus.")
    shown = summary.chapter(material)
    whats = [what for _, what, _ in shown["tiles"]]
    assert whats[:3] == ["pages in the corpus", "words and CJK characters", "languages"]
    assert "recall of math pages never trained on" in whats and shown["corpus_only"]
    assert not any("points" in what or "claims" in what for what in whats)
    material.iterations[-1]["tokens"] = {"pages": 1000}
    assert " tokens: " in summary.subtitle(material)
    assert summary.chapter(material)["tiles"][1][1] == "tokens"


@pytest.mark.slow
def test_pinned_results_are_named(
    inputs: dict[str, list[str]], whole: tuple[str, dict], tmp_path: Path
) -> None:
    page, _ = report(inputs, tmp_path, pins={"cpt/base": "0123456789abcdef"})
    told = "Pinned, so kept although what they were made from may have changed: cpt/base."
    assert told in page and "Pinned" not in whole[0]


@pytest.mark.slow
def test_every_stage_has_its_chapter_in_order(whole: tuple[str, dict]) -> None:
    found = re.findall(r'<section id="([a-z]+)">', whole[0])
    assert found == CHAPTERS
    assert re.findall(r'<li><a href="#([a-z]+)">', whole[0]) == CHAPTERS


def test_every_figure_that_the_page_names_is_there(whole: tuple[str, dict]) -> None:
    data = re.search(r'<script type="application/json" id="figures">(.*?)</script>', whole[0], re.DOTALL)
    figures = json.loads(data[1])
    named = re.findall(r'data-figure="([^"]+)"', whole[0])
    assert len(named) > 15
    assert set(named) <= figures.keys()
    assert all(trace["x"] for figure in figures.values() for trace in figure["data"])


def test_summary_has_the_documented_shape(whole: tuple[str, dict]) -> None:
    summary = whole[1]
    assert summary["run"] == "test"
    score = summary["models"]["grpo"]["miniweb"]["chat_cot"]
    assert {"accuracy", "ci95", "n", "maj@k", "pass@k"} <= score.keys()
    assert score["ci95"][0] <= score["accuracy"] <= score["ci95"][1]
    assert [row["iteration"] for row in summary["corpus"]["iterations"]] == [1, 2, 3]
    assert summary["baselines"]["miniweb"]["difference of the first two numbers"] == 1
    keys = {"id", "statement", "section", "verdict", "evidence"}
    assert summary["claims"] and all(keys <= claim.keys() for claim in summary["claims"])
    assert {claim["verdict"] for claim in summary["claims"]} <= set(VERDICTS)
    judged = [claim for claim in summary["claims"] if claim["verdict"] != "not measured"]
    assert judged and all(claim["detectable"] is not None and 0 <= claim["p_holm"] <= 1 for claim in judged)
    assert summary["cost"]["seconds"] == pytest.approx(sum(summary["cost"]["stages"].values()), abs=1)
    assert summary["cost"]["counters"]["vllm.tokens"] > 0


def test_the_table_of_a_page_holds_the_summarys_scores_and_nothing_else_changes(
    whole: tuple[str, dict], tmp_path: Path
) -> None:
    page, table = tmp_path / "page.md", readme_table(whole[1])
    page.write_text(f"before\n{MARKS[0]}\nan older table\n{MARKS[1]}\nafter\n")
    write_table(page, table)
    assert page.read_text() == f"before\n{MARKS[0]}\n{table}{MARKS[1]}\nafter\n"
    *models, rule = table.splitlines()[2:]
    rows = {row.split("`")[1]: float(re.findall(r"([\d.]+) %", row)[0]) for row in models}
    assert rule == "| best rule without a model | 100.0 % |"  # the fake run's questions are so easy
    shares = [score["chat_cot"]["accuracy"] for score in whole[1]["models"]["grpo"].values()]
    assert rows["grpo"] in [round(100 * share, 1) for share in shares]
    assert list(rows.values()) == sorted(rows.values())
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="page.md: no <!-- scores -->"):
        write_table(page, table)


def test_text_of_models_and_pages_is_escaped(whole: tuple[str, dict]) -> None:
    page, _ = whole
    assert "<script>alert" not in page
    assert "&lt;b&gt;how many apples" in page


def test_models_made_by_other_code_are_flagged(whole: tuple[str, dict]) -> None:
    assert re.search(r"Made by other code than this checkout's: sft/instruct;", whole[0])
    assert whole[0].count("other code</span>") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stages", "chapters"),
    [
        (("crawl", "corpus"), ["summary", "crawl", "corpus", "cost", "provenance"]),
        (("evaluate",), ["summary", "evaluate", "samples", "cost", "provenance"]),
        (("rl",), ["summary", "rl", "cost", "provenance"]),
        ((), ["summary", "cost", "provenance"]),
    ],
)
def test_any_subset_of_stages_gets_a_report(
    inputs: dict[str, list[str]], tmp_path: Path, stages: tuple[str, ...], chapters: list[str]
) -> None:
    part = {key: paths for key, paths in inputs.items() if key.partition("/")[0] in stages}
    page, summary = report(part, tmp_path)
    assert re.findall(r'<section id="([a-z]+)">', page) == chapters
    assert all("truth" not in row for row in summary["corpus"]["iterations"])


@pytest.mark.slow
def test_a_diverged_loss_does_not_break_the_page(inputs: dict[str, list[str]], tmp_path: Path) -> None:
    source = Path(inputs["cpt/base"][0]).parent
    shutil.copytree(source, tmp_path / "cpt")
    with (tmp_path / "cpt/data/metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 9999, "loss": float("nan"), "lr": 1e-4}) + "\n")
    page, _ = report({"cpt/base": [str(tmp_path / "cpt/data")]}, tmp_path)
    data = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1]
    assert "NaN" not in data and "9999" in data


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda data: (data.parent / "manifest.json").unlink(), "manifest.json: not found"),
        (lambda data: (data / "scores.json").write_text("{"), "scores.json: not JSON"),
        (lambda data: (data / "miniweb.chat_cot.jsonl").write_text('{"id": "1"}\n{'), "line 2: not JSON"),
        (lambda data: (data / "miniweb.chat_cot.jsonl").write_text("{}"), "line 1: not a graded question"),
    ],
)
def test_broken_results_give_a_one_line_error(
    inputs: dict[str, list[str]], tmp_path: Path, break_it, message: str
) -> None:
    shutil.copytree(Path(inputs["evaluate/grpo"][0]).parent, tmp_path / "copy")
    break_it(tmp_path / "copy/data")
    with pytest.raises(InputError, match=message) as error:
        read_material(ReportSection(), {"evaluate/grpo": [str(tmp_path / "copy/data")]})
    assert "\n" not in str(error.value)


def test_every_benchmark_has_its_section_with_levels_and_leaks(whole: tuple[str, dict]) -> None:
    page = whole[0][whole[0].index('<section id="evaluate"') :]
    part = page[page.index('id="benchmark-') :].split("</details>")[0]
    assert "By level" in part and "With and without leaked questions" in part and "1 leaked" in part
    rows = re.findall(r"<th>(\d) <small>n = (\d+)</small></th>", part)
    assert [level for level, _ in rows] == ["1", "2", "3"]


def test_the_corpus_chapter_shows_queue_measures_and_card(whole: tuple[str, dict]) -> None:
    page = whole[0]
    part = page[page.index('<section id="corpus"') : page.index('<section id="decontaminate"')]
    for text in (
        "host06.example/notes/&lt;i&gt;1",
        "Pages of &lt;hosts&gt;",
        "held-out hosts",
        "subwords 4 to 6",
    ):
        assert text in part
    assert "divided one by one" in part and "Recall by source" in part
    assert re.search(r"measured: [1-9]\d* pages under prefixes that a reviewer rejected, 0 opted out", part)
    drawn = set(re.findall(r'data-figure="(corpus-[a-z-]+)"', part))
    names = "kept tokens hosts seed truth curve held-out"
    assert drawn == {f"corpus-{name}" for name in names.split()}


def test_the_terminal_shows_every_score_and_every_measured_claim(whole: tuple[str, dict]) -> None:
    _, summary = whole
    shown = [line.split() for line in lines(summary)]
    for model, benchmarks in summary["models"].items():
        for benchmark, modes in benchmarks.items():
            for mode, score in modes.items():
                (row,) = (line for line in shown if line[:3] == [model, benchmark, mode])
                assert row[4] == f"{100 * score['accuracy']:.1f}"
    for method in summary["methods"]:
        task = f"{method['benchmark']} {method['kind']} {100 * method['accuracy'][0]:.1f}"
        assert any(line[0] == method["method"].split()[0] and task in " ".join(line) for line in shown)
    assert summary["methods"]
    verdicts = [claim["verdict"] for claim in summary["claims"]]
    told = [line[0].rstrip(":") for line in shown if line[0].rstrip(":") in VERDICTS]
    assert told == [verdict for verdict in verdicts if verdict != "not measured"] != []
    head, _, *table = methods_table(summary).splitlines()
    names = list(dict.fromkeys(method["method"] for method in summary["methods"]))
    assert [row.split(" | ")[0] for row in table[: len(names)]] == [f"| {name}" for name in names]
    assert {row.count("|") for row in table[: len(names)]} == {head.count("|")}
    measured = [claim for claim in summary["claims"] if claim["verdict"] != "not measured"]
    for line, claim in zip(table[len(names) + 1 :], measured, strict=True):
        said = claim["statement"].partition(";")[0].rstrip(".")
        assert line.startswith(f"- {claim['verdict']}") and line.endswith(f": {said}")


def test_a_method_has_one_row_of_greedy_answers_and_of_votes_on_another_benchmark() -> None:
    method = {"method": "GRPO", "seeds": 1, "learning_rate": 1e-4, "kind": "cot", "gain": None}
    first = method | {"benchmark": "all", "accuracy": [0.5, [0.4, 0.6]], "maj@k": None, "pass@k": None}
    other = {"benchmark": "part", "accuracy": [0.6, [0, 1]], "maj@k": [0.7, [0, 1]], "pass@k": [0.8, [0, 1]]}
    table = methods_table({"methods": [first, method | other], "claims": []}).splitlines()
    assert table[2:] == ["| GRPO | 1 | 0.0001 | 50.0 | 70.0 | 80.0 |  |", ""]


def first_screen(run: FakeRun, **config: object) -> tuple[dict, Material]:
    """What the summary's template is given; what it is made from."""
    material = read_material(ReportSection(run="test", **config), run.inputs)
    return summary.chapter(material), material


def test_a_sabotaged_model_of_ones_own_is_shown_and_changes_no_verdict(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.model("cpt/base", None, 5, 2.0)
    run.model("sft/instruct", "cpt/base", 5, 2.0)
    run.model("rl/grpo", "sft/instruct", 5, 2.0, learning_rate=1)
    for name, skill in (("cpt/base", 0.1), ("sft/instruct", 0.4), ("rl/grpo", 0.8)):
        run.evaluation(name, "chat_cot", skill, 1.0, ("miniweb",))
    _, before = first_screen(run)
    run.model("rl/newloss", "sft/instruct", 5, 2.0, learning_rate=9)
    run.evaluation("rl/newloss", "chat_cot", 0.0, 1.0, ("miniweb",))
    shown, after = first_screen(run, judged=["base", "instruct", "grpo"])
    assert after.summary()["claims"] == before.summary()["claims"]
    assert HELD in {judgement.verdict for judgement in after.claims}
    assert shown["tiles"][0][1] == "points, grpo over instruct"
    assert "newloss" in {row.label for row in shown["headline"]}
    assert ("newloss", "instruct") in {(gain.better, gain.worse) for gain in after.results.gains}


@pytest.mark.slow
def test_claims_that_were_not_measured_are_folded_and_no_evidence_stands_twice(
    whole: tuple[str, dict],
) -> None:
    page, summary = whole
    opened, _, folded = page.partition('class="unmeasured"')
    verdicts = [claim["verdict"] for claim in summary["claims"]]
    assert 'class="claim not-measured"' not in opened
    assert folded.count('class="claim not-measured"') == verdicts.count("not measured") > 0
    alone = [unescape(claim["evidence"]) for claim in summary["claims"] if len(claim["comparisons"]) == 1]
    assert alone and not any(text.split(";")[0] in unescape(page) for text in alone)


@pytest.mark.slow
def test_the_seeds_of_a_model_are_one_line_of_the_summary(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    run.model("sft/instruct", None, 5, 2.0, data="a")
    for seed in (0, 1, 2):
        run.model(f"rl/grpo-{seed}", "sft/instruct", 5, 2.0, seed=seed)
    for name, skill in (("sft/instruct", 0.3), ("rl/grpo-0", 0.5), ("rl/grpo-1", 0.6), ("rl/grpo-2", 0.7)):
        run.evaluation(name, "chat_cot", skill, 1.0, ("miniweb",))
    shown, material = first_screen(run)
    rows = [row for row in shown["headline"] if row.kind != "paper"]
    assert [row.label for row in rows] == ["instruct", "grpo", "gain over instruct"]
    scores = [
        material.results.scores[f"grpo-{seed}"]["miniweb"]["chat_cot"]["accuracy"] for seed in (0, 1, 2)
    ]
    assert rows[1].remark == "mean of 3 seeds"
    assert rows[1].cells[0].value == pytest.approx(100 * sum(scores) / 3)
    for also in ("grpo-0", "rft"):  # one of several last models is no headline
        run.model(f"rl/other-{also}", "sft/instruct", 5, 2.0, seed=0, group_size=len(also))
        run.evaluation(f"rl/other-{also}", "chat_cot", 0.5, 1.0, ("miniweb",))
    more, _ = first_screen(run)
    assert shown["tiles"][0][1] == "points, grpo over instruct"
    assert not any("points" in what for _, what, _ in more["tiles"])
