"""Articles as HTML: the page frame of a site and the way it writes formulas.

Formula markup kinds as on the real web: MathJax 2 and 3 (TeX delimiters in the text and a script), KaTeX
rendered on the server (visual spans plus MathML with the TeX in an annotation), MathML, images whose alt text
is TeX, and plain Unicode.
"""

from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from pipeline.miniweb.pages import (
    FORMULA,
    Article,
    Block,
    Code,
    Display,
    Heading,
    Items,
    Paragraph,
    Post,
    Table,
)
from pipeline.miniweb.tex import parse, to_katex, to_mathml, to_plain

MARKUPS = ("mathjax2", "mathjax3", "katex", "mathml", "img-latex", "plain")
LAYOUTS = ("article", "table", "content", "main")

MATHJAX2 = (
    '<script type="text/x-mathjax-config">'
    'MathJax.Hub.Config({tex2jax: {inlineMath: [["$","$"]]}});</script>\n'
    '<script async src="https://cdn.scripts.example/mathjax/2.7.9/MathJax.js?config=TeX-AMS_HTML"></script>'
)
MATHJAX3 = (
    "<script>window.MathJax = {tex: {inlineMath: [['\\\\(', '\\\\)']]}};</script>\n"
    '<script async src="https://cdn.scripts.example/mathjax@3/es5/tex-mml-chtml.js"></script>'
)
KATEX = '<link rel="stylesheet" href="https://cdn.scripts.example/katex@0.16.9/dist/katex.min.css">'
SCRIPTS = {"mathjax2": MATHJAX2, "mathjax3": MATHJAX3, "katex": KATEX}

WORDS = {
    "en": {
        "home": "Home",
        "about": "About",
        "contact": "Contact",
        "search": "Search",
        "more": "More pages",
        "rights": "All rights reserved.",
        "cookies": "This site uses cookies. Continue to agree.",
    },
    "zh": {
        "home": "首页",
        "about": "关于",
        "contact": "联系我们",
        "search": "搜索",
        "more": "更多内容",
        "rights": "版权所有。",
        "cookies": "本网站使用缓存文件，继续浏览表示同意。",
    },
}


@dataclass(frozen=True)
class Site:
    """What all pages of a host share."""

    host: str
    name: str
    language: str
    markup: str
    layout: str
    charset: str
    charset_in_header: bool
    charset_in_page: bool
    server: str
    sections: tuple[str, ...]


def formula(tex: str, kind: str, display: bool = False) -> str:
    """One formula in HTML, in a markup of `MARKUPS`."""
    match kind:
        case "mathjax2":
            return f"$${escape(tex)}$$" if display else f'<span class="math-container">${escape(tex)}$</span>'
        case "mathjax3":
            return f"\\[{escape(tex)}\\]" if display else f"\\({escape(tex)}\\)"
        case "img-latex":
            source = f"https://formulas.images.example/latex.php?latex={quote(tex)}"
            return f'<img class="latex" src="{source}" alt="{escape(tex)}">'
        case "plain":
            return escape(to_plain(parse(tex)))
    tree = parse(tex)
    block = ' display="block"' if display else ""
    if kind == "mathml":
        return f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}>{to_mathml(tree)}</math>'
    return (
        f'<span class="katex{"-display" if display else ""}"><span class="katex-mathml">'
        f'<math xmlns="http://www.w3.org/1998/Math/MathML"{block}><semantics>{to_mathml(tree)}'
        f'<annotation encoding="application/x-tex">{escape(tex)}</annotation></semantics></math></span>'
        f'<span class="katex-html" aria-hidden="true">{to_katex(tree)}</span></span>'
    )


def rich(text: str, kind: str) -> str:
    """Text with formulas as HTML; newlines become line breaks."""
    pieces = FORMULA.split(text)  # text and TeX alternate
    html = [
        escape(piece, quote=False) if i % 2 == 0 else formula(piece, kind) for i, piece in enumerate(pieces)
    ]
    return "".join(html).replace("\n", "<br>\n")


def block_html(block: Block, kind: str) -> str:
    match block:
        case Heading(text):
            return f"<h2>{rich(text, kind)}</h2>"
        case Paragraph(text):
            return f"<p>{rich(text, kind)}</p>"
        case Display(tex):
            return f'<div class="display">{formula(tex, kind, display=True)}</div>'
        case Items(entries, ordered):
            tag = "ol" if ordered else "ul"
            return (
                f"<{tag}>\n" + "\n".join(f"<li>{rich(entry, kind)}</li>" for entry in entries) + f"\n</{tag}>"
            )
        case Table(rows):
            head = "".join(f"<th>{rich(cell, kind)}</th>" for cell in rows[0])
            body = ("".join(f"<td>{rich(cell, kind)}</td>" for cell in row) for row in rows[1:])
            return f"<table>\n<tr>{head}</tr>\n" + "\n".join(f"<tr>{row}</tr>" for row in body) + "\n</table>"
        case Code(text):
            return f"<pre><code>{escape(text, quote=False)}</code></pre>"
        case Post(author, text):
            user = f'<div class="user"><a href="/users/{quote(author)}">{escape(author)}</a></div>'
            return f'<div class="post">{user}\n<div class="post-text"><p>{rich(text, kind)}</p></div></div>'


def frame(site: Site, title: str, head: str, body: str, related: list[tuple[str, str]]) -> str:
    """Return a whole page: head, navigation, content in the site's layout, `related` links (href, text),
    footer.
    """
    words = WORDS[site.language]
    charset = f'<meta charset="{site.charset}">\n' if site.charset_in_page else ""
    navigation = "\n".join(
        f'<li><a href="{path}">{text}</a></li>'
        for path, text in (
            ("/", words["home"]),
            *((section, section.strip("/") or words["more"]) for section in site.sections[:4]),
            ("/about", words["about"]),
        )
    )
    links = "\n".join(f'<li><a href="{href}">{text}</a></li>' for href, text in related)
    main = {
        "article": f'<article class="post-content">\n{body}\n</article>',
        "main": f'<main id="main" role="main">\n{body}\n</main>',
        "content": f'<div id="content" class="content">\n{body}\n</div>',
        "table": f'<table class="layout" width="100%"><tr><td class="main-text">\n{body}\n</td></tr></table>',
    }[site.layout]
    contact = f'<a href="/contact">{words["contact"]}</a>'
    return (
        f'<!DOCTYPE html>\n<html lang="{site.language}">\n<head>\n{charset}'
        f"<title>{title} - {site.name}</title>\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="stylesheet" href="/css/site.css">\n{head}\n</head>\n'
        f'<body>\n<header class="site-header"><a href="/">{site.name}</a></header>\n'
        f'<nav class="menu"><ul>\n{navigation}\n</ul></nav>\n'
        f'<div class="cookie-banner">{words["cookies"]}</div>\n{main}\n'
        f'<aside class="sidebar"><h3>{words["more"]}</h3><ul>\n{links}\n</ul></aside>\n'
        f'<footer class="site-footer">© {site.name}. {words["rights"]} {contact}</footer>\n</body>\n</html>\n'
    )


def render(article: Article, site: Site, related: list[tuple[str, str]]) -> str:
    """Return the HTML of an article on a site."""
    body = "\n".join(
        [
            f"<h1>{rich(article.title, site.markup)}</h1>",
            *(block_html(block, site.markup) for block in article.blocks),
        ]
    )
    title = rich(article.title, "plain")
    return frame(site, title, SCRIPTS.get(site.markup, ""), body, related)


def encode(html: str, charset: str) -> bytes:
    """Bytes in the site's charset; characters that it lacks become numeric references, as editors do."""
    return html.encode(charset, errors="xmlcharrefreplace")
