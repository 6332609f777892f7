"""The page: one HTML file with its style and script, which asks for the state or holds it.

What models wrote gets into it as text only, and its policy lets the browser run no script but its own.
"""

from pathlib import Path
from typing import Any

from pipeline.pages.local_page import as_json, fill
from pipeline.report.page import script_hash

FOLDER = Path(__file__).parent


def page(state: dict[str, Any] | None, seconds: float) -> str:
    """Return the page; with `state` it shows that and loads itself after `seconds`, else it asks for the
    state.
    """
    script = (FOLDER / "page.js").read_text()
    own = f"script-src {script_hash(script)}; connect-src 'self'"
    refresh = f'<meta http-equiv="refresh" content="{seconds:g}">' if state and seconds else ""
    parts = {"policy": f"default-src 'none'; style-src 'unsafe-inline'; {own}", "refresh": refresh}
    files = {"style": FOLDER / "page.css", "script": script}
    return fill(FOLDER / "page.html", parts | files | {"data": as_json({"state": state, "seconds": seconds})})
