"""Fit README and CONTRIBUTING into the site of `make site`, whose other pages are those of this folder."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def in_site(text: str, folder: Path) -> str:
    """Rewrite the links of a page that lies in `folder`: to pages of the site; else only their text stays."""

    def link(match: re.Match[str]) -> str:
        path = (folder / match[3]).resolve()
        name = PAGES.get(path.name, path.name) if path.parent in (ROOT, ROOT / "docs") else ""
        if path.parent == ROOT and path.name not in PAGES or not name:
            return match[2]
        return f"{match[1]}[{match[2]}]({name}{match[4] or ''})"

    return LINK.sub(link, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the two pages that lie above this folder."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=in_site((ROOT / source).read_text(), ROOT)))
    return files


def on_page_markdown(markdown: str, page: object, **_: object) -> str:
    """Rewrite the links of the other pages."""
    return in_site(markdown, ROOT / "docs")
