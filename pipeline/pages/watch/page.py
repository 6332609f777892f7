"""The page: one HTML file with its style and script, which asks for the state or holds it.

What models wrote gets into it as text only, and its policy lets the browser run no script but its own.
"""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def page(state: dict[str, Any] | None, seconds: float) -> str:
    """Return the page; with `state` it shows that and loads itself after `seconds`, else it asks for the
    state.
    """
    script, style = ((FOLDER / name).read_text() for name in ("page.js", "page.css"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src 'self'"
    )
    refresh = f'<meta http-equiv="refresh" content="{seconds:g}">' if state and seconds else ""
    data = json.dumps({"state": state, "seconds": seconds}).replace("<", "\\u003c")
    parts = {"POLICY": policy, "REFRESH": refresh, "STYLE": style, "SCRIPT": script, "DATA": data}
    text = (FOLDER / "page.html").read_text()
    for name, part in parts.items():
        text = text.replace(f"{{{{ {name} }}}}", part, 1)
    return text
