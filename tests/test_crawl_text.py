"""Text of a page: what plain HTML says about mathematics, whose macros it uses, and what is no content."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from crawl_warcs import FILLER, text_of
from webformulas.macros import Macros
from webformulas.signs import Source

from pipeline.crawl.boilerplate import remove_lines
from pipeline.crawl.list_numbers import label
from pipeline.crawl.text import extract

CASES = tomllib.loads((Path(__file__).parent / "data/page_texts.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("page", "expected"), CASES["scripts"])
def test_scripts_and_overlines_of_plain_html_keep_their_meaning(page, expected):
    head = "<style>.ov{color:red;text-decoration:overline}</style>"
    assert f"Let {expected} be" in text_of(f"<p>Let {page} be so.</p>", head)


def test_ordinals_of_romance_languages_stay_text():
    text = text_of(
        "<p>Le 1<sup>er</sup> et le 2<sup>e</sup> du XIX<sup>e</sup>, e<sup>x</sup></p>", lang="fr"
    )
    assert "Le 1er et le 2e du XIXe, e^x" in text


@pytest.mark.parametrize(("page", "expected"), CASES["lists"])
def test_lists_keep_the_numbers_that_a_browser_shows(page, expected):
    assert expected in text_of(page)


def test_labels_of_lists_are_those_of_html():
    assert [label(n, "a") for n in (1, 26, 27, 703)] == ["a", "z", "aa", "aaa"]
    assert [label(n, "I") for n in (4, 1999)] == ["IV", "MCMXCIX"]
    assert label(0, "a") == "0" and label(-3, "i") == "-3"


DOLLARS = "<script>MathJax = {tex: {inlineMath: [['$', '$']]}}</script>"


@pytest.mark.parametrize(("page", "expected"), CASES["marks"])
def test_formulas_between_unusual_marks_are_read(page, expected):
    text = text_of(f"<div>Before {page} after.</div>", DOLLARS)
    assert " ".join(f"Before {expected} after".split()) in " ".join(text.split())


def test_dollars_that_no_page_declares_enclose_formulas_only_if_nothing_else_can_be_meant():
    page = r"<p>Now $<br />\int_0^1 f<br />$ costs $5 for x_1, or $7 for the second one of the y_2.</p>"
    expected = r"Now $\int_0^1 f$ costs $5 for x_1, or $7 for the second one of the y_2."
    assert expected in text_of(page)


@pytest.mark.parametrize(
    "script",
    [
        'for (const e of document.getElementsByClassName("formula")) katex.render(e.textContent, e)',
        "document.querySelectorAll('.formula').forEach(e => { katex.render(e.innerText, e, {}) })",
        '$(".formula").each(function() { katex.render($(this).text(), this) })',
    ],
)
def test_elements_that_a_script_gives_to_katex_are_formulas(script):
    page = r'<p>Let <span class="formula">\frac{a}{b}</span> be.</p><div class="formula">x^2</div>'
    text = text_of(page, f"<script>{script}</script>")
    assert r"Let $\frac{a}{b}$ be." in text and "$$x^2$$" in text


@pytest.mark.parametrize(("definitions", "tex", "expected"), CASES["macros"])
def test_macros_are_expanded_from_the_page_and_from_common_use(definitions, tex, expected):
    text = text_of(f"<div>{definitions}</div><p>Here \\({tex}\\) holds.</p>", DOLLARS)
    assert f"Here ${expected}$ holds." in text and "newcommand" not in text and "def" not in text


def test_macros_that_grow_without_end_are_bounded():
    pairs = zip("abcdefghijk", "bcdefghijkl", strict=True)
    bomb = "".join(rf"\newcommand{{\{a}}}{{\{b}\{b}\{b}\{b}}}" for a, b in pairs)
    macros = Macros(Source(bomb + r"\newcommand{\x}{\y}\newcommand{\y}{\x}"))
    assert len(macros.expand(r"\a")) <= 20_000 and macros.expand(r"\x") in (r"\x", r"\y")


def test_asciimath_stays_as_it_is_written_and_in_a_script_is_counted():
    removed = Counter()
    page = "<p>Let `x^2/3` be.</p><p>Now <script type='math/asciimath'>x^2/3</script>so.</p>"
    text = text_of(page, '<script src="MathJax.js?config=AM_CHTML"></script>', removed=removed)
    assert "Let `x^2/3` be." in text and "Now so." in text and removed == {"unread formula": 1}


def test_an_underlined_heading_above_a_cell_is_no_fraction():
    table = "<table><tr><td style='border-bottom:1px solid'>Name</td></tr><tr><td>Ann</td></tr></table>"
    assert "Name\nAnn" in text_of(table)


def test_controls_of_question_sites_leave_and_posts_stay():
    removed = Counter()
    post = (
        '<div class="post"><div class="js-voting-container">Vote 17</div><div class="s-prose">'
        "<p>$\\begingroup$ How is {} proved? $\\endgroup$</p></div>"
        '<div class="js-post-menu">Share Cite Improve</div></div>'
    )
    posts = post.format("this") + post.format("that")
    head = '<link rel="stylesheet" href="https://cdn.sstatic.net/Shared/stacks.css">'
    text = text_of(posts + "<h2>Your Answer</h2><p>Post as a guest</p>", head, removed=removed)
    assert text.startswith("How is this proved?") and "How is that proved?" in text
    assert not any(word in text for word in ("17", "group", "Cite", "Your Answer", "guest"))
    assert removed == {"answer form": 2}


def test_lines_that_are_no_content_are_counted_by_reason_and_their_look_alikes_stay():
    gone = ["PrevUpHomeNext", "« Previous | Next »", "Follow us on Facebook", "Share Tweet Email", "余额充值"]
    gone += ["实付 元", "¥1 ¥2 ¥4 ¥6", "Add a comment", "3 votes", "Skip to main content", "\ufffd" * 30]
    kept = [
        "Next we show that",
        "Top",
        "Share the cake equally",
        "votes were counted",
        "余额为 x 元",
        "Home is 3 km away",
    ]
    removed = Counter()
    assert remove_lines("\n".join(gone + kept), removed) == "\n".join(kept)
    assert removed == {
        "navigation": 2, "sharing": 2, "payment": 3, "answer form": 1, "votes": 1, "notice": 1,
        "undecodable": 1,
    }  # fmt: skip


def test_main_content_that_is_a_small_part_of_the_paragraphs_gives_way_to_them():
    menu = "".join(f"<li><a href='/{n}'>Section {n}</a></li>" for n in range(40))
    posts = "".join(
        f"<div class='comment sidebar'><div>Post {n}. A sequence is bounded if all of its terms lie between"
        " two numbers, and it converges if they come together.</div></div>"
        for n in range(30)
    )
    page = f"<ul class=nav>{menu}</ul><main><p>{FILLER * 2}</p></main><div class=sidebar>{posts}</div>"
    html = f"<html><head><style>{'a{}' * 9000}</style></head><body>{page}</body></html>"
    text = extract(Source(html), 100)[1]
    assert all(f"Post {n}." in text for n in range(30)) and "Section 20" not in text


def test_theorems_of_textbooks_stay():
    theorem = (
        '<article class="theorem theorem-like"><h4>Theorem</h4><div>Every tree has a leaf.</div></article>'
    )
    assert "Theorem\n\nEvery tree has a leaf." in text_of(theorem)


def test_a_source_holds_the_words_that_are_in_it_at_any_place():
    for before in range(9):
        source = Source("é" * before + "<MetA math=overline" + "x" * (before % 4))
        assert all(map(source.holds, ("<MetA", "math", "overline", "line")))
        assert not any(map(source.holds, ("<meta", "mathx", "ma=h", "overlinx")))
        assert source.places("<met") == [2 * before]
    assert (
        not Source("").holds("math") and not Source("mat").holds("math") and Source("").places("math") == []
    )
