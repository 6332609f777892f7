"""What the review's page asks for, and its server. The browser draws texts with formulas as nodes."""

from pathlib import Path
from typing import Any

from pipeline.cli.local_page import LocalServer, fill
from pipeline.cli.review.pages import Pages
from pipeline.cli.review.verdicts import Verdicts, agreement, decided, plain
from pipeline.core.errors import InputError
from pipeline.report.page import TEMPLATES as SHARED

TEMPLATES = Path(__file__).parent / "templates"


class Review:
    """What the page asks for: the queue, a prefix, a page, and a verdict to save. `about`: what the page says
    of the run, and the first iteration that will read the file.
    """

    def __init__(self, pages: Pages, verdicts: Verdicts, about: dict[str, Any]) -> None:
        self._pages, self._verdicts, self.about = pages, verdicts, about

    def start(self, _: dict[str, str]) -> dict[str, Any]:
        """Return the queue, and what `state` says."""
        queue = [{"prefix": prefix} | counts for prefix, counts in self._pages.prefixes.items()]
        who = {"annotator": self._verdicts.annotator, "output": str(self._verdicts.path)}
        return self.about | who | {"queue": queue} | self.state()

    def state(self) -> dict[str, Any]:
        """Return the verdicts so far, agreement and effect. What others said of a prefix is told to
        who has judged it: an opinion that is asked for twice must be given twice.
        """
        me, found = self._verdicts.annotator, self._verdicts.by_prefix()
        given = {
            prefix: {
                "mine": verdicts.get(me, ""),
                "others": {
                    name: verdict if me in verdicts else ""
                    for name, verdict in verdicts.items()
                    if name != me
                },
            }
            for prefix, verdicts in found.items()
        }
        return {
            "verdicts": given,
            "agreement": agreement(found),
            "effect": self._pages.effect(decided(found)),
        }

    def prefix(self, asked: dict[str, str]) -> dict[str, Any]:
        prefix, path = self._known(asked)
        return {"paths": self._pages.paths(prefix), "samples": self._pages.samples(prefix, path)}

    def page(self, asked: dict[str, str]) -> dict[str, Any]:
        prefix, path = self._known(asked)
        return {"text": self._pages.text(asked.get("id", ""), prefix, path)}

    def verdict(self, told: dict[str, Any]) -> dict[str, Any]:
        asked = {name: str(value) for name, value in told.items()}
        _, path = self._known(asked)
        self._verdicts.give(path, asked.get("verdict", ""), asked.get("evidence", ""))
        return self.state()

    def _known(self, asked: dict[str, str]) -> tuple[str, str]:
        """Return the prefix of the queue, and the path below it or itself."""
        prefix, path = asked.get("prefix", ""), asked.get("path") or asked.get("prefix", "")
        if prefix not in self._pages.prefixes or not f"{plain(path)}/".startswith(prefix):
            raise InputError(f"{path!r}: not below a prefix of the queue")
        return prefix, path


def serve(review: Review, port: int) -> LocalServer:
    """Return the server of a review."""
    asked = {"start": review.start, "prefix": review.prefix, "page": review.page}
    return LocalServer(_page, port, asked, {"verdict": review.verdict})


def _page(nonce: str) -> str:
    files = {"style": TEMPLATES / "page.css", "formulas": SHARED / "tex.js", "script": TEMPLATES / "page.js"}
    return fill(TEMPLATES / "page.html", files | {"nonce": nonce})
