"""Formulas: every kind of markup gives its TeX with the right delimiters, and nothing beside them is lost."""

from collections import Counter
from html import escape

import pytest
import yaml
from conftest import ROOT
from crawl_warcs import FILLER, text_of
from given.formulas import CONFIG_2, DISPLAY, DOLLARS, INLINE, KINDS, MML
from webformulas.attributes import attribute_formula
from webformulas.mathml import mathml_to_tex
from webformulas.signs import Source

from pipeline.crawl.text import extract

CASES = yaml.safe_load((ROOT / "tests/data/formulas.yaml").read_text())
PUBLIC = yaml.safe_load((ROOT / "tests/extraction/public_markup.yaml").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_formulas_of_each_kind_become_tex_with_the_right_delimiters_and_text_around_survives(kind):
    build, head = KINDS[kind]
    sentences = [f"<p>设 {build(tex, False)} 为 number {i}.</p>" for i, tex in enumerate(INLINE)]
    blocks = [f"<p>前{i}</p>{build(tex, True)}<p>后{i}</p>" for i, tex in enumerate(DISPLAY)]
    text = text_of("".join(sentences + blocks), head)
    for number, tex in enumerate(INLINE):
        assert f"设 ${tex}$ 为 number {number}." in text
    for number, tex in enumerate(DISPLAY):
        before, after = text.index(f"前{number}"), text.index(f"后{number}")
        assert text[before + 2 : after].strip() == f"$${tex}$$"


def test_prices_stay_text_and_formulas_beside_them_are_read():
    page = (
        r"<p>It costs $5 and $10, or $20-$30. Let \(x\) be $5 more than \(y\), i.e. $x = y + 5$ for $ 3.</p>"
    )
    text = text_of(page, CONFIG_2 % DOLLARS)
    assert "It costs $5 and $10, or $20-$30. Let $x$ be $5 more than $y$, i.e. $x = y + 5$ for $ 3." in text
    assert "$5 and $10" in text_of("<p>It costs $5 and $10; see <math><mi>x</mi></math>.</p>")


def test_code_and_tables_survive_and_code_is_not_read_as_formulas():
    page = (
        "<pre>a = $1\n  re.sub('\\(x\\)', \"$$\")</pre>"
        "<p>Use <code>\\[y\\]</code> and <code>$z$</code> for \\(q\\).</p>"
        "<table><tr><td>\\(n\\)</td><td>甲</td></tr><tr><td>1</td><td>\\(n^2\\)</td></tr></table>"
    )
    text = text_of(page, CONFIG_2 % DOLLARS)
    assert "a = $1\n  re.sub('\\(x\\)', \"$$\")" in text
    assert r"Use \[y\] and $z$ for $q$." in text
    assert "$n$\t\t甲\n1\t\t$n^2$" in text


def test_parts_excluded_from_mathjax_stay_text_except_marked_formulas():
    page = r'<div class="tex2jax_ignore">a \(b\) c <span class="math notranslate">\(d\)</span></div>'
    assert r"a \(b\) c $d$" in text_of(page)


def test_environments_without_delimiters_are_displayed():
    tex = r"\begin{align*} a &= b \\ &= c \end{align*}"
    assert f"so $${tex}$$ holds" in text_of(f"<p>so {escape(tex)} holds</p>")
    assert r"$$\begin{align} a \end{align}$$" in text_of(r"<p>so \[\begin{align} a \end{align}\]</p>")


def test_source_of_git_hosts_and_wordpress_is_read():
    text = text_of("<p>Let $<code>a_1</code>$ and $latex b^2$ and $`c`$.</p><p>```math d ```</p>")
    assert "Let $a_1$ and $b^2$ and $c$." in text and "$$d$$" in text


@pytest.mark.parametrize(("markup", "tex"), CASES["presentation"])
def test_presentation_mathml_is_translated(markup, tex):
    assert mathml_to_tex(MML.format("", markup)) == (tex, False)
    prefixed = markup.replace("</", "\0").replace("<", "<m:").replace("\0", "</m:")
    assert mathml_to_tex(f'<m:math display="block">{prefixed}</m:math>') == (tex, True)


@pytest.mark.parametrize("markup", CASES["not_understood"])
def test_mathml_that_is_not_understood_is_left_out_and_counted(markup):
    removed = Counter()
    text = text_of(f"<p>Let {MML.format('', markup)} be.</p>", removed=removed)
    assert "Let be." in " ".join(text.split()) and removed == {"unread formula": 1}


def test_presentation_beside_content_mathml_is_read():
    content = "<apply><plus/><ci>x</ci><ci>y</ci></apply>"
    shown = "<annotation-xml encoding='MathML-Presentation'><mi>x</mi><mo>+</mo><mi>y</mi></annotation-xml>"
    assert mathml_to_tex(f"<math><semantics>{content}{shown}</semantics></math>") == ("x + y", False)


def test_spoken_alttext_is_not_taken_for_tex():
    markup = '<math alttext="x squared"><msup><mi>x</mi><mn>2</mn></msup></math>'
    assert mathml_to_tex(markup) == ("x^{2}", False)


def spans(*classes_and_content):
    """KaTeX's nested spans: the last argument is the content."""
    *classes, content = classes_and_content
    for name in reversed(classes):
        content = f'<span class="{name}">{content}</span>'
    return content


def stack(*entries, deep=False):
    rows = "".join(f'<span style="top:-3em"><span class="pstrut"></span>{entry}</span>' for entry in entries)
    return spans("vlist-t vlist-t2" if deep else "vlist-t", "vlist-r", "vlist", rows)


def test_rendered_katex_without_its_source_is_read():
    power = spans("mord", spans("mord mathnormal", "x") + spans("msupsub", stack(spans("mord", "2"))))
    ratio = spans("mord", "mfrac", stack("b", spans("frac-line", ""), "a", deep=True))
    drawn = f'<span class="katex-html" aria-hidden="true">{power}{spans("mrel", "≤")}{ratio}</span>'
    assert r"让 $x^{2}\leq\frac{a}{b}$ 成立" in text_of(f"<p>让 {spans('katex', drawn)} 成立</p>")
    flat = spans("katex", spans("katex-mathml", "\n n\n !\n \\frac n!\n") + spans("katex-html", "n!"))
    text = text_of(f"<p>设 {spans('katex--inline', flat)} 和</p>{spans('katex--display', flat)}")
    assert r"设 $\frac n!$ 和" in text and r"$$\frac n!$$" in text


@pytest.mark.parametrize(("page", "expected"), CASES["sites_and_tools"])
def test_formulas_of_particular_sites_and_tools(page, expected):
    assert f"前 {expected} 后" in text_of(f"<div>前 {page} 后</div>") or expected in text_of(
        f"<div>{page}</div>"
    )


@pytest.mark.parametrize(
    ("drawn", "unread"),
    [*((drawn, 1) for drawn in CASES["drawn"]), *((drawn, 0) for drawn in CASES["nothing_drawn"])],
)
def test_output_of_mathjax_without_a_source_leaves_no_text_and_its_glyphs_are_counted(drawn, unread):
    removed = Counter()
    text = text_of(f"<p>Before {drawn} y after.</p>", removed=removed)
    assert " ".join(text.split()).startswith("Before y after. ")
    assert removed == Counter({"unread formula": unread})


@pytest.mark.parametrize(("family", "markup", "expected"), PUBLIC["fragments"])
def test_public_markup_gives_the_text_of_a_reader(family, markup, expected):
    post = f"<p>{FILLER * 2} Before.</p>{markup}<p>After. {FILLER}</p>"
    body = PUBLIC["page"].format(title="A page", posts=PUBLIC["post"].format(body=post))
    text = extract(Source(f"<html><head><title>A page</title></head><body>{body}</body></html>"), 100)[1]
    between = text.partition("Before.")[2].partition("After.")[0]
    assert " ".join(between.translate(dict.fromkeys((0x200B, 0xFEFF))).split()) == expected


@pytest.mark.parametrize("attributes", CASES["ordinary_attributes"])
def test_ordinary_attributes_are_no_formulas(attributes):
    assert attribute_formula(attributes) is None
