"""A real browser for tests: Debian's Chromium, without a window, told what to do by its DevTools protocol.

It speaks through two pipes, so no package, port or driver is needed.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120.0  # a busy machine starts a browser slowly
KEYS = {"ArrowDown": 40, "ArrowUp": 38}


class Browser:
    """One page of the browser."""

    def __init__(self, told: int, heard: int) -> None:
        self._told, self._heard = os.fdopen(told, "wb", buffering=0), os.fdopen(heard, "rb", buffering=0)
        self._number, self._rest, self._session = 0, b"", ""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        self._told.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = self._heard.read(1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def js(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Its value once it is true, if it is no object. Fails after SECONDS."""
        deadline = time.monotonic() + SECONDS
        while not self.js(f"Promise.resolve({expression}).then(Boolean)"):
            assert time.monotonic() < deadline, f"never true: {expression}"
            time.sleep(0.05)
        return self.js(expression)

    def open(self, url: str, ready: str) -> None:
        """Open an address; `ready` is true when the page is."""
        self.do("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && ({ready})")

    def press(self, key: str) -> None:
        text = {} if key in KEYS else {"text": key}
        code = {"windowsVirtualKeyCode": KEYS.get(key, 0)}
        self.do("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.do("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def click(self, selector: str) -> None:
        """Click the middle of an element that can be seen."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.js(f"(box => [box.x + box.width / 2, box.y + box.height / 2])({box})")
        for kind in ("mousePressed", "mouseReleased"):
            self.do("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile folder of its own; skips the test where Chromium is not installed."""
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    heard_by_it, told = os.pipe()
    heard, told_by_it = os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
    options += ["--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage"]
    command = [program, *options, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{heard_by_it} 4>&{told_by_it}', "bash", *command],
        pass_fds=(heard_by_it, told_by_it),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(heard_by_it)
    os.close(told_by_it)
    try:
        yield Browser(told, heard)
    finally:
        process.kill()
        process.wait()
