"""Text of a page: what plain HTML says about mathematics, whose macros it uses, and what is no content."""

from collections import Counter

import pytest
from crawl_warcs import FILLER, text_of

from pipeline.crawl.boilerplate import remove_lines
from pipeline.crawl.list_numbers import label
from pipeline.crawl.text import extract
from pipeline.formulas.macros import Macros
from pipeline.formulas.signs import Source

OVER = '<span style="border-top:1px solid; padding:0 0.1em">'


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("10<sup>8</sup> and 2<i>t</i><sup>2</sup>", "10^8 and 2t^2"),
        ("<i>x</i><span style='font-size:11pt;vertical-align:super'>2</span>", "x^2"),
        ("<i>a</i><span style='vertical-align: sub'>n</span> + 1", "a_n + 1"),
        ("is <sup>c</sup>&frasl;<sub>a</sub> of it", "is c⁄a of it"),
        ("a <span class='intbl'><em>3</em><strong>8</strong></span>", r"a $\frac{3}{8}$"),
        (
            "<span class='x'><span class=\"fraction\"><span class=top>x<sup>2</sup></span>"
            "<span class=bottom>y</span></span></span>",
            r"$\frac{x^{2}}{y}$",
        ),
        (
            "<table><tr><td rowspan=2>x =</td><td style='border-bottom:1px solid'>a + b</td></tr>"
            "<tr><td>c</td></tr></table>",
            r"$x = \frac{a + b}{c}$",
        ),
        ("6.02×10<SUP>23</SUP>", "6.02×10^{23}"),
        ("x<sub>i</sub><sup>2</sup> + H<sub>2</sub>O", "x_i^2 + H_2O"),
        ("SO<sub>4</sub><sup>2-</sup>", "SO_4^{2-}"),
        ("e<sup>x<sup>2</sup></sup>", "e^{x^2}"),
        ("9.8 m·s<sup>−2</sup>, 5 km<sup>2</sup>", "9.8 m·s^{−2}, 5 km^2"),
        ("(a+b)<sup>2</sup> = a<sup>2</sup>", "(a+b)^2 = a^2"),
        ("sin<sup>2</sup>&nbsp;θ and π<sup>2</sup>", "sin^2\u00a0θ and π^2"),
        ("A<sup>T</sup>, A<sup>-1</sup>, f<sup>(n)</sup>, f<sup>′</sup>", "A^T, A^{-1}, f^{(n)}, f′"),
        ("<sup>14</sup>C decays", "^{14}C decays"),
        ("1<sup>st</sup>, 2<sup>nd</sup>, n<sup>th</sup>, 5<sup>TH</sup>", "1st, 2nd, nth, 5TH"),
        ("90<sup>o</sup>", "90°"),
        ("<sup>1</sup>/<sub>2</sub> and 3<sup>1</sup>⁄<sub>4</sub>", "1/2 and 3 1⁄4"),
        ('shown by Gauss.<sup><a href="#1">3</a></sup>', "shown by Gauss.3"),
        ("shown by Gauss<sup>3</sup> in 1801<sup>4</sup>", "shown by Gauss3 in 18014"),
        ("as said (see above)<sup>2</sup>", "as said (see above)2"),
        ('x<sup class="footnote-ref">1</sup>, Acme<sup>TM</sup>', "x1, AcmeTM"),
        ("证明<sup>1</sup>", "证明1"),
        ("log<sub>2</sub> n, v<sub>max</sub>", "log_2 n, v_{max}"),
        ("2<sup>3</sup>3<sup>2</sup>5, log<sub>2</sub>8", "2^{3}3^{2}5, log_{2}8"),
        ("<i>a<sub>i</sub></i>j, 3<b><sup>4</sup></b>5", "a_{i}j, 3^{4}5"),
        ("<code>2<sup>32</sup></code>", "2^{32}"),
        ('0.<span style="text-decoration: overline">3</span>', r"$0.\overline{3}$"),
        ('1.2<span class="ov">45</span>', r"$1.2\overline{45}$"),
        (f"&radic;{OVER}b<sup>2</sup> − 4ac</span>", r"$\sqrt{b^{2} - 4ac}$"),
        (f"x = −b ± √{OVER}<i>D</i></span>, 2", r"x = −b ± $\sqrt{D}$, 2"),
        (f'<sup style="margin-right: -0.5em">3</sup>√{OVER}x</span>', r"$\sqrt[3]{x}$"),
        ('∛<span style="text-decoration: overline">n+1</span>', r"$\sqrt[3]{n+1}$"),
        ('2√<span class="ov">a<sub>i</sub></span>', r"2$\sqrt{a_{i}}$"),
        (f"√{OVER}<img src=f.png></span>2", "√2"),
        (f"{OVER}total 5</span>", "total 5"),
        ('<font face="Symbol">a &#163; b</font>', "α ≤ β"),
        ('<span style="font-family: Symbol, serif">D</span>x', "Δx"),
        ("<FONT FACE=symbol>p<sup>2</sup></FONT>", "π^2"),
        ('<font face="Symbol">λ</font>, <font face="Symbola">a</font>', "λ, a"),
        ('<span style="font-family: Times, Segoe UI Symbol">a</span>', "a"),
        ("0.3\u0305 and 0.1\u03056\u0305", r"$0.\overline{3}$ and $0.\overline{16}$"),
    ],
)
def test_scripts_and_overlines_of_plain_html_keep_their_meaning(page, expected):
    head = "<style>.ov{color:red;text-decoration:overline}</style>"
    assert f"Let {expected} be" in text_of(f"<p>Let {page} be so.</p>", head)


def test_ordinals_of_romance_languages_stay_text():
    text = text_of(
        "<p>Le 1<sup>er</sup> et le 2<sup>e</sup> du XIX<sup>e</sup>, e<sup>x</sup></p>", lang="fr"
    )
    assert "Le 1er et le 2e du XIXe, e^x" in text


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<ol start=5><li>five</li><li>six</li></ol>", "5. five\n  6. six"),
        ("<ol type=a><li>one</li><li><p>two</p></li></ol>", "a. one\n\n  b. two"),
        ("<ol type=I reversed><li>z</li><li>y</li></ol>", "II. z\n  I. y"),
        ('<ol><li>x</li><li value="7">y</li><li>z</li></ol>', "1. x\n  7. y\n  8. z"),
        (
            '<ol style="list-style-type: lower-roman"><li>p<ol type=A><li>q</li></ol></li></ol>',
            "i. p\n    A. q",
        ),
    ],
)
def test_lists_keep_the_numbers_that_a_browser_shows(page, expected):
    assert expected in text_of(page)


def test_labels_of_lists_are_those_of_html():
    assert [label(n, "a") for n in (1, 26, 27, 703)] == ["a", "z", "aa", "aaa"]
    assert [label(n, "I") for n in (4, 1999)] == ["IV", "MCMXCIX"]
    assert label(0, "a") == "0" and label(-3, "i") == "-3"


DOLLARS = "<script>MathJax = {tex: {inlineMath: [['$', '$']]}}</script>"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (r"$\begin{equation} E = mc^2 \end{equation}$", "$$E = mc^2$$"),
        (r"\(\begin{align} a &= b \end{align}\)", r"$$\begin{align} a &= b \end{align}$$"),
        (r"$$<br /><br />\frac{a}{b}<br />$$", r"$$\frac{a}{b}$$"),
        ("[math]x^2[/math]", "$$x^2$$"),
        ("[imath]y_1[/imath]", "$y_1$"),
        ("[ITEX]z^3[/ITEX]", "$z^3$"),
        (r"$\begingroup$ \(w\) $\endgroup$", "$w$ "),
        (
            '<pre class="code math js-render-math" data-math-style="display"><code>'
            r'<span class="line">\frac{a}{b}</span></code></pre>',
            r"$$\frac{a}{b}$$",
        ),
        (
            r'<span class="math inline">\frac{\hbar^2}{2m} a<em>1 + b</em>2</span>',
            r"$\frac{\hbar^2}{2m} a_1 + b_2$",
        ),
        (r'<span class="katex-inline">\alpha</span>', r"$\alpha$"),
        (r'<div class="katex-block">\beta^2</div>', r"$$\beta^2$$"),
    ],
)
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


@pytest.mark.parametrize(
    ("definitions", "tex", "expected"),
    [
        (r"\(\newcommand{\R}{\mathbf{R}}\)", r"x \in \R", r"x \in \mathbf{R}"),
        (
            r"$\newcommand{\pd}[2]{\frac{\partial #1}{\partial #2}}$",
            r"\pd f{x}",
            r"\frac{\partial f}{\partial x}",
        ),
        (r"\[\def\lr#1{\left(#1\right)} \newcommand{\vx}{\vec x}\]", r"\lr{\vx}", r"\left(\vec x\right)"),
        (r"\(\DeclareMathOperator{\Hom}{Hom}\)", r"\Hom(A, B)", r"\operatorname{Hom}(A, B)"),
        (r"\(\newcommand{\opt}[2][n]{#2_{#1}}\)", r"\opt{a} + \opt[k]b", "a_{n} + b_{k}"),
        ("<script>MathJax = {tex: {macros: {bold: ['{\\\\bf #1}', 1]}}}</script>", r"\bold{v}", r"{\bf v}"),
        ('<script>katex({macros: {"\\\\eps": "\\\\epsilon"}})</script>', r"\eps x", r"\epsilon x"),
        ("", r"\vc{v} \in \R^n, \bfG", r"\mathbf{v} \in \mathbb{R}^n, \mathbf{G}"),
        ("", r"a \lt b", "a < b"),
    ],
)
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
