"""A page for a browser on this machine alone, under a path that nobody can guess: others may use the machine.

A request must name this machine as its host (a page elsewhere whose name is made to mean 127.0.0.1 does not)
and must not come from another page. No path is ever looked up in the file system.
"""

import json
import secrets
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pipeline.core.errors import InputError

LOCAL = ("127.0.0.1", "localhost")
LARGEST = 1 << 16  # bytes of a request
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def fill(page: Path, parts: dict[str, Path | str]) -> str:
    """Return the text of a page with `[[name]]` replaced by each part, a text or the file that holds it."""
    text = page.read_text()
    for name, part in parts.items():
        text = text.replace(f"[[{name}]]", part.read_text() if isinstance(part, Path) else part)
    return text


class LocalServer(ThreadingHTTPServer):
    """Serves `page`, HTML for a nonce, at `address`. Below it, by name, are `asked` (GET) and `told` (POST):
    functions of the query or of a JSON object whose answers, one at a time, go out as JSON. An InputError of
    theirs is an answer, too. `port` 0 takes any that is free.
    """

    daemon_threads = True

    def __init__(
        self,
        page: Callable[[str], str],
        port: int,
        asked: Mapping[str, Answer],
        told: Mapping[str, Answer],
    ) -> None:
        try:
            super().__init__((LOCAL[0], port), Handler)
        except OSError as error:
            raise InputError(f"--port {port}: {error.strerror}") from error
        self.page, self.asked, self.told = page, asked, told
        self.lock, self.place = Lock(), f"/{secrets.token_urlsafe(24)}/"
        self.address = f"http://{LOCAL[0]}:{self.server_port}{self.place}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing where a browser has gone before its answer came."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: LocalServer
    timeout = 60  # seconds of a connection on which nothing comes

    def do_GET(self) -> None:
        if self._refused():
            return
        name, query = self._name()
        if name == "":
            nonce = secrets.token_urlsafe(16)
            self._send(HTTPStatus.OK, self.server.page(nonce), POLICY.format(nonce=nonce))
        else:
            values = {key: found[-1] for key, found in parse_qs(query).items()}
            self._answer(self.server.asked.get(name), values)

    def do_POST(self) -> None:
        if self._refused():
            return
        length = self.headers.get("Content-Length", "")
        try:
            if not length.isascii() or not length.isdigit() or int(length) > LARGEST:
                raise ValueError("its length")
            told = json.loads(self.rfile.read(int(length)))
            if not isinstance(told, dict):
                raise ValueError("no object")
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, {"error": "expected a small JSON object"})
        else:
            self._answer(self.server.told.get(self._name()[0]), told)

    def _name(self) -> tuple[str | None, str]:
        """Return what is asked for below the page, None if it is not below it, and the query."""
        place = urlsplit(self.path)
        below = place.path.startswith(self.server.place)
        return (place.path.removeprefix(self.server.place) if below else None), place.query

    def _refused(self) -> bool:
        """Whether the request is not the page's own; then it is answered."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        allowed = (
            host.rpartition(":")[0] in LOCAL
            and origin in (None, f"http://{host}")
            and self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")
        )
        if not allowed:
            self._send(HTTPStatus.FORBIDDEN, {"error": "open the address that the program printed"})
        return not allowed

    def _answer(self, answer: Answer | None, asked: dict[str, Any]) -> None:
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, {"error": "open the address that the program printed"})
            return
        try:
            with self.server.lock:
                found = answer(asked)
        except (InputError, OSError) as error:
            self._send(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        else:
            self._send(HTTPStatus.OK, found)

    def _send(
        self, status: HTTPStatus, body: str | dict[str, Any], policy: str = "default-src 'none'"
    ) -> None:
        kind = "text/html" if isinstance(body, str) else "application/json"
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in (HEADERS | {"Content-Security-Policy": policy}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing: a line for each request would hide the address."""
