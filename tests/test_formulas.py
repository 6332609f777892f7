"""Formulas: every kind of markup gives its TeX with the right delimiters, and nothing beside them is lost."""

from collections import Counter
from html import escape
from urllib.parse import quote

import pytest
from crawl_warcs import text_of

from pipeline.formulas.mathml import mathml_to_tex

INLINE = [r"\frac{a}{b}<1", r"x_1", r"\alpha\le\sum_{k=0}^n k!", r"f\colon A \to B", r"\{x \mid x\neq 0\}"]
DISPLAY = [
    r"\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
    r"f(x) = \begin{cases} 1 & \text{if $x>0$} \\ 0 & \text{else} \end{cases}",
]
MML = '<math xmlns="http://www.w3.org/1998/Math/MathML"{}>{}</math>'


def annotation(tex, display, encoding="application/x-tex"):
    rendered = f'<mrow><mi>x</mi></mrow><annotation encoding="{encoding}">{escape(tex)}</annotation>'
    return MML.format(' display="block"' if display else "", f"<semantics>{rendered}</semantics>")


def katex(tex, display):
    html = f'<span class="katex"><span class="katex-mathml">{annotation(tex, display)}</span>'
    html += '<span class="katex-html" aria-hidden="true"><span class="mord">x</span></span></span>'
    return f'<span class="katex-display">{html}</span>' if display else html


def mathjax2_rendered(tex, display):
    shown = (
        f'<span class="MathJax" data-mathml="{escape(annotation("wrong", display))}"><nobr>x</nobr></span>'
    )
    shown = f'<div class="MathJax_Display">{shown}</div>' if display else shown
    kind = "math/tex; mode=display" if display else "math/tex"
    return f'<span class="MathJax_Preview">x</span>{shown}<script type="{kind}">{tex}</script>'


def mathjax3_rendered(tex, display):
    assistive = f'<mjx-assistive-mml unselectable="on">{annotation(tex, display)}</mjx-assistive-mml>'
    math = '<mjx-math class="MJX-TEX"><mjx-mi><mjx-c class="mjx-c1D465"></mjx-c></mjx-mi></mjx-math>'
    shown = ' display="true"' if display else ""
    return f'<mjx-container class="MathJax" jax="CHTML"{shown}>{math}{assistive}</mjx-container>'


def wikipedia(tex, display):
    kind = "display" if display else "inline"
    image = f'<img src="https://x.org/svg/1" class="mwe-math-fallback-image-{kind}" alt="{escape(tex)}">'
    math = annotation("{\\displaystyle " + tex + "}", display)
    hidden = f'<span class="mwe-math-mathml-{kind}" style="display: none;">{math}</span>'
    return f'<span class="mwe-math-element">{hidden}{image}</span>'


def image(tex, display):
    formula = f'<img class="latex" src="/cache/1.png" alt="{escape(tex)}">'
    return f'<div class="equation">{formula}</div>' if display else formula


def address(service, code=quote):
    def build(tex, display):
        formula = f'<img src="{escape(service + code(tex, safe=""))}" alt="formula">'
        return f"<p>{formula}</p>" if display else formula

    return build


def delimited(*marks):
    inline, display = marks
    return lambda tex, shown: escape((display if shown else inline).replace("TEX", tex))


STACK = '<span class="math-container">{}</span>'
CONFIG_2 = '<script type="text/x-mathjax-config">MathJax.Hub.Config({tex2jax: {%s}});</script>'
CONFIG_3 = "<script>window.MathJax = {tex: {%s}, svg: {fontCache: 'global'}};</script>"
DOLLARS = r"inlineMath: [ ['$','$'], ['\\(','\\)'] ], displayMath: [ ['$$','$$'] ], processEscapes: true"
KINDS = {
    "mathml annotation": (annotation, ""),
    "mathml alttext": (
        lambda tex, shown: MML.format(f' alttext="{escape(tex)}"' + ' display="block"' * shown, "<mi>x</mi>"),
        "",
    ),
    "katex": (katex, ""),
    "mathjax 2 defaults": (delimited(r"\(TEX\)", r"\[TEX\]"), '<script src="MathJax.js"></script>'),
    "mathjax 2 dollars": (delimited("$TEX$", "$$TEX$$"), CONFIG_2 % DOLLARS),
    "mathjax 2 own delimiters": (
        delimited("@TEX@", "[[TEX]]"),
        CONFIG_2 % "inlineMath: [['@','@']], displayMath: [[\"[[\",\"]]\"]]",
    ),
    "mathjax 2 rendered": (mathjax2_rendered, ""),
    "mathjax 3": (delimited("$TEX$", "$$TEX$$"), CONFIG_3 % r"inlineMath: {'[+]': [['$', '$']]}"),
    "mathjax 3 double dollars in a line": (
        delimited("$$TEX$$", r"\[TEX\]"),
        CONFIG_3 % r"inlineMath: [['$$', '$$']], displayMath: [['\\[', '\\]']]",
    ),
    "mathjax 3 rendered": (mathjax3_rendered, ""),
    "katex auto-render": (
        delimited("%TEX%", "$$TEX$$"),
        '<script>renderMathInElement(document.body, {delimiters: [{left: "$$", right: "$$", display: true},'
        ' {left: "%", right: "%", display: false}]})</script>',
    ),
    "script": (lambda tex, shown: f'<script type="math/tex{"; mode=display" * shown}">{tex}</script>', ""),
    "wikipedia": (wikipedia, ""),
    "image alt": (image, ""),
    "codecogs": (address("https://latex.codecogs.com/svg.latex?\\dpi{120}&space;"), ""),
    "wordpress": (address("https://s0.wp.com/latex.php?bg=ffffff&latex="), ""),
    "google chart": (address("https://chart.googleapis.com/chart?cht=tx&chs=1x0&chl="), ""),
    "zhihu": (address("https://www.zhihu.com/equation?tex="), ""),
    "github image": (address("https://render.githubusercontent.com/render/math?math="), ""),
    "stack exchange": (lambda tex, shown: STACK.format(escape(f"$${tex}$$" if shown else f"${tex}$")), ""),
    "gitlab": (
        lambda tex, shown: (
            f'<code class="code math js-render-math" data-math-style="{"display" if shown else "inline"}">'
            f"{escape(tex)}</code>"
        ),
        "",
    ),
    "pandoc": (
        lambda tex, shown: f'<span class="math {"display" if shown else "inline"}">{escape(tex)}</span>',
        "",
    ),
}


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


@pytest.mark.parametrize(
    ("markup", "tex"),
    [
        ("<mi>E</mi><mo>=</mo><mi>m</mi><msup><mi>c</mi><mn>2</mn></msup>", "E = mc^{2}"),
        ("<mi>sin</mi><mo>&#8289;</mo><mi>θ</mi><mo>≤</mo><mi>π</mi>", r"\sin\theta \leq \pi"),
        (
            "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
            "<mfrac><mn>1</mn><mi>i</mi></mfrac>",
            r"\sum_{i = 1}^{n}\frac{1}{i}",
        ),
        (
            "<mo>(</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mi>a</mi></mtd></mtr>"
            "<mtr><mtd><mn>0</mn></mtd><mtd><mi>b</mi></mtd></mtr></mtable><mo>)</mo>",
            r"\begin{pmatrix}1 & a \\ 0 & b\end{pmatrix}",
        ),
        (
            '<mo>{</mo><mtable columnalign="left left"><mtr><mtd><mi>x</mi></mtd>'
            "<mtd><mtext>if </mtext></mtd></mtr>"
            "</mtable>",
            r"\begin{cases}x & \text{if }\end{cases}",
        ),
        ("<mfenced open='[' close=')'><mi>a</mi><mi>b</mi></mfenced>", r"\left[a,b\right)"),
        (
            "<mroot><mi>x</mi><mn>3</mn></mroot><msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt>",
            r"\sqrt[3]{x}\sqrt{a + b}",
        ),
        ("<mover><mi>x</mi><mo>¯</mo></mover><mover><mi>v</mi><mo>→</mo></mover>", r"\bar{x}\vec{v}"),
        ("<mover><mrow><mi>A</mi><mi>B</mi></mrow><mo>¯</mo></mover>", r"\overline{AB}"),
        (
            "<munder><mi>lim</mi><mrow><mi>x</mi><mo>→</mo><mn>0</mn></mrow></munder><mi>f</mi>",
            r"\lim_{x \to 0}f",
        ),
        (
            "<mmultiscripts><mi>X</mi><mi>a</mi><mi>b</mi><mprescripts/><none/><mi>d</mi></mmultiscripts>",
            "{}^{d}X_{a}^{b}",
        ),
        (
            '<msup><mi>f</mi><mo>′</mo></msup><mo>∈</mo><mi mathvariant="double-struck">R</mi>',
            r"f' \in \mathbb{R}",
        ),
        ('<mfrac linethickness="0"><mi>n</mi><mi>k</mi></mfrac>', r"{n \atop k}"),
        ("<msup><mrow><mo>(</mo><mi>x</mi><mo>)</mo></mrow><mn>2</mn></msup>", "(x)^{2}"),
        ("<mo>{</mo><mi>x</mi><mo>}</mo><mo>%</mo>", r"\{x\}\%"),
        ("<mi>ℝ</mi><mo>∖</mo><mi>𝐱</mi>", r"\mathbb{R} \setminus \mathbf{x}"),
    ],
)
def test_presentation_mathml_is_translated(markup, tex):
    assert mathml_to_tex(MML.format("", markup)) == (tex, False)
    prefixed = markup.replace("</", "\0").replace("<", "<m:").replace("\0", "</m:")
    assert mathml_to_tex(f'<m:math display="block">{prefixed}</m:math>') == (tex, True)


CONTENT = "<apply><plus/><ci>x</ci><apply><power/><ci>y</ci><cn>2</cn></apply></apply>"


@pytest.mark.parametrize(
    "markup",
    [
        "<mstack><mn>424</mn><msrow><mo>+</mo><mn>33</mn></msrow><msline/><mn>457</mn></mstack>",
        "<mlongdiv><mn>3</mn><mn>14</mn><mn>42</mn></mlongdiv>",
        f"<mrow>{CONTENT}</mrow>",
        f"<semantics>{CONTENT}<annotation-xml encoding='OpenMath'></annotation-xml></semantics>",
        "<mi>x</mi><unheard-of><mn>2</mn></unheard-of>",
    ],
)
def test_mathml_that_is_not_understood_is_left_out_and_counted(markup):
    removed = Counter()
    text = text_of(f"<p>Let {MML.format('', markup)} be.</p>", removed=removed)
    assert "Let be." in " ".join(text.split()) and removed == {"unread formula": 1}


def test_presentation_beside_content_mathml_is_read():
    shown = "<annotation-xml encoding='MathML-Presentation'><mi>x</mi><mo>+</mo><mi>y</mi></annotation-xml>"
    assert mathml_to_tex(f"<math><semantics>{CONTENT}{shown}</semantics></math>") == ("x + y", False)


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


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "<math><munderover><mo>&#x2211;<!-- ∑ --></mo><mi>i</mi><mi>n</mi></munderover></math>",
            r"$\sum_{i}^{n}$",
        ),
        (
            '<span class="math inline"><em>x</em><sup>2</sup> ≤ <em>y</em><sub>1</sub></span>',
            r"$x^{2} \leq y_{1}$",
        ),
        ('<span class="ztext-math" data-eeimg="1" data-tex="x^2">x²</span>', "$x^2$"),
        ('<img eeimg="2" alt="y^2\\\\" src="//www.zhihu.com/equation?tex=y%5E2">', "$$y^2$$"),
        (
            '<img src="blank.gif" data-src="https://latex.codecogs.com/gif.latex?%5Cfrac%7Ba%7D%7Bb%7D">',
            r"$\frac{a}{b}$",
        ),
        (
            '<img class="Wirisformula" alt="x squared" src="data:x" data-mathml='
            '"«math xmlns=¨http://www.w3.org/1998/Math/MathML¨»«msup»«mi»x«/mi»«mn»2«/mn»«/msup»«/math»">',
            "$x^{2}$",
        ),
        (r'<img alt="\int_0^1 f" src="f.png">', r"$\int_0^1 f$"),
        ('<span class="mjx-chtml"><span class="mjx-math">x</span><math><mi>x</mi></math></span>', "$x$"),
        (
            '<table><tr class="ltx_eqn_row"><td><math alttext="\\displaystyle a_1"></math></td>'
            '<td><math alttext="\\displaystyle=b"></math></td></tr></table>',
            "$$a_1 =b$$",
        ),
        (
            '<mjx-container jax="SVG"><svg><g data-mml-node="math" data-latex="\\frac{a}{b}">'
            '<g data-mml-node="mfrac" data-latex="\\frac{a}{b}"></g></g></svg></mjx-container>',
            r"$\frac{a}{b}$",
        ),
        (
            '<mjx-container jax="CHTML" display="true"><mjx-math><mjx-mi data-latex="a"></mjx-mi>'
            '<mjx-msup data-latex="+b^2"><mjx-mi data-latex="b"></mjx-mi></mjx-msup></mjx-math>'
            "</mjx-container>",
            "$$a +b^2$$",
        ),
        (
            '<img class="equation_image" alt="LaTeX: y=mx+b" data-equation-content="y=mx+b">'
            '<span class="hidden-readable"><math><mi>y</mi></math></span>',
            "$y=mx+b$",
        ),
        (
            '<img alt="x squared" src="eq1.svg" data-mathml="&lt;math&gt;&lt;msup&gt;&lt;mi&gt;x&lt;/mi&gt;'
            '&lt;mn&gt;2&lt;/mn&gt;&lt;/msup&gt;&lt;/math&gt;">',
            "$x^{2}$",
        ),
        (
            '<img title="MathEquation" alt="{&quot;type&quot;:&quot;$&quot;,&quot;code&quot;:'
            '&quot;$\\\\frac{3}{x-1}$&quot;}">',
            r"$\frac{3}{x-1}$",
        ),
        ("$latex x&gt;y_1&amp;bg=fff&amp;s=2$", "$x>y_1$"),
        ('<span class="math">|x|&lt;\\varepsilon</span>', r"$|x|<\varepsilon$"),
        (
            '<span class="texhtml"><i>y</i> = <span class="sfrac"><span class="num"><i>x</i> + 1</span>/'
            '<span class="den"><i>x</i></span></span></span>',
            r"$y = \frac{x + 1}{x}$",
        ),
        (
            '<span class="texhtml"><sup>3</sup>√<span style="border-top:1px solid">2</span>'
            " <b>R</b> <sup>1</sup>⁄<sub>2</sub></span>",
            r"$\sqrt[3]{2} \mathbf{R} \frac{1}{2}$",
        ),
        ('<span class="math math-inline">\\alpha</span>', r"$\alpha$"),
        ('<div class="math math-display">\\beta</div>', r"$$\beta$$"),
        (f'<span class="math math-inline">{katex("x^2", False)}</span>', "$x^2$"),
        (f'<span class="math inline">{katex("x^2", False)}</span>', "$x^2$"),
        (f'<div class="math math-display">{katex("x^2", True)}</div>', "$$x^2$$"),
    ],
)
def test_formulas_of_particular_sites_and_tools(page, expected):
    assert f"前 {expected} 后" in text_of(f"<div>前 {page} 后</div>") or expected in text_of(
        f"<div>{page}</div>"
    )
