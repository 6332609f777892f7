"""What surrounds the content of a page: elements of known site software, lines that only steer or advertise.

Resiliparse leaves out navigation, sidebars and footers by their markup. This adds what it keeps: controls
inside of posts, payment dialogs, and lines. `boilerplate.toml` lists them. Lines are counted by reason.
"""

import re
import tomllib
from collections import Counter
from pathlib import Path

from resiliparse.parse.html import HTMLTree

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WORDS = {name.upper(): "|".join(TABLE[name]) for name in ("navigation", "networks")}
REASONS = {f"r{number}": reason for number, reason in enumerate(TABLE["lines"])}
PATTERN = re.compile(
    re.sub(
        "|".join(WORDS),
        lambda name: WORDS[name[0]],
        "|".join(f"(?P<{name}>{'|'.join(TABLE['lines'][reason])})" for name, reason in REASONS.items()),
    ),
    re.IGNORECASE,
)
DECORATION = "«»‹›<>←→⇐⇒↑↓|·•*_-–—=+[]() \t\xa0"
HEAD = 10_000  # characters
MAX_LINE = 120
UNDECODED = "\ufffd" * 8
PILCROW = re.compile("¶$", re.MULTILINE)
GROUPS = re.compile(r"\$\\(?:begin|end)group\$[ \t]*")


def remove_elements(tree: HTMLTree, html: str) -> None:
    """Remove the controls of known site software from a page."""
    for sign, selectors in TABLE["elements"].items():
        if html.find(sign, 0, HEAD) >= 0:
            for node in tree.document.query_selector_all(selectors)[:]:
                if node.parent is not None:
                    node.decompose()


def remove_lines(text: str, removed: Counter[str]) -> str:
    """Text without lines that are no content; adds to `removed`, by reason."""
    if "group$" in text:
        text = GROUPS.sub("", text)
    if "¶" in text:  # links to a heading
        text = PILCROW.sub("", text)
    undecoded = UNDECODED in text
    kept = []
    for line in text.split("\n"):
        if len(line) <= MAX_LINE and (match := PATTERN.fullmatch(line.strip(DECORATION))):
            removed[REASONS[match.lastgroup or ""]] += 1
            continue
        if undecoded and UNDECODED in line:
            removed["undecodable"] += 1
            continue
        kept.append(line)
    return "\n".join(kept) if removed else text
