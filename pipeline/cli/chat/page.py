"""The chat as a page on this machine alone."""

from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from pipeline.cli.chat.model import MODES, Asked, Chat
from pipeline.cli.local_page import LocalServer, fill
from pipeline.core.errors import InputError
from pipeline.evaluate.sampling import Answer
from pipeline.report.page import TEMPLATES, embed

PAGE = Path(__file__).with_name("page.html")


class Server(LocalServer):
    """Serves the page from threads; its questions are answered in the thread that made the sampler."""

    def __init__(self, chat: Chat, port: int, first: Asked) -> None:
        """`first`: how questions are answered until a reader chooses otherwise."""
        super().__init__(self._page, port, {}, {"ask": self._answer})
        self._chat, self._first = chat, first
        self._waiting = SimpleQueue[tuple[Future[Answer], str, Asked] | None]()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Answer in this thread until `shutdown`."""
        Thread(target=super().serve_forever, args=[poll_interval], daemon=True).start()
        while waiting := self._waiting.get():
            answer, question, asked = waiting
            try:
                answer.set_result(self._chat.answer(question, asked))
            except Exception as error:  # told where the request waits
                answer.set_exception(error)

    def shutdown(self) -> None:
        super().shutdown()
        self._waiting.put(None)

    def _page(self, nonce: str) -> str:
        name = Path(self._chat.model.path).parent.name or self._chat.model.path
        values = {"model": name, "mode": self._first.mode, "temperature": self._first.temperature}
        files = {"elements": TEMPLATES / "load.js", "formulas": TEMPLATES / "tex.js", "nonce": nonce}
        return fill(PAGE, files | {key: embed(value) for key, value in values.items()})

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request of the page. Raises InputError for one that is none."""
        try:
            question, mode = str(asked["question"]), str(asked["mode"])
            temperature, seed = float(asked["temperature"]), int(asked["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a request without a proper {error}") from error
        if not question.strip() or mode not in MODES or not 0 <= temperature <= 2 or not 0 <= seed < 2**31:
            raise InputError("ask a question, in a mode of the page, at a temperature from 0 to 2")
        answer: Future[Answer] = Future()
        self._waiting.put((answer, question, Asked(mode, temperature, seed)))
        found = answer.result()
        return {"text": found.text, "tokens": found.tokens, "finish": found.finish_reason}
