"""Benchmark texts in pages: found whatever the markup, explained, and not imagined."""

import itertools
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from datatrove.data import Document
from given.cases import cases
from given.instances import graph_of
from given.lines import write_lines
from killing import bytes_of, survives_loss_and_kills

from pipeline.config.decontaminate import DecontaminateSection
from pipeline.config.evaluate import BenchmarkNode
from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import DocumentWriter, read_documents
from pipeline.core.identity import essence
from pipeline.core.stage import run_stage
from pipeline.crawl.grams import grams, runs
from pipeline.decontaminate import __main__ as decontaminate
from pipeline.decontaminate import clean
from pipeline.decontaminate.canonical import canonical
from pipeline.decontaminate.ngrams import BenchmarkIndex, build_index
from pipeline.evaluate.benchmarks import load

TABLES = cases("decontaminate")
ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT.parent / "shared" / "data" / "bench"  # real benchmarks; tests that use them skip without
QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."
OTHER = "A robe takes two bolts of blue fiber and half that much white fiber; how many bolts is that in all?"


def index(*texts: str) -> BenchmarkIndex:
    built = BenchmarkIndex(ngram=10, shortest=3)
    for number, text in enumerate(texts):
        built.add("bench", f"item-{number}", text)
    return built


def test_a_shared_run_of_ten_words_is_found_with_item_gram_and_span() -> None:
    page = "Some words before. NATALIA sold clips - to 48 of her friends in “April”! And more words after it."
    (match,) = index(QUESTION).matches(page)
    assert (match.benchmark, match.item, match.rule) == ("bench", "item-0", "10-gram")
    assert match.gram == "natalia sold clips to 48 of her friends in april"
    assert page[slice(*match.span)].startswith("NATALIA") and page[slice(*match.span)].endswith("April")


def test_nine_shared_words_of_a_long_text_are_no_leak_and_numbers_count() -> None:
    assert not list(index(QUESTION).matches("natalia sold clips to 48 of her friends in june"))
    assert not list(
        index(QUESTION).matches("Natalia sold clips to 49 of her friends in April, and then she left.")
    )


def test_a_short_text_must_match_whole() -> None:
    short = index("Factor the polynomial completely please")
    assert [match.rule for match in short.matches("Now factor the polynomial completely, please.")] == [
        "exact"
    ]
    assert not list(short.matches("factor the polynomial completely"))


def test_texts_under_three_words_are_never_matched() -> None:
    assert len(index("forty two", "42")) == 0


def test_chinese_characters_are_words() -> None:
    question = "妈咪买了3盒茶叶，一盒茶叶有6小包，一共买了多少小包茶叶？"
    (match,) = index(question).matches("练习：妈咪买了3盒茶叶, 一盒茶叶有6小包，问题如下。")
    assert match.gram.startswith("妈 咪 买 了 3 盒")


def test_tables_formulas_and_stock_phrases_are_no_evidence() -> None:
    product = "7\\cdot 6\\cdot 5\\cdot 4\\cdot 3\\cdot 2\\cdot 1"
    solution = f"12+3=15 15-9=6 6-6=0 The answer is 0. 1 2 3 4 5 6 7 8 9 10 11 12 ${product}$"
    page = "6-6=0 the answer is 0. 1 2 3 4 5 6 7 8 9 10 11 and 7\\cdot 6\\cdot 5\\cdot 4\\cdot 3\\cdot 2"
    assert not list(index(solution).matches(page))


def test_windows_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    benchmark = " ".join(rng.choice(words, 40))
    page = " ".join(rng.choice(words, 4000))
    grams = {tuple(benchmark.split()[start : start + 10]) for start in range(31)}
    tokens = page.split()
    expected = any(tuple(tokens[start : start + 10]) in grams for start in range(len(tokens) - 9))
    assert bool(list(index(benchmark).matches(page))) == expected
    planted = f"{page} {' '.join(benchmark.split()[7:17])} {page}"
    assert list(index(benchmark).matches(planted))


def test_equal_runs_and_only_they_have_equal_hashes() -> None:
    text = " ".join(f"w{number % 7} v{number % 3}" for number in range(50))
    found = grams(text)
    words = found.words()
    windows = [tuple(words[start : start + 4]) for start in range(len(words) - 3)]
    hashes = runs(found.hashes, 4).tolist()
    for (run, value), (other, other_value) in itertools.combinations(zip(windows, hashes, strict=True), 2):
        assert (run == other) == (value == other_value)


def test_a_stock_phrase_of_ten_words_is_no_leak() -> None:
    phrase = "is equal to the sum of the squares of the"
    built = index(f"Show that the number {phrase} digits.")
    assert not list(built.matches(f"The hypotenuse {phrase} sides."))


def test_sums_around_a_stock_phrase_in_chinese_are_no_leak() -> None:
    built = BenchmarkIndex(ngram=10, shortest=3)
    built.add("bench", "item", "0+9=9, 9-2=7, 7。答案是 7", is_question=False)
    assert not built.matches("0 + 9 = 9, 9 - 2 = 7, 7 答案是 7")


@pytest.mark.parametrize("question", TABLES["few_words"])
def test_a_question_that_is_all_there_is_found_however_little_of_it_is_words(question: str) -> None:
    assert index(question).matches(f"Exercise 7. {question} See also below.")


FORMULA = (
    r"Let $x$ be positive with $\frac{x}{7} = \sqrt{3}$ and $x^2 \leq 48$."
    r" Find $\sin \left( 2 \pi x \right)$."
)


@pytest.mark.parametrize(
    "written",
    [
        FORMULA.replace(r"\frac", r"\dfrac").replace("=", r"\;=\;"),
        FORMULA.replace(r"\left", "").replace(r"\right", "").replace("x}", r"\displaystyle{x}}"),
        "Let x be positive with x/7 = √3 and x² ≤ 48. Find sin(2 π x).",
        "Let 𝑥 be positive with 𝑥⁄7 = √3 and 𝑥^2 ⩽ 48. Find sin (2·π·𝑥).".replace("⩽", "≤"),
    ],
)
def test_a_formula_is_the_same_in_every_notation(written: str) -> None:
    (match,) = index(FORMULA).matches(f"Exercise. {written} Good luck.")
    assert match.rule == "10-gram" and match.grams == len(canonical(FORMULA))
    assert canonical(written).words(0, 4) == ["let", "x", "be", "positive"]


def test_a_worked_sum_without_the_answers_box_is_no_leak() -> None:
    built = BenchmarkIndex(ngram=10, shortest=3)
    built.add("bench", "item", r"4+9=13 The answer is \boxed{13}.", is_question=False)
    assert built.matches(r"Then 4+9=13 The answer is \boxed{13}.")
    assert not built.matches("Then 4+9=13 The answer is 13.")


CODE = "size(150); pair A=(0,0), B=(4,0), C=(0,3); draw(A--B--C--cycle); label(A, S); dot(B); dot(C);"
HIKE = "Marta hikes due north from camp for 12 miles and then due west for 35 miles, as the sketch shows."


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("[asy]", "[/asy]"),
        ("[asy width=3cm]", "[/asy]"),
        (r"\begin{tikzpicture}[scale=2]", r"\end{tikzpicture}"),
        (r"\begin {pspicture*}", r"\end {pspicture*}"),
        ('<svg viewBox="0 0 9 9">', "</svg>"),
    ],
)
def test_drawing_code_is_no_evidence_but_for_the_rest_of_its_question(begin: str, end: str) -> None:
    drawing = f"{begin}\n{CODE}\n{end}"
    built = BenchmarkIndex(10, 3)
    built.add("bench", "words", f"{HIKE}\n{drawing}\nHow far is it back?")
    built.add("bench", "few words", f"Find $x$.\n{drawing.replace('150', '151')}")
    built.add("bench", "none", drawing.replace("150", "152"))
    built.add("bench", "solution", f"We draw the altitude from the vertex.\n{drawing}", is_question=False)

    def found(text: str) -> set[str]:
        return {match.item for match in built.matches(f"Exercises.\n{text}\nHints are below.")}

    assert found(drawing) == found(f"We hike.\n{drawing}\nHow far is it back?") == found("Find $x$.") == set()
    assert found(f"We draw the altitude from the vertex.\n{drawing}") == set()  # six words and code
    assert found(HIKE) == found(f"{HIKE}\n{drawing}\nHow far is it back?") == {"words"}
    assert found(f"Find $x$.\n{drawing.replace('150', '151')}") == {"few words"}
    assert found(drawing.replace("150", "152")) == {"none"}
    assert built.matches(f"{begin} and {HIKE}"), "a drawing that does not end hides nothing"


def test_a_phrase_that_many_items_use_is_evidence_only_as_part_of_a_long_run() -> None:
    phrase = "find the mean and standard deviation of the random variable"
    built = index(
        *(f"For drawing {number} from box {number}, {phrase} in question {number}" for number in range(40))
    )
    assert not built.matches(f"We now {phrase} of theorem four.")
    assert {match.item for match in built.matches(f"For drawing 17 from box 17, {phrase} again")} == {
        "item-17"
    }


def numbered(text: str, mark: str) -> str:
    """Cut a text into lines of eight words, each after a mark."""
    words = text.split()
    lines = (" ".join(words[start : start + 8]) for start in range(0, len(words), 8))
    return "\n".join(f"{mark.format(number)}{line}" for number, line in enumerate(lines, 1))


@pytest.mark.parametrize(
    "mark", ["{} ", "{}. ", "({}) ", "> ", "> > {:03d}: ", "- ", "* {}) ", "Line {}: ", "| {} | ", "&gt; b) "]
)
def test_a_question_in_marked_lines_is_found(mark: str) -> None:
    (match,) = index(QUESTION).matches(f"Homework.\n{numbered(QUESTION, mark)}\nGood luck.")
    assert match.run[1] - match.run[0] >= len(QUESTION) - 1
    counted = "We had\n12 men and 3 boats there,\n15 men and 4 boats then, and 7 more of both today"
    assert index(counted).matches(counted), "a number that begins a line may be a word"


def test_width_case_accents_and_invisible_characters_make_no_difference_and_spans_hold() -> None:
    page = "Ｎａｔａｌｉａ so\u00adld cli\u0301ps to ４８ of her ﬁne friends in April and then"
    (match,) = index("Natalia sold clips to 48 of her fine friends in April.").matches(f"½ a – {page}")
    assert match.gram == "natalia sold clips to 48 of her fine friends in"
    assert f"½ a – {page}"[slice(*match.run)] == page.removesuffix(" and then")


def stage(folder: Path, *arguments: str) -> list[str]:
    """Command line of the program over the pages in `folder`."""
    inputs = [f"pool={folder / 'pages'}", f"benchmark.bench={folder / 'bench.jsonl'}"]
    command = [sys.executable, "-m", "pipeline.decontaminate", "--output", str(folder / "out")]
    return [*command, *(part for source in inputs for part in ("--input", source)), *arguments]


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Two shards of pages, one of which leaks, and a benchmark."""
    write_lines(tmp_path / "bench.jsonl", [{"id": "q1", "question": QUESTION, "answer": "72"}])
    for shard in range(2):
        with DocumentWriter(tmp_path / f"pages/{shard:04d}.jsonl.zst") as writer:
            for number in range(300):
                text = f"Page {number} of shard {shard}.\nIts second paragraph."
                if (shard, number) == (1, 7):
                    text = f"Before it.\n{QUESTION}\nAfter it."
                metadata = {"url": f"http://a.org/{shard}/{number}", "host": "a.org"}
                writer.write(Document(text, f"{shard}:{number}", metadata=metadata))
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    shards = sorted((folder / "out/corpus").iterdir())
    return {page.id: page.text for shard in shards for page in read_documents(shard)}


@pytest.mark.slow
def test_the_program_alone_removes_the_page_or_only_its_paragraph_and_says_why(pages: Path) -> None:
    for config, left in (({}, None), ({"remove": "segment"}, "Before it.\nAfter it.")):
        subprocess.run(
            stage(pages, "--config", json.dumps(config)), cwd=ROOT, check=True, capture_output=True
        )
        found = texts(pages)
        assert found.get("1:7") == left and len(found) == 599 + bool(left)
        (line,) = map(json.loads, (pages / "out/removals.jsonl").open())
        assert (line["id"], line["benchmark"], line["item"], line["rule"]) == (
            "1:7",
            "bench",
            "q1",
            "10-gram",
        )
        assert line["removed"] == config.get("remove", "page")
        assert (
            f"Before it.\n{QUESTION}"[slice(*line["span"])]
            == "Natalia sold clips to 48 of her friends in April"
        )
        assert "pages share 10 words" in (pages / "out/card.md").read_text()


def cleaned(pages: Path, shard: int) -> list[str]:
    """Arguments of the program for one shard."""
    inputs = f"shard={pages}/pages/{shard:04d}.jsonl.zst", f"benchmark.bench={pages}/bench.jsonl"
    return ["--output", str(pages / f"clean-{shard}"), "--input", inputs[0], "--input", inputs[1]]


@pytest.mark.slow
def test_shards_cleaned_each_by_itself_give_the_bytes_of_one_program_for_all(pages: Path) -> None:
    subprocess.run(stage(pages), cwd=ROOT, check=True, capture_output=True)
    together = bytes_of(pages / "out")
    for shard in range(2):
        run = partial(run_stage, "decontaminate", DecontaminateSection, clean.run, cleaned(pages, shard))
        run()
    survives_loss_and_kills(run, pages / "clean-1", numbers=(1, 2))
    shards = (word for shard in (0, 1) for word in ("--input", f"cleaned={pages}/clean-{shard}"))
    command = ["--input", f"pool={pages}/pages", "--output", str(pages / "gathered"), *shards]
    run_stage("decontaminate", DecontaminateSection, decontaminate.run, command)
    apart = bytes_of(pages / "gathered")
    assert apart.keys() == together.keys() and len(together) == 5
    assert {name for name in apart if apart[name] != together[name]} == {"manifest.json"}
    counts = (json.loads(found["manifest.json"])["counts"] for found in (apart, together))
    assert next(counts) == next(counts)


@pytest.mark.slow
def test_a_killed_run_leaves_nothing_and_the_next_one_gives_the_same_bytes(pages: Path) -> None:
    words = stage(pages)[3:]
    run = partial(run_stage, "decontaminate", DecontaminateSection, decontaminate.run, words)
    run()
    survives_loss_and_kills(run, pages / "out", numbers=(1, 3, 4, 5))


@pytest.mark.slow
def test_a_row_without_a_question_is_an_error_that_names_its_line(pages: Path) -> None:
    (pages / "bench.jsonl").write_text('{"id": "q1", "title": "text"}\n')
    done = subprocess.run(stage(pages), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "bench.jsonl: line 1: a benchmark row needs" in done.stderr


@pytest.mark.parametrize("as_list", [False, True])
def test_a_short_question_counts_with_its_choices(tmp_path: Path, as_list: bool) -> None:
    """The stem alone may be any heading; a longer question counts alone."""
    choices = {"A": "a clustering", "B": "a regression", "C": "a projection", "D": "none of these"}
    given = list(choices.values()) if as_list else choices
    rows = [
        {"id": "short", "question": "The K-means algorithm:", "choices": given},
        {"id": "long", "question": QUESTION, "choices": given},
    ]
    write_lines(tmp_path / "bench.jsonl", rows)
    built = build_index({"benchmark.b": [str(tmp_path / "bench.jsonl")]}, DecontaminateSection())
    assert not built.matches("The K-means algorithm: it moves centres to means until nothing moves.")
    for form in ("({}) {} ", "\n{}. {}"):
        quiz = "The K-means algorithm: " + "".join(form.format(*choice) for choice in choices.items())
        assert [match.item for match in built.matches(f"Quiz. {quiz} Good luck.")] == ["short"]
    assert [match.item for match in built.matches(QUESTION)] == ["long"]


def test_a_question_is_found_in_the_column_that_the_benchmark_names(tmp_path: Path) -> None:
    files = {"own": [{"id": "1", "task": QUESTION}], "usual": [{"id": "2", "question": OTHER}]}
    source = {name: str(write_lines(tmp_path / f"{name}.jsonl", rows)) for name, rows in files.items()}
    fields = {"own": {"question": "task"}}
    built = build_index(
        {f"benchmark.{name}": [path] for name, path in source.items()}, DecontaminateSection(fields=fields)
    )
    assert [match.benchmark for match in built.matches(f"{QUESTION}\n{OTHER}")] == ["own", "usual"]


def test_a_question_without_an_id_has_one_name_in_decontamination_and_evaluation(
    tmp_path: Path,
) -> None:
    """Of several sources, of rows of another split, with a column of ids that is empty."""
    train, test = {"answer": "1", "split": "train"}, {"answer": "1", "split": "test"}
    first = [train | {"question": f"{OTHER} {word}"} for word in ("one", "two")]
    second = [test | {"question": "What is next?"}, test | {"question": QUESTION, "id": None}]
    paths = [str(write_lines(tmp_path / f"{n}.jsonl", rows)) for n, rows in enumerate((first, second))]
    (match,) = build_index({"benchmark.own": paths}, DecontaminateSection()).matches(QUESTION)
    asked = {item.id: item.question for item in load("own", BenchmarkNode(source=paths, split="test"), paths)}
    assert asked[match.item] == QUESTION and len(asked) == 2


def test_the_columns_of_a_benchmark_reach_the_programs_that_keep_it_out_and_only_they_are_in_their_keys(
    tmp_path: Path,
) -> None:
    path = str(write_lines(tmp_path / "rows.jsonl", [{"task": QUESTION}]))
    found = []
    for fields in ({"question": "task"}, {}):
        benchmarks = {"own": {"source": path, "fields": fields}, "usual": {"source": path}}
        sources = {"sources": {"web": {"data": path, "decontaminate": True}}}
        corpus = {"seed_texts": path, "background_texts": path}
        given = {"benchmarks": benchmarks, "mixtures": {"m": sources}, "corpus": corpus}
        nodes = graph_of(crawl={"texts": path}, **given).nodes
        for name in ("decontaminate/clean-0000", "tokens/m"):
            found.append(essence(nodes[name].kind.model_validate(nodes[name].section)).get("fields"))
    assert found == [{"own": {"question": "task"}}] * 2 + [None] * 2


@pytest.mark.slow
@pytest.mark.skipif(not BENCH.exists(), reason="the real benchmark files are not here")
def test_real_questions_are_found_and_other_questions_are_not_taken_for_them() -> None:
    rows = {
        name: [row for _, row in read_rows(str(BENCH / f"{name}.jsonl.gz"))]
        for name in ("gsm8k_test", "math500", "cmath_test", "mgsm", "gsm8k_train")
    }
    built = BenchmarkIndex(ngram=10, shortest=3)
    for name, items in rows.items():
        for item in items if name != "gsm8k_train" else ():
            built.add(name, item["id"], item["question"])
    for item in rows["gsm8k_test"][::7]:
        assert built.matches(numbered(item["question"], "{}. "))
    for name, items in rows.items():
        found = [built.matches(f"Now, {item['question']} Indeed.") for item in items[::7]]
        if name == "gsm8k_train":  # other questions of the same kind
            assert sum(map(bool, found)) <= 0.005 * len(found)
        else:
            assert all(found)
