"""What the corpus loop decides by: the cut, folds by host, measures, presets, and the normalised text."""

import random

import numpy as np

from pipeline.config.corpus import CorpusSection
from pipeline.corpus.classifier import NAMES, PAPER, scaled, settings
from pipeline.corpus.held_out import divide
from pipeline.corpus.measures import measures, precision_recall
from pipeline.corpus.normalise import _marked, _tokens, normalise
from pipeline.corpus.training_set import LabelledPage


def test_no_host_stands_on_both_sides_of_a_fold_unless_a_class_has_too_few() -> None:
    def example(host: int, page: int, math: bool) -> LabelledPage:
        return LabelledPage(f"https://{host}.example/{page}", f"{host}.example", "", math)

    many = [example(host, page, host % 2 == 0) for host in range(12) for page in range(host + 1)]
    folds = divide(many, 3)
    assert folds.math_by_host and folds.other_by_host
    pairs = {(page.host, fold) for page, fold in zip(many, folds.of, strict=True)}
    assert len(pairs) == 12
    narrow = [example(0, page, True) for page in range(9)] + [page for page in many if not page.math]
    folds = divide(narrow, 3)
    assert not folds.math_by_host and folds.other_by_host
    assert [folds.of[:9].count(fold) for fold in range(3)] == [3, 3, 3]
    assert not divide([*narrow, example(20, 0, True)], 3).math_by_host  # one page teaches a fold nothing


def test_precision_and_recall_follow_the_ranking() -> None:
    precision, recall = precision_recall([True, False, True], [3.0, 2.0, 1.0])
    assert precision.tolist() == [1.0, 0.5, 2 / 3] and recall.tolist() == [0.5, 0.5, 1.0]


def test_measures_tell_calibration_and_what_each_source_loses() -> None:
    def page(host: str, language: str, text: str, math: bool) -> LabelledPage:
        return LabelledPage(f"https://{host}/{text}", host, text, math, language)

    pages = [
        page("a.example", "en", "\\frac x", True),
        page("a.example", "en", "lemma", True),
        page("b.example", "zh", "定 理", True),
        page("b.example", "zh", "\\frac y", True),
        page("c.example", "en", "goal", False),
        page("c.example", "en", normalise("match();"), False),
    ]
    found = measures(pages, [4.0, 3.0, 2.0, -1.0, 0.5, -3.0])
    assert found["pages"] == 6 and found["math_pages"] == 4 and found["threshold"] == 2.0
    assert found["recall"] == found["recall_at_precision_0.9"] == 0.75 and found["precision"] == 1.0
    recall = {(row["kind"], row["source"]): row["recall"] for row in found["sources"]}
    assert recall["language", "en"] == 1.0 and recall["language", "zh"] == 0.5
    assert recall["host", "c.example"] is None and recall["markup", "TeX"] == 0.5
    assert sum(row["other"] for row in found["sources"] if row["source"] == "TeX") == 0  # code is none
    assert [size for _, _, size in found["calibration"]] == [1, 1, 1, 1, 2]
    sure = measures([page("a.example", "en", "x", math) for math in (True,) * 3 + (False,)], [np.log(3)] * 4)
    assert sure["calibration_error"] == 0.0  # probability 3/4, and three of four are mathematical


def test_presets_scale_with_the_pages_up_to_the_papers_and_explicit_keys_win() -> None:
    auto = CorpusSection.model_validate(dict.fromkeys(NAMES, "auto"))
    ladder = [scaled(auto, pages) for pages in (100, 10_000, 100_000, 1_000_000)]
    assert settings(ladder[-1]) == settings(CorpusSection()) == dict(zip(NAMES, PAPER, strict=True))
    assert [section.dimension for section in ladder] == sorted(section.dimension for section in ladder)
    assert [section.epochs for section in ladder] == sorted((s.epochs for s in ladder), reverse=True)
    assert scaled(CorpusSection(dimension="auto", epochs=7), 100).epochs == 7
    assert scaled(CorpusSection(), 100) == CorpusSection()


def test_lines_of_any_characters_give_the_tokens_of_the_whole_text():
    generator = random.Random(0)
    alphabet = [*map(chr, range(128)), *"\\\\\\aZé中Σς\u0301\u0130\u00a0\u2028＼ﬁ\n\n"]
    for _ in range(3000):
        text = "".join(generator.choices(alphabet, k=generator.randrange(60)))
        assert normalise(text) == " ".join(_tokens(_marked(text))), text


def test_normaliser_keeps_tex_and_cjk_characters_and_drops_numbers_and_punctuation() -> None:
    assert normalise("Let \\frac{1}{2}+x\n= 3.5, 数学") == "let \\frac x 数 学"


def test_commands_keep_one_backslash_and_other_backslashes_go():
    assert normalise("\\\\Alpha\\beta \\ \\{x_1\\} a\\") == "\\alpha \\beta x a"


def test_formulas_and_lines_of_code_are_marked_and_prices_are_neither():
    assert normalise("if $x_1 < 2$ then\n$$y = 3$$") == "if \\formula x \\lt then \\formula y \\eq"
    assert normalise("int n = 3;\nreturn n\n}") == "int n \\code return n \\code"
    assert normalise("from $5 to $10") == "from to"
