"""A web server that fails in every way, for tests that read from it."""

import http.server
import threading
from pathlib import Path

import pytest

from pipeline.crawl import remote, sources


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `files` by ranges; of every four requests three fail, each in another way."""

    files, requests, patient = {}, 0, True

    def do_GET(self):
        type(self).requests += 1
        fault = self.requests % 4 if self.patient else 1
        if fault in (1, 2):
            self.send_response(503 if fault == 1 else 429)
            self.send_header("Retry-After", "7")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        data = self.files.get(self.path)
        if data is None:
            return self.send_error(404)
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        body = data[int(first) : int(last or len(data)) + 1]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(body) - 1}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if fault == 0 else body[: len(body) // 2])  # 3: hangs up in the middle
            self.close_connection = True
        return None

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(monkeypatch):
    """A running server's address; waiting is recorded in `Server.waits`, not done."""
    Server.requests, Server.patient, Server.waits = 0, True, []
    monkeypatch.setattr(remote.time, "sleep", Server.waits.append)
    monkeypatch.setattr(remote, "BLOCK_BYTES", 400)
    monkeypatch.setattr(sources, "BUFFER_BYTES", 400)
    monkeypatch.setattr(remote, "HOLDS", Path("absent", "servers"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


CREDENTIALS = "?X-Amz-Signature=SECRET&token=SECRET"


def with_user(address):
    return address.replace("http://", "http://user:SECRET@")


@pytest.fixture
def server_of_files(monkeypatch):
    """`files[path] = bytes, or a redirect's target`; `files["address"]`, `files["handler"]`."""
    files = {}

    class Answers(Server):
        def do_GET(self):
            if isinstance(target := files.get(self.path), str):
                self.send_response(302)
                self.send_header("Location", target)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            type(self).requests = 3  # the next request is answered
            return super().do_GET()

        do_HEAD = do_GET

    Answers.files, Answers.patient = files, True
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        files["address"], files["handler"] = f"http://127.0.0.1:{server.server_port}/", Answers
        yield files
        server.shutdown()
