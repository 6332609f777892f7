"""Formulas in each kind of markup of the web."""

from html import escape
from urllib.parse import quote

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
