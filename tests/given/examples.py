"""The examples of the documents, and of formats that stand in tests/data/examples.

An example is a code block whose opening line names a kind of text and a file: "```jsonl sft.jsonl".
"""

import re

from conftest import ROOT

EXAMPLE = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("docs/data.md", "docs/evaluation.md", "CONTRIBUTING.md")
FILES = {path.name: path.read_text() for path in (ROOT / "tests/data/examples").iterdir()}
EXAMPLES = FILES | dict(EXAMPLE.findall("".join((ROOT / name).read_text() for name in PAGES)))
