"""Pages that are never kept, however they score: their owners opted out, or a reviewer found that what
stands under their prefix is not mathematical.
"""

from collections.abc import Iterable

from pipeline.corpus.lists import Annotations, place

OPT_OUT, NOT_MATH = "opt_out", "not_math"


class Exclusion:
    """Why a URL is never kept. Whoever opted out is not asked what reviewers think."""

    def __init__(self, opted_out: Iterable[str], annotations: Annotations) -> None:
        self._opted_out = Annotations({place(prefix): OPT_OUT for prefix in opted_out})
        self._annotations = annotations

    def reason(self, url: str) -> str | None:
        """`OPT_OUT` or `NOT_MATH`; None if nothing speaks against it."""
        if self._opted_out.find(url):
            return OPT_OUT
        found = self._annotations.find(url)
        return NOT_MATH if found and found[1] == NOT_MATH else None
