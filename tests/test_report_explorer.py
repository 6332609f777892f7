"""The files of the page's explorer, and the explorer in Chromium, opened from disk."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import SECONDS, Browser, browser
from given.reports import report
from report_run import QUESTIONS, SAMPLES, FakeRun

from pipeline.report import shards

Inputs = dict[str, list[str]]
SHOWN = "document.querySelectorAll('#browser-list .sample').length"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    run = FakeRun(tmp_path_factory.mktemp("run"))
    parent = None
    for name, mode, skill in (
        ("cpt/base", "few_shot_cot", 0.2),
        ("sft/instruct", "chat_cot", 0.5),
        ("rl/grpo", "chat_cot", 0.7),
    ):
        run.model(name, parent, 5, 2.0)
        run.evaluation(name, mode, skill, 1.0, benchmarks=("miniweb",))
        parent = name
    exemplar = {"question": "What is $1 + 1$? <b>", "solution": r"It is \(2\).", "answer": None}
    folder = Path(run.inputs["evaluate/base"][0])
    (folder / "miniweb.few_shot_cot.exemplars.jsonl").write_text(json.dumps(exemplar) + "\n")
    return run.inputs


@pytest.fixture(scope="module")
def made(inputs: Inputs, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Folder of the report, its files small, so that there are several of each kind; the summary."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "TEXTS", 50)
        patch.setattr(shards, "BYTES", 100_000)
        _, summary = report(inputs, folder)
    return folder / "report", summary


def contents(path: Path, root: Path) -> Any:
    """What a file of the explorer hands to the page; its name is its path below `root`."""
    text = path.read_text()
    start = f'shard("{path.relative_to(root).with_suffix("")}",'
    assert text.startswith(start) and text.endswith(");\n")
    return json.loads(text[len(start) : -len(");\n")])


def test_every_answer_of_every_evaluation_is_in_the_files(inputs: Inputs, made: tuple[Path, Any]) -> None:
    root, _ = made
    for model, mode in (("base", "few_shot_cot"), ("grpo", "chat_cot")):
        source = Path(inputs[f"evaluate/{model}"][0]) / f"miniweb.{mode}.jsonl"
        rows = [json.loads(line) for line in source.read_text().splitlines()]
        folder = root / f"samples/{model}/miniweb.{mode}"
        (index,) = contents(folder / "index.js", root)
        assert len(index["starts"]) > 2
        whole = [contents(folder / f"all-{number}.js", root) for number in range(len(index["starts"]))]
        assert [row for part in whole for row in part] == rows
        assert index["starts"] == [sum(map(len, whole[:number])) for number in range(len(whole))]
        texts = [row for number in range(3) for row in contents(folder / f"text-{number}.js", root)]
        assert [text[2] for text in texts] == [row["greedy"]["text"] for row in rows]
        assert [sum(count for _, count, _ in text[3]) for text in texts] == [SAMPLES] * QUESTIONS
        rights = [sum(sample["verdict"] == "right" for sample in row["samples"]) for row in rows]
        assert (index["right"], index["ids"]) == (rights, [row["id"] for row in rows])


@pytest.fixture(scope="module")
def tab(made: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        address = "#samples?task=miniweb.cot&model=grpo&other=instruct&verdict=right"
        opened.open(f"{(made[0] / 'index.html').as_uri()}{address}", SHOWN)
        yield opened


def count_after(tab: Browser, form: str, **values: Any) -> str:
    """The line above the list of a form after its fields have changed."""
    tab.js(
        f"(form => {{ const line = document.getElementById('{form}-count'); line.textContent = '';"
        f" for (const [name, value] of Object.entries({json.dumps(values)})) form[name].value = value;"
        f" form.dispatchEvent(new Event('input', {{bubbles: true}})); }})(document.getElementById('{form}'))"
    )
    return tab.wait(f"document.getElementById('{form}-count').textContent")


def test_the_explorer_filters_compares_links_and_shows_all_samples(
    made: tuple[Path, Any], tab: Browser
) -> None:
    _, summary = made
    gain = next(
        row for row in summary["comparisons"] if (row["better"], row["benchmark"]) == ("grpo", "miniweb")
    )
    rights = round(QUESTIONS * summary["models"]["grpo"]["miniweb"]["chat_cot"]["accuracy"])
    counted = tab.js("document.getElementById('browser-count').textContent")
    assert counted == f"{rights} of {QUESTIONS} questions"
    assert count_after(tab, "browser", verdict="gained: right, other not").startswith(f"{gain['gained']} of ")
    assert count_after(tab, "browser", verdict="lost: other right, this not").startswith(
        f"{gain['lost']} of "
    )
    assert count_after(tab, "browser", verdict="all", other="") == f"{QUESTIONS} of {QUESTIONS} questions"
    assert tab.js("document.querySelectorAll('#browser-list .sample:first-child .answer').length") == 1
    assert count_after(tab, "browser", other="instruct", level="2").startswith(f"{QUESTIONS // 3} of ")
    assert count_after(tab, "browser", level="", least="999").startswith("0 of ")
    assert count_after(tab, "browser", least="", search="miniweb-0007").startswith("1 of ")
    shown = tab.js("document.querySelector('#browser-list .question').textContent")
    assert "<script>alert(7)</script>" in shown and not tab.js(
        "document.querySelector('#browser-list script')"
    )
    tab.js("document.querySelector('.answer .all').click()")
    assert tab.wait("document.querySelectorAll('.drawn .answer').length") == SAMPLES
    link = tab.js("document.querySelector('.permalink').hash")
    count_after(tab, "browser", search="")
    assert tab.js(SHOWN) > 1
    tab.js(f"location.hash = {json.dumps(link)}")
    tab.wait(f"{SHOWN} === 1")
    assert tab.js("[...document.querySelectorAll('#browser-list .head code')].map(e => e.textContent)") == [
        "miniweb-0007"
    ]


def test_the_explorer_opens_on_questions_that_tell_the_models_apart(
    made: tuple[Path, Any], tab: Browser
) -> None:
    gain = next(row for row in made[1]["comparisons"] if row["better"] == "grpo")
    tab.open("about:blank", "true")
    tab.open((made[0] / "index.html").as_uri(), "document.querySelector('#browser')")
    tab.js("document.querySelector('#browser').scrollIntoView()")
    told = tab.wait("document.getElementById('browser-count').textContent")
    assert told == f"{gain['gained'] + gain['lost']} of {QUESTIONS} questions"


def test_rollouts_are_shown_by_step_and_reward(tab: Browser) -> None:
    count_after(tab, "rollouts")
    found = count_after(tab, "rollouts", policy="grpo", step="1", rewards="rewards differ")
    assert found == "Step 2: 2 of 3 questions, mean reward 0.167"
    assert count_after(tab, "rollouts", rewards="none rewarded").startswith("Step 2: 1 of 3")
    assert tab.js("document.querySelectorAll('#rollouts-list .answer').length") == 4
    assert not tab.js("document.querySelector('#rollouts-list script')")


OUTSIDE = """[...document.querySelectorAll('.tile, .claim, .forest')].flatMap(card => {
  const right = (element) => element.getBoundingClientRect().right;
  const inside = [...card.querySelectorAll('*')].filter(element => !element.closest('.scroll'));
  return inside.filter(element => right(element) > right(card) + 1).map(element => element.textContent);
})"""


def test_numbers_stay_inside_their_cards_and_the_page_inside_its_window(tab: Browser) -> None:
    assert tab.js("document.querySelectorAll('.claim .interval').length") > 1
    for width in (420, 1000, 1300, 1440):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        tab.do("Emulation.setDeviceMetricsOverride", **size)
        tab.wait(f"document.documentElement.scrollWidth <= {width}")  # figures take a moment to follow
        assert tab.js(OUTSIDE) == []


def test_a_figure_is_saved_light_with_its_title_in_the_dark_theme_too(tab: Browser, tmp_path: Path) -> None:
    tab.do("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    tab.js("setTheme('dark'); document.querySelector('figure .save button:last-child').click()")
    deadline = time.monotonic() + SECONDS
    while not (saved := list(tmp_path.glob("*.svg"))):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    drawing = saved[0].read_text()
    assert tab.js("document.querySelector('figure b').textContent") in drawing
    assert 'style="fill: rgb(255, 255, 255); fill-opacity: 1;"' in drawing
    assert tab.js("document.documentElement.dataset.theme") == "dark"
    tab.js("setTheme('light')")


AXE = Path(__file__).parents[1] / ".venv/axe/package/axe.min.js"
SERIOUS = """axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
  .filter(rule => ['serious', 'critical'].includes(rule.impact))
  .map(rule => [rule.id, ...rule.nodes.slice(0, 3).map(node => node.html.slice(0, 120))]))"""


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not there: make test-axe fetches it")
def test_axe_finds_nothing_serious_in_either_theme(tab: Browser) -> None:
    tab.js("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    tab.js(AXE.read_text() + "; 0")
    for theme in ("light", "dark"):
        tab.js(f"setTheme('{theme}')")
        assert tab.js(SERIOUS) == [], theme


def test_the_formulas_of_exemplars_are_drawn_and_their_markup_is_text(tab: Browser) -> None:
    assert tab.js("document.querySelectorAll('.exemplars math').length") == 2
    assert tab.js("document.querySelector('.exemplars').textContent").endswith("What is 1+1? <b>It is 2.")


FORMULAS = {
    r"\frac12x^2": "<mfrac><mn>1</mn><mn>2</mn></mfrac><msup><mi>x</mi><mn>2</mn></msup>",
    r"\boxed{12}": '<mrow class="boxed"><mrow><mn>12</mn></mrow></mrow>',
    r"\text{two words}": "<mtext>two\xa0words</mtext>",
    r"x_1^2": "<msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup>",
    r"\sum_{i=1}^n i": "<munderover><mo>∑</mo>",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr>",
    r"\left(\sqrt[3]{8}\right)": "<mo>(</mo><mroot>",
    r"50%": "<mn>50</mn><mtext>%</mtext>",
    r"\cancelto{1}{5}": r'<code class="tex">\cancelto{1}{5}</code>',
    r"\text{<script>}": "<mtext>&lt;script&gt;</mtext>",
    "{" * 3000: '<code class="tex">{{{',
}
TEXTS = {
    "costs $5 and then $10 more": 0,
    r"so $x$ and \(y\) and \[z\]": 3,
    r"never closed \boxed{3": 0,
    r"is \boxed{\frac{1}{2}}.": 1,
}


def test_formulas_of_texts_become_mathml_and_nothing_becomes_markup(tab: Browser) -> None:
    for source, expected in FORMULAS.items():
        found = tab.js(f"formula({json.dumps(source)}).outerHTML").replace("&nbsp;", "\xa0")
        assert expected in found, source
    for text, formulas in TEXTS.items():
        counted = f"formatted({json.dumps(text)}).filter(node => node.localName === 'math').length"
        assert tab.js(counted) == formulas, text
